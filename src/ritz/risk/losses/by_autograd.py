"""Every other loss: any callable of outputs and targets, differentiated by autograd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import ModelError, first_line
from .loss import LinearMap, Loss, Outputs, Reduction, Targets, misfit, not_convex, term_rows, unit_weights


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
        return term_rows(values).sum(-1) if values.shape == z.shape else values.flatten()

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
        """By the eigenvectors of each term's Hessian, from one product per output."""
        dim = -1 if z.ndim == 1 else self.class_dim
        rows = lambda t: term_rows(t if t.ndim == 1 else t.movedim(dim, -1))
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
                f"{first_line(error)}",
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
