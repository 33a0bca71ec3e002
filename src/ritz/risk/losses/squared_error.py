"""Squared error, with its derivatives in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from .loss import (
    LinearMap,
    Loss,
    Outputs,
    Reduction,
    Targets,
    check_reduction,
    entries_misfit,
    term_rows,
    unit_weights,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class SquaredError(Loss):
    """ℓ = ½‖z - y‖² over the last dimension, as the theory of this field has it: linear2026, eq. (2).

    `elementwise=True` is `torch.nn.MSELoss`: Σ (z - y)² with one weight per output, so that the mean runs over
    examples and outputs alike.

    >>> z, y = torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2)
    >>> SquaredError().terms(z, y), SquaredError(elementwise=True).weights(z, y)
    (tensor([12.5000]), tensor([2.]))
    """

    elementwise: bool = False
    reduction: Reduction = "mean"

    def __post_init__(self) -> None:
        check_reduction(self.reduction)

    @property
    def is_convex(self) -> bool:
        return True

    def terms(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        return self._factor / 2 * term_rows(z - y).square().sum(-1)

    def weights(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        return unit_weights(z, self.elementwise)

    def gradient(self, z: Outputs, y: Targets) -> Outputs:
        return self._factor * (z - y)

    def curvature(self, z: Outputs, y: Targets) -> LinearMap:
        return lambda u: self._factor * u

    def square_root(self, z: Outputs, y: Targets) -> Float[Tensor, "terms K K"]:
        return torch.diag_embed(torch.full_like(term_rows(z), self._factor**0.5))

    def sampled_gradient(self, z: Outputs, y: Targets, uniform: Float[Tensor, "..."]) -> Outputs:
        """Normal random numbers, with the second derivative as their variance."""
        normal = torch.special.ndtri(uniform.flatten()[: z.numel()].double())
        return self._factor**0.5 * normal.to(z).view(z.shape)

    def check(self, z: Outputs, y: Targets) -> None:
        if z.shape != y.shape:
            raise entries_misfit(z, y)

    @property
    def _factor(self) -> float:
        return 2.0 if self.elementwise else 1.0
