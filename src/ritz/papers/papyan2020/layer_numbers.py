"""Measures of features, errors and weights by layer: outliers, their separation, whiskers, effects of knockouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...record import Record
from ..frame.readings import ByReading
from ..frame.statistics import spearman
from .layer_results import (
    C,
    Measure,
    at_layer,
    by_layer,
    curve,
    data_sets,
    depth,
    first_seed,
    measured_seeds,
    number,
    title_of,
    with_depth,
)
from .layers import KEPT

CROSS = C * (C - 2)  # cross-class means beside the class means
LAST = {"features": -1, "errors": -2, "weights": -2}  # that has more than C outputs, as far as these matter
ROUNDING = {"weights": 1e-6}  # of the largest: singular values are roots of the eigenvalues of a Gram matrix
EXACT = 1e-12  # the same of eigenvalues
SYMBOLS = {"features": "H", "errors": "Δ", "weights": "W"}  # as the paper writes them
LEAST = {"features": "λ_C", "errors": "λ_{C-1}"}  # of the class part in the last layer, where errors sum to zero


def outliers(kind: str, name: str = "whole", above: str = "within") -> Measure:
    """How many eigenvalues, before or after a knockout, lie above the largest of what is left or of a part."""

    def measure(record: Record, data: str, seed: int, layer: int) -> float:
        values, edge = (curve(record, data, seed, kind, layer, part) for part in (name, above))
        return float((values > edge[0] * (1 + 1e-6)).sum())

    return measure


def separation(kind: str) -> Measure:
    """ln of the C-th eigenvalue of the class part over the largest of the within part."""

    def measure(record: Record, data: str, seed: int, layer: int) -> float:
        means, spread = (curve(record, data, seed, kind, layer, name) for name in ("class", "within"))
        least = means[: min(C, len(means))][-2 if kind == "errors" else -1]  # Σ_c of errors may vanish: C - 1 are free
        return float(np.log(max(least, 1e-30) / max(spread[0], 1e-30)))

    return measure


def whisker(kind: str, last: int = C) -> Measure:
    """λ₂/λ_C of the class part: the whiskers of Figs 8 and 10; of errors λ₂/λ_{C-1} where C - 1 are free."""

    def measure(record: Record, data: str, seed: int, layer: int) -> float:
        means = curve(record, data, seed, kind, layer, "class")
        means = means[means > 1e-10 * means[0]]
        return float(means[1] / means[min(last, len(means)) - 1]) if len(means) > 1 else float("nan")

    return measure


def whiskers(kind: str) -> Callable[[Record], dict[str, float]]:
    """How the whiskers change with depth: for errors, too, with the end that the last layer has in all of them."""
    if kind != "errors":
        return with_depth(whisker(kind))
    ways = {"λ_{C-1} for λ_C in the last layer": whisker(kind), "λ_{C-1} for λ_C in all": whisker(kind, C - 1)}
    return lambda record: ByReading((words, with_depth(one)(record)) for words, one in ways.items())


def bulk_change(
    kind: str,
    before: str = "whole",
    after: str = "off_class",
    taken: int = C,
    *,
    same_rank: bool = False,
    last: int | None = None,
) -> Measure:
    """The median |ln λ/λ'| of the bulk before and after a knockout that takes so many outliers out of the spectrum.

    The k-th of what lies behind the outliers is compared with the k-th of what is left. With `same_rank`, as in a
    scatter plot, it is compared with one that lies as many ranks further on, and the first of what is left with none.
    """

    def measure(record: Record, data: str, seed: int, layer: int) -> float:
        whole, left = (curve(record, data, seed, kind, layer, name)[:last] for name in (before, after))
        a, b = whole[taken:], left[taken:] if same_rank else left
        count, least = min(len(a), len(b)), rounding(kind) * whole.max(initial=1e-300)
        both = (a[:count] > least) & (b[:count] > least)
        return float(np.median(np.abs(np.log(a[:count][both] / b[:count][both])))) if both.any() else float("nan")

    return measure


def log_ratios(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """ln of the ratios of eigenvalues of one rank, as far as both lists reach."""
    count = min(len(first), len(second))
    return np.asarray(np.log(np.maximum(first[:count], 1e-30) / np.maximum(second[:count], 1e-30)))


def rounding(kind: str) -> float:
    """The size of rounding, relative to the largest."""
    return ROUNDING.get(kind, EXACT)


def known(values: dict[str, float]) -> dict[str, float] | None:
    """The numbers, or None if there are none: in a narrow network the knockout may leave no bulk."""
    return None if all(np.isnan(value) for value in values.values()) else values


def bulks(kind: str, layer: int, **names: Any) -> Callable[[Record], ByReading | None]:
    """The change of the bulk at a layer: of all that is kept of the first seed, or of every seed, and rank by rank."""
    ways = {
        "largest with largest": drawn(bulk_change(kind, **names)),
        "the same for all seeds, as far as kept": bulk_change(kind, **names, last=KEPT),
        "rank with rank, as it is drawn": drawn(bulk_change(kind, **names, same_rank=True)),
    }

    def measured(record: Record) -> ByReading | None:
        found = ByReading((words, at_layer(one, layer)(record)) for words, one in ways.items())
        return found if known(found["largest with largest"]) else None

    return measured


def drawn(measure: Measure) -> Measure:
    """A number of the first seed, of which whole curves are kept, in place of every seed."""
    return lambda record, data, _, layer: measure(record, data, first_seed(record), layer)


def relative_fall(kind: str, count: int = C, before: str = "whole", after: str = "off_class") -> Measure:
    """How far the first eigenvalues fall by a knockout, over how far they stand above the rest."""

    def measure(record: Record, data: str, seed: int, layer: int) -> float:
        a, b = (curve(record, data, seed, kind, layer, name) for name in (before, after))
        if len(a) <= count or a[count] <= 0:
            return float("nan")
        stands = np.log(a[0] / a[count])
        return float(1 - np.log(max(b[0], 1e-30) / a[count]) / stands) if stands > 0 else float("nan")

    return measure


def global_alignment(kind: str) -> Measure:
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


def together(first: Measure, second: Measure) -> Callable[[Record], dict[str, float] | None]:
    """Spearman's ρ over the layers of two numbers, for every data set of which a seed has both; None where none has.

    It is a network's own, the median over the seeds: the medians of both numbers may be those of no network.
    """

    def measured(record: Record) -> dict[str, float] | None:
        result = {}
        for data in data_sets(record):
            if of := measured_seeds(record, data, first, second):
                rho = [spearman(*(by_layer(record, data, one, of=[s]) for one in (first, second))) for s in of]
                result[title_of(record, data, of)] = float(np.median(rho))
        return result or None

    return measured


def inner(measure: Measure) -> Measure:
    """The number in all layers but the last, whose matrix has only C rows."""
    return lambda record, data, seed, layer: (
        measure(record, data, seed, layer) if layer < depth(record) else float("nan")
    )
