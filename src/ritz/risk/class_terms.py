"""The class of every term, with its weight in the curvature of the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .. import progress
from ..errors import DataError
from .batches import Batch
from .losses import Classification, not_convex
from .risk import Risk


@dataclass(frozen=True)
class ClassTerms:
    """The terms of one batch in output space, in float64: p may be 1e-30, and its square must not vanish."""

    labels: Int[Tensor, " t"]  # zero where a term is ignored
    masses: Float[Tensor, " t"]  # aᵢ / Σ w: the curvature of term i is aᵢ (diag p - p pᵀ)
    probabilities: Float[Tensor, "t C"]

    @property
    def weights(self) -> Float[Tensor, "t C"]:
        """w_{i,c,c'} = aᵢ p_{i,c'} / Σ w, with c the label of term i."""
        return self.masses[:, None] * self.probabilities

    def errors(self, column: int) -> Float[Tensor, "t C"]:
        """p - e_{c'}, the derivative of the loss for the would-be label c'.

        The entries sum to zero, and that of c' is minus the others: p - 1 would be rounding where a network is sure.
        """
        others = self.probabilities.clone()
        others[:, column] = 0.0
        others[:, column] = -others.sum(-1)
        return others

    def present(self) -> list[int]:
        """The classes that have a term of positive weight here."""
        return self.labels[self.masses > 0].unique().tolist()

    def members(self, label: int) -> Bool[Tensor, " t"]:
        """Which terms belong to a class; ignored terms belong to none."""
        return (self.labels == label) & (self.masses > 0)


def terms(risk: Risk, z: Tensor, targets: Tensor) -> ClassTerms:
    """The terms of a batch from its outputs."""
    loss, z = cast(Classification, risk.loss), z.detach().double()
    masses = loss.masses(z, targets)
    if bool((masses < 0).any()):
        raise not_convex(float(masses.min()))
    return ClassTerms(loss.labels(targets), masses / risk.total_weight, loss.probabilities(z))


def as_outputs(risk: Risk, rows: Float[Tensor, "*m t C"], z: Tensor) -> Tensor:
    """Rows of terms in the shape, precision and order of the outputs, keeping leading dimensions."""
    dim, leading = risk.loss.class_dim, rows.shape[:-2]
    shaped = rows.to(z.dtype).reshape(*leading, *z.movedim(dim, -1).shape)
    return shaped.movedim(-1, dim % z.ndim + len(leading))


def cross_weights(risk: Risk) -> Float[Tensor, "C C"]:
    """w_{c,c'} = Σ_{i in c} aᵢ p_{i,c'} / Σ w, for all data: one forward pass.

    What is too small for a normal number of float64 is zero. Papyan (2020), Sec. 6.2, for any balance of classes.
    """
    return cross_weights_and_count(risk)[0]


def cross_weights_and_count(risk: Risk) -> tuple[Float[Tensor, "C C"], int]:
    """`cross_weights`, and how many terms on all ranks are not ignored and belong to a class of positive weight."""
    _ = risk.labels  # refuses targets that are not class indices
    total = torch.zeros(risk.num_classes, risk.num_classes, dtype=torch.float64, device=risk.device)
    count = total.new_zeros(())
    leaves = [leaf.detach() for leaf in risk.leaves()]
    with progress.bar("Class weights") as bar:
        for batch in risk.batches:
            with risk.numerics(), torch.no_grad():
                batch_terms = terms(risk, risk.outputs(leaves, batch), batch.targets)
            _check_width(batch_terms, len(total), batch)
            total.index_add_(0, batch_terms.labels, batch_terms.weights)
            count += (batch_terms.masses > 0).sum()
            bar.advance()
    total, count = risk.sum_over_ranks(total), risk.sum_over_ranks(count)
    _check_several(total)
    return total.masked_fill(total < torch.finfo(total.dtype).tiny, 0.0), int(count)


def _check_width(own: ClassTerms, count: int, batch: Batch) -> None:
    if own.probabilities.shape[1] != count:
        raise DataError(
            f"The outputs of the first batch are of {count} classes, those of {batch.name} of "
            f"{own.probabilities.shape[1]}.",
            "Structure by class needs the same classes in all batches.",
            "Use hessian(risk), gauss_newton(risk) and gram_spectrum(risk), which need no classes.",
            "Pass batches of one number of classes alone.",
        )


def _check_several(weights: Float[Tensor, "C C"]) -> None:
    present = (weights.sum(1) > 0).nonzero()[:, 0].tolist()
    if len(present) < 2:
        raise DataError(
            f"All terms with a weight belong to {f'class {present[0]}' if present else 'no class'}.",
            "A single class has no structure between classes.",
            "Pass data of several classes, unsorted; check ignore_index and the class weights.",
        )
