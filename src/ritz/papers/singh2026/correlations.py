"""Figures 4, 14-16 and 26: sharpness and trace of two-layer networks against norms and alignments of their weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from ... import plot
from ...record import Picture, Record
from ..frame.figure import Context, Figure
from ..frame.pictures import legend_above, write_title
from ..frame.statements import at_least, at_most, each
from . import trained_networks
from .paper import says
from .trained_networks import (
    FROBENIUS,
    INITIAL,
    KINDS,
    NAMES,
    NORMS,
    SPECTRAL,
    STAGES,
    TRAINED,
    TRAINING,
    Name,
    NetworkPoint,
    Training,
    coefficients,
    reasons,
)
from .two_layer_coefficients import best_layer, best_of_all, disagreement, lead, margins, sizes


@dataclass(frozen=True)
class Config:
    """Two layers f = W₂φ(W₁x) of width 100 with as many outputs as inputs."""

    activation: Literal["linear", "relu"] = "linear"
    width: int = 100  # D.1.3
    sizes: tuple[int, ...] = (1, 2, 5, 10, 20, 40, 70, 100)  # D = K; D.1.3: in {1, …, 100}, which is open
    training: Training = TRAINING


def run(config: Config, context: Context) -> dict[str, Any]:
    """Correlation coefficients, as arrays of parametrisation × size × stage × …."""
    points = [
        NetworkPoint(name, (D, config.width, D), config.activation, config.training)
        for name in NAMES
        for D in config.sizes
    ]
    shape, name = (len(NAMES), len(config.sizes)), f"{config.activation} networks"
    return trained_networks.sweep_arrays(points, _summary, context, shape=shape, name=name)


def _summary(point: NetworkPoint, raw: trained_networks.Raw) -> dict[str, torch.Tensor]:
    """What is kept of one point: correlations, and how the numbers stand to what the paper says of white inputs."""
    sharpness, norms = raw["sharpness"], raw["norms"]
    result = {"norms": coefficients(sharpness, norms), "alignments": coefficients(sharpness, raw["alignments"])}
    if point.activation == "linear":
        result["trace_norms"] = coefficients(raw["trace"], norms)
        result["trace_error"] = trace_error(point, raw["trace"], norms)
        result["above"] = share_above(sharpness, raw["bound"])
    return result


def trace_error(point: NetworkPoint, trace: torch.Tensor, norms: torch.Tensor) -> torch.Tensor:
    """|tr H / D(‖W₁‖_F² + ‖W₂‖_F²) - 1|, the largest of all networks; NaN for NTP, whose layers have multipliers."""
    if point.parametrization == "NTP":
        return torch.full_like(trace[:, 0], torch.nan)
    return trained_networks.highest((trace / (point.widths[0] * norms[:, :, FROBENIUS].sum(1)) - 1).abs())


def share_above(sharpness: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    """The share of the networks whose sharpness is known that have at least the bound, but for the solver's error."""
    finite = sharpness.isfinite()
    return ((sharpness >= (1 - trained_networks.TOLERANCE) * bound) & finite).sum(-1) / finite.sum(-1)


# ---------------------------------------------------------------------------------------------------- what is drawn

_TITLES = {"spectral": "spectral", "frobenius": "Frobenius", "nuclear": "nuclear"}


_LABELS = {
    "norms": "correlation of sharpness\nwith squared norms",
    "alignments": "correlation of sharpness\nwith alignments",
    "trace_norms": "correlation of the trace\nwith squared norms",
}


def _draw(record: Record, names: tuple[Name, ...], key: str) -> Picture:
    """Stages below each other, a column for each parametrisation; layers by line, norms by colour."""
    figure, axes = plot.panels(len(names), len(STAGES), width=3.4 if len(names) > 1 else 4.4, height=2.6)
    for row in range(len(STAGES)):
        for column, name in enumerate(names):
            ax = axes[row * len(names) + column]
            _panel(ax, record, name, key, row)
            ax.set(xlabel="inputs and outputs D", ylim=(-1.05, 1.05))
            write_title(ax, trained_networks.stage_title(record, name, row, "hollow"))
    for ax in axes[:: len(names)]:
        ax.set_ylabel(f"{_LABELS[key]} ({KINDS[record.config['activation']]})", fontsize=8)
    legend_above(figure, axes[0], columns=3)
    return figure


def _panel(ax: Any, record: Record, name: Name, key: str, stage: int) -> None:
    D, index = sizes(record), NAMES.index(name)
    values = record.arrays[key][index, :, stage]
    values = values[:, None] if values.ndim == 2 else values  # alignments have no layers
    cut = trained_networks.cut_off(record, name) & (stage == TRAINED)
    freedom = np.maximum(record.arrays["used"][index, :, stage] - 3, 1)
    for layer in range(values.shape[1]):
        for norm, title in enumerate(_TITLES.values()):
            r, colour, marker = values[:, layer, norm], plot.COLOURS[norm], "os"[layer]
            error = (1 - r**2) / freedom**0.5
            which = f"{title}, W{'₁₂'[layer]}" if values.shape[1] > 1 else title
            ax.plot(D, r, ("-", "--")[layer] + marker, ms=3, lw=1.3, color=colour, label=which)
            ax.plot(D[cut], r[cut], marker, ms=4, mfc="w", color=colour)
            ax.fill_between(D, r - error, r + error, color=colour, alpha=0.12, lw=0)
    ax.axhline(0, color="0.7", lw=0.8, zorder=0)
    ax.set_xscale("log")
    ax.set_xticks(D, labels=map(str, D), fontsize=7)
    ax.minorticks_off()


# --------------------------------------------------------------------------------------------------- what is claimed

MOST = at_least(0.02, partly=-0.02)  # by how much a coefficient is the highest: 0.02 is beyond a tie
STRONG = at_least(0.7, partly=0.4)  # what "strong" and "well" are taken to mean, of a coefficient
WEAK = at_most(0.5, partly=0.7)  # "none of them correlates strongly"
LEADS = at_least(0.3, partly=0.1)  # by how much the matrix that drives the correlation has the higher coefficient
BETTER = at_least(0.05, partly=0.0)  # by how much training raises a coefficient
LARGER = at_least(0.05, partly=-0.05)  # by how much alignment correlates better than norms
DIFFERS = at_least(0.1, partly=0.0)  # by how much one matrix leads in one parametrisation and the other in another
QUARTER = (0.25, 0.75)  # "between 0.25 and 0.75"
EVERYWHERE = at_least(1.0, partly=0.5)  # share of the sizes
BOUND = at_least(0.99, partly=0.9)  # of the networks
NEAR = at_most(0.05, partly=0.2)  # relative error of an approximation

_TIE = "Another norm correlates as well or better: all three grow together where the matrix grows."
_PAIR: tuple[Name, ...] = ("SP", "μP")  # the parametrisations of Fig. 4


def lowest(record: Record) -> dict[str, float]:
    """The coefficient of the spectral norm after training, of the better layer, where it is least."""
    return {
        f"{name}, lowest over D": float(best_layer(record, "norms", name, TRAINED, SPECTRAL).min()) for name in _PAIR
    }  # fmt: skip


def gains(record: Record) -> dict[str, float]:
    """By how much it is higher after training than before."""
    stages = (INITIAL, TRAINED)
    best = {name: [best_layer(record, "norms", name, stage, SPECTRAL) for stage in stages] for name in _PAIR}
    return {f"{name}, median over D": float(np.median(end - start)) for name, (start, end) in best.items()}


def first_leads(record: Record) -> dict[str, float]:
    """By how much W₁ leads at the start of networks with few inputs."""
    return {f"{name}, median over D ≤ 5": lead(record, name, INITIAL, sizes(record) <= 5) for name in _PAIR}


def second_leads(record: Record) -> dict[str, float]:
    """By how much W₂ leads after training."""
    return {f"{name}, median over D": -lead(record, name, TRAINED, sizes(record) > 0) for name in _PAIR}


def at_the_largest(record: Record) -> dict[str, float]:
    """The highest coefficient of any norm at the start of networks with most inputs."""
    return {f"{name}, largest D": float(best_of_all(record, name, INITIAL)[-1]) for name in _PAIR}


def shares_above(record: Record) -> dict[str, float]:
    """The share of networks with the bound, where it is least."""
    above = record.arrays["above"]
    return {f"{name}, lowest over D": float(above[NAMES.index(name)].min()) for name in _PAIR}


TWO_LAYERS = (  # Sec. 4.2, Fig. 4, and what D.3.3 says of SP and μP
    says(
        "The squared spectral norm of a weight matrix correlates most with sharpness, after training.",
        where="Sec. 4.2, Fig. 4", measured=margins("norms", _PAIR, SPECTRAL), rule=each(MOST), expected="> 0",
        why=reasons(_TIE, names=_PAIR),
    ),
    says(
        "Sharpness and the squared spectral norm correlate strongly.",
        where="Abstract, Fig. 4", measured=lowest, rule=each(STRONG), expected="≈ 1",
        why=reasons("At some D, most of the spread of sharpness does not come from one matrix.", names=_PAIR),
    ),
    says(
        "The effect is most prominent in trained networks.",
        where="Sec. 4.2, Fig. 4", measured=gains, rule=each(BETTER), expected="> 0",
        why=reasons("The coefficients are as high before training.", names=_PAIR),
    ),
    says(
        "At initialisation and for small D it is the first matrix whose norm correlates.",
        where="D.3.3, Fig. 4", measured=first_leads, rule=each(LEADS), expected="> 0",
        why="The entries of the first matrix are not enough larger than those of the second.",
    ),
    says(
        "At initialisation and for larger D none of the norms correlates strongly.",
        where="D.3.3, Fig. 4", measured=at_the_largest, rule=each(WEAK), expected="≈ 0",
        why="The norm of a matrix correlates also where both have entries of one size.",
    ),
    says(
        "Which matrix drives the correlation after training depends on the parametrisation.",
        where="Sec. 4.2, D.3.3", measured=disagreement, rule=DIFFERS, expected="> 0",
        why=reasons("The same matrix leads in all of them, or none does."),
    ),
    says(
        "At convergence it is the second matrix that drives the correlation, in SP and, as printed, in μP.",
        where="D.3.3", measured=second_leads, rule=each(LEADS), expected="> 0",
        why=reasons(
            "The sentence sets SP against μP and says “second” of both: at least one of them is a misprint.",
            names=_PAIR,
        ),
    ),
    says(  # a theorem, of which the inputs as they are make another than white ones do
        "The largest eigenvalue is at least the largest squared spectral norm, for white inputs: with the inputs as "
        "they are, at least max(λ_max(Σ)‖W₂‖², λ_max(W₁ΣW₁ᵀ)) (share of networks).",
        where="D.3.3", measured=shares_above, rule=each(BOUND), expected=1.0,
        why=reasons(
            "The eigenvalue of a diagonal block bounds it from below, so the solver has missed the largest one.",
            names=_PAIR,
        ),
    ),
)  # fmt: skip


def both_layers(record: Record) -> dict[str, float]:
    """Under NTP, the coefficient of the spectral norm of each layer after training, where it is least."""
    layers = record.arrays["norms"][NAMES.index("NTP"), :, TRAINED, :, SPECTRAL]
    return {f"NTP, W{'₁₂'[layer]}, lowest over D": float(layers[:, layer].min()) for layer in range(2)}


def highest_at_start(record: Record) -> dict[str, float]:
    """Under NTP, the highest coefficient of any norm before training."""
    return {"NTP, highest over D": float(best_of_all(record, "NTP", INITIAL).max())}


NEURAL_TANGENT = (
    says(
        "The squared spectral norm correlates most with sharpness, after training.",
        where="Fig. 14", measured=margins("norms", ["NTP"], SPECTRAL), rule=each(MOST), expected="> 0",
        why=reasons(_TIE, names=["NTP"]),
    ),
    says(
        "At convergence the largest singular values of both matrices correlate well with sharpness.",
        where="D.3.3, Fig. 14", measured=both_layers, rule=each(STRONG), expected="≈ 1",
        why=reasons("Each matrix has only its part in the spread of sharpness.", names=["NTP"]),
    ),
    says(
        "At initialisation none of the norms correlates strongly.",
        where="D.3.3, Fig. 14", measured=highest_at_start, rule=each(WEAK), expected="≈ 0",
        why="Both matrices have entries of one size, and the norm of the larger correlates all the same.",
    ),
)  # fmt: skip


def alignment_gains(record: Record) -> dict[str, float]:
    """By how much alignment correlates more than norms before training, where entries are of one size."""
    large, result = sizes(record) >= sizes(record).max() / 2, {}
    for name in NAMES:
        those, where = (large | True, "") if name == "NTP" else (large, " in the upper half")
        aligned = record.arrays["alignments"][NAMES.index(name), :, INITIAL].max(-1)
        difference = aligned - best_layer(record, "norms", name, INITIAL, SPECTRAL)
        result[f"{name}, median over D{where}"] = float(np.median(difference[those]))
    return result


ALIGNMENTS = (
    says(
        "At initialisation, where both matrices have entries of one size, alignment correlates more than norms.",
        where="D.3.3, Fig. 15", measured=alignment_gains, rule=each(LARGER), expected="> 0",
        why="The alignment of random layers varies too little to move their sharpness.",
    ),
)  # fmt: skip


def shares_in_quarter(record: Record) -> dict[str, float]:
    """The share of D at which the first matrix correlates between a quarter and three."""
    low, high = QUARTER
    first = record.arrays["norms"][:, :, TRAINED, 0, SPECTRAL]
    shares = ((low <= first) & (first <= high)).mean(-1)
    return {f"{name}, share of D": float(share) for name, share in zip(NAMES, shares, strict=True)}


RELU = (
    says(
        "For ReLU networks the squared Frobenius norm correlates most with sharpness.",
        where="Sec. 4.2, Fig. 16", measured=margins("norms", NAMES, FROBENIUS), rule=each(MOST), expected="> 0",
        why=reasons(_TIE),
    ),
    says(
        "The squared spectral norm of the first matrix correlates between 0.25 and 0.75.",
        where="Sec. 4.2, Fig. 16", measured=shares_in_quarter, rule=each(EVERYWHERE),
        expected="0.25 to 0.75, at all D", why=reasons("It depends on the teacher, which the paper leaves open."),
    ),
)  # fmt: skip


def weakest(record: Record) -> dict[str, float]:
    """The coefficient of the trace and the better layer, where it is least."""
    return {
        f"{name}, better layer, lowest over D and norms": min(
            float(best_layer(record, "trace_norms", name, TRAINED, norm).min()) for norm in range(len(NORMS))
        )
        for name in NAMES
    }


def trace_errors(record: Record) -> dict[str, float]:
    """How far the trace is from D (‖W₁‖_F² + ‖W₂‖_F²), relative."""
    errors = record.arrays["trace_error"]
    return {f"{name}, largest of all networks": float(errors[NAMES.index(name)].max()) for name in _PAIR}


TRACE = (
    says(
        "The squared Frobenius norm correlates most with the trace.",
        where="D.4, Fig. 26", measured=margins("trace_norms", NAMES, FROBENIUS), rule=each(MOST), expected="> 0",
        why=reasons(_TIE),
    ),
    says(
        "All squared norms correlate strongly with the trace.",
        where="D.4, Fig. 26", measured=weakest, rule=each(STRONG), expected="≈ 1",
        why=reasons("One of the norms does not follow the trace, at some D."),
    ),
    says(
        "tr H ≈ D (‖W₁‖_F² + ‖W₂‖_F²).",
        where="D.4", measured=trace_errors, rule=each(NEAR), expected="≈ 0",
        why=reasons("The inputs of a small sample are not white, and the trace sees their second moment.", names=_PAIR),
    ),
)  # fmt: skip


def _presets(paper: Config) -> dict[str, Config]:
    coarse = replace(paper.training, improvement=2e-3)
    laptop = replace(paper, sizes=(1, 2, 5, 10, 20, 40), training=replace(coarse, networks=100, epochs=1500))
    if paper.activation == "relu":
        small = replace(coarse, networks=60, examples=256, batch_size=64, epochs=700)
        laptop = replace(paper, width=50, sizes=(1, 3, 10, 20), training=small)
    tiny = replace(paper.training, networks=8, examples=32, batch_size=16, epochs=3, window=1)
    smoke = replace(paper, width=6, sizes=(1, 2, 3), training=tiny)
    return {"paper": paper, "laptop": laptop, "smoke": smoke}


# ReLU networks with many inputs improve slowly and for long: the cap, for its cost, ends them, and `finished` tells
_LINEAR, _RELU = _presets(Config()), _presets(Config(activation="relu", training=Training(epochs=5000)))
_SHARED = "singh2026.correlations-linear"

FIGURES = {
    figure.id: figure
    for figure in (
        Figure(
            "singh2026.fig4", "Sharpness against norms of the weights: two linear layers, SP and μP", _LINEAR, run,
            partial(_draw, names=("SP", "μP"), key="norms"), TWO_LAYERS, _SHARED,
        ),
        Figure(
            "singh2026.fig14", "Sharpness against norms of the weights: two linear layers, NTP", _LINEAR, run,
            partial(_draw, names=("NTP",), key="norms"), NEURAL_TANGENT, _SHARED,
        ),
        Figure(
            "singh2026.fig15", "Sharpness against the alignment of two linear layers", _LINEAR, run,
            partial(_draw, names=NAMES, key="alignments"), ALIGNMENTS, _SHARED,
        ),
        Figure(
            "singh2026.fig16", "Sharpness against norms of the weights: two ReLU layers", _RELU, run,
            partial(_draw, names=NAMES, key="norms"), RELU,
        ),
        Figure(
            "singh2026.fig26", "The trace against norms of the weights: two linear layers", _LINEAR, run,
            partial(_draw, names=NAMES, key="trace_norms"), TRACE, _SHARED,
        ),
    )
}  # fmt: skip
