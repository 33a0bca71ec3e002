"""Figure 6, and Figure 7 of papyan2019: the log spectrum of G and its parts, by epochs and sample sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes

from ... import plot
from ...record import Picture, Record
from ...risk.precision import Precision
from ..frame.figure import Context, Figure
from ..frame.statements import Statement, at_least, at_most, each, within
from ..frame.statistics import spearman
from . import gradients
from .gradients import Exact, Network, Quadrature, eigenvalues, spectrum_of
from .networks import Place, on_shelf
from .paper import BEYOND, PAPER
from .setting import NUM_CLASSES, SIZES, Piece, Training, dynamics_piece

C = NUM_CLASSES
FLOOR = 1e-5  # "we approximate the spectrum of log(G + 1e-5 I)"
MEANS = C * (C - 2)  # eigenvalues of G_cross; the C that are printed as those of G_c=c' are zero
WIDTH = 0.25  # of a Gaussian in log λ
PIECE = dynamics_piece(SIZES[0], 0)
COMPUTATION = "papyan2020.gradient_dynamics"
TITLE = "The log spectrum of G and its parts, by epochs and sample sizes"
SPECTRA = ("G", "within")  # "within" knocked out leaves G_class + G_cross + G_c=c'


@dataclass(frozen=True)
class Config:
    """VGG11 on CIFAR-10, kept at several epochs, at several sample sizes."""

    piece: Piece = PIECE  # of the first size and seed
    sizes: tuple[int, ...] = SIZES  # "20 training sample sizes logarithmically spaced": five of them, a class
    seeds: tuple[int, ...] = (0,)  # open: print shows one network; more of them say how much it differs from the next
    exact: int = 365  # open: examples a class up to which there is a Gram matrix; beyond, Lanczos
    compared: int = 365  # open: examples a class at which both stand side by side, at the last epoch
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
        """Where its results stand in a record."""
        return f"{self.piece.seed}/{self.piece.per_class}/{self.epoch}"

    @property
    def network(self) -> Network:
        """What is measured."""
        return Network(self.piece, self.epoch)


def run(config: Config, context: Context) -> dict[str, Any]:
    """Every panel: exactly where a Gram matrix fits, by Lanczos and the means beyond."""
    place, context = Place.of(context), on_shelf(context)
    pieces = [replace(config.piece, per_class=size, seed=seed) for seed in config.seeds for size in config.sizes]
    cells = [Cell(piece, epoch) for piece in pieces for epoch in piece.epochs]
    beside = [c for c in cells if c.piece.per_class == config.compared and c.epoch == c.piece.num_epochs]
    small = [c for c in cells if c.piece.per_class <= config.exact or c in beside]
    large = [c for c in cells if c not in small]
    result: dict[str, Any] = {}
    _gather(result, context, gradients.exact, place, {c.name: Exact(c.network, SPECTRA, config.digits) for c in small})
    steps = {c.name: Quadrature(c.network, config.num_steps, precision=config.precision) for c in [*large, *beside]}
    _gather(result, context, gradients.quadrature, place, steps, prefix="lanczos/")
    followed = [c for c in cells if (c.piece.per_class, c.piece.seed) == (config.followed, config.seeds[0])]
    _gather(result, context, gradients.origins, place, {c.name: c.network for c in followed}, prefix="origins/")
    _gather(result, context, gradients.parts, place, {c.name: c.network for c in large}, prefix="parts/")
    return result


def _gather(
    result: dict[str, Any],
    context: Context,
    task: Callable[..., Any],
    place: Place,
    measurements: Mapping[str, Any],
    *,
    prefix: str = "",
) -> None:
    """The records of a sweep, under the names of their panels."""
    records = context.sweep(partial(task, place=place), measurements.values()) if measurements else []
    for name, record in zip(measurements, records, strict=True):
        result.update({f"{name}/{prefix}{key}": value for key, value in record.arrays.items()})
        result[f"{name}/{prefix}facts"] = dict(record.scalars)


def cells_of(record: Record) -> list[tuple[int, int, int]]:
    """(seed, examples a class, epoch) of every panel that a record has."""
    names = {tuple(name.split("/")[:3]) for name in record.arrays}
    return sorted((int(seed), int(size), int(epoch)) for seed, size, epoch in names)


def seen_cells(record: Record) -> list[tuple[int, int, int]]:
    """Those where G is not zero: a network in test mode after two steps may be sure of everything."""
    return [cell for cell in cells_of(record) if panel(record, *cell).top[0] > 0]


@dataclass(frozen=True)
class Panel:
    """What a panel shows: the eigenvalues of G, those of its class and cross-class means, and G_within's averages."""

    top: np.ndarray  # the C largest of G
    means: np.ndarray  # of G_class + G_cross + G_c=c', largest first
    within: np.ndarray  # tr G_within,c / N by class, in units of an eigenvalue of G: times C, for w holds 1/(NC)
    exact: bool


def panel(record: Record, seed: int, size: int, epoch: int) -> Panel:
    """The numbers of one panel."""
    name = f"{seed}/{size}/{epoch}"
    if f"{name}/G/nodes" in record.arrays:
        values, means = (eigenvalues(record, f"{name}/{part}") for part in ("G", "within"))
        return Panel(values[:C], means, record.arrays[f"{name}/within_traces"] / size, True)
    means = np.sort(record.arrays[f"{name}/parts/together/nodes"])[::-1]
    top = np.sort(record.arrays[f"{name}/lanczos/outliers"])[::-1]
    return Panel(top, means, record.arrays[f"{name}/parts/within_traces"] / size, False)


def cross_distance(one: Panel) -> float:
    """log₁₀ of the median eigenvalue of the cross-class means over the average of G_within."""
    cross = one.means[C : C + MEANS]
    return float(np.log10(max(np.median(cross), 1e-30) / one.within.mean()))


def class_distance(one: Panel) -> float:
    """log₁₀ of the mean eigenvalue of the class means over the average of G_within."""
    return float(np.log10(one.means[:C].mean() / one.within.mean()))


def alignment(one: Panel) -> float:
    """The mean |log₁₀| of the ratio of the C largest eigenvalues of G and of its means."""
    return float(np.abs(np.log10(one.top / one.means[:C])).mean())


def along(record: Record, axis: str, measure: Callable[[Panel], float]) -> dict[str, float]:
    """Spearman's ρ of a number of a panel with the epoch or the sample size, the other fixed: medians over seeds."""
    cells, result = seen_cells(record), dict[str, list[float]]()
    seeds, sizes, epochs = (sorted({cell[i] for cell in cells}) for i in range(3))
    fixed, moving = (sizes, epochs) if axis == "epoch" else (epochs, sizes)
    for seed, still in product(seeds, fixed):
        order = [(seed, still, m) if axis == "epoch" else (seed, m, still) for m in moving]
        y = [measure(panel(record, *cell)) if cell in cells else float("nan") for cell in order]
        name = f"{still} a class" if axis == "epoch" else f"epoch {still}"
        result.setdefault(name, []).append(spearman(np.array(moving, dtype=float), np.array(y)))
    medians = {name: float(np.nanmedian(values)) for name, values in result.items() if not np.isnan(values).all()}
    return medians


def separation(axis: str) -> Callable[[Record], dict[str, float] | None]:
    """How |log₁₀| of G_cross over G_within moves with epochs or sample sizes; None for fewer than three of these."""
    return lambda record: along(record, axis, lambda one: abs(cross_distance(one))) or None


def class_change(record: Record) -> dict[str, float]:
    """The range of log₁₀ of G_class over G_within, over all epochs and over all sizes, the larger of the two."""
    cells = seen_cells(record)
    values = {cell: class_distance(panel(record, *cell)) for cell in cells}
    over = {
        "epochs, a size fixed": [[v for c, v in values.items() if c[:2] == key] for key in {c[:2] for c in cells}],
        "sizes, an epoch fixed": [
            [v for c, v in values.items() if (c[0], c[2]) == key] for key in {(c[0], c[2]) for c in cells}
        ],
    }
    return {name: float(np.median([np.ptp(group) for group in groups])) for name, groups in over.items()}


def largest_alignment(record: Record) -> dict[str, float]:
    """The median over seeds and epochs of the distance between the C largest of G and of its means, by size."""
    cells = seen_cells(record)
    sizes = sorted({size for _, size, _ in cells})
    return {
        f"{size} a class": float(np.median([alignment(panel(record, *cell)) for cell in cells if cell[1] == size]))
        for size in sizes
    }


def variation(record: Record) -> dict[str, float]:
    """The largest tr G over the least along training, by size: medians over seeds."""
    result: dict[str, list[float]] = {}
    for seed, size in sorted({cell[:2] for cell in seen_cells(record)}):
        epochs = [cell for cell in seen_cells(record) if cell[:2] == (seed, size)]
        totals = [one.means.sum() + one.within.sum() * size for one in (panel(record, *cell) for cell in epochs)]
        result.setdefault(f"{size} a class", []).append(max(totals) / min(totals))
    return {name: float(np.median(values)) for name, values in result.items()}


def beside(record: Record) -> dict[str, float] | None:
    """∫ |q - q̂| d log λ per eigenvalue above 1e-5, of Lanczos beside the Gram matrix; None where there is none."""
    names = sorted(name.removesuffix("/lanczos/G/nodes") for name in record.arrays if name.endswith("lanczos/G/nodes"))
    names = [name for name in names if f"{name}/G/nodes" in record.arrays]
    return {name: _curve_distance(record, name) for name in names} or None


def _curve_distance(record: Record, name: str) -> float:
    size = int(record.scalars[f"{name}/facts"]["size"])
    resolution = record.scalars[f"{name}/lanczos/facts"]["resolution"]
    exact, ours = spectrum_of(record, f"{name}/G", size), spectrum_of(record, f"{name}/lanczos/G", size, resolution)
    u = torch.linspace(float(np.log(FLOOR)), float(np.log(exact.range[1])) + 4 * WIDTH, 3000, dtype=torch.float64)
    a, b = (s.log_density(u, width=WIDTH, floor=1e-3 * FLOOR) for s in (exact, ours))
    return float(torch.trapezoid((a - b).abs(), u) / torch.trapezoid(a, u))


def in_means(record: Record) -> dict[str, float] | None:
    """The mean ‖Pv‖² of the C largest eigenvectors of G, P the projection on its class means, by epoch."""
    names = [name for name in record.arrays if name.endswith("/origins/G/in_class")]
    epochs = {int(name.split("/")[2]): name for name in names}
    return {f"epoch {epoch}": float(record.arrays[epochs[epoch]][:C].mean()) for epoch in sorted(epochs)} or None


def draw(record: Record) -> Picture:
    """As in print: a column for each sample size, a row for each epoch; the first seed."""
    cells = [cell for cell in cells_of(record) if cell[0] == cells_of(record)[0][0]]
    sizes, epochs = (sorted({cell[i] for cell in cells}) for i in (1, 2))
    figure, axes = plot.panels(len(sizes), len(epochs), width=2.3, height=1.5, shared=True)
    for ax, (epoch, size) in zip(axes, product(epochs, sizes), strict=True):
        drawn = (cells[0][0], size, epoch) in seen_cells(record)
        if drawn:
            _draw_panel(ax, record, (cells[0][0], size, epoch))
        title = f"{size} a class, epoch {epoch}" + ("" if drawn else ": G = 0")
        ax.set_title(title, fontsize=7, loc="left", pad=2)
        ax.label_outer()
    right = max(panel(record, *cell).top[0] for cell in cells)
    for ax in axes:
        ax.set_xlim(FLOOR, 2 * right)
    figure.supxlabel(
        "eigenvalue λ of G (blue); dots from below:\nits C largest, class means, cross-class means, mean of G_within",
        fontsize=7,
    )
    return figure


def _draw_panel(ax: Axes, record: Record, cell: tuple[int, int, int]) -> None:
    one, name = panel(record, *cell), "/".join(map(str, cell))
    prefix = f"{name}/G" if one.exact else f"{name}/lanczos/G"
    facts = record.scalars[f"{name}/facts" if one.exact else f"{name}/lanczos/facts"]
    spectrum = spectrum_of(record, prefix, int(facts["size"]), None if one.exact else facts["resolution"])
    plot.counts(ax, spectrum, floor=FLOOR, width=WIDTH, color=plot.COLOURS[0], linewidth=0.9)
    ax.set_xlabel("")
    low = ax.get_ylim()[0]
    cross, red = one.means[C : C + MEANS], "#b00020"
    colours = (plot.COLOURS[1], plot.COLOURS[3], plot.COLOURS[2], red)
    for row, (values, colour) in enumerate(zip((one.top, one.means[:C], cross, one.within), colours, strict=True)):
        height = 1.5 * 2**row
        seen = values[values > FLOOR]
        ax.plot(seen, np.full(len(seen), height * low), "o", ms=1.8, mew=0, color=colour)


def statements(paper: str) -> tuple[Statement, ...]:
    """What both papers say."""
    first = paper == PAPER
    where, section = ("Fig. 6", "Sec. 6.2") if first else ("Fig. 7", "Sec. 4")
    cross, spread = ("G_cross", "G_within") if first else ("B₁", "B₂")
    say = Statement
    both = (
        say(
            f"Increasing the number of epochs separates the bulks of {cross} and {spread} (Spearman's ρ of their "
            "distance in log λ with the epoch).",
            paper, section, measured=separation("epoch"), rule=each(at_least(0.8, partly=0.0)), expected=1.0,
            why="The distance does not grow all along, or its sign changes.",
        ),
        say(
            "Increasing the sample size draws them closer (the same with the sample size).",
            paper, section, measured=separation("size"), rule=each(at_most(-0.8, partly=0.0)), expected=-1.0,
            why="The distance does not fall with every size, or its sign changes.",
        ),
        say(
            "The C outliers of G align with the eigenvalues of its class means (mean |log₁₀| of their ratios).",
            paper, where, measured=largest_alignment, rule=each(at_most(0.05, partly=0.3)), expected=0.0,
            why="The spread within classes raises the largest eigenvalues above those of the means.",
        ),
        say(
            f"At {365} examples a class Lanczos is near the exact log spectrum (∫ |q - q̂| d log λ, of 2 at most).",
            BEYOND, where, measured=beside, rule=each(at_most(0.1, partly=0.5)), expected=0.0,
            why="One probe gives each eigenvalue a random weight, and few nodes are left for small ones.",
        ),
        say(
            "The C largest eigenvectors of G lie in the span of its class means all along training (mean ‖Pv‖²).",
            BEYOND, section, measured=in_means, rule=each(at_least(0.9, partly=0.5)), expected=1.0,
            why="The spread within classes turns them.",
        ),
    )  # fmt: skip
    own = say(
        "Neither epochs nor sample size change the distance between G_class and G_within significantly (range of "
        "log₁₀ of their ratio).",
        paper, section, measured=class_change, rule=each(within(0.0, 0.5, partly=(0.0, 1.0))), expected=0.0,
        why="Class means and spread do not shrink alike.",
    ) if first else say(
        "The covariance of the gradients varies along training (largest tr G over the least).",
        paper, section, measured=variation, rule=each(at_least(2.0, partly=1.2)), expected=2.0,
        why="The trace of G stays about the same.",
    )  # fmt: skip
    return (*both, own)


BRIEF = Training(num_epochs=3, batch_size=32, rates=(0.05,), num_errors=3)
PRESETS = {
    "paper": Config(),
    "laptop": Config(
        Piece("vgg11", "cifar10", 13, 0, (1, 5, 20), Training(num_epochs=60, rates=(0.03,)), 8),
        (13, 51),
        (0,),
        13,
        13,
        13,
        128,
    ),
    "smoke": Config(Piece("mlp", "digits", 4, 0, (1,), BRIEF, width=16, depth=3), (4, 6), (0,), 4, 4, 4, 30),
}
FIGURES = {"papyan2020.fig6": Figure("papyan2020.fig6", TITLE, PRESETS, run, draw, statements(PAPER), COMPUTATION)}
