"""How well a model does: its mean loss, its accuracy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import ArgumentError, DataError, kind_of
from ...risk.losses import Loss
from .batches import Data

AnyLoss = Loss | Callable[[Tensor, Tensor], Tensor]
_ROWS = 1024  # examples whose accuracy is counted at a time


def check_loss(loss: Any) -> None:
    """Refuse anything but a function of outputs and targets."""
    if isinstance(loss, type) or not (isinstance(loss, Loss) or callable(loss)):
        raise ArgumentError(
            f"The loss is {kind_of(loss)}.",
            "It is called with outputs and targets, and what it returns is averaged over a batch.",
            "Pass a ritz loss such as ritz.CrossEntropy(), a torch.nn loss module, or a function.",
        )


def mean_loss(loss: AnyLoss, z: Tensor, y: Tensor) -> Tensor:
    """The mean loss over a batch, as a risk on the batch defines it.

    >>> mean_loss(nn.MSELoss(), torch.tensor([1.0, 3.0]), torch.zeros(2))
    tensor(5.)
    """
    if isinstance(loss, Loss):
        total = loss.terms(z, y).sum()
        return total / loss.weights(z, y).sum() if loss.reduction == "mean" else total
    return loss(z, y).mean()


@torch.no_grad()
def accuracy(model: nn.Module, data: Data) -> float:
    """The fraction of examples whose largest output is that of their class, the model being in eval mode.

    >>> accuracy(nn.Identity(), (torch.eye(4), torch.tensor([0, 1, 2, 0])))
    0.75
    """
    if not data[1].numel():
        raise DataError(
            "An accuracy on no examples was requested.",
            "A fraction of nothing is not defined.",
            "Pass at least one example.",
        )
    modes = {part: part.training for part in model.modules()}
    pieces = zip(*(part.split(_ROWS) for part in data), strict=True)
    try:
        model.eval()
        return sum(float(hits(model(x), y)) for x, y in pieces) / data[1].numel()
    finally:
        for part, training in modes.items():
            part.training = training


def hits(outputs: Tensor, y: Tensor) -> Tensor:
    """How many labels are the class with the largest output."""
    return (outputs.argmax(-1) == y).sum()
