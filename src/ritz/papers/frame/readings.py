"""Readings: the ways to understand what a paper leaves open, and what was measured for each of them.

A choice that the text does not settle is a field of the figure's Config that holds one or more readings. The first one
leads: the picture shows it, the verdict is by it, and the others are reported beside it. In the figure's module:

    READINGS = (  # in the order in which the text supports them; docs/decisions.md has the rule
        Reading("data_of", "own", "own data for each network", "App. D, either way"),
        Reading("data_of", "shared", "one data set for all", "App. D, either way"),
    )

    @dataclass(frozen=True)
    class Config:
        data_of: tuple[Literal["own", "shared"], ...] = ("own", "shared")

    def slopes(record):
        return ByReading((words_of(READINGS, "data_of", value), slope(record, value))
                         for value in record.config["data_of"])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any


@dataclass(frozen=True)
class Reading:
    """One value of an open choice: the Config field it belongs to, what to call it, and what supports it."""

    field: str  # nested fields as for --set: training.data
    value: Any  # as in the Config
    words: str
    source: str  # a place in the paper, and what it says or leaves open


class ByReading(dict[str, Any]):
    """What was measured under each reading, by its words; a statement is judged by the first."""


def words_of(readings: Sequence[Reading], field: str, value: Any) -> str:
    """The words for a reading."""
    return next(one.words for one in readings if (one.field, one.value) == (field, value))


def check_readings(name: str, readings: Sequence[Reading], presets: dict[str, Any]) -> None:
    """Refuse presets that hold a reading without a source, or that lead with a reading other than the first."""
    for field in dict.fromkeys(one.field for one in readings):
        values = [one.value for one in readings if one.field == field]
        for preset, config in presets.items():
            given = list(reduce(getattr, field.split("."), config))
            if not given or given[0] != values[0] or any(value not in values for value in given):
                raise ValueError(
                    f"{name}, {preset}: {field} is {given}, and its readings are {values}, the first leads"
                )
