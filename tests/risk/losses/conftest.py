"""Random outputs and labels."""

import pytest
import torch

from tests.risk.losses.derivatives import C


@pytest.fixture
def normal(generator):
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.fixture
def labels(generator):
    return lambda *shape: torch.randint(C, shape, generator=generator)
