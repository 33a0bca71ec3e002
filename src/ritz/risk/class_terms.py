"""Which term belongs to which class, with what weight, and in which batches a class is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .. import progress
from ..errors import DataError
from .batches import Batch, joined
from .losses import CrossEntropy, not_convex
from .risk import Risk


@dataclass(frozen=True)
class Terms:
    """The terms of one batch in the space of outputs, in float64: p may be 1e-30, and its square must not be zero."""

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
        """Which terms belong to a class; those that are ignored to none."""
        return (self.labels == label) & (self.masses > 0)


def terms(risk: Risk, z: Tensor, targets: Tensor) -> Terms:
    """The terms of a batch from its outputs."""
    loss, z = cast(CrossEntropy, risk.loss), z.detach().double()
    labels = targets.flatten().long().masked_fill(targets.flatten() == loss.ignore_index, 0)
    masses = loss.masses(z, targets)
    if bool((masses < 0).any()):
        raise not_convex(float(masses.min()))
    rows = z.movedim(loss.class_dim, -1).reshape(len(labels), -1)
    return Terms(labels, masses / risk.total_weight, rows.softmax(-1))


def as_outputs(risk: Risk, rows: Float[Tensor, "*m t C"], z: Tensor) -> Tensor:
    """Rows of terms in the shape, precision and order of the outputs, with the leading dimensions kept."""
    dim, leading = cast(CrossEntropy, risk.loss).class_dim, rows.shape[:-2]
    shaped = rows.to(z.dtype).reshape(*leading, *z.movedim(dim, -1).shape)
    return shaped.movedim(-1, dim % z.ndim + len(leading))


def cross_weights(risk: Risk) -> Float[Tensor, "C C"]:
    """w_{c,c'} = Σ_{i in c} aᵢ p_{i,c'} / Σ w, for all data: one forward pass.

    What is too small for a normal number of float64 is zero. Papyan (2020), Sec. 6.2, for any balance of classes.
    """
    _check_classes(risk)
    total = torch.zeros(risk.num_classes, risk.num_classes, dtype=torch.float64, device=risk.device)
    leaves = [leaf.detach() for leaf in risk.leaves()]
    with progress.bar("Class weights") as bar:
        for batch in risk.batches:
            with risk.numerics(), torch.no_grad():
                found = terms(risk, risk.outputs(leaves, batch), batch.targets)
            total.index_add_(0, found.labels, found.weights)
            bar.advance()
    total = risk.reduced(total)
    _check_several(total)
    return total.masked_fill(total < torch.finfo(total.dtype).tiny, 0.0)


def class_batches(risk: Risk, *, only: int | None = None) -> Iterator[Batch]:
    """The data class by class, so that every example takes part in the columns of its own class alone.

    Batches whose examples have several labels (tokens), or depend on each other, stay as they are. With `only`, just
    what can have terms of that class.
    """
    if not risk.separable or any(batch.targets.ndim > 1 for batch in known_batches(risk)):
        yield from (b for b in risk.batches if only is None or bool((b.targets == only).any()))
        return
    held = risk.batches.held
    pools = [held] if held is not None and _alike(held) else ([batch] for batch in risk.batches)
    for pool in pools:
        for label in _labels(risk, pool) if only is None else [only]:
            yield from _of_class(pool, label)


def known_batches(risk: Risk) -> list[Batch]:
    """The batches held, or the first of those that are read anew."""
    return risk.batches.held or [next(iter(risk.batches))]


def _alike(batches: list[Batch]) -> bool:
    return len({(batch.names(), tuple(t.shape[1:] for t in batch.tensors())) for batch in batches}) == 1


def _labels(risk: Risk, pool: list[Batch]) -> list[int]:
    found = torch.cat([batch.targets for batch in pool]).unique()
    return found[found != cast(CrossEntropy, risk.loss).ignore_index].tolist()


def _of_class(pool: list[Batch], label: int) -> Iterator[Batch]:
    """The examples of one class, in batches no larger than the user's."""
    pieces = [batch.rows((batch.targets == label).nonzero()[:, 0]) for batch in pool]
    pieces = [piece for piece in pieces if len(piece)]
    if not pieces:
        return
    whole, size = joined(pieces), max(len(batch) for batch in pool)
    for first in range(0, len(whole), size):
        yield whole.rows(slice(first, first + size))


def _check_classes(risk: Risk) -> None:
    _ = risk.labels  # which refuses what are no class indices
    if risk.num_classes < 2:
        raise DataError(
            f"The model has {risk.num_classes} output.",
            "Classes are told apart by at least two.",
            "Return one logit for each class; for a single logit z, return (0, z) and use cross-entropy.",
        )


def check_one_label(risk: Risk, why: str, way_out: str) -> None:
    """Refuse examples with several labels, such as tokens have, where each must be of one class."""
    if any(batch.targets.ndim > 1 for batch in risk.batches):
        raise DataError(
            "An example has several labels: the targets have a dimension besides that of the examples.", why, way_out
        )


def _check_several(weights: Float[Tensor, "C C"]) -> None:
    present = (weights.sum(1) > 0).nonzero()[:, 0].tolist()
    if len(present) < 2:
        raise DataError(
            f"All terms with a weight belong to {f'class {present[0]}' if present else 'no class'}.",
            "One class has no structure between classes.",
            "Pass data of several classes, unsorted; check ignore_index and the class weights.",
        )
