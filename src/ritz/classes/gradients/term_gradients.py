"""Gradients of single terms, a few at a time, with their squared distances from their means."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from ... import progress
from ...engine.agreement import distance, tolerance
from ...engine.linearized import example_vjps
from ...engine.pieces import quiet
from ...foreign_errors import is_out_of_memory
from ...risk import Risk
from ...risk.batches import Batch
from ...risk.class_terms import ClassTerms, as_outputs
from ...risk.data_by_class import class_batches
from .pullback import Pullback, forward

Gradients = tuple[Tensor, list[Tensor]]  # weights (b, m) of b terms and m columns; pieces (b, m, size of a parameter)
BYTES = 2**29  # bytes of single gradients held at a time, at most: more would not be faster


def squared_distances(
    gradients: TermGradients, label: int, columns: list[int], means: Float[Tensor, "m n"]
) -> Float[Tensor, ""]:
    """Σ_{i in c} Σ_{c'} w_{i,c,c'} ‖g_{i,c,c'} - g_{c,c'}‖² over this rank's terms of one class and some columns c'."""
    total = torch.zeros((), dtype=torch.float64, device=means.device)
    centres = means.split(gradients.sizes, dim=1)
    with progress.bar("Single gradients") as bar:
        for batch in class_batches(gradients.risk, only=label):
            for weights, pieces in gradients(batch, label, columns):
                for piece, centre in zip(pieces, centres, strict=True):
                    distances = torch.linalg.vector_norm(piece - centre, dim=-1, dtype=torch.float64)
                    total += (weights * distances.square()).sum()
                bar.advance(len(weights))
    return total


class TermGradients:
    """g_{i,c,c'} of single terms: several examples at once where `vmap` serves the model, else one by one."""

    def __init__(self, risk: Risk) -> None:
        self.risk, self._pullback = risk, Pullback(risk)
        self.sizes = [shape.numel() for shape in risk.shapes.values()]
        self._together: bool | None = None if risk.separable else False  # None until it was tried

    def __call__(self, batch: Batch, label: int, columns: list[int]) -> Iterator[Gradients]:
        """Weights and gradients, a few terms at a time."""
        one_term_each = batch.targets.ndim == 1
        if self._together is None and one_term_each and len(batch) > 1:  # some rules fail only for several examples
            self._together = self._agrees(batch.first(2), label, columns)
        if self._together and one_term_each:
            for first in range(0, len(batch), self._chunk(len(columns))):
                yield self._at_once(batch.rows(slice(first, first + self._chunk(len(columns)))), label, columns)
        else:
            yield from self._one_by_one(batch, label, columns)

    def _chunk(self, num_columns: int) -> int:
        size = num_columns * self.risk.size * self.risk.theta.element_size()
        return max(1, int(min(self.risk.memory / 4, BYTES) // size))

    def _agrees(self, batch: Batch, label: int, columns: list[int]) -> bool:
        try:
            together = torch.cat(self._at_once(batch, label, columns)[1], -1)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            return False  # an operation cannot be batched
        expected = torch.cat([torch.cat(pieces, -1) for _, pieces in self._one_by_one(batch, label, columns)])
        return together.shape == expected.shape and distance(together, expected) <= tolerance(self.risk.dtype)

    def _at_once(self, batch: Batch, label: int, columns: list[int]) -> Gradients:
        risk, (linearized, own) = self.risk, forward(self.risk, batch)
        U = as_outputs(risk, torch.stack([own.errors(k) for k in columns]), linearized.z).movedim(0, 1)
        with risk.numerics(risk.tangent_precision), quiet():
            pieces = example_vjps(risk, batch, U, list(risk.shapes))
        return own.weights[:, columns] * own.members(label)[:, None], pieces

    def _one_by_one(self, batch: Batch, label: int, columns: list[int]) -> Iterator[Gradients]:
        """The gradients term by term; an example at a time where examples are independent."""
        examples = (batch.rows(slice(i, i + 1)) for i in range(len(batch))) if self.risk.separable else [batch]
        for example in examples:
            linearized, own = forward(self.risk, example)
            for term in own.members(label).nonzero()[:, 0].tolist():
                U = as_outputs(self.risk, _errors_of(own, term, columns), linearized.z)
                rows = torch.cat(list(self._pullback(linearized, U)))
                yield own.weights[term, columns][None], list(rows[None].split(self.sizes, dim=-1))


def _errors_of(own: ClassTerms, term: int, columns: list[int]) -> Float[Tensor, "m t C"]:
    """p - e_{c'} for one term and some c', zero elsewhere."""
    U = own.probabilities.new_zeros(len(columns), *own.probabilities.shape)
    U[:, term] = torch.stack([own.errors(k)[term] for k in columns])
    return U
