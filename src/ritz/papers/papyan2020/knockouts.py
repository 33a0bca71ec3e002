"""Figure 5, and Figure 1 of papyan2019: the log spectrum of G with every part of it knocked out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ... import plot
from ...record import Picture, Record
from ..frame.figure import Context, Figure
from ..frame.loans import Loan
from ..frame.statements import Statement, at_least, at_most, each, near, within
from . import gradients
from .gradients import Exact, Measurement, Network, Quadrature
from .knockout_numbers import (
    CLOSE,
    LOWEST,
    WIDTH,
    bulk_share,
    exact_spectrum,
    explained,
    explained_by_means,
    height_of_main,
    in_means,
    lanczos_error,
    lanczos_spectrum,
    least_layer,
    left_of_outliers,
    lost_mass,
    lost_mini_bulk,
    missed_decades,
    modes,
    outliers,
    outliers_in_words,
    own_effect,
    own_trace,
    per_seed,
    place_of_main,
    position,
    right_from,
    seeds,
    unresolved,
    values_of,
)
from .paper import BEYOND, PAPER
from .pictures import of_seeds
from .setting import NUM_CLASSES, Piece, Training, dynamics_piece

C = NUM_CLASSES
PANELS = {
    "G": "$G$",
    "class": r"$G - G_\mathrm{class}$",
    "cross": r"$G - G_\mathrm{cross}$",
    "within": r"$G - G_\mathrm{within}$",
    "own": r"$G - G_{c=c'}$",
}
COMPUTATION = "papyan2020.knockouts"
TITLE = "The log spectrum of G, and of G without each of its parts"
MARKED = 2 * NUM_CLASSES  # of the largest eigenvalues
PIECE = dynamics_piece(136, 0)  # the caption


@dataclass(frozen=True)
class Config:
    """VGG11 on 136 examples a class of CIFAR-10, at the end of its training."""

    piece: Piece = PIECE
    seeds: tuple[int, ...] = (0,)  # open: print shows one network; more of them say how much it differs from the next
    num_steps: int = 2048  # "we compute the log-spectrum, in which case we use M=2048 iterations"; exact beside them
    digits: gradients.Digits = "float64"  # open: of the Gram matrix


def measurements(config: Config) -> dict[str, Measurement]:
    """The tasks by prefix: exact spectra for every seed, Lanczos, and the composition of the largest eigenvectors."""
    tasks: dict[str, Measurement] = {}
    for seed in config.seeds:
        piece = config.piece.with_seed(seed)
        end = Network(piece, piece.num_epochs)
        tasks |= {
            f"{seed}/exact": (gradients.exact, Exact(end, digits=config.digits)),
            f"{seed}/lanczos": (gradients.quadrature, Quadrature(end, config.num_steps, 0)),
            f"{seed}/origins": (gradients.origins, end),
        }
    return tasks


def run(config: Config, context: Context) -> dict[str, Any]:
    """All measurements of every seed."""
    return gradients.measured(measurements(config), context)


def loans(config: Config) -> list[Loan]:
    """The results of sweeps in a record of this config."""
    return gradients.loans(measurements(config))


def draw(record: Record) -> Picture:
    """The figure as printed: a panel for G, with Lanczos, and for each knockout; the first seed."""
    figure, axes = plot.panels(1, len(PANELS), width=6.0, height=1.15, shared=True)
    G = exact_spectrum(record, seeds(record)[0], "G")
    floor = LOWEST * G.range[1]
    for ax, (name, title) in zip(axes, PANELS.items(), strict=True):
        plot.counts(ax, exact_spectrum(record, seeds(record)[0], name), floor=floor, width=WIDTH, color=plot.COLOURS[0])
        ax.set_title(title, fontsize="small", loc="left", pad=2)
        _mark(ax, values_of(record, seeds(record)[0], name))
        ax.label_outer()
    plot.counts(
        axes[0],
        lanczos_spectrum(record, seeds(record)[0]),
        floor=floor,
        width=WIDTH,
        color=plot.COLOURS[1],
        linewidth=0.8,
    )
    title = f"$G$: exact (blue), and {record.config['num_steps']:,} Lanczos steps (orange); ticks: the {MARKED} largest"
    axes[0].set_title(f"{title}{of_seeds(record)}", fontsize="small", loc="left", pad=2)
    axes[0].label_outer()
    axes[-1].set_xlabel("eigenvalue λ")
    return figure


def _mark(ax: Axes, values: np.ndarray) -> None:
    """The largest eigenvalues one by one, below the curve: where two lie close, it shows one hump."""
    low, high = ax.get_ylim()
    ax.vlines(values[:MARKED], low, low * (high / low) ** 0.12, color="black", linewidth=0.6)


def statements(paper: str) -> tuple[Statement, ...]:
    """The statements of both papers, each in its own words: 2019 has two bulks and outliers, 2020 three bulks."""
    first = paper == PAPER
    where, section = ("Fig. 5", "Sec. 6.1") if first else ("Fig. 1", "Sec. 4")
    return (*_printed(paper, where, section, first), *_about_lanczos(where), *_about_eigenvectors(section))


def _printed(paper: str, where: str, section: str, first: bool) -> tuple[Statement, ...]:
    names = ("G_class", "G_cross", "G_within", "G_c=c'") if first else ("A₁", "B₁", "B₂", "A₂")
    bulks = "three separated bulks" if first else "outliers and two bulks"
    return (
        Statement(
            f"The log spectrum of G has {bulks} (maxima of the smoothed count of eigenvalues).",
            paper, where, measured=per_seed(modes), rule=each(within(3, 3, partly=(2, 4))), expected=3,
            why="Neighbouring bulks overlap, or one of them is spread over decades with maxima of its own.",
        ),
        *(_of_the_main_bulk(paper, section) if first else ()),
        Statement(
            "C eigenvalues of G are outliers (how many lie above the largest of the within part).",
            paper, section, measured=per_seed(outliers), rule=each(near(C, relative=0.11, partly=0.3)), expected=C,
            why=outliers_in_words,
        ),
        Statement(
            f"Once {names[0]} is knocked out, the C outliers disappear (how many eigenvalues are left where they "
            "were).",
            paper, where, measured=left_of_outliers, rule=each(at_most(0, partly=C / 2)), expected=0,
            why="Cross-class means reach as high as the least of the outliers.",
        ),
        Statement(
            f"Once {names[1]} is knocked out, the left {'mini-bulk' if first else 'bulk'} disappears (of the "
            "eigenvalues of G where its own lie, the share that goes).",
            paper, where, measured=per_seed(lost_mini_bulk), rule=each(at_least(0.5, partly=0.1)), expected=1.0,
            why="Where the cross-class means have their eigenvalues, G_within has many more of its own.",
        ),
        Statement(
            f"The bulk of {names[1]} lies left of that of {names[2]} (log₁₀ of the ratio of where they lie).",
            paper, where, measured=position, rule=each(at_most(-0.3, partly=0.0)), expected=-1.0,
            why={
                "partly": "The two lie at about the same place.",
                "no": "More than half of the eigenvalues of G_within are smaller than half of those of G_cross.",
            },
        ),
        Statement(
            f"{names[2]} causes the main bulk (its trace over that of G without the C outliers).",
            paper, section, measured=per_seed(bulk_share), rule=each(within(0.8, 1.2, partly=(0.5, 2.0))),
            expected=1.0, why="Class and cross-class means have a part in what is no outlier.",
        ),
        Statement(
            f"Once {names[2]} is knocked out, the {'main' if first else 'right'} bulk disappears (of the trace of G "
            "where its own lies, the share that goes).",
            paper, where, measured=per_seed(lost_mass), rule=each(at_least(0.5, partly=0.1)), expected=1.0,
            why="Others lie there, too.",
        ),
        Statement(
            f"{names[3]} is negligible: its means are about zero at convergence (its trace over that of {names[0]}).",
            paper, section, measured=per_seed(own_trace), rule=each(at_most(0.01, partly=0.1)), expected=0.0,
            why="Gradients of the own class are not zero on average.",
        ),
        Statement(
            f"Subtracting {names[3]} has no clear effect (its change of log λ over the least of the other knockouts).",
            paper, where, measured=per_seed(own_effect), rule=each(at_most(0.1, partly=0.5)), expected=0.0,
            why="Gradients of the own class are not zero on average: training has not converged.",
        ),
    )  # fmt: skip


def _of_the_main_bulk(paper: str, section: str) -> tuple[Statement, ...]:
    return (
        Statement(
            "The bulk in the middle is the main one (which of the maxima, from the left, is the highest).",
            paper, section, measured=per_seed(place_of_main), rule=each(within(2, 2)), expected=2,
            why="The main bulk is another, counted from the left: with 1, nothing stands apart on its left.",
        ),
        Statement(
            "The other bulks have a very low density beside the main one (its height over that of the next).",
            paper, section, measured=per_seed(height_of_main), rule=each(at_least(10.0, partly=2.0)),
            expected="far above 1", why="There is one bulk alone, or another as high.",
        ),
        Statement(
            "The spectrum of log G exposes what that of G does not (the share of the eigenvalues of G_cross that 128 "
            "Lanczos steps do not tell from zero).",
            paper, section, measured=per_seed(unresolved), rule=each(at_least(0.9, partly=0.4)), expected=1.0,
            why="Only so large a share lies in the peak at zero: the others are seen on a linear axis, too.",
        ),
    )  # fmt: skip


def _about_lanczos(where: str) -> tuple[Statement, ...]:
    return (
        Statement(
            "Lanczos, in 2,048 steps at preset paper, gives the log spectrum down to 1e-8 of λ_max (∫ |q - q̂| d log λ "
            "over half of ∫ q + q̂: 0 to 2).",
            BEYOND, where, measured=per_seed(lanczos_error), rule=each(at_most(CLOSE, partly=0.5)), expected=0.0,
            why="Small eigenvalues spread over decades; in float32 and with few nodes they gather in one bulk.",
        ),
        Statement(
            "It does down to 1e-5 of λ_max (log₁₀ of the least λ/λ_max above which that distance is a tenth at most).",
            BEYOND, where, measured=per_seed(right_from), rule=each(at_most(-5.0, partly=-3.0)), expected=-8.0,
            why="The nodes of a quadrature are dense at the top of the range, and few below.",
        ),
        Statement(
            "Lanczos misses no decade of λ (share of decades where it counts less than half of the eigenvalues, or "
            "more than twice as many).",
            BEYOND, where, measured=per_seed(missed_decades), rule=each(at_most(0.0, partly=0.5)), expected=0.0,
            why="The nodes of a quadrature are dense at the top of the range, and few below.",
        ),
    )  # fmt: skip


def _about_eigenvectors(section: str) -> tuple[Statement, ...]:
    return (
        Statement(
            "The C largest eigenvectors of G lie in the span of the class means (mean ‖Pv‖²).",
            BEYOND, section, measured=in_means("G"), rule=each(at_least(0.9, partly=0.5)), expected=1.0,
            why="The spread within classes turns them.",
        ),
        Statement(
            "Each layer's part of these eigenvectors lies in the span of its own part of the means (mean ‖Pv‖² over "
            "‖v‖², the least of all layers).",
            BEYOND, section, measured=least_layer, rule=each(at_least(0.9, partly=0.5)), expected=1.0,
            why="Where a layer has little part in them, its part is not made of class means.",
        ),
        Statement(
            "The C largest eigenvectors of H lie in the span of the class means, too (mean ‖Pv‖²).",
            BEYOND, section, measured=in_means("H"), rule=each(at_least(0.9, partly=0.5)), expected=1.0,
            why="E turns them further.",
        ),
        Statement(
            "G explains the C largest eigenvalues of H (mean share).",
            BEYOND, section, measured=per_seed(explained), rule=each(at_least(0.9, partly=0.5)), expected=1.0,
            why="E has a part in them.",
        ),
        Statement(
            "The means alone explain them (mean share of the three parts of G that are made of means).",
            BEYOND, section, measured=per_seed(explained_by_means), rule=each(at_least(0.9, partly=0.5)),
            expected=1.0, why="The spread within classes, or E, has a part in them.",
        ),
    )  # fmt: skip


BRIEF = Training(num_epochs=3, batch_size=32, rates=(0.05,), num_errors=3)
PRESETS = {
    "paper": Config(seeds=(0, 1, 2)),
    "laptop": Config(
        Piece("vgg11", "cifar10", 13, training=Training(num_epochs=40, rates=(0.03,), num_errors=4), narrow=8),
        (0,),
        512,
    ),
    "smoke": Config(Piece("mlp", "digits", 4, pauses=(1,), training=BRIEF, width=16, depth=3), (0,), 60),
}
PRINTED = {
    f"piece.{name}": '"VGG11 and it was trained on CIFAR10 subsampled to 136 examples per class"'
    for name in ("network", "data", "per_class")
}
FIGURES = {
    "papyan2020.fig5": Figure(
        "papyan2020.fig5", TITLE, PRESETS, run, draw, statements(PAPER), COMPUTATION, loans=loans, printed=PRINTED
    )
}
