"""U ↦ Jᵀ U for several cotangents of a batch, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator

from jaxtyping import Float
from torch import Tensor

from ...engine.columns import MAX_COLUMNS, Columns
from ...engine.linearized import Linearized, ReverseMode
from ...engine.pieces import quiet
from ...risk import Risk
from ...risk.batches import Batch
from ...risk.class_terms import ClassTerms, terms
from ...risk.data_by_class import known_batches


class Pullback:
    """U ↦ Jᵀ U for the cotangents of a batch: several at a time, where that gives the same as one by one."""

    def __init__(self, risk: Risk) -> None:
        self.risk = risk
        self.largest = max(len(batch) for batch in known_batches(risk))
        self._columns: dict[int, Columns] = {}

    def __call__(self, batch: Linearized, U: Float[Tensor, "m ..."]) -> Iterator[Float[Tensor, "b n"]]:
        """The rows of (Jᵀ U)ᵀ in pieces."""
        columns = self._together(len(batch.z))
        with quiet():
            for part in U.split(MAX_COLUMNS):
                rows = batch.zeros(len(part))
                with self.risk.numerics(self.risk.tangent_precision):
                    columns.add(batch.vjp, part, rows)
                yield rows

    def _together(self, num_examples: int) -> Columns:
        """How many columns take no more memory than the gradient of a whole batch."""
        most = max(1, min(MAX_COLUMNS, max(self.largest, num_examples) // num_examples))
        return self._columns.setdefault(most, Columns(most))


def forward(risk: Risk, batch: Batch) -> tuple[Linearized, ClassTerms]:
    """A batch linearised for first derivatives, and its terms."""
    with risk.numerics():
        linearized = ReverseMode(risk, batch, 1)
    return linearized, terms(risk, linearized.z, batch.targets)
