"""The engine: products with curvature matrices, fast because the matrix does not change.

Every Krylov method multiplies the same matrix tens or thousands of times. What does not depend on the vector is
therefore computed once per batch and kept, within a memory budget.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from ..risk.batches import Batch, Batches
from ..risk.risk import Risk
from .paths import Map, add_product
from .trial import Path, Probe, distance, probed, seconds_of, tolerance

MAX_COLUMNS = 16  # beyond that, a batched product gains nothing and costs memory
BUSY_SECONDS = 0.1  # shorter products are mostly overhead, so batches are joined until one takes this long


class CurvatureProduct:
    """V ↦ Σ_b A_b V / Σ w over the batches of a risk, the linearisations kept within its memory budget."""

    def __init__(self, risk: Risk, candidates: list[Path]) -> None:
        self.risk, self._candidates = risk, candidates
        self._kept: dict[int, Map] = {}
        self._kept_bytes = 0.0
        self._columns: int | None = None  # how many columns one pass takes; None until measured

    @cached_property
    def probe(self) -> Probe:
        """Which path was chosen and what was measured; the first product triggers it."""
        with quiet():
            return probed(self.risk, self._candidates)

    @cached_property
    def batches(self) -> Batches:
        """The risk's batches, joined where one alone would not keep the device busy and examples are independent."""
        if not self.risk.separable:
            return self.risk.batches
        wanted = math.ceil(BUSY_SECONDS / self.probe.seconds)
        fitting = int(self.risk.memory / 8 / max(self.probe.batch_bytes, 1))
        return self.risk.batches.joined(max(1, min(wanted, fitting)))

    def __call__(self, V: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        rows = V.T.contiguous()
        total = torch.zeros_like(rows)
        with quiet():
            for number, batch in enumerate(self.batches):
                self._add(total, self._map(number, batch), rows)
        return self.risk.reduced(total).div_(self.risk.total_weight).T

    def _map(self, number: int, batch: Batch) -> Map:
        if number in self._kept:
            return self._kept[number]
        with self.risk.numerics():
            found = self.probe.path.linearize(self.risk, batch)
        size = self.probe.example_bytes * len(batch)
        if self.probe.path.keeps and self._kept_bytes + size <= self.risk.memory:
            self._kept[number] = found
            self._kept_bytes += size
        return found

    def _add(self, total: Tensor, product: Map, rows: Tensor) -> None:
        """total += (A_b V)ᵀ, as many columns at a time as measured best."""
        start = 0
        if self._columns is None and len(rows) >= 4:
            start = self._measured_columns(total, product, rows)
        width = self._columns or 1
        with self.risk.numerics(self.risk.tangent_precision):
            for first in range(start, len(rows), width):
                part = slice(first, first + width)
                add_product(self.risk, total[part], product, rows[part])

    def _measured_columns(self, total: Tensor, product: Map, rows: Tensor) -> int:
        """Do the first columns one by one and as many next ones together; time both, and remember which was faster.

        The last single column is done again among the batched ones, to see that they agree.
        """
        half = min(len(rows) // 2, MAX_COLUMNS)
        room = (self.risk.memory - self._kept_bytes) / max(self.probe.batch_bytes, 1)
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


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence, by message, what PyTorch says of operations that it batches by a loop."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop because we have not yet implemented")
        yield
