"""How D.1.3 and D.1.4 can be read where they leave open what the networks of a point learn, and at which rates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...record import Record
from ..frame.readings import ByReading, Reading
from .trained_networks import NetworkPoint, reasons

FIELD = "readings"
LARGE = 10  # D from which a network's inputs and outputs are "large"; open
_DATA = (
    "D.1.3, either way: “we sample a random dataset … for a fixed matrix W”, “we sample and fit 200 neural networks”; "
    "nothing ties the data of two networks together"
)
_MATRIX = "D.1.3: “a fixed matrix W”, whose entries are open"
_TEACHER = "D.1.3: “a single layer ReLU random teacher”, taken at its word"

LINEAR = (
    Reading(FIELD, "own", "own data and own W ~ N(0, 1/D) for each network", _DATA),
    Reading(FIELD, "shared", "one data set for all networks of a point", _DATA),
    Reading(FIELD, "own-unit", "own data, W ~ N(0, 1)", _MATRIX),
    Reading(FIELD, "shared-unit", "one data set for all, W ~ N(0, 1)", _MATRIX),
    Reading(FIELD, "printed-rates", "own data, printed rates of μP", "D.1.3: “η_ℓ = Θ(1/n_{ℓ-1})”, η = 1 at large D"),
)  # fmt: skip
RELU = (
    Reading(FIELD, "own", "own teacher y = ReLU(Wx) for each network", _TEACHER),
    Reading(FIELD, "shared", "one teacher y = ReLU(Wx) for all networks of a point", _DATA),
    Reading(FIELD, "hidden", "own teacher with a hidden layer", "D.1.3, if a layer of a network is a hidden one"),
)
_SETTINGS: dict[str, dict[str, Any]] = {
    "own": {},
    "shared": {"data_of": "shared"},
    "own-unit": {"target": "1"},
    "shared-unit": {"data_of": "shared", "target": "1"},
    "printed-rates": {"rates": "as printed"},
    "hidden": {"teacher": "hidden layer"},
}


def names(readings: Sequence[Reading]) -> tuple[str, ...]:
    """The values of these readings, in order."""
    return tuple(reading.value for reading in readings)


def read(point: NetworkPoint, reading: str) -> NetworkPoint:
    """The point under this reading; it is the same object where nothing differs, so that it is computed once."""
    settings = dict(_SETTINGS[reading])
    if "rates" in settings:
        if point.parametrization != "μP":
            return point
        settings["learning_rate"] = 1.0 if point.widths[0] >= LARGE else point.training.learning_rate
    if settings.get("target") == "1" and point.widths[0] == 1:
        del settings["target"]
    return replace(point, training=replace(point.training, **settings))


def part(record: Record, index: int) -> Record:
    """One reading's numbers: the arrays of a record without their first axis, except those of other widths."""
    arrays = {name: array if name.startswith("width_") else array[index] for name, array in record.arrays.items()}
    return replace(record, arrays=arrays)


def lead(record: Record) -> Record:
    """The numbers of the leading reading."""
    return part(record, 0)


def by_reading(measure: Callable[[Record], Any], readings: Sequence[Reading]) -> Callable[[Record], ByReading]:
    """A function of a record that applies a measure to every reading's numbers."""
    words = {reading.value: reading.words for reading in readings}
    return lambda record: ByReading(
        (words[name], measure(part(record, index))) for index, name in enumerate(record.config[FIELD])
    )


def lead_reasons(why: str, **options: Any) -> Callable[[Record], dict[str, str]]:
    """`reasons` for the leading reading."""
    by_verdict = reasons(why, **options)
    return lambda record: by_verdict(lead(record))
