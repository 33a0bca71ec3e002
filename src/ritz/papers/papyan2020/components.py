"""Figure 4, and Figure 3 of papyan2019: the Hessian of VGG11 on MNIST beside its summands G and E, on train and test.

ritz run papyan2020.fig4 --preset paper --device cuda
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import numpy as np
import torch

from ... import plot
from ...record import Picture, Record
from ...spectrum import Spectrum
from ..frame.figure import Context, Figure
from ..frame.pictures import legend_above, write_title
from ..frame.statements import Statement, at_least, at_most, each, within
from .hessian_numbers import PARTS
from .hessians import STEMS
from .networks import sweep_on_shelf, training
from .paper import PAPER
from .pictures import draw_spectrum
from .setting import NUM_CLASSES, SMALL, TINY, WHOLE, Part, Piece, check_ten_classes
from .spectra import (
    LANCZOS,
    SMOKE_METHOD,
    Matrix,
    Measurement,
    Method,
    bulk,
    certified,
    mean_size,
    measured,
    printed_width,
)

MATRICES: tuple[Matrix, ...] = get_args(Matrix)
COLOUR = {"H": plot.COLOURS[1], "G": plot.COLOURS[2], "E": plot.COLOURS[0]}  # as the papers have them


@dataclass(frozen=True)
class Config:
    """One network, and the three matrices over its training and test examples."""

    network: Piece = WHOLE
    method: Method = LANCZOS


def run(config: Config, context: Context) -> dict[str, Any]:
    """Train the network; the spectra of H, G and E on both parts, C outliers taken out of H and G."""
    check_ten_classes(config.network)
    (record,) = sweep_on_shelf(training, [config.network], context)
    spectra = {f"{part}/{matrix}": _measurement(config, part, matrix) for part in PARTS for matrix in MATRICES}
    names = ("last_train_error", "last_test_error", "rate", "tried", "identity")
    return {"network": {name: record.scalars[name] for name in names}} | measured(spectra, context)


def _measurement(config: Config, part: Part, matrix: Matrix) -> Measurement:
    outliers = 0 if matrix == "E" else NUM_CLASSES
    return Measurement(config.network, config.network.num_epochs, part, matrix, outliers, config.method)


def draw(record: Record) -> Picture:
    """The three spectra of train and of test, one below the other; in the last row the bulks, on one axis."""
    figure, axes = plot.panels(len(PARTS), len(MATRICES) + 1, width=4.2, height=1.7)
    for column, part in enumerate(PARTS):
        own = axes[column :: len(PARTS)]
        for ax, matrix in zip(own, MATRICES, strict=False):
            draw_spectrum(ax, record, f"{part}/{matrix}", color=COLOUR[matrix], stems=STEMS)
            write_title(ax, f"(a) {part}: {matrix}")
        reach = [end for ax in own[: len(MATRICES)] for end in ax.get_xlim()]
        for ax in own[: len(MATRICES)]:
            ax.set_xlim(min(reach), max(reach))
        for matrix in MATRICES:
            name = f"{part}/{matrix}"
            width = printed_width(record, name)
            plot.density(own[-1], bulk(record, name), width=width, band=False, color=COLOUR[matrix], label=matrix)
        write_title(own[-1], f"(b) {part}: the bulks")
    axes[0].legend(frameon=False, fontsize=7, loc="upper right")
    legend_above(figure, axes[-1], columns=len(MATRICES))
    return figure


def by_part(number: Callable[[Record, str], float]) -> Callable[[Record], dict[str, float]]:
    """A number of train and of test."""
    return lambda record: {part: number(record, part) for part in PARTS}


def displaced(record: Record, part: str) -> float:
    """The largest |λ_k(H)/λ_k(G) - 1| over k = 1 … C."""
    H, G = (np.sort(certified(record, f"{part}/{matrix}"))[::-1][:NUM_CLASSES] for matrix in ("H", "G"))
    return float(np.abs(H / G - 1).max())


def largest_of_E(record: Record, part: str) -> float:
    """max |λ(E)| over the C-th largest |λ(H)|, the least outlier."""
    least = np.abs(certified(record, f"{part}/H"))[NUM_CLASSES - 1]
    return max(map(abs, bulk(record, f"{part}/E").range)) / float(least)


def bulk_ratio(record: Record, part: str) -> float:
    """The root mean square of the bulk of G over that of the bulk of H."""
    G, H = (bulk(record, f"{part}/{matrix}").moment(2) ** 0.5 for matrix in ("G", "H"))
    return G / H


def unlike(record: Record, part: str) -> float:
    """W₁ between the bulk of H and the spectrum of E, relative to the mean |λ| of that bulk: 0 if E makes all of it."""
    H, E = bulk(record, f"{part}/H"), bulk(record, f"{part}/E")
    return H.wasserstein(E) / mean_size(H)


def upper_end(record: Record, part: str) -> tuple[float, float]:
    """|log| of the largest of the bulk of H over that of E, and over that of G."""
    ends = {matrix: bulk(record, f"{part}/{matrix}").range[1] for matrix in MATRICES}
    to_E, to_G = (abs(float(np.log(ends["H"] / max(ends[matrix], 1e-300)))) for matrix in ("E", "G"))
    return to_E, to_G


def tail_from(matrix: str, part: str) -> Callable[[Record], float]:
    """The distance of the upper end of the bulk of H from that of this summand, as a share of both distances."""

    def share(record: Record) -> float:
        to_E, to_G = upper_end(record, part)
        own = to_E if matrix == "E" else to_G
        return own / (to_E + to_G) if to_E + to_G else float("nan")

    return share


def interlacing(record: Record) -> float:
    """The share of k with λ_{k+1}(H) ≤ λ_k(G) ≤ λ_k(H), or with both the other way round, on test: the larger."""
    H, G = (np.sort(certified(record, f"test/{matrix}"))[::-1] for matrix in ("H", "G"))
    count = min(len(H), len(G))
    H, G = H[:count], G[:count]
    below = (H[1:] <= G[:-1]) & (G[:-1] <= H[:-1])
    above = (G[1:] <= H[:-1]) & (H[:-1] <= G[:-1])
    return float(max(below.mean(), above.mean()))


def bulk_in_words(record: Record) -> str:
    """How much of the bulk E and G leave unexplained, and where, in words."""
    left = {part: unlike(record, part) for part in PARTS}
    words = []
    for part, own in left.items():
        H, E, G = (bulk(record, f"{part}/{matrix}") for matrix in "HEG")
        mean = mean_size(H)
        share = _near_zero(H, E) / mean / own if own else 0.0
        words.append(f"{part}: {own:.2f}, of which {100 * share:.0f} % near zero; from G {H.wasserstein(G) / mean:.2f}")
    steps = record.config["method"]["num_steps"]
    return f"{'; '.join(words)}. Near zero, within a hundredth of the largest, {steps} steps resolve neither of them."


def _near_zero(first: Spectrum, second: Spectrum) -> float:
    """The part of W₁ that lies within a hundredth of the largest |λ|."""
    x = torch.cat([first.nodes.flatten(), second.nodes.flatten()]).sort().values
    middle = (x[1:] + x[:-1]).abs() / 2
    inside = middle < 0.01 * max(map(abs, first.range))
    return float(((first.cdf(x) - second.cdf(x)).abs()[:-1] * x.diff())[inside].sum())


def tails_in_words(part: str) -> Callable[[Record], str]:
    """The ends of the three bulks, in words."""

    def words(record: Record) -> str:
        H, G, E = (bulk(record, f"{part}/{matrix}").range[1] for matrix in "HGE")
        return f"Its bulk ends at {H:.3g}, that of G at {G:.3g} and E at {E:.3g}."

    return words


def more_comparable(record: Record) -> float:
    """The ratio of the bulks of G and H on test over that on train."""
    return bulk_ratio(record, "test") / bulk_ratio(record, "train")


def energy(record: Record, part: str) -> float:
    """∫λ² of E over that of the bulk of H."""
    E, H = (bulk(record, f"{part}/{matrix}").moment(2) for matrix in ("E", "H"))
    return E / H


def statements(paper: str, figure: str) -> tuple[Statement, ...]:
    """The statements of either paper; that of 2019 calls E H, and says more about the tails."""
    outliers, whole, interlacing_tails = _of_both(paper, figure)
    own = _of_2020(paper, figure) if paper == PAPER else _of_2019(paper, figure)
    return (*outliers, *own, *whole, *interlacing_tails)


def _of_both(paper: str, figure: str) -> tuple[tuple[Statement, ...], ...]:
    says = partial(Statement, paper=paper)
    return ((
        says(
            "The outliers of H are those of G, at about the same places (largest |λ_k(H)/λ_k(G) - 1|, k = 1 … C).",
            where=f"{figure}a", measured=by_part(displaced), rule=each(at_most(0.1, partly=0.4)), expected=0.0,
            why="The smaller ones among them are moved by E.",
        ),
        says(
            "E has no outliers: knocking out G eliminates them (max |λ(E)| over the least of C outliers of H).",
            where=f"{figure}a", measured=by_part(largest_of_E), rule=each(at_most(0.5, partly=1.0)),
            expected="below 1", why="E comes near the least outliers of H, or reaches them.",
        ),
    ), (
        says(
            "The bulk originates largely from E (W₁ between the bulk of H and E, over the mean |λ| of that bulk).",
            where=f"{figure}b", measured=by_part(unlike), rule=each(at_most(0.3, partly=0.7)), expected=0.0,
            why=bulk_in_words,
        ),
    ), (
        says(
            "The upper tails of the test Hessian and of G interlace (share of certified eigenvalues that do).",
            where=f"{figure}b", measured=interlacing, rule=at_least(0.95, partly=0.6), expected=1.0,
            why="Cauchy's theorem is for summands of rank one; E has any rank.",
        ),
    ))  # fmt: skip


def _of_2020(paper: str, figure: str) -> tuple[Statement, ...]:
    return (
        Statement(
            "Knocking out E shrinks the bulk significantly (root mean square of the bulk of G over that of H).",
            paper, f"{figure}b", measured=by_part(bulk_ratio), rule=each(at_most(0.5, partly=0.8)),
            expected="below 1", why="G has a good part of the bulk.",
        ),
    )  # fmt: skip


def _of_2019(paper: str, figure: str) -> tuple[Statement, ...]:
    says = partial(Statement, paper=paper)
    return (
        says(
            "On train the bulk of G is much smaller than that of H (ratio of their root mean squares).",
            where=f"{figure}a", measured=partial(bulk_ratio, part="train"), rule=at_most(0.3, partly=0.8),
            expected="small", why="G has a good part of the bulk of H.",
        ),
        says(
            "On test it is more comparable (that ratio on test over that on train).",
            where=f"{figure}a", measured=more_comparable, rule=at_least(1.5, partly=1.0), expected="above 1",
            why="The share of G in the bulk is no larger on test.",
        ),
        says(
            "Most of the energy in the bulk can be attributed to E (∫λ² of E over that of the bulk of H).",
            where="Sec. 4", measured=by_part(energy), rule=each(within(0.5, 1.5, partly=(0.2, 3.0))), expected=1.0,
            why="G has more of it, or the two cancel.",
        ),
        says(
            "The upper tail of the train Hessian is due to E (distance of its bulk's end in ln λ from the end of E, "
            "over the distances from E and G together).",
            where=f"{figure}b", measured=tail_from("E", "train"), rule=at_most(0.35, partly=0.5), expected=0.0,
            why=tails_in_words("train"),
        ),
        says(
            "The upper tail of the test Hessian is due to G (distance of its bulk's end in ln λ from the end of G, "
            "over the distances from E and G together).",
            where=f"{figure}b", measured=tail_from("G", "test"), rule=at_most(0.35, partly=0.5), expected=0.0,
            why=tails_in_words("test"),
        ),
    )  # fmt: skip


COMPUTATION = "papyan2020.components"
PRINTED = {
    "network.network": '"The network is VGG11"',
    "network.data": '"it was trained on MNIST sub-sampled to 5000 examples per class"',
    "network.per_class": '"sub-sampled to 5000 examples per class"',
}
PRESETS = {
    "paper": Config(),
    "laptop": Config(SMALL, Method(num_steps=64, num_examples=300)),
    "smoke": Config(TINY, SMOKE_METHOD),
}
TITLE = "The Hessian of VGG11 on MNIST and its summands G and E"
FIGURES = {
    "papyan2020.fig4": Figure(
        "papyan2020.fig4",
        TITLE,
        PRESETS,
        run,
        draw,
        statements(PAPER, "Sec. 5.1, Fig. 4"),
        COMPUTATION,
        printed=PRINTED,
    )
}
