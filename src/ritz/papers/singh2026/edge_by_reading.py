"""Measures of a record of Fig. 27 for each reading of the paper.

A draw that starts below 2/η either reaches it or does not. Only if at least half of them do, a reading gets a number
for what happens at the edge; otherwise it would be judged by its exceptions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...record import Record
from ..frame.readings import ByReading, words_of
from .attention_descent import SOURCES
from .edge_of_stability import NORMS


def paper_rate(record: Record) -> int:
    """The index of the paper's learning rate."""
    return int(np.abs(np.asarray(record.arrays["rates"]) - record.config["learning_rate"]).argmin())


def of_each(measure: Callable[[Record, int], Any]) -> Callable[[Record], ByReading]:
    """A function of a record that applies a measure to every reading."""

    def measured(record: Record) -> ByReading:
        names = enumerate(record.config["readings"])
        return ByReading((words_of(SOURCES, "readings", name), measure(record, index)) for index, name in names)

    return measured


def below(record: Record) -> np.ndarray:
    """How many draws start below 2/η: readings × rates."""
    return np.asarray((record.arrays["started_above"] == 0).sum(-1))


def share_reached(record: Record, reading: int) -> float:
    """The fraction of the draws that start below 2/η and reach it."""
    at = paper_rate(record)
    count, starts = record.arrays["reached"][reading, at].sum(-1), below(record)[reading, at]
    return float(count / starts) if starts else 0.0


def median(name: str) -> Callable[[Record, int], float]:
    """The median of a measure over the draws that have it; NaN if fewer than half of those that start below 2/η do."""

    def measure(record: Record, reading: int) -> float:
        at = paper_rate(record)
        values, starts = record.arrays[name][reading, at], int(below(record)[reading, at])
        numbers = values[~np.isnan(values)]
        return float(np.median(numbers)) if len(numbers) and 2 * len(numbers) >= starts else float("nan")

    return measure


def growths(*names: str) -> Callable[[Record, int], dict[str, float]]:
    """How surely each of these norms grows on the way to the edge."""
    measures = {NORMS[name]: median(f"growth_{name}") for name in names}
    return lambda record, reading: {label: measure(record, reading) for label, measure in measures.items()}


def both_phenomena(record: Record) -> np.ndarray:
    """Where half of the draws that start below 2/η rise to it and stay within a fifth of it: readings × rates."""
    rising, level = record.arrays["growth_sharpness"], record.arrays["level"]
    count = ((rising >= 0.8) & (level >= 0.8) & (level <= 1.2)).sum(-1)
    return np.asarray((count > 0) & (2 * count >= below(record)))


def share_of_rates(record: Record, reading: int) -> float:
    """The fraction of rates at which a reading shows both phenomena."""
    return float(both_phenomena(record)[reading].mean())


def share_within_bounds(record: Record, reading: int) -> float:
    """The fraction of heads within the bounds, at or away from the edge; NaN where all diverged."""
    inside = record.arrays["inside_bounds"][reading]
    values = inside[~np.isnan(inside)]
    return float(values.mean()) if len(values) else float("nan")


def fate(record: Record, reading: int = 0) -> str:
    """What became of the draws of a reading, in words."""
    at = paper_rate(record)
    above, lost, there = (record.arrays[name][reading, at] == 1 for name in ("started_above", "diverged", "reached"))
    counts = {
        "reached 2/η": there.sum(),
        "above 2/η from the start": above.sum(),
        "diverged": (lost & ~above).sum(),
        "below 2/η throughout": (~(above | lost | there)).sum(),
    }
    return f"Of {len(above)} draws {', '.join(f'{count} {what}' for what, count in counts.items() if count)}."


def why(reason: str) -> Callable[[Record], str]:
    """Why the leading reading does not get a yes: too few draws, or else this reason."""
    open_choice = "The paper gives neither x nor the scale of the loss, on which it depends: see the other readings."
    few = "Fewer than half of the draws that start below 2/η reach it."
    return lambda record: reason if share_reached(record, 0) >= 0.5 else f"{few} {open_choice} {fate(record)}"


def why_not_at_all_rates(record: Record) -> str:
    """At which rates the leading reading does not show both phenomena."""
    rows = zip(record.arrays["rates"], both_phenomena(record)[0], strict=True)
    missing = ", ".join(f"{rate:.3g}" for rate, both in rows if not both)
    return f"The paper does not give the range; not seen at η = {missing}."
