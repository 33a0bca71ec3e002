"""The data of the small problem."""

import pytest
import torch

from tests.risk.problem import C, D, N


@pytest.fixture
def x(generator):
    return torch.randn(N, D, generator=generator, dtype=torch.float64)


@pytest.fixture
def y(generator):
    return torch.randint(C, (N,), generator=generator)
