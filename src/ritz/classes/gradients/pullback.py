"""U ↦ Jᵀ U for several cotangents of a batch, by backward passes through one graph."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from ...engine.agreement import distance, tolerance
from ...engine.batching import MAX_COLUMNS, quiet
from ...engine.timing import seconds_of
from ...risk import Risk
from ...risk.batches import Batch
from ...risk.class_terms import ClassTerms, terms
from ...risk.data_by_class import known_batches


class Pullback:
    """U ↦ Jᵀ U for the cotangents of a batch, one by one or several at a time, whichever was measured to be faster."""

    def __init__(self, risk: Risk) -> None:
        self.risk = risk
        self.largest = max(len(batch) for batch in known_batches(risk))
        self._together: bool | None = None  # None until measured

    def __call__(self, z: Tensor, leaves: list[Tensor], U: Float[Tensor, "m ..."]) -> Iterator[Float[Tensor, "b n"]]:
        """The rows of (Jᵀ U)ᵀ in pieces, the graph of z kept."""
        done = 0
        with quiet():
            if self._together is None and len(U) >= 4:
                yield self._timed(z, leaves, U[:4])
                done = 4
            width = self._width(len(z)) if self._together else 1
            for first in range(done, len(U), width):
                yield self._rows(z, leaves, U[first : first + width])

    def _width(self, num_examples: int) -> int:
        """As many columns as need no more memory than the gradient of a whole batch."""
        return max(1, min(MAX_COLUMNS, max(self.largest, num_examples) // num_examples))

    def _timed(self, z: Tensor, leaves: list[Tensor], U: Float[Tensor, "4 ..."]) -> Float[Tensor, "4 n"]:
        """Two columns one by one and two together, after one that warms up; time both and compare."""
        self._together, rows = False, list[Tensor]()
        first = self._rows(z, leaves, U[:1])
        alone = lambda: rows.extend(self._rows(z, leaves, u[None]) for u in U[1:3])
        seconds = seconds_of(self.risk, alone)
        try:
            together = self._rows(z, leaves, U[2:])
            batched_seconds = seconds_of(self.risk, lambda: self._rows(z, leaves, U[2:]))
        except RuntimeError:  # an operation that cannot be batched
            return torch.cat([first, *rows, self._rows(z, leaves, U[3:])])
        if distance(together[:1], rows[1]) > tolerance(z.dtype):
            return torch.cat([first, *rows, self._rows(z, leaves, U[3:])])
        self._together = batched_seconds < seconds
        return torch.cat([first, *rows, together[1:]])

    def _rows(self, z: Tensor, leaves: list[Tensor], U: Float[Tensor, "b ..."]) -> Float[Tensor, "b n"]:
        risk, batched = self.risk, len(U) > 1
        if not z.requires_grad:  # no output depends on θ
            return risk.theta.new_zeros(len(U), risk.size)
        with risk.numerics(risk.tangent_precision):
            pieces = torch.autograd.grad(
                z, leaves, U if batched else U[0], retain_graph=True, allow_unused=True, is_grads_batched=batched
            )
        if not batched:
            return risk.flatten(pieces)[None]
        shapes = risk.shapes.values()
        zeros = (risk.theta.new_zeros(len(U), shape.numel()) for shape in shapes)
        dense = (o if p is None else p.to_dense().reshape(len(U), -1) for p, o in zip(pieces, zeros, strict=True))
        return torch.cat(list(dense), 1)


def forward(risk: Risk, batch: Batch) -> tuple[list[Tensor], Tensor, ClassTerms]:
    """Leaves, outputs with their graph, and the terms of a batch."""
    leaves = risk.leaves()
    with risk.numerics():
        z = risk.outputs(leaves, batch)
    return leaves, z, terms(risk, z, batch.targets)
