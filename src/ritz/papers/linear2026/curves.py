"""Sharpness against the share of the largest class: the curves of a record of Fig. 1 right or Fig. 2."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from ...record import Record
from ..frame.statistics import spearman
from .setting import distance_to_minimum, titles

Array = np.ndarray
Curve = Mapping[str, Array]
Curves = dict[str, Curve]
_OF_LABELS = ("shares", "printed", "epochs")  # the same for every variant


def variant_curves(record: Record, inputs: str, start: str | None = None) -> Curves:
    """The curves of one variant, by the title of the data set; none where the record does not have it."""
    kinds, starts = record.config["inputs"], record.config["starts"]
    if inputs not in kinds or start not in (None, *starts):
        return {}
    variant = kinds.index(inputs) * len(starts) + (0 if start is None else starts.index(start))
    arrays = {key: np.asarray(array) for key, array in record.arrays.items()}
    return {
        name: {key: array[index] if key in _OF_LABELS else array[index, variant] for key, array in arrays.items()}
        for index, name in enumerate(titles(record))
    }


def by_curve(
    value: Callable[[Curve], float], inputs: str = "qr", start: str | None = None
) -> Callable[[Record], dict[str, float] | None]:
    """A number for each data set, off its curve of one variant."""

    def values(record: Record) -> dict[str, float] | None:
        return {name: value(curve) for name, curve in variant_curves(record, inputs, start).items()} or None

    return values


def rank(curve: Curve) -> float:
    """The rank correlation of the sharpness with the share of the largest class."""
    return spearman(curve["shares"], curve["sharpness"])


def largest_error(curve: Curve, prediction: str = "printed") -> float:
    """Relative to the measured sharpness; NaN if there is one: a network that diverged was not predicted."""
    return largest(np.abs(curve[prediction] - curve["sharpness"]) / curve["sharpness"])


def falling_steps(of: Iterable[tuple[str, Curve]]) -> str:
    """How often a curve goes down."""
    counts = [f"{name} {np.sum(~(np.diff(c['sharpness']) > 0))} of {len(c['shares']) - 1}" for name, c in of]
    return f"Steps from one share to the next that do not go up: {', '.join(counts)}."


def distance_of_curves(of: Iterable[Curve]) -> str:
    """How far from the least loss the trainings of all curves have ended."""
    of = list(of)
    return distance_to_minimum(*(np.concatenate([c[key] for c in of]) for key in ("loss", "rest", "learning_rate")))


def factor(a: Array, b: Array) -> Array:
    """Between two numbers, at least one."""
    return np.maximum(a / b, b / a)


def medians(values: Mapping[str, Array]) -> dict[str, float]:
    """Of the networks that did not diverge."""
    return {name: float(np.nanmedian(value)) for name, value in values.items()}


def interval(values: Iterable[Array]) -> str:
    """The least and the largest of all, as a text."""
    finite = [value[np.isfinite(value)] for value in values]
    joined = np.concatenate(finite) if finite else np.array([])
    return f"{joined.min():.3g} to {joined.max():.3g}" if joined.size else "(no network)"


def largest(values: Array) -> float:
    """NaN if there is one: a network that diverged was not predicted."""
    return float(np.max(values))
