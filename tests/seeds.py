"""Random numbers from a seed, and vectors in float64."""

import torch


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0):
    return torch.randn(shape, generator=seeded(seed), dtype=torch.float64)


def real(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)
