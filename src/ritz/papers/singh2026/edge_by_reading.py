"""What a record of Fig. 27 says of each reading of the paper, in numbers by their names.

A draw that starts below 2/η either reaches it or does not. A reading is asked what happens there if at least half of
these do: else it would be judged by its exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...record import Record, Verdict
from ..frame.statements import Each, Rule, Statement
from .attention_descent import OURS, READINGS
from .edge_of_stability import NORMS
from .paper import says


def paper_rate(record: Record) -> int:
    """Which of the learning rates is that of the paper."""
    return int(np.abs(np.asarray(record.arrays["rates"]) - record.config["learning_rate"]).argmin())


def labels(record: Record) -> list[str]:
    """The readings in words."""
    return [READINGS[name].label for name in record.config["readings"]]


def below(record: Record) -> np.ndarray:
    """How many draws start below 2/η: readings × rates."""
    return np.asarray((record.arrays["started_above"] == 0).sum(-1))


def shares_reached(record: Record) -> dict[str, float]:
    """The fraction of them that reach it."""
    at = paper_rate(record)
    counts, starts = record.arrays["reached"][:, at].sum(-1), below(record)[:, at]
    return {name: float(counts[i] / starts[i]) if starts[i] else 0.0 for i, name in enumerate(labels(record))}


def medians(*measures: str) -> Callable[[Record], dict[str, float | str]]:
    """Of each measure, over the draws that have it, with their number; in words where these are too few."""
    return lambda record: dict(_median(record, i, one) for i in range(len(labels(record))) for one in measures)


def _median(record: Record, i: int, measure: str) -> tuple[str, float | str]:
    at = paper_rate(record)
    values, starts = record.arrays[measure][i, at], int(below(record)[i, at])
    numbers, norm = values[~np.isnan(values)], NORMS.get(measure.removeprefix("growth_"))
    name = labels(record)[i] if norm is None else f"{labels(record)[i]}: {norm}"
    if not len(numbers) or 2 * len(numbers) < starts:
        return name, f"{len(numbers)} of {starts} draws"
    return f"{name} ({len(numbers)} draws)", float(np.median(numbers))


def both_phenomena(record: Record) -> np.ndarray:
    """Where half of the draws that start below 2/η rise to it and stay within a fifth of it: readings × rates."""
    rising, level = record.arrays["rising"], record.arrays["level"]
    count = ((rising >= 0.8) & (level >= 0.8) & (level <= 1.2)).sum(-1)
    return np.asarray((count > 0) & (2 * count >= below(record)))


def shares_of_rates(record: Record) -> dict[str, float | str]:
    """The fraction of rates at which a reading shows both phenomena, of those that reach 2/η at the paper's."""
    few = "too few draws reach 2/η"
    rows = zip(shares_reached(record).items(), both_phenomena(record), strict=True)
    return {name: float(row.mean()) if share >= 0.5 else few for (name, share), row in rows}


def shares_within_bounds(record: Record) -> dict[str, float | str]:
    """The fraction of heads within the bounds, wherever they are."""
    inside = record.arrays["inside_bounds"]
    numbers = {name: inside[i][~np.isnan(inside[i])] for i, name in enumerate(labels(record))}
    return {name: float(values.mean()) if len(values) else "all diverged" for name, values in numbers.items()}


def why_not_reached(record: Record) -> str:
    """What became of the draws, in words, and which reading is ours."""
    fates = " ".join(f"{name}: {_fate(record, i)}." for i, name in enumerate(labels(record)))
    tried = READINGS[OURS].label
    ours = f"We found the reading {tried} by trying; the paper does not say it." if tried in labels(record) else ""
    return f"The paper says neither what x is nor how the loss is scaled. {fates} {ours}".strip()


def _fate(record: Record, i: int) -> str:
    at = paper_rate(record)
    above, lost, there = (record.arrays[name][i, at] == 1 for name in ("started_above", "diverged", "reached"))
    counts = {
        "reached 2/η": there.sum(),
        "above 2/η from the start": above.sum(),
        "diverged": (lost & ~above).sum(),
        "below 2/η throughout": (~(above | lost | there)).sum(),
    }
    return f"of {len(above)} draws {', '.join(f'{count} {what}' for what, count in counts.items() if count)}"


def why_not_at_all_rates(record: Record) -> str:
    """At which rates a reading that is asked does not show both phenomena."""
    missing = [
        f"η = {rate:.3g} ({name})"
        for (name, share), row in zip(shares_of_rates(record).items(), both_phenomena(record), strict=True)
        for rate, both in zip(record.arrays["rates"], row, strict=True)
        if not both and not isinstance(share, str)
    ]
    return f"The paper does not give the range; not seen at {', '.join(missing)}."


@dataclass(frozen=True)
class Among(Each):
    """A verdict on the readings that have a number; one in words says why it has none. No where there is no number."""

    def __call__(self, measured: Any) -> Verdict:
        """The verdict, from the measured numbers alone."""
        return super().__call__(_numbers(measured))

    def against(self, measured: Any) -> dict[str, Any]:
        """Those that have a number and do not say yes."""
        return super().against(_numbers(measured))

    def __str__(self) -> str:
        return f"each that has a number: {self.rule}; partly if some are yes"


def _numbers(measured: Mapping[str, Any]) -> dict[str, float]:
    """Without what is said in words."""
    return {name: value for name, value in measured.items() if not isinstance(value, str)}


def of_each_reading(
    statement: str,
    *,
    where: str,
    measured: Callable[[Record], Mapping[str, float | str]],
    rule: Rule,
    expected: Any,
    why: str | Callable[[Record], str],
) -> Statement:
    """One statement, judged for each reading that has a number."""

    def reason(record: Record) -> str:
        if not _numbers(measured(record)):
            return "In no reading do half of the draws reach 2/η."
        return why(record) if callable(why) else why

    return says(statement, where=where, measured=measured, rule=Among(rule), expected=expected, why=reason)
