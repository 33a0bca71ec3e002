"""The product with a curvature matrix, over all batches of a risk.

Every Krylov method multiplies the same matrix tens or thousands of times. What does not depend on the vector is
therefore computed once per batch and kept, within a memory budget.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..risk import Risk
from .curvatures import Curvature
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
        """Bytes that a solver may take beside the products: all but what one pass takes."""
        return self._linearized.room

    def __call__(self, V: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        rows = V.T.contiguous()
        total = self._linearized.within_memory(lambda: self._sum(rows))
        return self.risk.sum_over_ranks(total).div_(self.risk.total_weight).T

    def _sum(self, rows: Float[Tensor, "k n"]) -> Float[Tensor, "k n"]:
        total = torch.zeros_like(rows)
        self._linearized.for_each(lambda batch, product: self._linearized.add(product, rows, total))
        return total
