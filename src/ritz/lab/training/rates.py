"""Learning rates and their factors, brought into shape and checked before a run starts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import ArgumentError


def learning_rates(numbers: float | Tensor, shape: torch.Size, device: torch.device) -> Float[Tensor, "*B"]:
    """A learning rate for each network of a stack of this shape, from one for all or one for each."""
    rates = torch.as_tensor(numbers, dtype=torch.float64, device=device)
    if rates.ndim and rates.shape != shape:
        raise ArgumentError(
            f"Learning rates of shape {tuple(rates.shape)} were given.",
            f"The networks form a stack of shape {tuple(shape)}.",
            "Give one number for all, or one for each network.",
        )
    if not bool((rates.isfinite() & (rates >= 0)).all()):
        raise ArgumentError(
            f"The learning rate {numbers} was given.",
            "A negative one climbs instead of descending, and NaN leads nowhere.",
            "Give numbers that are finite and not negative.",
        )
    return rates.expand(shape)


def factors(
    name: str, given: Sequence[float] | None, count: int, *, of: str = "layers", signed: bool = False
) -> list[float]:
    """A factor for each of `count` layers; ones if none were given."""
    numbers = [1.0] * count if given is None else [float(number) for number in given]
    if len(numbers) != count:
        raise ArgumentError(
            f"{name} has {len(numbers)} entries, for {count} {of}.",
            "Each of them needs one.",
            f"Give {count}, in this order; a bias usually has the rate of its layer.",
        )
    if not all(math.isfinite(number) and (signed or number >= 0) for number in numbers):
        raise ArgumentError(
            f"{name}={numbers} was given.",
            "They multiply weights or steps, and a negative step climbs." if not signed else "They multiply weights.",
            "Give finite numbers." if signed else "Give numbers that are finite and not negative.",
        )
    return numbers
