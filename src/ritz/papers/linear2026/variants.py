"""Variants of Fig. 1 right and Fig. 2: the leading reading of every choice, and single changes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from ..frame.readings import Reading
from .data import Inputs
from .networks import Start

Draws = Literal["own", "shared"]
Rates = Literal["halved", "constant"]
Scale = Literal["one", "half"]
STEP = 1_000  # between the seeds of one share and those of the next

SCALE = {"one": 1.0, "half": 0.5}
DRAWS = (
    Reading("draws", "own", "own images and weights for each share", "open; App. C ties no two networks together"),
    Reading("draws", "shared", "one seed for all shares", "open; images of a smaller share are part of a larger"),
)
RATES = (
    Reading("rates", "halved", "rate halved as printed", 'App. C, "successively halved", every 100 epochs'),
    Reading("rates", "constant", "rate kept", "not printed: what training does where the rule does not stop it"),
)
SCALES = (
    Reading("scales", "one", "singular values in [0, 1]", "open; those of Fig. 1 left, App. C"),
    Reading("scales", "half", "singular values in [0, ½]", "open; CIFAR-10 then has a start that does not diverge"),
)
STARTS = (
    Reading("starts", "balanced", "balanced weights", "App. C, Figure 2, Right"),
    Reading("starts", "kaiming", "Kaiming uniform weights", 'caption of Fig. 2, "unbalanced initialization"'),
)


@dataclass(frozen=True)
class Variant:
    """One way to treat a data set: its inputs, how networks start and are trained, and what they share."""

    inputs: Inputs
    start: Start = "balanced"
    scale: Scale = "one"
    rate: Rates = "halved"
    draws: Draws = "own"


_FIELDS = {"inputs": "inputs", "start": "starts", "scale": "scales", "rate": "rates", "draws": "draws"}  # of the Config


def variants(config: Any) -> list[Variant]:
    """The variant with the first value of every field, then those that replace one of them by another value."""
    values = {name: _values(config, field) for name, field in _FIELDS.items()}
    first = Variant(*(values[entry.name][0] for entry in fields(Variant)))
    others = [replace(first, **{name: value}) for name, several in values.items() for value in several[1:]]
    return [first, *others]


def _values(config: Any, field: str) -> Sequence[Any]:
    """The values of a field of a config, or of the mapping that stands for it in a record."""
    return list(config[field] if isinstance(config, Mapping) else getattr(config, field))


def seed_of(seed: int, draws: Draws, repeat: int, share: int) -> int:
    """The seed of images and weights: one for all shares of a repeat ("shared"), or one for each share ("own")."""
    return seed + repeat + (STEP * (1 + share) if draws == "own" else 0)
