"""Reading a record of all layers: its curves and numbers by data set, seed and layer, and medians over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...record import Record
from ..frame.statistics import spearman
from .layers import MLP
from .setting import NUM_CLASSES, TITLES

C = NUM_CLASSES


def data_sets(record: Record) -> list[str]:
    """The data sets of a record."""
    return list(record.config["sets"])


def seeds(record: Record) -> list[int]:
    """The seeds of a record."""
    return list(record.config["seeds"])


def first_seed(record: Record) -> int:
    """The seed of which whole curves are kept, and drawn."""
    return seeds(record)[0]


def depth(record: Record) -> int:
    """How many layers the networks have."""
    return int(record.config["piece"]["depth"])


def curve(record: Record, data: str, seed: int, kind: str, layer: int, name: str) -> np.ndarray:
    """Eigenvalues of a layer, largest first, in float64."""
    return np.asarray(record.arrays[f"{data}/{seed}/structure/{kind}/{layer}/{name}"], dtype=float)


def number(record: Record, data: str, seed: int, kind: str, layer: int, name: str) -> float:
    """A number of a layer."""
    return float(record.scalars[f"{data}/{seed}/structure/{kind}/{layer}/{name}"])


Measure = Callable[[Record, str, int, int], float]  # of a data set, a seed and a layer


def by_layer(
    record: Record, data: str, measure: Measure, which: Sequence[int] | None = None, *, of: Sequence[int] | None = None
) -> np.ndarray:
    """The median of a number of every layer over all seeds, or over some of them."""
    layers_of = range(1, depth(record) + 1) if which is None else which
    seeds_of = seeds(record) if of is None else of
    return np.median([[measure(record, data, seed, layer) for layer in layers_of] for seed in seeds_of], axis=0)


def measured_seeds(record: Record, data: str, *measures: Measure) -> list[int]:
    """The seeds of which all of these numbers were measured in every layer."""
    layers_of = range(1, depth(record) + 1)
    complete = lambda seed: not np.isnan([[one(record, data, seed, n) for n in layers_of] for one in measures]).any()
    return [seed for seed in seeds(record) if complete(seed)]


def title_of(record: Record, data: str, of: Sequence[int]) -> str:
    """The data set, with its seeds where these are not all."""
    every = seeds(record)
    return TITLES[data] + (f" ({len(of)} of {len(every)} seeds)" if len(of) < len(every) else "")


def at_layer(measure: Measure, layer: int = -1) -> Callable[[Record], dict[str, float]]:
    """A number of one layer, the last unless given, for each data set: the median over the seeds that have it."""

    def measured(record: Record) -> dict[str, float]:
        which, result = range(1, depth(record) + 1)[layer], {}
        for data in data_sets(record):
            numbers = {seed: measure(record, data, seed, which) for seed in seeds(record)}
            of = [seed for seed, value in numbers.items() if not np.isnan(value)] or seeds(record)
            result[title_of(record, data, of)] = float(np.median([numbers[seed] for seed in of]))
        return result

    return measured


def has_panels(record: Record, data: str) -> bool:
    """Whether layers of a data set are panels of the printed figures: it is one of them, and the depth the paper's."""
    return data in data_sets(record) and depth(record) == MLP.depth


def of_panels(
    record: Record, data: str, which: list[int], measure: Measure, *, name: str = "l = {}"
) -> dict[str, float] | None:
    """A number for some layers of one data set; None where these are no panels of the printed figure."""
    if not has_panels(record, data):
        return None
    values = by_layer(record, data, measure, which)
    return {name.format(layer): float(value) for layer, value in zip(which, values, strict=True)}


def with_depth(measure: Measure, first: int = 1) -> Callable[[Record], dict[str, float]]:
    """Spearman's ρ of a number with the layer, from one on, for each data set."""

    def measured(record: Record) -> dict[str, float]:
        which = range(first, depth(record) + 1)
        return titled(record, lambda data: spearman(np.array(which), by_layer(record, data, measure, which)))

    return measured


def titled(record: Record, value: Callable[[str], float]) -> dict[str, float]:
    """A number for each data set."""
    return {TITLES[data]: float(value(data)) for data in data_sets(record)}
