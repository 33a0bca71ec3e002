"""Nothing changes in the model nor around it, whatever is called and whatever fails."""

import itertools
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import ritz
from ritz import Risk
from ritz.risk.randomness import random_state, untouched_randomness
from tests.risk.problem import C, D, check_against_pytorch, network
from tests.risk.unchanged import everything, nothing_changes
from tests.zoo import CASES, case, unequal_batches


@pytest.mark.parametrize("name", CASES)
def test_nothing_changes_in_the_model_nor_around_it(name):
    built = case(name)
    y = torch.arange(11 * int(np.prod(built.shape[1:-1])) or 11).reshape(built.shape[:-1]) % C
    for number, parameter in enumerate(built.model.parameters()):
        if number % 2:
            parameter.grad = torch.full_like(parameter, 3.0)
    with nothing_changes(built.model):
        everything(Risk(built.model, ritz.CrossEntropy(), unequal_batches(built.inputs, y)))


@pytest.mark.parametrize("memory", [None, 0])
def test_a_loader_moves_no_random_state(memory, x, y):
    model, loader = network(), DataLoader(TensorDataset(x, y), batch_size=4, shuffle=memory is None)
    with nothing_changes(model):
        everything(Risk(model, ritz.CrossEntropy(), loader, memory=memory))


@pytest.mark.parametrize("draw", [lambda: torch.rand(()).item(), np.random.random])
@pytest.mark.parametrize("path", [None, "forward"])
def test_a_model_that_draws_without_using_it_moves_no_random_state(path, draw, x, y):
    """As LayerDrop does in evaluation."""

    class Draws(nn.Module):
        def forward(self, x):
            return x + 0.0 * draw()

    model = nn.Sequential(network(), Draws())
    with nothing_changes(model):
        everything(Risk(model, ritz.CrossEntropy(), unequal_batches(x, y), memory=0, path=path))


def test_random_states_of_python_and_numpy_are_put_back():
    """Of Python by itself: what checks annotations in all other tests draws from it, too."""
    cpu = torch.device("cpu")
    before = random_state(cpu)
    for draw in (random.random, np.random.random, lambda: torch.rand(())):
        with untouched_randomness(cpu):
            draw()
            assert random_state(cpu) != before
        assert random_state(cpu) == before


def test_dropout_and_batch_norm_in_evaluation_mode_stay_as_they_are(x, y):
    model = nn.Sequential(nn.Linear(D, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, C)).double()
    model(x)  # moves the running statistics
    model.eval()
    model[3].train()  # flags need not be all the same
    with nothing_changes(model):
        risk = Risk(model, ritz.CrossEntropy(), unequal_batches(x, y))
        everything(risk)
    check_against_pytorch(risk, model, F.cross_entropy(model(x), y))


class Fails(nn.Module):
    """Counts its calls in a buffer, and fails at one of them."""

    def __init__(self, at):
        super().__init__()
        self.calls, self.at = itertools.count(), at
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        if next(self.calls) == self.at:
            raise RuntimeError("out of luck")
        return x


@pytest.mark.parametrize("at", range(7))
def test_nothing_changes_when_something_fails_midway(at, x, y):
    model = nn.Sequential(network(), nn.BatchNorm1d(C).double(), Fails(at)).eval()
    with nothing_changes(model), pytest.raises((ritz.RitzError, RuntimeError)):
        risk = Risk(model, ritz.CrossEntropy(), unequal_batches(x, y), memory=0)
        for _ in range(3):
            _ = risk.gradient(), ritz.hessian(risk) @ torch.ones(risk.size, dtype=torch.float64)
        raise RuntimeError("the engine found a way around")
