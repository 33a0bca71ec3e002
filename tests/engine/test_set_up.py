"""What comes before the second product, counted in examples that pass through the network."""

import pytest
import torch
from torch import nn

import ritz

N, PASSES, CALLS = 64, 13, 24  # examples; all of them without a backward pass, which two products with H cost


class Counted(nn.Module):
    examples, calls = 0, 0  # of all copies, with and without a graph

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x):
        Counted.examples, Counted.calls = Counted.examples + len(x), Counted.calls + 1
        return self.layer(x).tanh()


@pytest.mark.parametrize("operator", [ritz.hessian, ritz.gauss_newton])
def test_set_up_takes_few_passes_over_the_data(operator):
    x, y = torch.randn(N, 3), torch.arange(N) % 4
    Counted.examples, Counted.calls = 0, 0
    A = operator(ritz.Risk(Counted(), ritz.CrossEntropy(), [(x, y)]))
    A @ torch.ones(A.size)
    assert Counted.examples <= PASSES * N and Counted.calls <= CALLS
    Counted.examples = 0
    for _ in range(3):
        A @ torch.ones(A.size)
    assert Counted.examples == 0  # what is kept is not computed again


def test_other_samples_of_the_curvature_need_no_other_trial():
    x, y = torch.randn(N, 3), torch.arange(N) % 4
    risk = ritz.Risk(Counted(), ritz.CrossEntropy(), [(x, y)])
    seeded = lambda seed: torch.Generator().manual_seed(seed)
    sampled = lambda count, seed: ritz.monte_carlo_fisher(risk, num_samples=count, generator=seeded(seed))
    sampled(1, seed=0) @ torch.ones(risk.size)
    Counted.examples = 0
    for A in (sampled(1, seed=1), sampled(3, seed=1)):
        A @ torch.ones(risk.size)
    assert Counted.examples == 2 * N  # one pass each


def test_other_parameters_take_one_evaluation_and_one_graph():
    x, y = torch.randn(N, 3), torch.arange(N) % 4
    risk = ritz.Risk(Counted(), ritz.CrossEntropy(), [(x, y)])
    ritz.hessian(risk) @ torch.ones(risk.size)
    Counted.examples = 0
    ritz.hessian(risk.at(2 * risk.theta)) @ torch.ones(risk.size)
    assert Counted.examples == 2 * N
