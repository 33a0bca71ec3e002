"""The paths: the ways to linearise a batch, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..risk import Risk
from ..risk.batches import Batch
from .linearized import ForwardMode, Linearized, ReverseMode


@dataclass(frozen=True)
class Path:
    """One way to linearise a batch for derivatives up to an order."""

    name: str
    linearize: Callable[[Risk, Batch, int], Linearized]
    keeps: bool = True  # whether its linearisation is worth keeping between products; else it is a last resort
    reference: bool = False  # whether the others are held against it: PyTorch's own derivatives


PATHS = (
    Path("rules", partial(ReverseMode, rules=True)),
    Path("plain", ReverseMode, reference=True),
    Path("forward", ForwardMode, keeps=False),
)  # in the order of preference
