"""Figure 1, a schematic in print, from the real spectrum of G of Figure 5, its parts labelled by measurement."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from ... import plot
from ...record import Picture, Record
from ..frame.figure import Figure
from ..frame.pictures import write_title
from ..frame.statements import Statement, at_least, at_most, each, near
from . import knockouts
from .knockout_numbers import (
    LOWEST,
    WIDTH,
    exact_spectrum,
    mini_bulk,
    outliers,
    per_seed,
    seeds,
    values_of,
)
from .paper import PAPER
from .pictures import network_in_words, of_seeds
from .setting import NUM_CLASSES

C = NUM_CLASSES
LABELS = {
    "only_class": r"$G_\mathrm{class}$",
    "only_cross": r"$G_\mathrm{cross}$",
    "only_within": r"$G_\mathrm{within}$",
}


def draw(record: Record) -> Picture:
    """How many eigenvalues of G there are per decade, with those of its parts as curves, and the pattern's names."""
    figure, (ax,) = plot.panels(width=7.0, height=3.2)
    seed = seeds(record)[0]
    floor = LOWEST * values_of(record, seed, "G")[0]
    plot.counts(ax, exact_spectrum(record, seed, "G"), floor=floor, width=WIDTH, color="0.45", label="G")
    for colour, (name, label) in zip(plot.COLOURS, LABELS.items(), strict=False):
        plot.counts(ax, exact_spectrum(record, seed, name), floor=floor, width=WIDTH, color=colour, label=label)
    low, high = ax.get_ylim()
    ax.set(ylim=(low, 20 * high), xlabel="eigenvalue λ of G")
    _name_groups(ax, record, seed, 3 * high)
    ax.legend(frameon=False, fontsize=7, loc="upper left", ncols=4)
    piece = record.config["piece"]
    network = f"{network_in_words(piece)}, {piece['per_class']} examples a class"
    write_title(ax, f"G of {network}{of_seeds(record)}: its eigenvalues, and whose they are")
    return figure


def _name_groups(ax: Axes, record: Record, seed: int, height: float) -> None:
    """The groups of the schematic: the first eigenvalue, the next C - 1, those of the cross-class means, the rest."""
    G, bulk = (values_of(record, seed, name) for name in ("G", "only_within"))
    bulk = bulk[bulk > LOWEST * G[0]]
    groups = ((G[:1], "1"), (G[1:C], "C - 1"), (mini_bulk(record, seed), "C²"), (bulk, "main bulk"))
    for row, (group, name) in enumerate(groups):
        ends = np.quantile(group, (0.05, 0.95)) if len(group) > C else (group.min(), group.max())
        y = height * (0.6 if row % 2 else 2.0)
        ax.plot(ends, [y, y], color="black", lw=1.0, marker="|", ms=5)
        ax.annotate(name, (np.sqrt(ends[0] * ends[1]), 1.3 * y), ha="center", fontsize=8)


def isolation(record: Record, seed: int) -> float:
    """λ₁/λ₂ of G."""
    G = values_of(record, seed, "G")
    return float(G[0] / G[1])


def separation(record: Record, seed: int) -> float:
    """λ_C/λ_{C+1} of G."""
    G = values_of(record, seed, "G")
    return float(G[C - 1] / G[C])


def widest_in_bulk(record: Record, seed: int) -> float:
    """The largest λ_k/λ_{k+1} behind the first C², of those that are not zero: a bulk has no gap (Def. 1.1)."""
    G = np.unique(values_of(record, seed, "G"))[::-1]
    G = G[C**2 :][LOWEST * G[0] < G[C**2 :]]
    return float((G[:-1] / G[1:]).max(initial=0.0)) if len(G) > 1 else float("nan")


def gap_in_words(record: Record) -> dict[str, str]:
    """How narrow a gap can be seen: where a record has bins of log λ, no neighbours are nearer than these."""
    prefix = f"{seeds(record)[0]}/exact/G"
    nodes, counts = (np.asarray(record.arrays[f"{prefix}/{part}"]) for part in ("nodes", "counts"))
    bins = np.sort(nodes[(counts > 1) & (nodes > LOWEST * nodes.max())])[::-1]
    seen = f"Below {bins[0]:.2g} these are bins, {np.median(bins[:-1] / bins[1:]):.3g} apart." if len(bins) > 1 else ""
    gap = f"A gap divides them. {seen}".strip()
    return {"yes": seen, "partly": gap, "no": gap}


STATEMENTS = (
    Statement(
        "A single outlier is isolated, larger than all others (λ₁/λ₂).",
        PAPER, "Sec. 1.6, Fig. 1", measured=per_seed(isolation), rule=each(at_least(2.0, partly=1.2)),
        expected="well above 1", why="The largest is not far from the second.",
    ),
    Statement(
        "C - 1 more are separated from what follows (λ_C/λ_{C+1}).",
        PAPER, "Sec. 1.6, Fig. 1", measured=per_seed(separation), rule=each(at_least(1.5, partly=1.1)),
        expected="above 1", why="The C-th of them passes into what follows.",
    ),
    Statement(
        "C outliers and a mini-bulk of C(C - 1) lie outside the main bulk (how many eigenvalues of G lie above the "
        "largest of G_within).",
        PAPER, "Sec. 1.6, Fig. 1", measured=per_seed(outliers), rule=each(near(C**2, relative=0.2, partly=0.6)),
        expected=C**2, why="The mini-bulk lies inside the main bulk, or below it.",
    ),
    Statement(
        "All others form a bulk, without a gap (the widest, λ_k/λ_{k+1} behind the first C², as far as drawn).",
        PAPER, "Sec. 1.6, Fig. 1", measured=per_seed(widest_in_bulk), rule=each(at_most(1.5, partly=3.0)),
        expected=1.0, why=gap_in_words,
    ),
)  # fmt: skip
FIGURES = {
    "papyan2020.fig1": Figure(
        "papyan2020.fig1",
        "The typical spectrum: one, C - 1 and C² outliers and a bulk, of a real network",
        knockouts.PRESETS,
        knockouts.run,
        draw,
        STATEMENTS,
        knockouts.COMPUTATION,
        loans=knockouts.loans,
        printed=knockouts.PRINTED,
    )
}
