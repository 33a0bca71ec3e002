"""Sharpness against the share of the largest class: the curves of a record of Fig. 1 right or Fig. 2."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...record import Record
from ..frame.readings import ByReading
from ..frame.statistics import spearman
from .setting import distance_to_minimum, titles
from .variants import DRAWS, RATES, SCALES, STARTS, Variant, variants

Array = np.ndarray
Curve = Mapping[str, Array]  # arrays seed × α, or α for those that depend on the labels alone
Curves = dict[str, Curve]
ENDED = 0.01  # of the least loss above it, or of the loss in the last tenth of the epochs: training has ended
FROZEN = 1e-3  # of the first rate, below which a rate moves nothing
_OF_LABELS = ("shares", "printed", "epochs", "by_size")  # the same for every variant
_WORDS = {(one.field, one.value): one.words for one in (*DRAWS, *RATES, *SCALES, *STARTS)}


def variant_curves(record: Record, **changed: Any) -> Curves:
    """The curves of the leading variant, or of one with some choices changed, by data set; empty if it was not run."""
    known = variants(record.config)
    variant = replace(known[0], **changed)
    return _curves(record, known.index(variant)) if variant in known else {}


def _curves(record: Record, number: int) -> Curves:
    arrays = {key: np.asarray(array) for key, array in record.arrays.items()}
    return {
        name: {key: array[index] if key in _OF_LABELS else array[index, number] for key, array in arrays.items()}
        for index, name in enumerate(titles(record))
    }


def words(variant: Variant, leading: Variant) -> str:
    """How a variant differs from the leading one; for the leading one, what it is."""
    fields = {"draws": "draws", "rate": "rates", "scale": "scales", "start": "starts"}
    named = {field: _WORDS[plural, getattr(variant, field)] for field, plural in fields.items()}
    different = [text for field, text in named.items() if getattr(variant, field) != getattr(leading, field)]
    return different[0] if different else named["draws"]


def by_reading(value: Callable[[Curve], float]) -> Callable[[Record], Any]:
    """A number for each data set, for the leading variant and those that change one choice other than the inputs."""

    def values(record: Record) -> ByReading:
        known = variants(record.config)
        same = [one for one in known if one.inputs == known[0].inputs]
        return ByReading({words(one, known[0]): _values(record, known.index(one), value) for one in same})

    return values


def _values(record: Record, number: int, value: Callable[[Curve], float]) -> dict[str, float]:
    return {name: value(curve) for name, curve in _curves(record, number).items()}


def over_seeds(value: Callable[[Array, Array], float], key: str = "sharpness") -> Callable[[Curve], float]:
    """The median over seeds of a number computed from the shares and a curve."""
    return lambda curve: median([value(curve["shares"], row) for row in curve[key]])


def rank(curve: Curve) -> float:
    """The rank correlation of sharpness and shares, for the median seed."""
    return over_seeds(spearman)(curve)


def largest_error(curve: Curve, prediction: str = "printed") -> float:
    """The largest error over all shares, relative to the measured sharpness, for the median seed.

    NaN if half of the seeds diverged.
    """
    errors = np.abs(curve[prediction] - curve["sharpness"]) / curve["sharpness"]
    return median(errors.max(-1))


def ended(curve: Curve, learning_rate: float) -> Array:
    """Which trainings have converged, seed × α: near the least loss where it is known, else at rest."""
    near = curve["loss"] <= (1 + ENDED) * curve["rest"]
    resting = (np.abs(curve["late_change"]) < ENDED) & (curve["learning_rate"] > FROZEN * learning_rate)
    return np.where(np.isnan(curve["rest"]), resting, near)


def num_ended(of: Iterable[Curve], learning_rate: float) -> str:
    """How many trainings have ended, in words."""
    flags = np.concatenate([ended(curve, learning_rate).ravel() for curve in of])
    return f"{int(flags.sum())} of {flags.size} trainings have ended"


def falling_steps(of: Iterable[tuple[str, Curve]]) -> str:
    """How often the median curve does not rise, in words."""
    medians = [(name, middle(curve["sharpness"])) for name, curve in of]
    counts = [f"{name} {np.sum(~(np.diff(line) > 0))} of {len(line) - 1}" for name, line in medians]
    return f"Steps of the median from one share to the next that do not go up: {', '.join(counts)}."


def range_of_ranks(of: Iterable[tuple[str, Curve]], key: str = "sharpness") -> str:
    """The range of the rank correlation over seeds, in words."""
    rows = [(name, [spearman(curve["shares"], row) for row in curve[key]]) for name, curve in of]
    texts = [f"{name} {min(ranks):.2f} to {max(ranks):.2f}" for name, ranks in rows]
    return f"Over seeds it runs from: {', '.join(texts)}."


def distance_of_curves(of: Iterable[Curve]) -> str:
    """How far from the least loss the trainings of all curves have ended, in words."""
    of = list(of)
    parts = (np.concatenate([c[key].ravel() for c in of]) for key in ("loss", "rest", "learning_rate"))
    return distance_to_minimum(*parts)


def factor(a: Array, b: Array) -> Array:
    """The factor between two numbers, as a number of at least one."""
    return np.maximum(a / b, b / a)


def median(values: Any) -> float:
    """The median of all values but NaNs; NaN if at least half of them are."""
    array = np.asarray(values, dtype=float)
    lost = 2 * np.isnan(array).sum() >= array.size
    return float("nan") if lost else float(np.nanmedian(array))


def middle(values: Array) -> Array:
    """The median at each share over the seeds that did not diverge; NaN where all did."""
    known = np.isfinite(values).any(0)
    medians = np.full(values.shape[1], np.nan)
    medians[known] = np.nanmedian(values[:, known], 0)
    return medians


def interval(values: Iterable[Array]) -> str:
    """The range of all finite values, in words."""
    finite = [value[np.isfinite(value)] for value in values]
    joined = np.concatenate(finite) if finite else np.array([])
    return f"{joined.min():.3g} to {joined.max():.3g}" if joined.size else "(no network)"
