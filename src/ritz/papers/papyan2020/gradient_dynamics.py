"""Figure 6, and Figure 7 of papyan2019: the log spectrum of G and its parts, by epochs and sample sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure

from ... import plot
from ...record import Picture, Record
from ...risk.precision import Precision
from ..frame.figure import Context, Figure
from ..frame.loans import Loan
from ..frame.statements import Statement, at_least, at_most, each, within
from . import gradients
from .dynamics_numbers import (
    FLOOR,
    MEANS,
    WIDTH,
    beside,
    cells_of,
    class_change,
    cross_alignment,
    exactly,
    in_means,
    in_the_gap,
    largest_alignment,
    last_eigenvalues,
    num_bulks,
    panel,
    seen_cells,
    separation,
    spread_alignment,
    variation,
)
from .gradients import Exact, Measurement, Network, Quadrature, spectrum_of, with_zeros
from .paper import BEYOND, PAPER
from .pictures import of_seeds
from .setting import NUM_CLASSES, SIZES, Piece, Training, dynamics_piece

C = NUM_CLASSES
PIECE = dynamics_piece(SIZES[0], 0)
COMPUTATION = "papyan2020.gradient_dynamics"
DOTS = {  # from below, in the colours of the caption
    "the C largest of G": plot.COLOURS[1],
    r"the C largest of its means ($G_\mathrm{class}$)": plot.COLOURS[3],
    r"the next C(C - 2) ($G_\mathrm{cross}$)": plot.COLOURS[2],
    r"the average of $G_\mathrm{within}$, by class": "#b00020",
}
TITLE = "The log spectrum of G and its parts, by epochs and sample sizes"
SPECTRA = ("G", "within")  # "within" knocked out leaves G_class + G_cross + G_c=c'


@dataclass(frozen=True)
class Config:
    """VGG11 on CIFAR-10, kept at several epochs, at several sample sizes."""

    piece: Piece = PIECE  # of the first size and seed
    sizes: tuple[int, ...] = SIZES  # "20 training sample sizes logarithmically spaced": five of them, a class
    seeds: tuple[int, ...] = (0, 1, 2)  # open: print shows one network; more of them say how much it differs
    exact: int = 365  # open: examples a class up to which there is a Gram matrix; beyond, Lanczos
    compared: int = 365  # open: examples a class at which both stand side by side, at the last epoch, from one seed
    followed: int = 136  # open: examples a class at which the largest eigenvectors are taken apart, from one seed
    num_steps: int = 256  # "we compute the log-spectrum, in which case we use M=2048 iterations": fewer for its cost
    digits: gradients.Digits = "float64"  # open: of the Gram matrix
    precision: Precision = "high"  # open: of Lanczos on a GPU, TF32 in the linear maps


@dataclass(frozen=True)
class Cell:
    """One panel: a network at an epoch."""

    piece: Piece
    epoch: int

    @property
    def name(self) -> str:
        """The prefix of its results in a record."""
        return f"{self.piece.seed}/{self.piece.per_class}/{self.epoch}"

    @property
    def network(self) -> Network:
        """The network that is measured."""
        return Network(self.piece, self.epoch)


@dataclass(frozen=True)
class Cells:
    """All panels of a config, and which of them are measured how."""

    config: Config

    def all(self) -> list[Cell]:
        """Every network at every epoch at which it was kept."""
        config = self.config
        networks = product(config.sizes, config.seeds)
        pieces = [replace(config.piece, per_class=size, seed=seed) for size, seed in networks]
        return [Cell(piece, epoch) for piece in pieces for epoch in piece.epochs]

    def exact(self) -> list[Cell]:
        """Those with a Gram matrix: the small ones, and all that are measured both ways."""
        return [cell for cell in self.all() if self._is_exact(cell)]

    def by_lanczos(self) -> list[Cell]:
        """Those with a quadrature: the large ones, then those that are measured both ways."""
        return [*self.large(), *(cell for cell in self.all() if self._is_compared(cell))]

    def large(self) -> list[Cell]:
        """Those that have no Gram matrix."""
        return [cell for cell in self.all() if not self._is_exact(cell)]

    def followed(self) -> list[Cell]:
        """Those whose largest eigenvectors are taken apart."""
        chosen = (self.config.followed, self.config.seeds[0])
        return [cell for cell in self.all() if (cell.piece.per_class, cell.piece.seed) == chosen]

    def _is_exact(self, cell: Cell) -> bool:
        return cell.piece.per_class <= self.config.exact or self._is_compared(cell)

    def _is_compared(self, cell: Cell) -> bool:
        """Whether the panel is measured both ways: at the last epoch, at one size, from one seed."""
        piece, one = cell.piece, (self.config.compared, self.config.seeds[0])
        return (piece.per_class, piece.seed) == one and cell.epoch == piece.num_epochs


def measurements(config: Config) -> dict[str, Measurement]:
    """The tasks for all panels by prefix: exact if a Gram matrix fits, else by Lanczos and the means."""
    cells = Cells(config)
    steps = partial(Quadrature, num_steps=config.num_steps, precision=config.precision)
    return {
        **{c.name: (gradients.exact, Exact(c.network, SPECTRA, config.digits)) for c in cells.exact()},
        **{f"{c.name}/lanczos": (gradients.quadrature, steps(c.network)) for c in cells.by_lanczos()},
        **{f"{c.name}/origins": (gradients.origins, c.network) for c in cells.followed()},
        **{f"{c.name}/parts": (gradients.parts, c.network) for c in cells.large()},
    }


def run(config: Config, context: Context) -> dict[str, Any]:
    """All measurements of all panels."""
    return gradients.measured(measurements(config), context)


def loans(config: Config) -> list[Loan]:
    """The results of sweeps in a record of this config."""
    return gradients.loans(measurements(config))


def draw(record: Record) -> Picture:
    """The figure as printed: a column for each sample size, a row for each epoch; the first seed."""
    seed = cells_of(record)[0][0]
    cells = [cell for cell in cells_of(record) if cell[0] == seed]
    sizes, epochs = (sorted({cell[i] for cell in cells}) for i in (1, 2))
    figure, axes = plot.panels(len(sizes), len(epochs), width=2.3, height=1.5, shared=True)
    for ax, (epoch, size) in zip(axes, product(epochs, sizes), strict=True):
        drawn = (seed, size, epoch) in seen_cells(record)
        if drawn:
            _draw_panel(ax, record, (seed, size, epoch))
        title = f"{size} a class, epoch {epoch}" + _how(record, (seed, size, epoch), drawn=drawn)
        ax.set_title(title, fontsize=7, loc="left", pad=2)
        ax.label_outer()
    _share_ranges(axes, right=max(panel(record, *cell).top[0] for cell in cells))
    figure.supxlabel(f"eigenvalue λ{of_seeds(record)}", fontsize=8)
    _add_legend(figure, axes, num_columns=len(sizes))
    return figure


def _share_ranges(axes: Sequence[Axes], right: float) -> None:
    """Give all panels one range of eigenvalues, up to twice the largest, and one of counts."""
    high = 2 * max(float(np.max(line.get_ydata(), initial=1.0)) for ax in axes for line in ax.lines)
    for ax in axes:
        ax.set(xlim=(FLOOR, 2 * right), ylim=(ax.get_ylim()[0], high))


def _add_legend(figure: MatplotlibFigure, axes: Sequence[Axes], num_columns: int) -> None:
    named = next(ax for ax in axes if ax.lines)
    figure.legend(
        *named.get_legend_handles_labels(),
        loc="outside upper center",
        ncols=2 if num_columns > 2 else 1,  # one column is hardly wider than an entry
        frameon=False,
        fontsize=7 if num_columns > 1 else 6,
        markerscale=2,
    )


def _how(record: Record, cell: tuple[int, int, int], *, drawn: bool) -> str:
    """How a panel was computed, if not exactly."""
    if not drawn:
        return ": G = 0"
    return "" if panel(record, *cell).exact else " (Lanczos)"


def _draw_panel(ax: Axes, record: Record, cell: tuple[int, int, int]) -> None:
    one, name = panel(record, *cell), "/".join(map(str, cell))
    prefix = f"{name}/G" if one.exact else f"{name}/lanczos/G"
    facts = record.scalars[f"{name}/facts" if one.exact else f"{name}/lanczos/facts"]
    spectrum = spectrum_of(record, prefix, int(facts["size"]), None if one.exact else facts["resolution"])
    if not one.exact:
        spectrum = with_zeros(spectrum, C * cell[1] * (C - 1))
    plot.counts(ax, spectrum, floor=FLOOR, width=WIDTH, color=plot.COLOURS[0], linewidth=0.9, label="G")
    ax.set_xlabel("")
    low = ax.get_ylim()[0]
    groups = (one.top, one.means[:C], one.means[C : C + MEANS], one.within)
    for row, (values, (name, colour)) in enumerate(zip(groups, DOTS.items(), strict=True)):
        height = 1.5 * 2**row
        seen = values[values > FLOOR]
        ax.plot(seen, np.full(len(seen), height * low), "o", ms=1.8, mew=0, color=colour, label=name)


def statements(paper: str) -> tuple[Statement, ...]:
    """The statements that both papers make."""
    first = paper == PAPER
    where, section = ("Fig. 6", "Sec. 6.2") if first else ("Fig. 7", "Sec. 4")
    cross, spread = ("G_cross", "G_within") if first else ("B₁", "B₂")
    both = (
        Statement(
            f"Increasing the number of epochs separates the bulks of {cross} and {spread} (Spearman's ρ of their "
            "distance in log λ with the epoch).",
            paper, section, measured=separation("epoch"), rule=each(at_least(0.8, partly=0.0)), expected=1.0,
            why="The distance does not grow with every epoch, or the two change places.",
        ),
        Statement(
            "Increasing the sample size draws these bulks closer (Spearman's ρ of that distance with the sample size).",
            paper, section, measured=separation("size"), rule=each(at_most(-0.8, partly=0.0)), expected=-1.0,
            why="The distance does not fall with every size, or the two change places.",
        ),
        Statement(
            "The C outliers of G align with the eigenvalues of its class means (mean |log₁₀| of their ratios).",
            paper, where, measured=largest_alignment, rule=each(at_most(0.05, partly=0.3)), expected=0.0,
            why="The spread within classes raises the largest eigenvalues above those of the means.",
        ),
        Statement(
            "The final C eigenvalues of G_class + G_cross + G_c=c' are less than " + ("1e-4" if first else "1e-5")
            + " (the largest of all panels).",
            paper, where, measured=last_eigenvalues, rule=at_most(1e-4 if first else 1e-5, partly=1e-3), expected=0.0,
            why={
                "yes": "They are zero but for rounding: the sum has a rank of C(C - 1).",
                "partly": "They should be zero: the sum has a rank of C(C - 1).",
                "no": "They should be zero: the sum has a rank of C(C - 1).",
            },
        ),
        Statement(
            "Where both are measured, at 365 examples a class at preset paper, Lanczos is near the exact log spectrum "
            "(∫ |q - q̂| d log λ, of 2 at most).",
            BEYOND, where, measured=beside, rule=each(at_most(0.1, partly=0.5)), expected=0.0,
            why="One probe gives each eigenvalue a random weight, and few nodes are left for small ones.",
        ),
        Statement(
            "The C largest eigenvectors of G lie in the span of its class means all along training (mean ‖Pv‖²).",
            BEYOND, section, measured=in_means, rule=each(at_least(0.9, partly=0.5)), expected=1.0,
            why="The spread within classes turns them.",
        ),
    )  # fmt: skip
    return (*both, *(_of_2020(paper, where, section) if first else _of_2019(paper, where, section)))


def _of_2020(paper: str, where: str, section: str) -> tuple[Statement, ...]:
    """The statements of the later paper alone."""
    return (
        Statement(
            "The C² outliers of G align with the eigenvalues of G_cross (|log₁₀| of their median over the nearest bulk "
            "of G, its main one only where there is no other; exact panels).",
            paper, section, measured=exactly(cross_alignment), rule=each(at_most(0.3, partly=1.0)), expected=0.0,
            why="G has no such bulk there: G_within has as large eigenvalues, and more of them.",
        ),
        Statement(
            "The main bulk of G aligns with the average of G_within (|log₁₀| of where it is highest over that "
            "average).",
            paper, section, measured=exactly(spread_alignment), rule=each(at_most(0.3, partly=1.0)), expected=0.0,
            why="It spreads over decades: its average lies at its upper end.",
        ),
        Statement(
            "Neither epochs nor sample size change the distance between G_class and G_within significantly (range of "
            "log₁₀ of their ratio).",
            paper, section, measured=class_change, rule=each(within(0.0, 0.5, partly=(0.0, 1.0))), expected=0.0,
            why="Class means and spread do not shrink alike.",
        ),
    )  # fmt: skip


def _of_2019(paper: str, where: str, section: str) -> tuple[Statement, ...]:
    """The statements of the earlier paper alone."""
    return (
        Statement(
            "There are two bulks beside the outliers (maxima of the count of eigenvalues above 1e-5, exact panels).",
            paper, where, measured=exactly(num_bulks), rule=each(within(2, 2)), expected=2,
            why="The eigenvalues of B₁ lie among those of B₂.",
        ),
        Statement(
            "At 13 a class, epoch 350, the gap from 1e-5 to 1e-4 is due to too few steps (exact eigenvalues in it, the "
            "least of all seeds).",
            paper, where, measured=in_the_gap, rule=at_least(1), expected="above 0",
            why="There are none: it is a gap of the spectrum.",
        ),
        Statement(
            "The covariance of the gradients varies along training (largest tr G over the least).",
            paper, section, measured=variation, rule=each(at_least(2.0, partly=1.2)), expected=2.0,
            why="The trace of G stays about the same.",
        ),
    )  # fmt: skip


BRIEF = Training(num_epochs=3, batch_size=32, rates=(0.05,), num_errors=3)
PRESETS = {
    "paper": Config(),
    "laptop": Config(
        Piece("vgg11", "cifar10", 13, 0, (1, 5, 20), Training(num_epochs=60, rates=(0.03,), num_errors=4), 8),
        (13, 26),
        (0,),
        13,
        13,
        13,
        64,
    ),
    "smoke": Config(Piece("mlp", "digits", 4, 0, (1,), BRIEF, width=16, depth=3), (4, 6), (0,), 4, 4, 4, 30),
}
FIGURES = {
    "papyan2020.fig6": Figure("papyan2020.fig6", TITLE, PRESETS, run, draw, statements(PAPER), COMPUTATION, loans=loans)
}
