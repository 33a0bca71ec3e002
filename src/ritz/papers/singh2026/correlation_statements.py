"""Statements about the sharpness and the trace of two layers in Fig. 4, 14-16 and 26, with their measures.

A measure takes the numbers of one reading; each statement is judged for all readings (`network_readings`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...record import Record
from ..frame.readings import ByReading
from ..frame.statements import Statement, at_least, at_most, each
from . import network_readings, paper
from .network_readings import by_reading, lead_reasons
from .trained_networks import FROBENIUS, INITIAL, NAMES, NORMS, SPECTRAL, TRAINED, Name
from .two_layer_coefficients import best_layer, best_of_all, disagreement, margins, matrix_lead, shares_most, sizes

MOST = at_least(0.8, partly=0.5)  # share of D > 1 at which a norm has the highest coefficient of the three
STRONG = at_least(0.7, partly=0.4)  # what "strong" is taken to mean, of a coefficient
WELL = at_least(0.6, partly=0.4)  # "both … correlate well": two independent halves of a sum have 1/√2 with it
WEAK = at_most(0.5, partly=0.7)  # "none of them correlates strongly"
LEADS = at_least(0.3, partly=0.1)  # by how much the matrix that drives the correlation has the higher coefficient
BETTER = at_least(0.05, partly=0.0)  # by how much training raises a coefficient's lead
LARGER = at_least(0.05, partly=-0.05)  # by how much alignment correlates better than norms
DIFFERS = at_least(0.1, partly=0.0)  # by how much one matrix leads in one parametrisation and the other in another
QUARTER = (0.25, 0.75)  # "between 0.25 and 0.75"
EVERYWHERE = at_least(0.9, partly=0.5)  # share of the sizes
BOUND = at_least(0.99, partly=0.9)  # of the networks
NEAR = at_most(0.05, partly=0.2)  # relative error of an approximation
SMALL = 10  # D up to which there are few inputs and outputs; open

_TIE = "Another norm correlates as well or better: all three grow together where the matrix grows."
_PAIR: tuple[Name, ...] = ("SP", "μP")  # the parametrisations of Fig. 4


def says(
    statement: str, *, measured: Callable[[Record], Any], relu: bool = False, by: bool = True, **rest: Any
) -> Statement:
    """A statement judged for every reading, unless its subject exists for one only."""
    readings = network_readings.RELU if relu else network_readings.LINEAR
    measure: Callable[[Record], ByReading | Any] = by_reading(measured, readings) if by else measured
    return paper.says(statement, measured=measure, **rest)


def lowest(record: Record) -> dict[str, float]:
    """The least coefficient of the spectral norm of the better layer after training, over all sizes."""
    return {
        f"{name}, lowest over D": float(best_layer(record, "norms", name, TRAINED, SPECTRAL).min()) for name in _PAIR
    }  # fmt: skip


def prominence(record: Record) -> dict[str, float]:
    """How much training increases the lead of the spectral norm over the other norms."""
    leads = {name: [margins(record, "norms", name, SPECTRAL, stage) for stage in (INITIAL, TRAINED)] for name in _PAIR}
    return {f"{name}, median over D > 1": float(np.median(end - start)) for name, (start, end) in leads.items()}


def differences(record: Record) -> dict[str, float]:
    """The largest ‖H - G‖/λ_max of the median network after training, over all sizes."""
    values = record.arrays["difference"][:, :, TRAINED].max(1)
    return {f"{name}, largest over D": float(value) for name, value in zip(NAMES, values, strict=True)}


def first_leads(record: Record) -> dict[str, float]:
    """By how much W₁ leads before training, in networks with few inputs."""
    few = sizes(record) <= SMALL
    return {f"{name}, median over D ≤ {SMALL}": matrix_lead(record, name, INITIAL, few) for name in _PAIR}


def second_leads(record: Record) -> dict[str, float]:
    """By how much W₂ leads after training under SP."""
    return {"SP, median over D": -matrix_lead(record, "SP", TRAINED, sizes(record) > 0)}


def at_the_largest(record: Record) -> dict[str, float]:
    """The highest coefficient of any norm before training, in networks with the most inputs."""
    return {f"{name}, largest D": float(best_of_all(record, name, INITIAL)[-1]) for name in _PAIR}


def shares_above(record: Record) -> dict[str, float]:
    """The least share of networks that satisfy the bound, over all sizes."""
    above = record.arrays["above"]
    return {f"{name}, lowest over D": float(above[NAMES.index(name)].min()) for name in _PAIR}


def at_other_widths(record: Record) -> dict[str, float]:
    """The coefficient of the spectral norm of the better layer after training, at each width."""
    values = record.arrays["width_norms"][:, :, TRAINED, :, SPECTRAL].max(-1)
    return {
        f"{name}, m = {width}": float(values[NAMES.index(name), index])
        for name in _PAIR
        for index, width in enumerate(record.config["other_widths"])
    }


TWO_LAYERS = (  # Sec. 4.2, Fig. 4, and what D.3.3 says of SP and μP
    says(
        "It is the spectral norm of the weight matrix that correlates the most with the largest Hessian eigenvalue "
        "(share of D > 1 at which it does, after training).",
        where="Sec. 4.2, Fig. 4", measured=shares_most("norms", _PAIR, SPECTRAL), rule=each(MOST), expected=1.0,
        why=lead_reasons(_TIE, names=_PAIR),
    ),
    says(
        "Strong correlation between the largest eigenvalue and the spectral norm of weight matrices.",
        where="Abstract, Fig. 4", measured=lowest, rule=each(STRONG), expected="≈ 1",
        why=lead_reasons("At some D, most of the spread of sharpness does not come from one matrix.", names=_PAIR),
    ),
    says(
        "A claim that holds across … widths (coefficients after training at other widths).",
        where="Sec. 1, contribution 3", measured=at_other_widths, by=False, rule=each(STRONG), expected="≈ 1",
        why="At another width most of the spread of sharpness does not come from one matrix.",
    ),
    says(
        "This effect is most prominent in trained networks (by how much training raises the lead of the spectral norm "
        "over the others).",
        where="Sec. 4.2, Fig. 4", measured=prominence, rule=each(BETTER), expected="> 0",
        why=lead_reasons("The lead over the other norms is as large before training.", names=_PAIR),
    ),
    says(
        "… where the Hessian is well-approximated by the GGN (‖H - G‖ over λ_max).",
        where="Sec. 4.2", measured=differences, rule=each(NEAR), expected=0.0,
        why=lead_reasons("The residuals of the last networks are still correlated with their inputs."),
    ),
    says(
        "At initialization, for SP and μP for small D, it is the norm of the first matrix that exhibits a significant "
        "correlation (its lead over the second).",
        where="D.3.3, Fig. 4", measured=first_leads, rule=each(LEADS), expected="> 0",
        why="The entries of the first matrix are not enough larger than those of the second.",
    ),
    says(
        "At initialization, for the larger D, none of them correlates strongly.",
        where="D.3.3, Fig. 4", measured=at_the_largest, rule=each(WEAK), expected="≈ 0",
        why="The norm of a matrix correlates also where both have entries of one size.",
    ),
    says(
        "Which matrix drives this correlation depends on the chosen network parametrization.",
        where="Sec. 4.2, D.3.3", measured=disagreement, rule=DIFFERS, expected="> 0",
        why=lead_reasons("The same matrix leads in all of them, or none does."),
    ),
    says(  # for μP the sentence says the same after a "while": docs/errata.md
        "At convergence, for the SP it is the second weight matrix that drives the correlation (its lead).",
        where="D.3.3", measured=second_leads, rule=each(LEADS), expected="> 0",
        why=lead_reasons("Its lead over the first is smaller than that.", names=("SP",)),
    ),
    says(
        "Even if the Hessian is not block-diagonal, it will at least be lower-bounded by the squared spectral norm of "
        "the weight matrices (share of networks).",
        where="D.3.3", measured=shares_above, rule=each(BOUND), expected=1.0,
        why="It is so for white inputs; those of a sample have directions in which they are smaller.",
    ),
)  # fmt: skip


def both_layers(record: Record) -> dict[str, float]:
    """Under NTP, the median over D of each layer's coefficient of the spectral norm after training."""
    layers = record.arrays["norms"][NAMES.index("NTP"), :, TRAINED, :, SPECTRAL]
    return {f"NTP, W{'₁₂'[layer]}, median over D": float(np.median(layers[:, layer])) for layer in range(2)}


def highest_at_start(record: Record) -> dict[str, float]:
    """Under NTP, the highest coefficient of any norm before training; at D = 1 it is 1/√2 whatever the network."""
    best = best_of_all(record, "NTP", INITIAL)[sizes(record) > 1]
    return {"NTP, highest over D > 1": float(best.max())}


_SAMPLE = (
    "The inputs of a sample are not white: in G the block of W₁ has the largest value ‖W₂‖₂² λ_max(E[xxᵀ]), that of W₂ "
    "no more than ‖W₁‖₂² λ_max(E[xxᵀ]), so that the norm of W₂ is seen, and that of W₁ in part."
)
NEURAL_TANGENT = (
    says(
        "It is the spectral norm that correlates most with the largest Hessian eigenvalue (share of D > 1 at which it "
        "does, after training).",
        where="Fig. 14", measured=shares_most("norms", ["NTP"], SPECTRAL), rule=each(MOST), expected=1.0,
        why=lead_reasons(_TIE, names=["NTP"]),
    ),
    says(
        "For NTP the largest singular values of both matrices correlate well with the largest eigenvalue.",
        where="D.3.3, Fig. 14", measured=both_layers, rule=each(WELL), expected="≈ 1",
        why=lead_reasons(_SAMPLE, names=["NTP"]),
    ),
    says(
        "When both matrices are initialized with similar magnitude values (NTP …), none of them correlates strongly.",
        where="D.3.3, Fig. 14", measured=highest_at_start, rule=each(WEAK), expected="≈ 0",
        why=_SAMPLE,
    ),
)  # fmt: skip


def alignment_gains(record: Record) -> dict[str, float]:
    """How much better alignment correlates than norms before training, where all entries are of one size."""
    large, result = sizes(record) >= sizes(record).max() / 2, {}
    for name in NAMES:
        those, where = (large | True, "") if name == "NTP" else (large, " in the upper half")
        aligned = record.arrays["alignments"][NAMES.index(name), :, INITIAL].max(-1)
        difference = aligned - best_layer(record, "norms", name, INITIAL, SPECTRAL)
        result[f"{name}, median over D{where}"] = float(np.median(difference[those]))
    return result


ALIGNMENTS = (
    says(
        "Similarly, when both matrices are initialized with similar magnitude values, … we observe a larger "
        "correlation with weight matrix alignment (than with norms).",
        where="D.3.3, Fig. 15", measured=alignment_gains, rule=each(LARGER), expected="> 0",
        why="The spectral norm of one of the two matrices correlates as much, or more.",
    ),
)  # fmt: skip


def shares_in_quarter(record: Record) -> dict[str, float]:
    """The share of D at which the first matrix correlates between a quarter and three."""
    low, high = QUARTER
    first = record.arrays["norms"][:, :, TRAINED, 0, SPECTRAL]
    shares = ((low <= first) & (first <= high)).mean(-1)
    return {f"{name}, share of D": float(share) for name, share in zip(NAMES, shares, strict=True)}


_relu_says = partial(says, relu=True)
RELU = (
    _relu_says(
        "The squared Frobenius norm correlates most strongly (share of D > 1 at which it does).",
        where="Sec. 4.2, Fig. 16", measured=shares_most("norms", NAMES, FROBENIUS), rule=each(MOST), expected=1.0,
        why=lead_reasons(_TIE),
    ),
    _relu_says(
        "The squared spectral norm shows non-negligible correlation …, between 0.25 and 0.75 for the first weight "
        "matrix (share of D at which it does).",
        where="Sec. 4.2, Fig. 16", measured=shares_in_quarter, rule=each(EVERYWHERE), expected=1.0,
        why=lead_reasons("It depends on the teacher, which the paper leaves open."),
    ),
)  # fmt: skip


def weakest(record: Record) -> dict[str, float]:
    """The least coefficient of the trace with the better layer, over all sizes."""
    return {
        f"{name}, better layer, lowest over D and norms": min(
            float(best_layer(record, "trace_norms", name, TRAINED, norm).min()) for norm in range(len(NORMS))
        )
        for name in NAMES
    }


def trace_errors(record: Record) -> dict[str, float]:
    """The relative error of D (‖W₁‖_F² + ‖W₂‖_F²) for the trace."""
    errors = record.arrays["trace_error"]
    return {f"{name}, largest of all networks": float(errors[NAMES.index(name)].max()) for name in _PAIR}


TRACE = (
    says(
        "It is indeed the squared Frobenius norm that correlates the most [with the trace] (share of D > 1).",
        where="D.4, Fig. 26", measured=shares_most("trace_norms", NAMES, FROBENIUS), rule=each(MOST), expected=1.0,
        why=lead_reasons(_TIE),
    ),
    says(
        "All considered squared weight norms correlate strongly with Hessian trace.",
        where="D.4, Fig. 26", measured=weakest, rule=each(STRONG), expected="≈ 1",
        why=lead_reasons("The spectral norm knows one singular value, and the trace sees all of them."),
    ),
    says(
        "tr(H) ≃ D (‖W₁‖_F² + ‖W₂‖_F²).",
        where="D.4", measured=trace_errors, rule=each(NEAR), expected="≈ 0",
        why=lead_reasons(
            "The inputs of a small sample are not white, and the trace sees their second moment.", names=_PAIR
        ),
    ),
)  # fmt: skip
