"""Effective ranks cover the truth at the rate their error states."""

import math

import pytest
import torch

from ritz.solvers import effective_rank
from ritz.solvers.probes import student_factor
from ritz.solvers.ranks import rank_from

from .memory import with_room
from .spectra import INDEFINITE, KINDS, kinds, linspace, runs, with_eigenvalues


def effective(eigenvalues):
    return float(eigenvalues.sum() ** 2 / eigenvalues.square().sum())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vectors", [math.inf, 8.0])
@pytest.mark.usefixtures("unchecked")
def test_effective_rank_lies_within_its_error(kind, vectors):
    """On a sketch and, where there is no room for one, from forms of random signs."""
    eigenvalues = kinds(200)[kind]
    A = with_room(with_eigenvalues(eigenvalues), vectors)
    estimate = lambda generator: effective_rank(A, num_products=24, generator=generator)
    values, errors = runs(estimate, 100)
    assert float(((values - effective(eigenvalues)).abs() <= 2 * errors).double().mean()) >= 0.89


def test_one_eigenvalue_above_all_others_leaves_no_heavy_tail():
    eigenvalues = torch.cat([torch.tensor([1000.0]), linspace(0, 1, 199)])
    A = with_eigenvalues(eigenvalues)
    values, errors = runs(lambda generator: effective_rank(A, num_products=24, generator=generator), 40)
    misses = (values - effective(eigenvalues)).abs()
    assert float(misses.max()) < 0.05 and bool((misses < 4 * errors).all())


def test_as_many_products_as_n_give_the_exact_rank():
    result = effective_rank(with_eigenvalues(INDEFINITE[:60]))
    assert result.value == pytest.approx(effective(INDEFINITE[:60]), rel=1e-10)
    assert result.num_products == 60 and result.standard_error == 0


def test_the_square_of_the_trace_is_unbiased():
    A = torch.tensor([[5.0, 1.0, 0.5], [1.0, 4.0, -1.0], [0.5, -1.0, 3.0]], dtype=torch.float64)
    signs = torch.cartesian_prod(*3 * [torch.tensor([-1.0, 1.0], dtype=torch.float64)])
    samples = ((signs @ A) * signs).sum(1)
    pairs = torch.cartesian_prod(samples, samples)  # all draws of two probes, equally likely
    ranks = [rank_from(pair, torch.full_like(pair, 7.0)).value for pair in pairs]
    assert sum(ranks) / len(ranks) == pytest.approx(12**2 / 7, rel=1e-12)


def test_the_error_of_a_rank_near_zero_is_that_of_the_square():
    first, second = torch.tensor([-1.0, 1.0, -1.0, 1.0], dtype=torch.float64), torch.full((4,), 5.0).double()
    variance = float(first.var()) / 4  # of the mean, which may be two of its standard errors off
    error = rank_from(first, second).standard_error / student_factor(4)
    assert 2 * error == pytest.approx(4 * variance / 5, rel=1e-12)


@pytest.mark.parametrize("errors", [0, 1, 2, 2.5, 4, 10])
@pytest.mark.usefixtures("unchecked")
def test_a_rank_is_covered_however_many_errors_the_trace_is_from_zero(errors):
    generator, count = torch.Generator().manual_seed(8), 50
    draws = torch.randn(1000, count, generator=generator, dtype=torch.float64) + errors / count**0.5
    found = [rank_from(draw, torch.ones(count, dtype=torch.float64)) for draw in draws]
    held = sum(abs(one.value - errors**2 / count) <= 2 * one.standard_error for one in found)
    assert held / len(found) >= 0.935  # 0.89 at two errors, where a miss below zero looked like zero


def test_effective_rank_counts_equal_eigenvalues(generator):
    eigenvalues = torch.cat([torch.full((30,), 2.0), torch.zeros(170)])
    A = with_eigenvalues(eigenvalues)
    assert effective_rank(A, num_products=80, generator=generator).value == pytest.approx(30, rel=1e-9)
    result = effective_rank(with_room(A, 8.0), num_products=190, generator=generator)
    assert abs(result.value - 30) < 4 * result.standard_error and result.standard_error < 3
    assert effective_rank(with_eigenvalues(torch.zeros(50)), num_products=20, generator=generator).value == 0.0
