"""How well a model does: its mean loss, its accuracy."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from ...errors import ArgumentError, DataError, OutputsWarning, kind_of
from ...risk.losses import Loss, loss_from
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


def check_fit(loss: AnyLoss, z: Tensor, y: Tensor) -> None:
    """Refuse targets that do not fit the outputs, as a risk does: a loss of PyTorch may pair the wrong ones."""
    if isinstance(loss, Loss) or type(loss).__module__ == nn.MSELoss.__module__:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OutputsWarning)  # a risk of this network says it
            loss_from(loss).check(z, y)


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
def accuracy(model: nn.Module, data: Data, *, ignore_index: int = -100) -> float:
    """The fraction of labels whose class has the largest output, the model being in eval mode.

    Classes are the last dimension of the outputs. Labels equal to `ignore_index`, those of padding, do not count.

    >>> accuracy(nn.Identity(), (torch.eye(4), torch.tensor([0, 1, 2, 0])))
    0.75
    """
    if not bool((data[1] != ignore_index).any()):
        raise DataError(
            "An accuracy on no examples was requested.",
            "A fraction of nothing is not defined.",
            "Pass at least one example, with a label that is not ignore_index.",
        )
    modes = {part: part.training for part in model.modules()}
    pieces = zip(*(part.split(_ROWS) for part in data), strict=True)
    try:
        model.eval()
        right, counted = sum(_hits(model(x), y, ignore_index) for x, y in pieces).tolist()  # type: ignore[union-attr]
        return float(right / counted)
    finally:
        for part, training in modes.items():
            part.training = training


def hits(loss: AnyLoss, outputs: Tensor, y: Tensor) -> Int[Tensor, " two"] | None:
    """How many labels are the class with the largest output, and how many there are; None without classes.

    Where classes stand, and which label is none, is as the loss has it: those of PyTorch have classes in dimension 1.
    """
    dim = getattr(loss, "class_dim", 1 if isinstance(loss, nn.modules.loss._Loss) else -1)
    if y.is_floating_point() or not -outputs.ndim <= dim < outputs.ndim:
        return None
    outputs = outputs.movedim(dim, -1)
    return _hits(outputs, y, getattr(loss, "ignore_index", -100)) if outputs.shape[:-1] == y.shape else None


def _hits(outputs: Tensor, y: Tensor, ignore_index: int) -> Int[Tensor, " two"]:
    counted = y != ignore_index
    return torch.stack([((outputs.argmax(-1) == y) & counted).sum(), counted.sum()])
