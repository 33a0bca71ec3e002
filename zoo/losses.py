"""The losses of the zoo, written plainly: a value by PyTorch, a Hessian in closed form, and what ritz calls it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ritz


class PlainLoss(ABC):
    """A sum over examples, and the number by which the sum over all batches is divided."""

    @abstractmethod
    def total(self, z: Tensor, y: Tensor) -> Tensor:
        """Σ ℓ over a batch."""

    @abstractmethod
    def count(self, z: Tensor, y: Tensor) -> float:
        """How much of the divisor comes from a batch."""

    @abstractmethod
    def curvature(self, z: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
        """u ↦ ∂²(Σ ℓ)/∂z² u in closed form."""

    @abstractmethod
    def for_ritz(self) -> Any:
        """What a user would pass to `ritz.Risk`."""


class CrossEntropy(PlainLoss):
    """Classes in the last dimension, of an example or of each of its tokens; a label of -100 does not count."""

    def total(self, z: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(z.reshape(-1, z.shape[-1]), y.reshape(-1), reduction="sum")

    def count(self, z: Tensor, y: Tensor) -> float:
        return float((y != -100).sum())

    def curvature(self, z: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
        p, there = z.softmax(-1), (y != -100).unsqueeze(-1)
        return lambda u: there * p * (u - (p * u).sum(-1, keepdim=True))

    def for_ritz(self) -> Any:
        return ritz.CrossEntropy()


class SquaredError(PlainLoss):
    """`nn.MSELoss`: the mean over all entries."""

    def total(self, z: Tensor, y: Tensor) -> Tensor:
        return ((z - y) ** 2).sum()

    def count(self, z: Tensor, y: Tensor) -> float:
        return z.numel()

    def curvature(self, z: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda u: 2 * u

    def for_ritz(self) -> Any:
        return nn.MSELoss()


class BinaryCrossEntropy(PlainLoss):
    """`nn.BCEWithLogitsLoss`: the mean over all entries, of targets that are the positive ones of random numbers."""

    def total(self, z: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(z, y, reduction="sum")

    def count(self, z: Tensor, y: Tensor) -> float:
        return z.numel()

    def curvature(self, z: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
        p = torch.sigmoid(z)
        return lambda u: p * (1 - p) * u

    def for_ritz(self) -> Any:
        return nn.BCEWithLogitsLoss()
