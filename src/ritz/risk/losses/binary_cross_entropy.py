"""Binary cross-entropy of logits, with its derivatives in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from ...errors import DataError, OutputsWarning, warn_user
from .loss import (
    LinearMap,
    Loss,
    Outputs,
    Reduction,
    Targets,
    check_broadcasts,
    check_finite_weights,
    check_reduction,
    check_weight_tensors,
    entries_misfit,
    not_convex,
    term_rows,
    unit_weights,
)

NEAR = 0.05  # 0 and 1: logits that come so near to both, and never pass them, are probabilities


@dataclass(frozen=True, eq=False, kw_only=True)
class BinaryCrossEntropy(Loss):
    """ℓ = Σ_k -π_k y_k log σ(z_k) - (1 - y_k) log(1 - σ(z_k)) for logits z, with π = `pos_weight`.

    `elementwise=True` is `torch.nn.BCEWithLogitsLoss`: one weight per output instead of one per term.
    `weight` rescales entries, as there.

    >>> z, y = torch.zeros(1, 2), torch.tensor([[0.0, 1.0]])
    >>> BinaryCrossEntropy().terms(z, y), BinaryCrossEntropy().gradient(z, y)
    (tensor([1.3863]), tensor([[ 0.5000, -0.5000]]))
    """

    pos_weight: Float[Tensor, "..."] | None = None
    weight: Float[Tensor, "..."] | None = None
    elementwise: bool = False
    reduction: Reduction = "mean"

    def __post_init__(self) -> None:
        check_reduction(self.reduction)
        check_weight_tensors(pos_weight=self.pos_weight, weight=self.weight)

    @property
    def is_convex(self) -> bool:
        return all(w is None or bool((w >= 0).all()) for w in (self.weight, self.pos_weight))

    def terms(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        positive, negative = self._coefficients(z, y)
        return term_rows(positive * F.softplus(-z) + negative * F.softplus(z)).sum(-1)

    def weights(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        return unit_weights(z, self.elementwise)

    def gradient(self, z: Outputs, y: Targets) -> Outputs:
        positive, negative = self._coefficients(z, y)
        return (positive + negative) * z.sigmoid() - positive

    def curvature(self, z: Outputs, y: Targets) -> LinearMap:
        diagonal = self._diagonal(z, y)
        return lambda u: diagonal * u

    def square_root(self, z: Outputs, y: Targets) -> Float[Tensor, "terms K K"]:
        diagonal = self._diagonal(z, y)
        _check_convex(diagonal)
        return torch.diag_embed(term_rows(diagonal).sqrt())

    def sampled_gradient(self, z: Outputs, y: Targets, uniform: Float[Tensor, "..."]) -> Outputs:
        """√a (σ - b), with a the mass of the entry and b = 1 with probability σ: the gradient for a sampled label."""
        mass = torch.add(*self._coefficients(z, y))
        _check_convex(mass)
        positive = uniform.flatten()[: z.numel()].view(z.shape) < z.double().sigmoid()
        return mass.sqrt() * torch.where(positive, -(-z).sigmoid(), z.sigmoid())

    def check(self, z: Outputs, y: Targets) -> None:
        if z.shape != y.shape:
            raise entries_misfit(z, y)
        for name in ("pos_weight", "weight"):
            check_finite_weights(name, getattr(self, name))
            check_broadcasts(name, getattr(self, name), z)
        if y.numel() and not 0 <= float(y.min()) <= float(y.max()) <= 1:
            raise DataError(
                f"Targets run from {float(y.min()):.3g} to {float(y.max()):.3g}.",
                "Binary cross-entropy takes probabilities between 0 and 1.",
                "Map the labels to 0 and 1, or use SquaredError for regression.",
            )
        if z.numel() and 0 <= float(z.min()) < NEAR and 1 - NEAR < float(z.max()) <= 1:
            warn_user(
                "The outputs reach from 0 to 1 and not beyond, as probabilities do. This loss takes the logits before "
                "them and applies the sigmoid itself: on probabilities it would be applied twice. If that is not "
                "meant, leave the sigmoid out of the model, or pass torch.nn.BCELoss().",
                OutputsWarning,
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


def _check_convex(diagonal: Tensor) -> None:
    if bool((diagonal < 0).any()):
        raise not_convex(float(diagonal.min()))
