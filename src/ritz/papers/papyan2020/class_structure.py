"""Figures 7 to 10 and 13: features, errors and weights of an MLP, and what is left of these without class means."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes

from ... import plot
from ...record import Picture, Record
from ..frame.figure import Figure
from ..frame.pictures import legend_above
from ..frame.readings import ByReading
from ..frame.statements import Statement, at_least, at_most, each, near
from ..frame.statistics import spearman
from . import layer_results as results
from .layer_results import (
    STRUCTURE,
    STRUCTURES,
    C,
    at_layer,
    curve,
    data_sets,
    depth,
    number,
    run_structure,
    with_depth,
)
from .paper import BEYOND, says
from .setting import TITLES

CROSS = C * (C - 2)  # cross-class means beside the class means
LAST = {"features": -1, "errors": -2, "weights": -2}  # that has more than C outputs, as far as these matter
SYMBOLS = {"features": "H", "errors": "Δ", "weights": "W"}  # as the paper writes them
WIDTH = 1.35  # inches of a panel: eight to a row


def outliers(kind: str, name: str = "whole", above: str = "within") -> results.Measure:
    """How many eigenvalues, before or after a knockout, lie above the largest of what is left or of a part."""

    def measure(record: Record, data: str, seed: int, layer: int) -> float:
        values, edge = (curve(record, data, seed, kind, layer, part) for part in (name, above))
        return float((values > edge[0] * (1 + 1e-6)).sum())

    return measure


def separation(kind: str) -> results.Measure:
    """ln of the C-th eigenvalue of the class part over the largest of the within part."""

    def measure(record: Record, data: str, seed: int, layer: int) -> float:
        means, spread = (curve(record, data, seed, kind, layer, name) for name in ("class", "within"))
        least = means[: min(C, len(means))][-2 if kind == "errors" else -1]  # Σ_c of errors may vanish: C - 1 are free
        return float(np.log(max(least, 1e-30) / max(spread[0], 1e-30)))

    return measure


def whisker(kind: str) -> results.Measure:
    """λ₂/λ_C of the class part: the whiskers of Figs 8 and 10; of errors λ₂/λ_{C-1} where C - 1 are free."""

    def measure(record: Record, data: str, seed: int, layer: int) -> float:
        means = curve(record, data, seed, kind, layer, "class")
        means = means[means > 1e-10 * means[0]]
        return float(means[1] / means[min(C, len(means)) - 1]) if len(means) > 1 else float("nan")

    return measure


def bulk_change(
    kind: str, before: str = "whole", after: str = "off_class", first: int = C, last: int | None = results.KEPT
) -> results.Measure:
    """The median |ln λ/λ'| of eigenvalues beyond the outliers, paired by rank, before and after a knockout."""

    def measure(record: Record, data: str, seed: int, layer: int) -> float:
        a, b = (curve(record, data, seed, kind, layer, name)[first:last] for name in (before, after))
        both = (
            (a > 1e-12 * a.max(initial=1e-300)) & (b > 1e-12 * a.max(initial=1e-300)) if len(a) else np.zeros(0, bool)
        )
        return float(np.median(np.abs(np.log(a[both] / b[both])))) if both.any() else float("nan")

    return measure


def both_bulks(kind: str, layer: int, **names: Any) -> Callable[[Record], ByReading]:
    """The change of the bulk at a layer: of its first hundred, where the outliers were, and of all that is drawn."""
    kept = {"the first hundred": results.KEPT, "all that is drawn": None}

    def measured(record: Record) -> ByReading:
        return ByReading(
            (words, at_layer(bulk_change(kind, last=last, **names), layer)(record)) for words, last in kept.items()
        )

    return measured


def relative_fall(kind: str, count: int = C, before: str = "whole", after: str = "off_class") -> results.Measure:
    """How far the first eigenvalues fall by a knockout, over how far they stand above the rest."""

    def measure(record: Record, data: str, seed: int, layer: int) -> float:
        a, b = (curve(record, data, seed, kind, layer, name) for name in (before, after))
        if len(a) <= count or a[count] <= 0:
            return float("nan")
        stands = np.log(a[0] / a[count])
        return float(1 - np.log(max(b[0], 1e-30) / a[count]) / stands) if stands > 0 else float("nan")

    return measure


def global_alignment(kind: str) -> results.Measure:
    """cos² of the largest eigenvector and the global mean."""
    return lambda record, data, seed, layer: number(record, data, seed, kind, layer, "global_alignment")


def mini_bulk(record: Record, data: str, seed: int, layer: int) -> float:
    """How many eigenvalues of Δ without its class means lie above the largest of the within part."""
    return outliers("errors", "off_class")(record, data, seed, layer)


def singular_gap(record: Record, data: str, seed: int, layer: int) -> float:
    """ln σ_{C-1}/σ_{C+1} of W: how far its outliers stand above the rest."""
    values = curve(record, data, seed, "weights", layer, "whole")
    return float(np.log(values[C - 2] / values[C])) if len(values) > C else float("nan")


def residual(record: Record, data: str, seed: int, layer: int) -> float:
    """‖W + ∇R/η‖ / ‖W‖: zero at a stationary point."""
    return number(record, data, seed, "weights", layer, "residual")


def draw_knockouts(kind: str, *rows: tuple[str, str, int]) -> Callable[[Record], Picture]:
    """Scatter plots before and after each knockout: a row for each data set, a column for each layer."""

    def draw(record: Record) -> Picture:
        names, count = data_sets(record), depth(record)
        figure, axes = plot.panels(count, len(names) * len(rows), width=WIDTH, height=WIDTH + 0.25)
        panels = iter(axes)
        for letter, (before, after, top) in zip("ab", rows, strict=False):
            for data in names:
                for layer in range(1, count + 1):
                    _knockout_panel(ax := next(panels), record, kind, data, layer, (before, after, top))
                    if len(rows) > 1 and layer == 1:
                        ax.set_title(f"({letter}) {ax.get_title(loc='left')}", fontsize=6, loc="left", pad=2)
        noun = "singular values" if kind == "weights" else "eigenvalues"
        figure.supxlabel(f"log {noun} after the knockout, scaled to [0, 1]", fontsize=8)
        figure.supylabel("before it, scaled to [0, 1]; blue: the outliers", fontsize=8)
        return figure

    return draw


def _knockout_panel(ax: Axes, record: Record, kind: str, data: str, layer: int, row: tuple[str, str, int]) -> None:
    before, after, top = row
    x, y = (torch.as_tensor(curve(record, data, results.first(record), kind, layer, name)) for name in (before, after))
    plot.knockout(ax, x, y, top=top, zero=1e-12 * float(x.max()) if len(x) else 0.0, markersize=2)
    index = layer - 1 if kind == "features" else layer
    ax.set_title(f"{TITLES[data]}, l = {index}", fontsize=6, loc="left", pad=2)


def draw_scree(kind: str) -> Callable[[Record], Picture]:
    """Scree plots of the whole and of its class parts, with a whisker from λ₂ to λ_C of the class part."""

    def draw(record: Record) -> Picture:
        names, count = data_sets(record), depth(record)
        figure, axes = plot.panels(count, len(names), width=WIDTH + 0.15, height=WIDTH + 0.3)
        for i, ax in enumerate(axes):
            _scree_panel(ax, record, kind, names[i // count], i % count + 1)
            ax.set(xlabel="rank" if i // count == len(names) - 1 else "", ylabel="")
            ax.tick_params(labelsize=5)
        figure.supylabel(f"eigenvalue over the median of those of {SYMBOLS[kind]}_class", fontsize=8)
        legend_above(figure, axes[0], columns=3)
        return figure

    return draw


def _scree_panel(ax: Axes, record: Record, kind: str, data: str, layer: int) -> None:
    symbol = SYMBOLS[kind]
    parts = {"whole": symbol, "class": f"{symbol}_class"}
    parts |= {"class_and_cross": f"{symbol}_class + {symbol}_cross"} if kind == "errors" else {}
    curves = {
        label: torch.as_tensor(curve(record, data, results.first(record), kind, layer, name))
        for name, label in parts.items()
    }
    means = curves[f"{symbol}_class"]
    means = means[means > 1e-10 * means[0]]
    unit = float(means.log().median().exp())
    ends = (float(means[-1]) / unit, float(means[1]) / unit) if len(means) > 2 else None
    zero = 1e-10 * float(curves[symbol].max()) / unit
    plot.screes(ax, {label: values / unit for label, values in curves.items()}, zero=zero, whisker=ends)
    index = layer - 1 if kind == "features" else layer
    ax.set_title(f"{TITLES[data]}, l = {index}", fontsize=6, loc="left", pad=2)


def _structure_statements(kind: str, figure: str, section: str) -> tuple[Statement, ...]:
    """What Secs 7.5 and 7.8 say of class means, of features or of errors."""
    symbol = SYMBOLS[kind]
    return (
        says(
            f"The top C eigenvalues of {symbol} are outliers (how many lie above all that is left without "
            f"{symbol}_class; the last layer of more than C).",
            where=figure, measured=at_layer(outliers(kind, above="off_class"), LAST[kind]), expected=C,
            rule=each(near(C, relative=0.11, partly=0.3)),
            why="Not all class means are longer than the spread around them, or than cross-class means.",
        ),
        says(
            f"They are attributable to {symbol}_class (how far the largest falls when that is projected out, over how "
            "far it stands above the rest; the same layer).",
            where=figure, measured=at_layer(relative_fall(kind), LAST[kind]),
            rule=each(at_least(0.8, partly=0.5)), expected=1.0, why="Something else stands apart, too.",
        ),
        says(
            "The bulk is unaffected by the knockout (median |ln| of the change of an eigenvalue; the same layer).",
            where=figure, measured=both_bulks(kind, LAST[kind]),
            rule=each(at_most(0.1, partly=0.3)), expected=0.0,
            why="C directions less shift the ranks of the eigenvalues beyond.",
        ),
        says(
            "The outliers emerge from the bulk with increasing depth (Spearman's ρ of ln λ_C of the class part over "
            "the largest of the within part, with the layer).",
            where=section, measured=with_depth(separation(kind)), rule=each(at_least(0.8, partly=0.3)), expected=1.0,
            why="The separation does not grow from layer to layer.",
        ),
        says(
            "The largest outlier is attributable to the global mean (cos² of its eigenvector and the mean, in the "
            "third layer, which the caption names).",
            where=figure, measured=at_layer(global_alignment(kind), 2), rule=each(at_least(0.9, partly=0.5)),
            expected=1.0, why="The mean is not much longer than the differences of the class means.",
        ),
    )  # fmt: skip


def _whitening(kind: str, figure: str, section: str) -> tuple[Statement, ...]:
    """What Secs 7.6 and 7.9 say of the eigenvalues of the class part."""
    symbol = SYMBOLS[kind]
    return (
        says(
            f"The ratio λ₂/λ_C of {symbol}_class decreases with depth (Spearman's ρ with the layer).",
            where=section, measured=with_depth(whisker(kind)), rule=each(at_most(-0.8, partly=-0.3)), expected=-1.0,
            why="The class means do not become more alike in every layer.",
        ),
        says(
            "… until all are of similar magnitude (λ₂/λ_C in the last layer).",
            where=figure, measured=at_layer(whisker(kind)), rule=each(at_most(3.0, partly=10.0)), expected=1.0,
            why="Some class means stay shorter than others.",
        ),
        says(
            f"The C eigenvalues of {symbol}_class separate from the bulk with increasing depth (Spearman's ρ).",
            where=section, measured=with_depth(separation(kind)), rule=each(at_least(0.8, partly=0.3)), expected=1.0,
            why="The separation does not grow from layer to layer.",
        ),
    )  # fmt: skip


def linear_error(record: Record, data: str, seed: int, layer: int) -> float:
    """The test error of a linear classifier of what enters a layer; NaN where it was not measured."""
    name = f"{data}/{seed}/structure/features/{layer}/linear_error"
    return float(record.scalars.get(name, np.nan))


def mean_cosine(record: Record, data: str, seed: int, layer: int) -> float:
    """The mean |cos| between the class means; NaN where it was not measured."""
    return float(record.scalars.get(f"{data}/{seed}/structure/features/{layer}/mean_cosine", np.nan))


def spread_of_outliers(record: Record, data: str, seed: int, layer: int) -> float:
    """The standard deviation of ln of the C eigenvalues of the class part."""
    means = curve(record, data, seed, "features", layer, "class")[:C]
    return float(np.log(np.maximum(means, 1e-30)).std())


def together(first: results.Measure, second: results.Measure) -> Callable[[Record], dict[str, float] | None]:
    """Spearman's ρ over the layers of two numbers, for every data set where both were measured; None where for none."""

    def measured(record: Record) -> dict[str, float] | None:
        pairs = {d: [results.by_layer(record, d, number) for number in (first, second)] for d in data_sets(record)}
        known = {data: both for data, both in pairs.items() if not np.isnan(both).any()}
        return {TITLES[data]: spearman(*both) for data, both in known.items()} or None

    return measured


GENERALISATION = (
    says(
        "The ratio of outliers to bulk predicts layer-wise linear separability (Spearman's ρ over the layers of ln λ_C "
        "of the class part over the largest of the within part, with the test error of a linear classifier there).",
        where="Sec. 1.13", measured=together(separation("features"), linear_error),
        rule=each(at_most(-0.8, partly=-0.3)), expected=-1.0,
        why="Where the class means separate further, a linear classifier does not gain from it.",
    ),
    says(
        "Class means gradually become orthogonal with depth (Spearman's ρ of their mean |cos| with the layer).",
        where="Sec. 1.13", measured=together(mean_cosine, lambda record, data, seed, layer: float(layer)),
        rule=each(at_most(-0.8, partly=-0.3)), expected=-1.0, why="Their angles do not grow from layer to layer.",
    ),
    says(
        "The standard deviation of the outliers represents the orthogonality of the classes (Spearman's ρ over the "
        "layers of that of ln λ with their mean |cos|).",
        where="Sec. 1.13", measured=together(spread_of_outliers, mean_cosine), rule=each(at_least(0.8, partly=0.3)),
        expected=1.0, why="The eigenvalues differ by the lengths of the class means, too.",
    ),
)  # fmt: skip
ERROR_CROSS = (
    says(
        "Without the class means, C² outliers are left (how many lie above the largest of Δ_within, over C(C - 2); "
        "seventh layer).",
        where="Fig. 9b",
        measured=lambda record: {
            name: value / CROSS for name, value in at_layer(mini_bulk, min(6, depth(record) - 1))(record).items()
        },
        rule=each(near(1.0, relative=0.2, partly=0.8)), expected=1.0,
        why="Some cross-class means only are longer than the spread: the paper's figure has two groups of them, too.",
    ),
    says(
        "They are attributable to Δ_cross (how far the largest falls when that is projected out, too).",
        where="Fig. 9b",
        measured=at_layer(relative_fall("errors", CROSS, "off_class", "off_class_and_cross"), -2),
        rule=each(at_least(0.8, partly=0.5)), expected=1.0, why="Something else stands apart, too.",
    ),
    says(
        "And the bulk is unaffected (median |ln| of the change of an eigenvalue; last layer but one).",
        where="Fig. 9b",
        measured=both_bulks("errors", -2, before="off_class", after="off_class_and_cross", first=CROSS),
        rule=each(at_most(0.1, partly=0.5)), expected=0.0,
        why="As many directions less shift the ranks of the eigenvalues beyond.",
    ),
)  # fmt: skip


def _inner(measure: results.Measure) -> results.Measure:
    """The number in all layers but the last, whose matrix has C rows alone."""
    return lambda record, data, seed, layer: (
        measure(record, data, seed, layer) if layer < depth(record) else float("nan")
    )


WEIGHTS = (
    says(
        "The outliers of W are attributable to W_class (how far the largest singular value falls when that is "
        "projected out, over how far it stands above the rest; last layer but one).",
        where="Fig. 13", measured=at_layer(relative_fall("weights"), -2), rule=each(at_least(0.8, partly=0.5)),
        expected=1.0, why="W is not made of class means alone where training has not come to rest.",
    ),
    says(
        "The bulk is unaffected by the knockout (median |ln| of the change; last layer but one).",
        where="Fig. 13", measured=both_bulks("weights", -2), rule=each(at_most(0.1, partly=0.3)),
        expected=0.0, why="C directions less shift the ranks of the singular values beyond.",
    ),
    says(
        "The outliers emerge from the bulk with increasing depth (Spearman's ρ of ln σ_{C-1}/σ_{C+1} with the layer).",
        where="Sec. 7.13",
        measured=with_depth(_inner(singular_gap)),
        rule=each(at_least(0.8, partly=0.3)), expected=1.0, why="The gap does not grow from layer to layer.",
    ),
    says(
        "Setting the gradient to zero is a good account of the weights (largest ‖W + ∇R/η‖/‖W‖ of a layer).",
        where="Sec. 7.13", paper=BEYOND,
        measured=lambda record: results.titled(record, lambda d: float(results.by_layer(record, d, residual).max())),
        rule=each(at_most(0.1, partly=0.5)), expected=0.0,
        why="At a small rate, or where batch normalisation lets weights grow freely, training has not come to rest.",
    ),
)  # fmt: skip


_figure = partial(Figure, presets=STRUCTURES, run=run_structure, computation=STRUCTURE)
FIGURES = {
    "papyan2020.fig7": _figure(
        "papyan2020.fig7",
        "Features of an MLP before and after their class means are projected out",
        draw=draw_knockouts("features", ("whole", "off_class", C)),
        statements=_structure_statements("features", "Fig. 7", "Sec. 7.5"),
    ),
    "papyan2020.fig8": _figure(
        "papyan2020.fig8",
        "The largest eigenvalues of features and of their class means, by layer",
        draw=draw_scree("features"),
        statements=(*_whitening("features", "Fig. 8", "Sec. 7.6"), *GENERALISATION),
    ),
    "papyan2020.fig9": _figure(
        "papyan2020.fig9",
        "Backpropagated errors before and after class and cross-class means are projected out",
        draw=draw_knockouts("errors", ("whole", "off_class", C), ("off_class", "off_class_and_cross", C * C)),
        statements=(*_structure_statements("errors", "Fig. 9a", "Sec. 7.8"), *ERROR_CROSS),
    ),
    "papyan2020.fig10": _figure(
        "papyan2020.fig10",
        "The largest eigenvalues of backpropagated errors and of their means, by layer",
        draw=draw_scree("errors"),
        statements=_whitening("errors", "Fig. 10", "Sec. 7.9"),
    ),
    "papyan2020.fig13": _figure(
        "papyan2020.fig13",
        "Singular values of weights before and after their class part is projected out",
        draw=draw_knockouts("weights", ("whole", "off_class", C)),
        statements=WEIGHTS,
    ),
}
