"""Table 1: what outliers, mini-bulk and bulk of every quantity are attributed to, each entry with its number."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import plot
from ...record import Picture, Record
from ..frame.figure import Figure
from ..frame.statements import Rule, Statement, at_least, at_most, each, within
from .gradients import eigenvalues
from .knockout_numbers import count_among
from .kronecker import middle
from .layer_numbers import CROSS, bulk_change, drawn, known, relative_fall
from .layer_results import C, Measure, at_layer, data_sets, seeds, titled
from .layers import COMPUTATION, PRESETS, loans, run
from .paper import says
from .setting import TITLES

COLUMNS = ("C outliers", "C² outliers (mini-bulk)", "bulk")
Measured = Callable[[Record], dict[str, float]]


Number = Callable[[Record, str], float]  # of a network, by the prefix of its results


def of_networks(number: Number) -> Measured:
    """A number of the networks: the median over their seeds, for each data set."""

    def measured(record: Record) -> dict[str, float]:
        result: dict[str, float] = {}
        for data in data_sets(record):
            values = [number(record, f"{data}/{seed}") for seed in seeds(record)]
            result[TITLES[data]] = float(np.median(values))
        return result

    return measured


@of_networks
def hessian_outliers(record: Record, network: str) -> float:
    """The mean share of G in the C largest eigenvalues of H."""
    return 1 - float(np.mean(record.arrays[f"{network}/origins/H/shares/functional"][:C]))


@of_networks
def hessian_bulk(record: Record, network: str) -> float:
    """The mean share of E in the next C eigenvalues of H."""
    return float(np.mean(record.arrays[f"{network}/origins/H/shares/functional"][C : 2 * C]))


@of_networks
def gradient_outliers(record: Record, network: str) -> float:
    """The mean share of G_class in the C largest eigenvalues of G, with G_c=c', which has the same span."""
    parts = (record.arrays[f"{network}/origins/G/shares/{part}"][:C] for part in ("between_class", "own_class"))
    return float(np.sum(list(parts), axis=0).mean())


@of_networks
def gradient_cross(record: Record, network: str) -> float:
    """The share of eigenvalues of G that a knockout of G_cross removes, in the range of nine tenths of its own."""
    G, rest, own = (eigenvalues(record, f"{network}/gram/{name}") for name in ("G", "cross", "only_cross"))
    before, after = (count_among(own[:CROSS][own[:CROSS] > 0], values) for values in (G, rest))
    return 1 - after / before if before else float("nan")


@of_networks
def gradient_bulk(record: Record, network: str) -> float:
    """tr G_within over the trace of G without its C largest eigenvalues."""
    G, W = (eigenvalues(record, f"{network}/gram/{name}") for name in ("G", "only_within"))
    return float(W.sum() / G[C:].sum())


def bulk(kind: str, **names: Any) -> Measure:
    """The change of the bulk, as Figs 7, 9 and 13 lead with it."""
    return drawn(bulk_change(kind, **names))


FALLS, STAYS = at_least(0.8, partly=0.5), at_most(0.1, partly=0.3)
PRODUCT = at_most(0.3, partly=0.7)

# quantity, column, attribution as printed, what is measured, how, by which rule, and what is true where it is not so
ENTRIES: tuple[tuple[str, int, str, str, Measured, Rule, str], ...] = (
    (
        "Hessian", 0, "G", "share of G in the C largest", hessian_outliers, at_least(0.9, partly=0.5),
        "E has a part in them.",
    ),
    (
        "Hessian", 2, "E", "share of E in the next C, the bulk's upper end", hessian_bulk, at_least(0.5, partly=0.2),
        "Where E has less of its upper end, G_within has most of the rest; for the whole bulk of VGG11 see Fig. 4.",
    ),
    (
        "Gradients", 0, "G_class", "its share of the C largest", gradient_outliers, at_least(0.9, partly=0.5),
        "G_within and G_cross have the rest of them.",
    ),
    (
        "Gradients", 0, "g_c ≈ h_c ⊗ δ_c", "relative error, the median layer", middle("class"), PRODUCT,
        "Examples that carry the error of a class are not its average ones: Fig. 12.",
    ),
    (
        "Gradients", 1, "G_cross", "share in its range that goes with it", gradient_cross, at_least(0.5, partly=0.1),
        "Where cross-class means have their eigenvalues, G_within has many more: Fig. 5.",
    ),
    (
        "Gradients", 1, "g_cc' ≈ h_c ⊗ δ_cc'", "relative error, the median layer", middle("cross"), PRODUCT,
        "Examples of c that look like c' have features of their own: Fig. 12.",
    ),
    (
        "Gradients", 2, "G_within", "its trace over the bulk's", gradient_bulk, within(0.8, 1.2, partly=(0.5, 2.0)),
        "Class and cross-class means have a part in what is no outlier.",
    ),
    (
        "Features", 0, "H_class", "fall of the largest, last layer", at_layer(relative_fall("features")), FALLS,
        "Something else stands apart, too: Fig. 7.",
    ),
    (
        "Features", 2, "H_within", "change of the bulk, last layer", at_layer(bulk("features")), STAYS,
        "The class means reach into the bulk, and part of it goes with them: Fig. 7.",
    ),
    (
        "Backprop. errors", 0, "Δ_class", "fall of the largest, last layer but one",
        at_layer(relative_fall("errors"), -2), FALLS, "Something else stands apart, too: Fig. 9a.",
    ),
    (
        "Backprop. errors", 1, "Δ_cross", "fall of the largest, last layer but one",
        at_layer(relative_fall("errors", CROSS, "off_class", "off_class_and_cross"), -2), FALLS,
        "Something else stands apart, too: Fig. 9b.",
    ),
    (
        "Backprop. errors", 2, "Δ_within", "change of the bulk, last layer but one",
        at_layer(bulk("errors", before="off_class", after="off_class_and_cross", taken=CROSS), -2), STAYS,
        "Cross-class means that are no outliers lie in the bulk, and part of it goes with them: Fig. 9b.",
    ),
    (
        "Weights", 0, "W_class", "fall of the largest, last layer but one", at_layer(relative_fall("weights"), -2),
        FALLS, "W is not made of class means alone where training has not come to rest: Fig. 13.",
    ),
    (
        "Weights", 2, "W_within", "change of the bulk, last layer but one", at_layer(bulk("weights"), -2), STAYS,
        "W_class reaches into the bulk, and part of it goes with it: Fig. 13.",
    ),
)  # fmt: skip


def _statement(
    quantity: str, column: int, cause: str, what: str, measured: Measured, rule: Rule, why: str
) -> Statement:
    return says(
        f"{quantity}: {COLUMNS[column]} attributed to {cause} ({what}).",
        where="Table 1",
        measured=lambda record: known(measured(record)),
        rule=each(rule),
        expected=rule.yes[0] if np.isfinite(rule.yes[0]) else 0.0,
        why=why,
    )


STATEMENTS = tuple(_statement(*entry) for entry in ENTRIES)


def _in_maths(cause: str) -> str:
    """An attribution as a formula."""
    cause = re.sub(r"_(\w{3,})", r"_\\mathrm{\1}", cause.replace("_cc'", "_{c,c'}"))
    return f"${cause}$".replace("≈", r"\approx").replace("⊗", r"\otimes")


def draw(record: Record) -> Picture:
    """The table as printed, with the measured numbers of every data set under each entry."""
    figure, (ax,) = plot.panels(1, width=10.0, height=3.6)
    ax.axis("off")
    quantities = list(dict.fromkeys(entry[0] for entry in ENTRIES))
    cells = [["–"] * len(COLUMNS) for _ in quantities]
    for quantity, column, cause, what, measured, rule, _ in ENTRIES:
        numbers = ", ".join(f"{value:.2g}" for value in measured(record).values())
        verdict = each(rule)(measured(record)) if known(measured(record)) else "not measured"
        text = f"{_in_maths(cause)}: {numbers} [{verdict}]\n({what})"
        row = cells[quantities.index(quantity)]
        row[column] = text if row[column] == "–" else f"{row[column]}\n{text}"
    table = ax.table(cells, rowLabels=quantities, colLabels=COLUMNS, loc="center", cellLoc="left")
    table.auto_set_font_size(False)
    table.set_fontsize(7)
    table.scale(1.0, 2.6)
    ax.set_title(_legend(record), fontsize=8, loc="left")
    return figure


def _legend(record: Record) -> str:
    """What the numbers in the table are of."""
    first, *others = seeds(record)
    medians = f": medians over {1 + len(others)} seeds (changes of a bulk: seed {first})" if others else ""
    return f"numbers: {', '.join(titled(record, lambda _: 0.0))}{medians}; [verdict]"


FIGURES = {
    "papyan2020.table1": Figure(
        "papyan2020.table1", "What outliers, mini-bulk and bulk are attributed to", PRESETS, run, draw, STATEMENTS,
        COMPUTATION,
        loans=loans,
    )
}  # fmt: skip
