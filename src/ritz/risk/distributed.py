"""A risk whose data are divided over the ranks of a `torch.distributed` group."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ArgumentError, DataError, ModelError


def check_group(group: Any) -> None:
    """Refuse anything but a group of processes."""
    if group is None:
        return
    known = torch.distributed.is_available()
    if not known or not isinstance(group, torch.distributed.ProcessGroup):
        raise ArgumentError(
            f"group={group!r} was given.",
            "It is the group of processes over whose ranks the data are divided.",
            "Pass torch.distributed.group.WORLD after init_process_group, or another group of torch.distributed.",
            "Leave it out for one process.",
        )


def check_sendable(group: Any) -> None:
    """Refuse to send a risk to another process, or to a file, if its data are divided."""
    if group is not None:
        raise ArgumentError(
            "The risk is divided over the ranks of a group.",
            "A process outside of the group cannot take part in it.",
            "Build the risk without a group: Risk(..., group=None).",
        )


def sum_over_ranks(value: Tensor, group: Any) -> Tensor:
    """The sum of a value over all ranks, in place; without a group there is one rank."""
    if group is not None:
        torch.distributed.all_reduce(value, group=group)
    return value


def smallest_over_ranks(value: float, device: torch.device, group: Any) -> float:
    """The smallest value over all ranks, so that all decide alike; every rank must call this."""
    if group is None:
        return value
    smallest = torch.tensor(value, dtype=torch.float64, device=device)
    torch.distributed.all_reduce(smallest, torch.distributed.ReduceOp.MIN, group=group)
    return float(smallest)


@contextlib.contextmanager
def in_step(theta: Float[Tensor, " n"], group: Any) -> Iterator[None]:
    """Make all ranks of the group fail where one fails, so that none waits for the others for ever."""
    if group is None:
        yield
        return
    norm = theta.double().norm()
    bounds = torch.stack([norm, -norm, torch.ones_like(norm)])
    try:
        yield
        bounds[2] = 0.0
    finally:
        torch.distributed.all_reduce(bounds, torch.distributed.ReduceOp.MAX, group=group)
    largest, smallest, failed = bounds.tolist()
    if failed:
        raise DataError(
            "Another rank of the group refused its part of the data.",
            "A product needs every rank.",
            "Read that rank's own message.",
        )
    if largest != -smallest:
        raise ModelError(
            f"The parameters differ between ranks: ‖θ‖ runs from {-smallest:.9g} to {largest:.9g}.",
            "All ranks must be at the same θ, each with its own part of the data.",
            "Load the same checkpoint on every rank, or broadcast the parameters from rank 0.",
        )
