"""Losses as sums of terms, with their derivatives with respect to the network's outputs in closed form.

A risk is R = Σᵢ tᵢ / Σᵢ wᵢ: every loss says what its terms tᵢ (weights included) and its weights wᵢ are, and the
risk alone adds up and divides, once. A term is one index of all output dimensions but the last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from .errors import ArgumentError, DataError, ModelError, NumericalError

Reduction = Literal["mean", "sum"]
Outputs = Float[Tensor, "*batch"]
Targets = Shaped[Tensor, "..."]
LinearMap = Callable[[Tensor], Tensor]


class Loss(ABC):
    """Terms tᵢ(z, y) of a risk, and the derivatives of Σᵢ tᵢ with respect to the outputs z.

    `reduction="mean"` divides the sum of all terms by the sum of all weights; `"sum"` does not divide.
    """

    reduction: Reduction

    @abstractmethod
    def terms(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        """The values wᵢ ℓᵢ, one per term."""

    @abstractmethod
    def weights(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        """The weights wᵢ."""

    @abstractmethod
    def gradient(self, z: Outputs, y: Targets) -> Outputs:
        """∂/∂z Σ tᵢ."""

    @abstractmethod
    def curvature(self, z: Outputs, y: Targets) -> LinearMap:
        """u ↦ ∂²/∂z² Σ tᵢ · u, with everything that does not depend on u evaluated once."""

    def hessian_product(self, z: Outputs, y: Targets, u: Outputs) -> Outputs:
        """∂²/∂z² Σ tᵢ · u."""
        return self.curvature(z, y)(u)

    @abstractmethod
    def square_root(self, z: Outputs, y: Targets) -> Float[Tensor, "terms K r"]:
        """S with S Sᵀ = ∂²tᵢ/∂zᵢ², a K × r block for each term."""

    @abstractmethod
    def check(self, z: Outputs, y: Targets) -> None:
        """Raise a `DataError` where outputs and targets do not fit together."""


@dataclass(frozen=True, eq=False)
class CrossEntropy(Loss):
    """ℓ = -Σ_c q_c log p_c with p = softmax(z): labels as class indices, or as probabilities of z's own shape.

    Conventions of `torch.nn.CrossEntropyLoss` (class weights, ignored labels, smoothing), but the classes are the
    last dimension unless `class_dim` says otherwise, so that token-level outputs (batch, length, vocabulary) fit.
    """

    weight: Float[Tensor, " C"] | None = None
    ignore_index: int = -100
    label_smoothing: float = 0.0
    class_dim: int = -1
    reduction: Reduction = "mean"

    def terms(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        return -(self._coefficients(z, y) * self._rows(z).log_softmax(-1)).sum(-1)

    def weights(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        rows = self._rows(z)
        if y.is_floating_point():
            return rows.new_ones(len(rows))
        kept = (y.flatten() != self.ignore_index).to(rows.dtype)
        return kept if self.weight is None else kept * self._class_weights(rows)[self._labels(y)]

    def gradient(self, z: Outputs, y: Targets) -> Outputs:
        a = self._coefficients(z, y)
        return self._restore(self._rows(z).softmax(-1) * a.sum(-1, keepdim=True) - a, z)

    def curvature(self, z: Outputs, y: Targets) -> LinearMap:
        """a (diag(p) - p pᵀ), with a = Σ_c a_c the mass of the term."""
        p, dim = z.softmax(self.class_dim), self.class_dim
        mass = self._coefficients(z, y).sum(-1).reshape(z.movedim(dim, -1).shape[:-1]).unsqueeze(dim) * p
        return lambda u: mass * (u - (p * u).sum(dim, keepdim=True))

    def square_root(self, z: Outputs, y: Targets) -> Float[Tensor, "terms C C"]:
        """√a (diag(√p) - p √pᵀ), with a the mass of the term."""
        p = self._rows(z).softmax(-1)
        mass = self._coefficients(z, y).sum(-1).sqrt()
        root = p.sqrt()
        return mass[:, None, None] * (torch.diag_embed(root) - p[:, :, None] * root[:, None, :])

    def check(self, z: Outputs, y: Targets) -> None:
        expected = z.movedim(self.class_dim, -1).shape
        shape = expected if y.is_floating_point() else expected[:-1]
        if z.ndim < 2 or y.shape != shape:
            raise _misfit(
                z, y, f"Cross-entropy with classes in dimension {self.class_dim} takes targets of shape {tuple(shape)}."
            )
        if not y.is_floating_point():
            labels = y[y != self.ignore_index]
            if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < expected[-1]:
                raise DataError(
                    f"Labels run from {int(labels.min())} to {int(labels.max())}; there are {expected[-1]} outputs.",
                    "A label is the index of an output, counted from zero.",
                    "Shift the labels, widen the model's last layer, or set ignore_index for padding.",
                )

    def _rows(self, z: Tensor) -> Tensor:
        return z.movedim(self.class_dim, -1).reshape(-1, z.shape[self.class_dim])

    def _restore(self, rows: Tensor, z: Tensor) -> Tensor:
        return rows.reshape(z.movedim(self.class_dim, -1).shape).movedim(-1, self.class_dim)

    def _labels(self, y: Tensor) -> Tensor:
        return y.flatten().masked_fill(y.flatten() == self.ignore_index, 0)

    def _class_weights(self, rows: Tensor) -> Tensor:
        return rows.new_ones(rows.shape[-1]) if self.weight is None else self.weight.to(rows)

    def _coefficients(self, z: Tensor, y: Tensor) -> Tensor:
        """a with t = -Σ_c a_c log p_c: the smoothed target, weighted."""
        rows, smoothing = self._rows(z), self.label_smoothing
        weight, count = self._class_weights(rows), rows.shape[-1]
        if y.is_floating_point():
            return ((1 - smoothing) * self._rows(y).to(rows) + smoothing / count) * weight
        a = (smoothing / count * weight).repeat(len(rows), 1)
        labels = self._labels(y)[:, None]
        a.scatter_add_(1, labels, (1 - smoothing) * weight[labels])
        return a.masked_fill_((y.flatten() == self.ignore_index)[:, None], 0.0)


@dataclass(frozen=True, eq=False)
class SquaredError(Loss):
    """ℓ = ½‖z - y‖² over the last dimension, as the theory of this field has it.

    `elementwise=True` is `torch.nn.MSELoss`: Σ (z - y)² with one weight per output, so that the mean runs over
    examples and outputs alike.
    """

    elementwise: bool = False
    reduction: Reduction = "mean"

    def terms(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        return self._factor / 2 * _columns(z - y).square().sum(-1)

    def weights(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        return _unit_weights(z, self.elementwise)

    def gradient(self, z: Outputs, y: Targets) -> Outputs:
        return self._factor * (z - y)

    def curvature(self, z: Outputs, y: Targets) -> LinearMap:
        return lambda u: self._factor * u

    def square_root(self, z: Outputs, y: Targets) -> Float[Tensor, "terms K K"]:
        return torch.diag_embed(torch.full_like(_columns(z), self._factor**0.5))

    def check(self, z: Outputs, y: Targets) -> None:
        if z.shape != y.shape:
            raise _misfit(z, y, "Squared error compares them entry by entry; broadcasting would pair the wrong ones.")

    @property
    def _factor(self) -> float:
        return 2.0 if self.elementwise else 1.0


@dataclass(frozen=True, eq=False)
class BinaryCrossEntropy(Loss):
    """ℓ = Σ_k -π_k y_k log σ(z_k) - (1 - y_k) log(1 - σ(z_k)) for logits z, with π = `pos_weight`.

    `elementwise=True` is `torch.nn.BCEWithLogitsLoss`: one weight per output instead of one per term.
    `weight` rescales entries, as there.
    """

    pos_weight: Float[Tensor, "..."] | None = None
    weight: Float[Tensor, "..."] | None = None
    elementwise: bool = False
    reduction: Reduction = "mean"

    def terms(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        positive, negative = self._coefficients(z, y)
        return _columns(positive * F.softplus(-z) + negative * F.softplus(z)).sum(-1)

    def weights(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        return _unit_weights(z, self.elementwise)

    def gradient(self, z: Outputs, y: Targets) -> Outputs:
        positive, negative = self._coefficients(z, y)
        return (positive + negative) * z.sigmoid() - positive

    def curvature(self, z: Outputs, y: Targets) -> LinearMap:
        diagonal = self._diagonal(z, y)
        return lambda u: diagonal * u

    def square_root(self, z: Outputs, y: Targets) -> Float[Tensor, "terms K K"]:
        return torch.diag_embed(_columns(self._diagonal(z, y)).sqrt())

    def check(self, z: Outputs, y: Targets) -> None:
        if z.shape != y.shape:
            raise _misfit(z, y, "Binary cross-entropy compares them entry by entry.")
        if y.numel() and not 0 <= float(y.min()) <= float(y.max()) <= 1:
            raise DataError(
                f"Targets run from {float(y.min()):.3g} to {float(y.max()):.3g}.",
                "Binary cross-entropy takes probabilities between 0 and 1.",
                "Map the labels to 0 and 1, or use SquaredError for regression.",
            )

    def _coefficients(self, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        y = y.to(z.dtype)
        positive = y if self.pos_weight is None else y * self.pos_weight.to(z)
        if self.weight is None:
            return positive, 1 - y
        return positive * self.weight.to(z), (1 - y) * self.weight.to(z)

    def _diagonal(self, z: Tensor, y: Tensor) -> Tensor:
        positive, negative = self._coefficients(z, y)
        return (positive + negative) * z.sigmoid() * (-z).sigmoid()


@dataclass(frozen=True, eq=False)
class Autodiff(Loss):
    """Any callable (outputs, targets) -> one loss per term, differentiated by autograd.

    `weigh` gives the weights of the terms where they are not all one.
    """

    function: Callable[[Tensor, Tensor], Tensor]
    weigh: Callable[[Tensor, Tensor], Tensor] | None = None
    reduction: Reduction = "mean"

    def terms(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        return self.function(z, y).flatten()

    def weights(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        return torch.ones_like(self.terms(z, y)) if self.weigh is None else self.weigh(z, y)

    def gradient(self, z: Outputs, y: Targets) -> Outputs:
        return torch.func.grad(self._total(y))(z)

    def curvature(self, z: Outputs, y: Targets) -> LinearMap:
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self._total(y)(z), z, create_graph=True)
        if not slope.requires_grad:  # the loss is linear in the outputs
            return torch.zeros_like
        return lambda u: torch.autograd.grad(slope, z, u, retain_graph=True)[0]

    def square_root(self, z: Outputs, y: Targets) -> Float[Tensor, "terms K K"]:
        """By the eigenvectors of each term's Hessian, found from one product per output."""
        product, width = self.curvature(z, y), _columns(z).shape[1]
        units = torch.eye(width, dtype=z.dtype, device=z.device)
        rows = [_columns(product(unit.expand(len(_columns(z)), -1).reshape(z.shape))) for unit in units]
        blocks = torch.stack(rows, dim=-1)
        values, vectors = torch.linalg.eigh((blocks + blocks.mT) / 2)
        if bool((values < -1e-6 * values.abs().max()).any()):
            raise NumericalError(
                f"The loss has a Hessian with eigenvalue {float(values.min()):.3g} at these outputs.",
                "Only a convex loss has a Hessian with a real square root.",
                "Use products with gauss_newton(risk), which need no square root.",
            )
        return vectors * values.clamp(min=0).sqrt()[:, None, :]

    def check(self, z: Outputs, y: Targets) -> None:
        values = self.function(z, y)
        if not isinstance(values, Tensor) or values.ndim == 0:
            raise ModelError(
                f"The loss function returned {'a scalar' if isinstance(values, Tensor) else type(values).__name__}.",
                "It must return one value per term: an average over a batch would weigh unequal batches wrongly.",
                'Use reduction="none" inside the loss.',
                "Pass a torch.nn loss module such as torch.nn.CrossEntropyLoss().",
            )

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
    if callable(loss):
        return Autodiff(loss)
    raise ArgumentError(
        f"The loss is a {type(loss).__name__}.",
        "A risk needs a function of outputs and targets.",
        "Pass a ritz loss, a torch.nn loss module, or a callable returning one value per term.",
    )


def _from_module(module: Any) -> Loss:
    if module.reduction == "none":
        return Autodiff(module)
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
    import copy

    values = copy.copy(module)
    values.reduction = "none"
    if isinstance(module, nn.NLLLoss):
        return Autodiff(values, lambda z, y: _label_weights(module, z, y), reduction)
    if module.reduction == "batchmean":  # divides by the batch alone
        return Autodiff(lambda z, y: values(z, y).flatten(1).sum(1), None, reduction)
    return Autodiff(values, None, reduction)


def _label_weights(module: Any, z: Tensor, y: Tensor) -> Tensor:
    weight = z.new_ones(z.shape[1]) if module.weight is None else module.weight.to(z)
    ignored = y.flatten() == module.ignore_index
    return weight[y.flatten().masked_fill(ignored, 0)].masked_fill(ignored, 0.0)


def on_device(loss: Loss, device: torch.device) -> Loss:
    """The loss with its class weights on the given device."""
    moved = {
        name: value.to(device)
        for name, value in vars(loss).items()
        if isinstance(value, Tensor) and value.device != device
    }
    return replace(loss, **moved) if moved else loss  # type: ignore[type-var]


def _columns(values: Tensor) -> Tensor:
    """Values as rows of outputs, one per term; a 1-d output has one column."""
    return values[:, None] if values.ndim == 1 else values.reshape(-1, values.shape[-1])


def _unit_weights(z: Tensor, elementwise: bool) -> Tensor:
    columns = _columns(z)
    return columns.new_full((len(columns),), float(columns.shape[1]) if elementwise else 1.0)


def _misfit(z: Tensor, y: Tensor, why: str) -> DataError:
    return DataError(
        f"The outputs have shape {tuple(z.shape)}, the targets {tuple(y.shape)} ({y.dtype}).",
        why,
        "Reshape the targets, or the model's outputs.",
        "For outputs (batch, length, classes) use ritz.losses.CrossEntropy(), whose classes are the last dimension.",
    )
