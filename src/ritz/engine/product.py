"""The product with a curvature matrix, over all batches of a risk.

Every Krylov method multiplies the same matrix tens or thousands of times. Whatever does not depend on the vector is
therefore computed once per batch and kept, within a memory budget.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from ..risk import Risk
from ..risk.precision import Precision, has_tf32
from .curvatures import Contribution, Curvature
from .info import Info
from .linearized_risk import LinearizedRisk
from .paths import PATHS, Path


class CurvatureProduct:
    """V ↦ Σ_b A_b V / Σ w over the batches of a risk."""

    def __init__(self, risk: Risk, curvature: Curvature, paths: tuple[Path, ...] = PATHS) -> None:
        self.risk, self._linearized = risk, LinearizedRisk(risk, curvature, paths)

    @property
    def info(self) -> Info:
        """How products are computed."""
        return self._linearized.within_memory(lambda: self._linearized.info)

    @property
    def room(self) -> float:
        """Bytes that a solver may use besides the products: all but what one pass takes."""
        return self._linearized.room

    @property
    def rough(self) -> Callable[[Tensor], Tensor] | None:
        """The same products with TF32 tangents, from the same graphs, where that is faster on a GPU; None elsewhere."""
        exact = self.risk.tangent_precision == "highest" and self.risk.dtype == torch.float32
        return partial(self._product, precision="high") if exact and has_tf32(self.risk.device) else None

    def __call__(self, V: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        return self._product(V, self.risk.tangent_precision)

    def _product(self, V: Float[Tensor, "n k"], precision: Precision) -> Float[Tensor, "n k"]:
        rows = V.T.contiguous()
        total = self._linearized.within_memory(lambda: self._sum(rows, precision))
        return self.risk.sum_over_ranks(total).div_(self.risk.total_weight).T

    def _sum(self, rows: Float[Tensor, "k n"], precision: Precision) -> Float[Tensor, "k n"]:
        total: Tensor | None = None  # until a batch is linearised, which for a moment takes a vector of its own

        def add(contribution: Contribution) -> None:
            nonlocal total
            if total is None and len(rows) == 1 and not contribution.kept:
                total = self._linearized.last(contribution, rows, precision)
                return
            total = torch.zeros_like(rows) if total is None else total
            self._linearized.add(contribution, rows, total, precision=precision)

        self._linearized.for_each(lambda batch, contribution: add(contribution))
        assert total is not None  # a risk has a batch
        self._linearized.check(total)
        return total
