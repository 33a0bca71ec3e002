"""The product with a curvature matrix, over all batches of a risk.

Every Krylov method multiplies the same matrix tens or thousands of times. What does not depend on the vector is
therefore computed once per batch and kept, within a memory budget.
"""

from __future__ import annotations

import math
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from ..risk import Risk
from ..risk.batches import Batch, Batches
from .agreement import distance, tolerance
from .batching import MAX_COLUMNS, add_product, quiet
from .path_choice import Trial, try_paths
from .paths import Map, Path
from .timing import seconds_of

BUSY_SECONDS = 0.1  # shorter products are mostly overhead, so batches are joined until one takes this long


class CurvatureProduct:
    """V ↦ Σ_b A_b V / Σ w over the batches of a risk, the linearisations kept within its memory budget."""

    def __init__(self, risk: Risk, paths: list[Path]) -> None:
        self.risk, self.paths = risk, paths
        self._kept: dict[int, Map] = {}
        self._kept_bytes = 0.0
        self._columns: int | None = None  # how many columns one pass takes; None until measured

    @cached_property
    def trial(self) -> Trial:
        """Which path was chosen and what was measured; the first product triggers it."""
        with quiet():
            return try_paths(self.risk, self.paths)

    @cached_property
    def batches(self) -> Batches:
        """The risk's batches, joined where one alone would not keep the device busy and examples are independent."""
        if not self.risk.separable:
            return self.risk.batches
        enough = math.ceil(BUSY_SECONDS / self.trial.seconds)
        most = int(self.risk.memory / 8 / max(self.trial.batch_bytes, 1))
        return self.risk.batches.joined(max(1, min(enough, most)))

    def __call__(self, V: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        rows = V.T.contiguous()
        total = torch.zeros_like(rows)
        with quiet():
            for number, batch in enumerate(self.batches):
                self._add(total, self._map(number, batch), rows)
        return self.risk.sum_over_ranks(total).div_(self.risk.total_weight).T

    def _map(self, number: int, batch: Batch) -> Map:
        if number in self._kept:
            return self._kept[number]
        with self.risk.numerics():
            product = self.trial.path.linearize(self.risk, batch)
        size = self.trial.example_bytes * len(batch)
        if self.trial.path.keeps and self._kept_bytes + size <= self.risk.memory:
            self._kept[number] = product
            self._kept_bytes += size
        return product

    def _add(self, total: Tensor, product: Map, rows: Tensor) -> None:
        """total += (A_b V)ᵀ, as many columns at a time as measured best."""
        start = 0
        if self._columns is None and len(rows) >= 4:
            start = self._time_columns(total, product, rows)
        width = self._columns or 1
        with self.risk.numerics(self.risk.tangent_precision):
            for first in range(start, len(rows), width):
                part = slice(first, first + width)
                add_product(self.risk, total[part], product, rows[part])

    def _time_columns(self, total: Tensor, product: Map, rows: Tensor) -> int:
        """Do the first columns one by one and as many next ones together; time both, and remember which was faster.

        The last single column is done again among the batched ones, to see that they agree.
        """
        half = min(len(rows) // 2, MAX_COLUMNS)
        room = (self.risk.memory - self._kept_bytes) / max(self.trial.batch_bytes, 1)
        single, together = torch.zeros_like(rows[:half]), torch.zeros_like(rows[: half + 1])
        add = lambda target, first: add_product(self.risk, target, product, rows[first : first + len(target)])
        self._columns = 1
        with self.risk.numerics(self.risk.tangent_precision):
            seconds = seconds_of(self.risk, lambda: [add(single[i : i + 1], i) for i in range(half)])
            total[:half] += single
            if room < half:
                return half
            try:
                batched_seconds = seconds_of(self.risk, lambda: add(together, half - 1))
            except RuntimeError:  # an operation that cannot be batched
                return half
        if distance(together[0], single[-1]) > tolerance(rows.dtype):
            return half
        total[half : 2 * half] += together[1:]
        if batched_seconds < seconds:
            self._columns = int(min(MAX_COLUMNS, room))
        return 2 * half
