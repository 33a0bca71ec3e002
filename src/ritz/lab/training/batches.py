"""The batches of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from ...errors import DataError

Data = tuple[Shaped[Tensor, "N ..."], Shaped[Tensor, "..."]]  # as many targets as inputs
BatchSource = Callable[[torch.Generator], Data]


def check_tensors(data: Any) -> None:
    """Refuse anything but a pair of tensors."""
    if not isinstance(data, (tuple, list)) or len(data) != 2 or not all(isinstance(part, Tensor) for part in data):
        kinds = ", ".join(type(part).__name__ for part in data) if isinstance(data, (tuple, list)) else ""
        raise DataError(
            f"The data are a {type(data).__name__}{f' of {kinds}' if kinds else ''}.",
            "Training needs inputs and targets that lie in memory.",
            "Pass a pair of tensors (x, y).",
        )


@dataclass(frozen=True)
class Division:
    """How the examples of an epoch are divided into batches: all at once, or a few at a time in an order drawn anew."""

    num_examples: int
    batch_size: int | None
    generator: torch.Generator | None  # of the order
    least_batch: int = 1  # a last one that is smaller waits for another epoch

    @property
    def num_batches(self) -> int:
        """The batches of an epoch."""
        if self.batch_size is None:
            return 1
        whole, rest = divmod(self.num_examples, self.batch_size)
        return whole + ((rest >= self.least_batch and rest > 0) or not whole)

    def shuffled(self, device: torch.device) -> Sequence[Int[Tensor, " rows"]]:
        """The rows of each batch of an epoch, in an order drawn from the generator."""
        assert self.generator is not None and self.batch_size is not None
        rows = torch.randperm(self.num_examples, generator=self.generator, device=self.generator.device)
        return rows.to(device).split(self.batch_size)[: self.num_batches]

    def mean(self, loss_of: Callable[[Int[Tensor, " rows"]], Tensor], zero: Tensor) -> Tensor:
        """The mean over all examples of the losses that the steps of an epoch return, each before its step."""
        total = zero
        for rows in self.shuffled(zero.device):
            total = total + loss_of(rows) * (len(rows) / self.num_examples)
        return total
