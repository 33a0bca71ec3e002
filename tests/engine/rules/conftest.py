"""Random tensors that are differentiated."""

import pytest
import torch


@pytest.fixture
def normal(generator):
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
