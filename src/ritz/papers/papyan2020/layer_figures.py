"""Figures 7 to 10 and 13: features, errors and weights of an MLP, and the same without their class means."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from matplotlib.axes import Axes

from ... import plot
from ...record import Picture, Record
from ..frame.figure import Figure
from ..frame.pictures import legend_above
from .layer_numbers import SYMBOLS, rounding
from .layer_results import C, curve, data_sets, depth, first_seed
from .layer_statements import ERROR_CROSS, GENERALISATION, WEIGHTS, structure_statements, whitening
from .layers import STRUCTURE, STRUCTURES, run_structure, structure_loans
from .panel_statements import ERROR_PANELS, ERROR_SCREE_PANELS, FEATURE_PANELS, SCREE_PANELS, WEIGHT_PANELS
from .pictures import of_seeds
from .setting import TITLES

WIDTH = 1.35  # inches of a panel: eight to a row
NAMES = {"fashion_mnist": "Fashion"}  # over a panel of that width


def draw_knockouts(kind: str, *rows: tuple[str, str, int]) -> Callable[[Record], Picture]:
    """Scatter plots before and after each knockout: a row for each data set, a column for each layer."""

    def draw(record: Record) -> Picture:
        names, count = data_sets(record), depth(record)
        figure, axes = plot.panels(count, len(names) * len(rows), width=WIDTH, height=WIDTH - 0.05)
        figure.set_layout_engine("constrained", w_pad=0.01, h_pad=0.03, wspace=0.0, hspace=0.0)
        panels = iter(axes)
        for letter, (before, after, top) in zip("ab", rows, strict=False):
            for data in names:
                for layer in range(1, count + 1):
                    _knockout_panel(ax := next(panels), record, kind, data, layer, (before, after, top))
                    if len(rows) > 1 and layer == 1:
                        ax.set_title(f"({letter}) {ax.get_title(loc='left')}", fontsize=6, loc="left", pad=2)
        noun = "singular value" if kind == "weights" else "eigenvalue"
        words = "of the same rank after the knockout, on a logarithmic axis; black: where nothing changes"
        figure.supxlabel(f"{noun} {words}", fontsize=8)
        figure.supylabel(f"{noun} before it (blue: the outliers{of_seeds(record)})", fontsize=8)
        return figure

    return draw


def _knockout_panel(ax: Axes, record: Record, kind: str, data: str, layer: int, row: tuple[str, str, int]) -> None:
    before, after, top = row
    x, y = (torch.as_tensor(curve(record, data, first_seed(record), kind, layer, name)) for name in (before, after))
    largest = curve(record, data, first_seed(record), kind, layer, "whole").max(initial=0.0)
    plot.knockout(ax, x, y, top=top, zero=rounding(kind) * float(largest), markersize=2)
    index = layer - 1 if kind == "features" else layer
    ax.set_title(f"{NAMES.get(data, TITLES[data])}, l = {index}", fontsize=6, loc="left", pad=2)


def draw_scree(kind: str) -> Callable[[Record], Picture]:
    """Scree plots of the whole and of its class parts, with a whisker from λ₂ to λ_C of the class part."""

    def draw(record: Record) -> Picture:
        names, count = data_sets(record), depth(record)
        figure, axes = plot.panels(count, len(names), width=WIDTH + 0.15, height=WIDTH + 0.3)
        for i, ax in enumerate(axes):
            _scree_panel(ax, record, kind, names[i // count], i % count + 1)
            ax.set(xlabel="rank" if i // count == len(names) - 1 else "", ylabel="")
            ax.tick_params(labelsize=5)
        over = rf"the median of those of ${SYMBOLS[kind]}_\mathrm{{class}}$"
        figure.supylabel(f"eigenvalue over {over}{of_seeds(record)}", fontsize=8)
        legend_above(figure, axes[0], columns=3)
        return figure

    return draw


def _scree_panel(ax: Axes, record: Record, kind: str, data: str, layer: int) -> None:
    symbol = SYMBOLS[kind]
    means_of, cross = rf"${symbol}_\mathrm{{class}}$", rf"${symbol}_\mathrm{{class}} + {symbol}_\mathrm{{cross}}$"
    parts = {"whole": f"${symbol}$", "class": means_of} | ({"class_and_cross": cross} if kind == "errors" else {})
    curves = {
        label: torch.as_tensor(curve(record, data, first_seed(record), kind, layer, name))
        for name, label in parts.items()
    }
    means = curves[means_of]
    means = means[means > 1e-10 * means[0]]
    unit = float(means.log().median().exp())
    ends = (float(means[-1]) / unit, float(means[1]) / unit) if len(means) > 2 else None
    zero = 1e-10 * float(curves[f"${symbol}$"].max()) / unit
    plot.screes(ax, {label: values / unit for label, values in curves.items()}, zero=zero, whisker=ends)
    index = layer - 1 if kind == "features" else layer
    ax.set_title(f"{NAMES.get(data, TITLES[data])}, l = {index}", fontsize=6, loc="left", pad=2)


_figure = partial(Figure, presets=STRUCTURES, run=run_structure, computation=STRUCTURE, loans=structure_loans)
FIGURES = {
    "papyan2020.fig7": _figure(
        "papyan2020.fig7",
        "Features of an MLP before and after their class means are projected out",
        draw=draw_knockouts("features", ("whole", "off_class", C)),
        statements=(*structure_statements("features", "Fig. 7", "Sec. 7.5"), *FEATURE_PANELS),
    ),
    "papyan2020.fig8": _figure(
        "papyan2020.fig8",
        "The largest eigenvalues of features and of their class means, by layer",
        draw=draw_scree("features"),
        statements=(*whitening("features", "Fig. 8", "Sec. 7.6"), *SCREE_PANELS, *GENERALISATION),
    ),
    "papyan2020.fig9": _figure(
        "papyan2020.fig9",
        "Backpropagated errors before and after class and cross-class means are projected out",
        draw=draw_knockouts("errors", ("whole", "off_class", C), ("off_class", "off_class_and_cross", C * C)),
        statements=(*structure_statements("errors", "Fig. 9a", "Sec. 7.8"), *ERROR_CROSS, *ERROR_PANELS),
    ),
    "papyan2020.fig10": _figure(
        "papyan2020.fig10",
        "The largest eigenvalues of backpropagated errors and of their means, by layer",
        draw=draw_scree("errors"),
        statements=(*whitening("errors", "Fig. 10", "Sec. 7.9"), *ERROR_SCREE_PANELS),
    ),
    "papyan2020.fig13": _figure(
        "papyan2020.fig13",
        "Singular values of weights before and after their class part is projected out",
        draw=draw_knockouts("weights", ("whole", "off_class", C)),
        statements=(*WEIGHTS, *WEIGHT_PANELS),
    ),
}
