"""Every other loss: callables and `torch.nn` modules, differentiated by autograd."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...errors import ArgumentError, ModelError
from .closed_form import (
    BinaryCrossEntropy,
    CrossEntropy,
    LinearMap,
    Loss,
    Outputs,
    Reduction,
    SquaredError,
    Targets,
    columns,
    misfit,
    not_convex,
    unit_weights,
)


@dataclass(frozen=True, eq=False)
class Autodiff(Loss):
    """Any callable (outputs, targets) -> one loss per term or per output, differentiated by autograd.

    Losses of single outputs are added up over the last dimension, with one weight for each. `weigh` gives the
    weights of the terms where they are others.
    """

    function: Callable[[Tensor, Tensor], Tensor]
    weigh: Callable[[Tensor, Tensor], Tensor] | None = None
    reduction: Reduction = "mean"
    class_dim: int = -1

    def terms(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        values = self.function(z, y)
        return columns(values).sum(-1) if values.shape == z.shape else values.flatten()

    def weights(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        if self.weigh is not None:
            return self.weigh(z, y)
        values = self.function(z, y)
        return unit_weights(z, True) if values.shape == z.shape else torch.ones_like(values).flatten()

    def gradient(self, z: Outputs, y: Targets) -> Outputs:
        try:
            return torch.func.grad(self._total(y))(z)
        except RuntimeError:  # torch.func works under transforms, but not under hooks on saved tensors
            return self._slope(z, y)[1].detach()

    def curvature(self, z: Outputs, y: Targets) -> LinearMap:
        z, slope = self._slope(z, y)
        if not slope.requires_grad:  # the loss is linear in the outputs
            return torch.zeros_like
        return lambda u: torch.autograd.grad(slope, z, u, retain_graph=True)[0]

    def square_root(self, z: Outputs, y: Targets) -> Float[Tensor, "terms K K"]:
        """By the eigenvectors of each term's Hessian, found from one product per output."""
        dim = -1 if z.ndim == 1 else self.class_dim
        rows = lambda t: columns(t if t.ndim == 1 else t.movedim(dim, -1))
        product, (count, width) = self.curvature(z, y), rows(z).shape
        if len(self.terms(z, y)) != count:
            raise ModelError(
                f"The loss has {len(self.terms(z, y))} terms for {count} rows of outputs.",
                "A term that joins several rows has a Hessian that does not split into blocks of one row.",
                "Use products with gauss_newton(risk), which need no square root.",
                "Return one value for each row of outputs.",
            )
        unit = lambda k: torch.zeros_like(z).index_fill_(dim, torch.tensor(k, device=z.device), 1.0)
        ones = torch.ones_like(z)
        blocks = torch.stack([rows(product(ones if z.ndim == 1 else unit(k))) for k in range(width)], dim=-1)
        values, vectors = torch.linalg.eigh((blocks + blocks.mT) / 2)
        if bool((values < -1e-6 * values.abs().max()).any()):
            raise not_convex(float(values.min()))
        return vectors * values.clamp(min=0).sqrt()[:, None, :]

    def check(self, z: Outputs, y: Targets) -> None:
        values = self._checked_values(z, y)
        if not isinstance(values, Tensor) or values.ndim == 0 or (values.numel() == 1 and len(z) > 1):
            got = "one value for a whole batch" if isinstance(values, Tensor) else f"a {type(values).__name__}"
            raise ModelError(
                f"The loss function returned {got}.",
                "It must return one value per term: an average over a batch would weigh unequal batches wrongly.",
                'Use reduction="none" inside the loss.',
                "Pass a torch.nn loss module such as torch.nn.CrossEntropyLoss().",
            )
        if values.numel() > z.numel():
            raise misfit(z, y, f"The loss broadcasts them to {values.numel()} values, more than there are outputs.")

    def _checked_values(self, z: Tensor, y: Tensor) -> Any:
        try:
            return self.function(z, y)
        except (TypeError, ValueError, RuntimeError, IndexError) as error:
            raise ModelError(
                f"The loss failed on outputs {tuple(z.shape)} and targets {tuple(y.shape)} ({y.dtype}): "
                f"{(str(error).splitlines() or [type(error).__name__])[0]}",
                "A loss is called as loss(outputs, targets), with one batch of each.",
                "Call it on one batch by hand and compare the shapes.",
                "If it takes more than two arguments, wrap it in a function that packs them into outputs or targets.",
            ) from error

    def _slope(self, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs as a leaf, and ∂/∂z Σ tᵢ with its graph."""
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self._total(y)(z), z, create_graph=True)
        return z, slope

    def _total(self, y: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda z: self.function(z, y).sum()


def loss_from(loss: Any) -> Loss:
    """The `Loss` that a user's argument stands for: a Loss, a `torch.nn` loss module, or a callable.

    Modules keep their own convention exactly. Only the module's own class counts: a subclass may compute anything,
    so it is treated as a callable.
    """
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, nn.modules.loss._Loss) and type(loss).__module__ == "torch.nn.modules.loss":
        return _from_module(loss)
    if callable(loss) and not isinstance(loss, type):
        return Autodiff(loss)
    raise ArgumentError(
        f"The loss is the class {loss.__name__}."
        if isinstance(loss, type)
        else f"The loss is a {type(loss).__name__}.",
        "A risk needs a function of outputs and targets.",
        *([f"Make one of it: {loss.__name__}()."] if isinstance(loss, type) else []),
        "Pass a ritz loss, a torch.nn loss module, or a callable returning one value per term.",
    )


def _from_module(module: Any) -> Loss:
    if module.reduction == "none":
        return Autodiff(module, class_dim=_class_dim(module))
    reduction: Reduction = "sum" if module.reduction == "sum" else "mean"
    if type(module) is nn.CrossEntropyLoss:
        return CrossEntropy(module.weight, module.ignore_index, module.label_smoothing, 1, reduction)
    if type(module) is nn.MSELoss:
        return SquaredError(True, reduction)
    if type(module) is nn.BCEWithLogitsLoss:
        return BinaryCrossEntropy(module.pos_weight, module.weight, True, reduction)
    return _elementwise_module(module, reduction)


def _elementwise_module(module: Any, reduction: Reduction) -> Loss:
    """A loss module through autodiff, its mean spelled out as values and weights."""
    values = copy.copy(module)
    values.reduction = "none"
    if isinstance(module, nn.NLLLoss):
        return Autodiff(values, lambda z, y: _label_weights(module, z, y), reduction, _class_dim(module))
    if module.reduction == "batchmean":  # divides by the batch alone
        return Autodiff(lambda z, y: values(z, y).flatten(1).sum(1), None, reduction)
    return Autodiff(values, None, reduction)


def _class_dim(module: Any) -> int:
    return 1 if isinstance(module, (nn.CrossEntropyLoss, nn.NLLLoss)) else -1


def _label_weights(module: Any, z: Tensor, y: Tensor) -> Tensor:
    weight = z.new_ones(z.shape[1]) if module.weight is None else module.weight.to(z)
    ignored = y.flatten() == module.ignore_index
    return weight[y.flatten().masked_fill(ignored, 0)].masked_fill(ignored, 0.0)
