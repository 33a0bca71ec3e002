"""The paths: the ways to linearise a batch, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..risk import Risk
from ..risk.batches import Batch
from .linearized import ForwardMode, Linearized, ReverseMode


@dataclass(frozen=True)
class Path:
    """One way to linearise a batch for derivatives up to an order."""

    name: str
    linearize: Callable[[Risk, Batch, int], Linearized]
    keeps: bool = True  # whether its linearisation is worth keeping between products; a last resort is not
    reference: bool = False  # whether the others are compared with it: PyTorch's own derivatives

    def __reduce__(self) -> Any:
        """Another process has the same paths: they travel by name."""
        return (path_named, (self.name,)) if self in PATHS else super().__reduce__()


PATHS = (
    Path("rules", partial(ReverseMode, rules=True)),
    Path("plain", ReverseMode, reference=True),
    Path("forward", ForwardMode, keeps=False),
)  # in the order of preference


def path_named(name: str) -> Path:
    """The path of this name."""
    return next(path for path in PATHS if path.name == name)
