"""How the learning rate changes: each schedule gives the factor of the rates that training started with.

A schedule reads the loss of one network or of many at once, and each network has its own pace.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ...errors import ArgumentError

_SLACK = 1 - 1e-9  # 0.1 · 0.1 · 0.1 may come out below a floor of 0.001


@dataclass(frozen=True)
class Pace:
    """The state of a schedule for each network: the factor, the loss it compares with, and whether it has ended."""

    factor: Float[Tensor, "*B"]
    reference: Float[Tensor, "*B"]
    done: Bool[Tensor, "*B"]

    @classmethod
    def start(cls, loss: Float[Tensor, "*B"]) -> Pace:
        """Before the first epoch, for losses of this shape, kind and place."""
        return cls(torch.ones_like(loss), torch.full_like(loss, torch.inf), torch.zeros_like(loss, dtype=torch.bool))


@runtime_checkable
class Schedule(Protocol):
    """The pace of the next epoch, once `epoch` epochs are over and the last of them has shown this loss.

    >>> isinstance(Constant(), Schedule)
    True
    """

    def after(self, pace: Pace, loss: Float[Tensor, "*B"], *, epoch: int, num_epochs: int) -> Pace:
        """Called with epoch = 0 before the first one."""


@dataclass(frozen=True)
class Constant:
    """The rates stay as they are.

    >>> pace = Pace.start(torch.tensor(1.0))
    >>> Constant().after(pace, torch.tensor(2.0), epoch=5, num_epochs=10).factor
    tensor(1.)
    """

    def after(self, pace: Pace, loss: Float[Tensor, "*B"], *, epoch: int, num_epochs: int) -> Pace:
        return pace


def _check(schedule: object, sound: bool, why: str, way_out: str) -> None:
    if not sound:
        raise ArgumentError(f"{schedule} was requested.", why, way_out)


@dataclass(frozen=True)
class Plateau:
    """Multiply the rates by `factor` where the loss has improved by less than `improvement`, relative, in a window.

    Windows are disjoint: each begins where the last ended, else a rate too small to improve anything would fall at
    every step. Training ends where the factor would fall below `floor`, and then only for the network concerned.

    >>> pace = Plateau(1, 0.1, 0.5).after(Pace.start(torch.ones(2)), torch.ones(2), epoch=1, num_epochs=9)
    >>> Plateau(1, 0.1, 0.5).after(pace, torch.tensor([0.5, 0.95]), epoch=2, num_epochs=9).factor
    tensor([1.0000, 0.5000])
    """

    window: int
    improvement: float
    factor: float
    floor: float = 0.0

    def __post_init__(self) -> None:
        _check(
            self,
            self.window >= 1 and 0 <= self.improvement < 1 and 0 < self.factor < 1 and 0 <= self.floor <= 1,
            "A window has at least one epoch; the improvement is a fraction of the loss, below 1; a rate falls by "
            "a factor between 0 and 1; and the floor is a fraction of the rate at the start.",
            "HALVING is the rule of linear2026; Plateau(10, 1e-2, 0.1, floor=1e-3) goes down three decades.",
        )

    def after(self, pace: Pace, loss: Float[Tensor, "*B"], *, epoch: int, num_epochs: int) -> Pace:
        if epoch == 0 or (epoch - 1) % self.window:
            return pace
        improved = loss <= (1 - self.improvement) * pace.reference
        factor = torch.where(improved, pace.factor, self.factor * pace.factor)
        done = pace.done | (factor < _SLACK * self.floor)
        return Pace(torch.where(done, pace.factor, factor), loss, done)


HALVING = Plateau(window=100, improvement=1e-3, factor=0.5)  # linear2026, App. C, in disjoint windows


@dataclass(frozen=True)
class Annealing:
    """Multiply the rates by `factor` at these fractions of the epochs. Papyan (2020), App. D.1.

    >>> pace = Pace.start(torch.tensor(1.0))
    >>> [float(Annealing(factor=0.5).after(pace, pace.factor, epoch=e, num_epochs=9).factor) for e in (0, 3, 6)]
    [1.0, 0.5, 0.25]
    """

    at: tuple[float, ...] = (1 / 3, 2 / 3)
    factor: float = 0.1

    def __post_init__(self) -> None:
        _check(
            self,
            self.factor > 0 and math.isfinite(self.factor) and all(0 <= fraction <= 1 for fraction in self.at),
            "Rates are multiplied by a positive number, at fractions of the epochs between 0 and 1.",
            "Annealing() divides by ten after each third.",
        )

    def after(self, pace: Pace, loss: Float[Tensor, "*B"], *, epoch: int, num_epochs: int) -> Pace:
        passed = sum(epoch >= fraction * num_epochs for fraction in self.at)
        return replace(pace, factor=torch.full_like(pace.factor, self.factor**passed))


@dataclass(frozen=True)
class Cosine:
    """Rise linearly for `warmup` epochs, then fall along half a cosine to `floor`.

    For GPT (nanoGPT, Karpathy 2022), where batches are drawn and an epoch is a step.

    >>> pace = Pace.start(torch.tensor(1.0))
    >>> [float(Cosine(1, floor=0.0).after(pace, pace.factor, epoch=e, num_epochs=9).factor) for e in (0, 1, 5)]
    [0.5, 1.0, 0.5]
    """

    warmup: int = 0
    floor: float = 0.1

    def __post_init__(self) -> None:
        _check(
            self,
            self.warmup >= 0 and 0 <= self.floor <= 1,
            "The warm-up counts epochs, and the floor is a fraction of the highest rate.",
            "Cosine(2000) warms up for 2,000 epochs and falls to a tenth.",
        )

    def after(self, pace: Pace, loss: Float[Tensor, "*B"], *, epoch: int, num_epochs: int) -> Pace:
        if epoch < self.warmup:
            factor = (epoch + 1) / (self.warmup + 1)
        else:
            progress = min((epoch - self.warmup) / max(num_epochs - self.warmup, 1), 1.0)
            factor = self.floor + (1 - self.floor) * (1 + math.cos(math.pi * progress)) / 2
        return replace(pace, factor=torch.full_like(pace.factor, factor))
