"""What an epoch passes over: examples in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

Data = tuple[Shaped[Tensor, "N ..."], Shaped[Tensor, "..."]]  # as many targets as inputs
BatchSource = Callable[[torch.Generator], Data]


def steps_per_epoch(count: int, batch_size: int | None) -> int:
    """The batches that hold so many examples."""
    return 1 if batch_size is None else -(-count // batch_size)


def shuffled(
    count: int, batch_size: int, generator: torch.Generator | None, device: torch.device
) -> Sequence[Int[Tensor, " rows"]]:
    """The rows of each batch of an epoch, in an order drawn from the generator."""
    assert generator is not None
    return torch.randperm(count, generator=generator, device=generator.device).to(device).split(batch_size)
