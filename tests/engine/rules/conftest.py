"""Random tensors that are differentiated, and a trial that rules do not lose on a network of a few numbers."""

import pytest
import torch


@pytest.fixture
def normal(generator):
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr("ritz.engine.path_choice.FASTER", torch.inf)
