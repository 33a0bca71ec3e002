"""Charts for the page: series of numbers with their errors, and axes that can be switched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

DIGITS = {"x": 6, "y": 4, "lower": 3, "upper": 3}  # significant ones: a screen shows four

Scale = Literal["linear", "log", "symlog"]


@dataclass(frozen=True)
class Axis:
    """A label, the scales one may choose from (the first is shown), and where a symmetric logarithm turns linear."""

    label: str
    scales: tuple[Scale, ...] = ("linear",)
    linear_below: float = 1.0


@dataclass(frozen=True)
class Series:
    """One part of a chart: a line with a band, stems of eigenvalues, or points; `notes` are read on hover."""

    name: str
    kind: Literal["line", "stems", "points"]
    x: Sequence[float]
    y: Sequence[float]
    lower: Sequence[float] | None = None
    upper: Sequence[float] | None = None
    notes: Sequence[str] | None = None
    shown: bool = True
    colour: int = 0  # what belongs together has the same one


@dataclass(frozen=True)
class Chart:
    """A chart, and in one sentence (`summary`) what it shows, for readers who cannot see it."""

    title: str
    summary: str
    x: Axis
    y: Axis
    series: tuple[Series, ...] = field(default=())
    unknown: tuple[tuple[float, float], ...] = ()  # ranges of x that the measurement leaves open; from 0: all below

    def plain(self) -> dict[str, Any]:
        """The chart in the types of JSON, with the digits that a screen can show."""
        chart = asdict(self)
        for series in chart["series"]:
            for name, digits in DIGITS.items():
                series[name] = None if series[name] is None else _rounded(series[name], digits)
        return chart


def _rounded(values: Sequence[float], digits: int) -> list[float | None]:
    """Numbers to a few digits; what is not finite is a gap in the line."""
    return [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in np.asarray(values).tolist()]
