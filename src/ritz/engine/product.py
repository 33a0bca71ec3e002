"""The product with a curvature matrix, over all batches of a risk.

Every Krylov method multiplies the same matrix tens or thousands of times. Whatever does not depend on the vector is
therefore computed once per batch and kept, within a memory budget.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..risk import Risk
from ..risk.distributed import smallest_over_ranks
from ..risk.precision import Precision, has_tf32
from .curvatures import Contribution, Curvature
from .info import Info
from .linearized_risk import LinearizedRisk
from .paths import PATHS, Path

COPIED = 0.1  # of the memory that is left: the most that a copy of the data takes


class CurvatureProduct:
    """V ↦ Σ_b A_b V / Σ w over the batches of a risk."""

    def __init__(self, risk: Risk, curvature: Curvature, paths: tuple[Path, ...] = PATHS) -> None:
        self.risk, self.curvature, self.paths = risk, curvature, paths
        self._linearized = LinearizedRisk(risk, curvature, paths)

    @property
    def info(self) -> Info:
        """How products are computed."""
        return self._linearized.within_memory(lambda: self._linearized.info)

    @property
    def room(self) -> float:
        """Bytes that a solver may use besides the products: all but what one pass takes."""
        return self._linearized.room

    @property
    def rough(self) -> RoughProduct | None:
        """The same products with TF32 tangents, where that is faster on a GPU; None elsewhere."""
        exact = self.risk.tangent_precision == "highest" and self.risk.dtype == torch.float32
        return RoughProduct(self) if exact and has_tf32(self.risk.device) else None

    def __call__(self, V: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        return self.with_tangents(self.risk.tangent_precision, V)

    def with_tangents(self, precision: Precision, V: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        """The products with linear maps in this precision, from the same graphs."""
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


class RoughProduct:
    """The products of another with TF32 tangents: from its graphs, or from own ones over images in another layout.

    Convolutions in TF32 are about twice as fast on images stored channels-last, and those in float32 slower.
    """

    def __init__(self, exact: CurvatureProduct) -> None:
        self._exact = exact
        self._own: CurvatureProduct | None = None  # with graphs of its own
        self._prepared = False

    def __call__(self, V: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        if not self._prepared:
            self._own, self._prepared = self._in_own_layout(), True
        return self._exact.with_tangents("high", V) if self._own is None else self._own(V)

    def _in_own_layout(self) -> CurvatureProduct | None:
        """The product over images as TF32 likes them, where they lie otherwise and all ranks have room for a copy."""
        exact, risk = self._exact, self._exact.risk
        fits = risk.batches.held_bytes() <= COPIED * risk.budget.left
        twin = risk.with_tangents("high") if fits else risk
        differs = smallest_over_ranks(float(twin.batches is not risk.batches), risk.device, risk.group)
        return CurvatureProduct(twin, exact.curvature, exact.paths) if differs else None
