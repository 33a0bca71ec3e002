"""How many vectors go through a batch together."""

from __future__ import annotations

import warnings
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from .agreement import distance, tolerance
from .curvatures import Map
from .pieces import quiet

MAX_COLUMNS = 16  # beyond that, a batched product gains nothing and costs memory
SMALL_COLUMNS = 64  # unless all of them with their graphs are small, where the calls themselves take the time
BUSY_BYTES = defaultdict(lambda: 2.0**28, cpu=2.0**21)  # of graphs: where so much is to do, more gain nothing


def columns_for(device: torch.device, graph_bytes: float, vector_bytes: float) -> int:
    """How many columns pay, counted from sizes alone: a result must not depend on a machine's load."""
    busy = BUSY_BYTES[device.type]
    pay = min(MAX_COLUMNS, busy // max(graph_bytes, 1.0))
    return int(max(1, pay, min(SMALL_COLUMNS, busy // (graph_bytes + 2 * vector_bytes + 1))))


class Columns:
    """Rows multiplied together, as many as keep the device busy, once it was seen that they come out the same."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.width: int | None = 1 if most == 1 else None  # None until several were tried

    def halve(self) -> bool:
        """Take half as many from now on; whether there were several."""
        several = (self.width or self._most) > 1
        self._most = self.width = max(1, (self.width or self._most) // 2)
        return several

    def add(self, product: Map, rows: Tensor, into: Tensor, last: Map | None = None) -> None:
        """into += the products with all rows, a few at a time; those of the last ones by `last`, if it is given."""
        done = self._try(product, rows, into) if self.width is None and len(rows) > 1 else 0
        width = self.width or 1
        for first in range(done, len(rows), width):
            some = last if last is not None and first + width >= len(rows) else product
            some(rows[first : first + width], into[first : first + width])

    def _try(self, product: Map, rows: Tensor, into: Tensor) -> int:
        """The first rows together and the first one alone: remember whether they agree. How many rows are done."""
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
    """Whether PyTorch says that it did some of the work by a loop: then nothing is gained."""
    with quiet(), warnings.catch_warnings(record=True) as messages:  # which restores all, whatever other threads do
        warnings.simplefilter("always")
        work()
    return any("performance drop" in str(message.message) for message in messages)
