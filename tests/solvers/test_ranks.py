"""Effective ranks cover the truth at the rate their error states."""

import pytest
import torch

from ritz.solvers import effective_rank
from ritz.solvers.ranks import rank_from

from .spectra import DECAY, FLAT, INDEFINITE, coverage, with_eigenvalues


@pytest.mark.parametrize("eigenvalues", [DECAY, FLAT, INDEFINITE])
def test_effective_rank_lies_within_its_error(eigenvalues):
    A, truth = with_eigenvalues(eigenvalues), float(eigenvalues.sum() ** 2 / eigenvalues.square().sum())
    assert coverage(lambda generator: effective_rank(A, num_products=200, generator=generator), truth) >= 0.87


def test_the_square_of_the_trace_is_unbiased():
    A = torch.tensor([[5.0, 1.0, 0.5], [1.0, 4.0, -1.0], [0.5, -1.0, 3.0]], dtype=torch.float64)
    signs = torch.cartesian_prod(*3 * [torch.tensor([-1.0, 1.0], dtype=torch.float64)])
    samples = ((signs @ A) * signs).sum(1)
    pairs = torch.cartesian_prod(samples, samples)  # all draws of two probes, equally likely
    ranks = [rank_from(pair, torch.full_like(pair, 7.0)).value for pair in pairs]
    assert sum(ranks) / len(ranks) == pytest.approx(12**2 / 7, rel=1e-12)


def test_the_error_of_a_rank_near_zero_is_that_of_the_square():
    first, second = torch.tensor([-1.0, 1.0, -1.0, 1.0], dtype=torch.float64), torch.full((4,), 5.0).double()
    variance = float(first.var()) / 4  # of the mean a, and of a² about twice its square
    assert rank_from(first, second).standard_error == pytest.approx(2**0.5 * variance / 5, rel=1e-12)


def test_effective_rank_counts_equal_eigenvalues(generator):
    eigenvalues = torch.cat([torch.full((30,), 2.0), torch.zeros(170)])
    result = effective_rank(with_eigenvalues(eigenvalues), num_products=2000, generator=generator)
    assert abs(result.value - 30) < 4 * result.standard_error and result.standard_error < 1
    assert effective_rank(with_eigenvalues(torch.zeros(50)), generator=generator).value == 0.0
