"""What comes before the second product, counted in examples that pass through the network."""

import pytest
import torch
from torch import nn

import ritz

N, PASSES = 64, 13  # of all data, without a backward pass: what two products with H cost


class Counted(nn.Module):
    examples = 0  # of all copies, with and without a graph

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x):
        Counted.examples += len(x)
        return self.layer(x).tanh()


@pytest.mark.parametrize("operator", [ritz.hessian, ritz.gauss_newton])
def test_set_up_takes_few_passes_over_the_data(operator):
    x, y = torch.randn(N, 3), torch.arange(N) % 4
    Counted.examples = 0
    A = operator(ritz.Risk(Counted(), ritz.CrossEntropy(), [(x, y)]))
    A @ torch.ones(A.size)
    assert Counted.examples <= PASSES * N
    Counted.examples = 0
    for _ in range(3):
        A @ torch.ones(A.size)
    assert Counted.examples == 0  # what is kept is not computed again
