"""How many vectors are sent through a batch together."""

from __future__ import annotations

import warnings
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from .agreement import distance, tolerance
from .curvatures import Map
from .pieces import quiet

MAX_COLUMNS = 16  # above this, a batched product gains nothing and costs memory
SMALL_COLUMNS = 64  # unless all of them with their graphs are small, where the calls themselves take the time
BUSY_BYTES = defaultdict(lambda: 2.0**28, cpu=2.0**21)  # of graphs: where so much is to do, more gain nothing
JOINED = defaultdict(lambda: 16.0, cpu=4.0)  # times that: joining batches pays for longer


def columns_for(device: torch.device, graph_bytes: float, vector_bytes: float) -> int:
    """How many columns are worth sending together, by sizes alone: results must not depend on the machine's load."""
    busy = BUSY_BYTES[device.type]
    pay = min(MAX_COLUMNS, busy // max(graph_bytes, 1.0))
    return int(max(1, pay, min(SMALL_COLUMNS, busy // (graph_bytes + 2 * vector_bytes + 1))))


def pass_bytes(device: torch.device, budget: float) -> float:
    """How large the graphs of one pass over joined batches are worth being, within an eighth of a budget."""
    return min(JOINED[device.type] * BUSY_BYTES[device.type], budget / 8)


class Columns:
    """Products with several rows at a time, as many as keep the device busy, if that gives the same results."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.width: int | None = 1 if most == 1 else None  # None until several were tried

    def halve(self) -> bool:
        """Take half as many from now on; returns whether there were several."""
        several = (self.width or self._most) > 1
        self._most = self.width = max(1, (self.width or self._most) // 2)
        return several

    def add(self, product: Map, rows: Tensor, into: Tensor, last: Map | None = None) -> None:
        """into += the products with all rows, a few at a time; the final few by `last`, if given."""
        done = self._try(product, rows, into) if self.width is None and len(rows) > 1 else 0
        width = self.width or 1
        for first in range(done, len(rows), width):
            some = last if last is not None and first + width >= len(rows) else product
            some(rows[first : first + width], into[first : first + width])

    def _try(self, product: Map, rows: Tensor, into: Tensor) -> int:
        """Try the first rows together and the first alone, and remember whether they agree; returns the rows done."""
        count, self.width = min(len(rows), self._most), 1
        alone, together = torch.zeros_like(into[:1]), torch.zeros_like(into[:count])
        product(rows[:1], alone)
        try:
            loops = _loops(lambda: product(rows[:count], together))
        except RuntimeError:  # an operation that cannot be batched, or memory for one at a time alone
            loops = True
        if loops or distance(together[:1], alone) > tolerance(rows.dtype):
            into[:1] += alone
            return 1
        self.width = self._most
        into[:count] += together
        return count


def _loops(work: Any) -> bool:
    """Whether PyTorch warned that it did some of the work in a loop, so that nothing is gained."""
    with quiet(), warnings.catch_warnings(record=True) as messages:  # which restores all, whatever other threads do
        warnings.simplefilter("always")
        work()
    return any("performance drop" in str(message.message) for message in messages)
