"""Random numbers that checks draw their inputs from: Gaussians, scales, sizes."""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def normal(generator: Generator, *shape: int, scale: float = 1.0) -> Tensor:
    """Independent Gaussians in float64."""
    return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)


def scale(generator: Generator, decades: float = 3.0) -> float:
    """A positive scale, uniform in its logarithm, within 10^±decades."""
    return float(10 ** (decades * (2 * torch.rand((), generator=generator, dtype=torch.float64) - 1)))


def whole(generator: Generator, low: int, high: int) -> int:
    """An integer from low to high, both included."""
    return int(torch.randint(low, high + 1, (), generator=generator))


def width(generator: Generator, low: int, high: int) -> int:
    """An integer from low to high, uniform in its logarithm: narrow networks as often as wide ones."""
    share = float(torch.rand((), generator=generator, dtype=torch.float64))
    return min(high, int(low * ((high + 1) / low) ** share))
