"""Random numbers that belong to examples: the same for an example in any batch, order or pass."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

_STEP = 0x9E3779B97F4A7C15 - 2**64  # odd, near 2⁶⁴ / golden ratio; as the signed number with the same bits
_FACTORS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)


def noise(keys: Int64[Tensor, " N"], seed: int, shape: tuple[int, ...]) -> Float64[Tensor, " N *shape"]:
    """Numbers uniform in (0, 1), one row of the given shape for each key: a function of key, seed and column alone.

    Counters through the mixer of splitmix64 (Steele, Lea and Flood 2014), so that every device gives the same bits.

    >>> some, others = noise(torch.arange(3), 0, (2,)), noise(torch.tensor([2, 7]), 0, (2,))
    >>> bool((some[2] == others[0]).all())
    True
    """
    start = mixed(torch.tensor(_signed(seed), device=keys.device))
    rows = mixed(start + keys * _STEP)
    columns = torch.arange(1, math.prod(shape) + 1, device=keys.device) * _STEP
    bits = _shifted(mixed(rows[:, None] + columns), 12)  # 52 of them, so that half a step more is exact, and below one
    return ((bits.double() + 0.5) * 2.0**-52).reshape(len(keys), *shape)


def mixed(x: Tensor) -> Tensor:
    """A bijection of 64 bits in which every bit depends on every other; products wrap around."""
    x = (x ^ _shifted(x, 30)) * _FACTORS[0]
    x = (x ^ _shifted(x, 27)) * _FACTORS[1]
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, places: int) -> Tensor:
    """A right shift that fills with zeros; the built-in one for signed numbers fills with the sign."""
    return (x >> places) & (2 ** (64 - places) - 1)


def _signed(seed: int) -> int:
    return (seed + 2**63) % 2**64 - 2**63
