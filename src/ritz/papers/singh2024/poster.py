"""The plots of the poster: the outlier pair along training, and a ReLU network's spectrum by cells and by bulk."""

from __future__ import annotations

from functools import partial

import numpy as np

from ... import plot
from ...record import Picture, Record
from ..frame.accuracy import CLOSED_FORM, DISAGREE
from ..frame.figure import Figure
from ..frame.pictures import legend_above, write_title
from ..frame.statements import Statement, each
from ..singh2026 import evolution, relu

says = partial(Statement, paper="singh2024")


def draw_evolution(record: Record) -> Picture:
    """Both outliers and their sum, for the linear network and for the positive cell of the ReLU network."""
    figure, axes = plot.panels(2, width=3.8, height=2.9)
    for ax, kind in zip(axes, evolution.KINDS, strict=True):
        trace = record.arrays[f"{kind}_trace"]
        ax.plot(trace, color="0.8", lw=4, label="trace (of the cell)")
        evolution.draw_lines(ax, record, kind)
        ax.axhline(0, color="0.85", lw=0.8, zorder=0)
        ax.set_xlabel("epoch")
        write_title(ax, "linear" if kind == "linear" else "ReLU, positive cell")
    axes[0].set_ylabel("eigenvalue")
    legend_above(figure, axes[0], columns=5)
    return figure


def draw_cells(record: Record) -> Picture:
    """All eigenvalues in ascending order, coloured by their cell."""
    return _draw_stems(record, dict(zip(relu.CELLS, (1, 0), strict=True)))


def draw_bulk(record: Record) -> Picture:
    """All eigenvalues in ascending order, coloured as bulk or outlier."""
    return _draw_stems(record, {"bulk": 0, "outlier": 1})


def _draw_stems(record: Record, colours: dict[str, int]) -> Picture:
    figure, (ax,) = plot.panels(width=5.2, height=3.2)
    values, names = relu.order(record)
    places = np.arange(1, len(values) + 1)
    for kind, colour in colours.items():
        own = np.array([kind in name for name in names])
        ax.vlines(places[own], 0, values[own], color=plot.COLOURS[colour], lw=1)
        ax.plot(places[own], values[own], "o", ms=4, color=plot.COLOURS[colour], label=kind)
    ax.plot(places, record.arrays["eigenvalues"], "x", ms=4, color="0.2", label="measured")
    ax.axhline(0, color="0.6", lw=0.8)
    relu.ordered_axes(ax, values, title=f"ReLU, width {record.config['width']}")
    return figure


def poster_error(record: Record) -> float:
    """The relative error of the poster's λ₁ for the linear network, at the worst epoch."""
    first, printed = record.arrays["linear_first"], record.arrays["linear_poster"]
    return float(np.abs(printed / first - 1).max())


def eigenvector_errors(record: Record) -> dict[str, float]:
    """The error of each outlier's printed eigenvectors relative to ‖H‖, at the worst epoch; NaN if there is none."""
    errors = {f"outlier {i}": record.arrays[f"linear_printed_residual_{i}"] for i in (1, 2)}
    return {name: float(max(error[~np.isnan(error)], default=np.nan)) for name, error in errors.items()}


EVOLUTION = (
    says(
        "λ_outlier = ½σ²(‖w‖² + ‖v‖²) ± ½√(… + 4(2⟨w,v⟩ - yx)²).",
        where="Key result",
        measured=poster_error,
        rule=CLOSED_FORM,
        expected=0.0,
        why="The last square lacks σ²: 4(2σ²⟨w,v⟩ - yx)² is right, as the paper of 2026 prints it in eq (2).",
    ),
    says(
        "Outlier eigenvectors are (λw + δx v; δx w + λv). (The second where δx ≠ 0; else it is zero.)",
        where="Eigenvector structure",
        measured=eigenvector_errors,
        rule=each(CLOSED_FORM),
        expected=0.0,
        why={
            "no": "The printed vectors are no eigenvectors, or δx ≈ 0 throughout (NaN).",
            "partly": "They are eigenvectors to some digits only, or one is none, or δx ≈ 0 throughout (NaN).",
        },
    ),
    says(
        "Outlier eigenvalues exist as pairs.",
        where="Insights",
        measured=evolution.pair_errors,
        rule=each(CLOSED_FORM),
        expected=0.0,
        why=evolution.NO_PAIR,
    ),
    says(
        "Only one of the pair remains at convergence.",
        where="Insights",
        measured=evolution.left_over("second"),
        rule=each(evolution.VANISHES),
        expected=0.0,
        why=evolution.NOT_REACHED,
    ),
)

CELLS = (
    says(
        "The Hessian undergoes a cell-wise decomposition, which here is fully decoupled.",
        where="Key result, ReLU",
        measured=relu.largest("coupling"),
        rule=CLOSED_FORM,
        expected=0.0,
        why=relu.COUPLED,
    ),
)
BULK = (
    says(
        "ReLU leads to cell-wise decomposition, but each cell like linear case.",
        where="Insights",
        measured=relu.largest("errors"),
        rule=CLOSED_FORM,
        expected=0.0,
        why=DISAGREE,
    ),
)

FIGURES = {
    figure.id: figure
    for figure in (
        Figure(
            "singh2024.evolution", "Evolution of the outlier eigenvalue pair", evolution.PRESETS, evolution.run,
            draw_evolution, EVOLUTION, evolution.COMPUTATION,
        ),
        Figure(
            "singh2024.relu", "Hessian spectrum of a ReLU network of width 10", relu.PRESETS, relu.run, draw_cells,
            CELLS, relu.COMPUTATION,
        ),
        Figure(
            "singh2024.bulk", "Bulk and outliers of a ReLU network of width 10", relu.PRESETS, relu.run, draw_bulk,
            BULK, relu.COMPUTATION,
        ),
    )
}  # fmt: skip
