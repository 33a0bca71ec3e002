"""The loss that a user's argument stands for, such as a `torch.nn` loss module."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from functools import partial
from typing import Any

from torch import Tensor, nn

from ...errors import ArgumentError, kind_of
from .binary_cross_entropy import BinaryCrossEntropy
from .by_autograd import Autodiff
from .classification import is_label
from .cross_entropy import CrossEntropy
from .loss import Loss, Reduction
from .squared_error import SquaredError


def loss_from(loss: Any) -> Loss:
    """The `Loss` that a user's argument stands for: a Loss, a `torch.nn` loss module, or a callable.

    Modules keep their own conventions exactly. A subclass of a `torch.nn` loss may compute anything, and is treated as
    a callable.
    """
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, nn.modules.loss._Loss) and type(loss).__module__ == "torch.nn.modules.loss":
        return _from_module(loss)
    if callable(loss) and not isinstance(loss, type):
        return Autodiff(loss)
    raise ArgumentError(
        f"The loss is {kind_of(loss)}.",
        "A risk needs a function of outputs and targets.",
        *([f"Make an instance: {loss.__name__}()."] if isinstance(loss, type) else []),
        "Pass a ritz loss, a torch.nn loss module, or a callable returning one value per term.",
        *(
            ["The order is Risk(model, loss, data)."]
            if isinstance(loss, Iterable) and not isinstance(loss, str)
            else []
        ),
    )


def _from_module(module: Any) -> Loss:
    if module.reduction == "none":
        return Autodiff(module, class_dim=_class_dim(module))
    reduction: Reduction = "sum" if module.reduction == "sum" else "mean"
    if type(module) is nn.CrossEntropyLoss:
        ignored, smoothing = module.ignore_index, module.label_smoothing
        return CrossEntropy(
            module.weight, ignore_index=ignored, label_smoothing=smoothing, class_dim=1, reduction=reduction
        )
    if type(module) is nn.MSELoss:
        return SquaredError(elementwise=True, reduction=reduction)
    if type(module) is nn.BCEWithLogitsLoss:
        return BinaryCrossEntropy(
            pos_weight=module.pos_weight, weight=module.weight, elementwise=True, reduction=reduction
        )
    return _elementwise_module(module, reduction)


def _elementwise_module(module: Any, reduction: Reduction) -> Loss:
    """A loss module by autograd, its mean written as terms and weights."""
    values = copy.copy(module)
    values.reduction = "none"
    if isinstance(module, nn.NLLLoss):
        return Autodiff(values, partial(_label_weights, module), reduction, _class_dim(module))
    if module.reduction == "batchmean":  # divides by the batch size alone
        return Autodiff(partial(_summed, values), None, reduction)
    return Autodiff(values, None, reduction)


def _summed(values: Any, z: Tensor, y: Tensor) -> Tensor:
    return values(z, y).flatten(1).sum(1)


def _class_dim(module: Any) -> int:
    return 1 if isinstance(module, (nn.CrossEntropyLoss, nn.NLLLoss)) else -1


def _label_weights(module: Any, z: Tensor, y: Tensor) -> Tensor:
    weight = z.new_ones(z.shape[1]) if module.weight is None else module.weight.to(z)
    ignored = is_label(y.flatten(), module.ignore_index)
    return weight[y.flatten().long().masked_fill(ignored, 0)].masked_fill(ignored, 0.0)
