"""The batches of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def steps_per_epoch(count: int, batch_size: int | None, least_batch: int = 1) -> int:
    """The number of batches for this many examples, without a last one that is too small."""
    if batch_size is None:
        return 1
    whole, rest = divmod(count, batch_size)
    return whole + ((rest >= least_batch and rest > 0) or not whole)


def shuffled(
    count: int, batch_size: int, generator: torch.Generator | None, device: torch.device, least_batch: int = 1
) -> Sequence[Int[Tensor, " rows"]]:
    """The rows of each batch of an epoch, in an order drawn from the generator."""
    assert generator is not None
    rows = torch.randperm(count, generator=generator, device=generator.device).to(device).split(batch_size)
    return rows[: steps_per_epoch(count, batch_size, least_batch)]
