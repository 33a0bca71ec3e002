"""Diagonals cover the truth at the rate their errors state, entry by entry and in all."""

import math

import pytest
import torch
from torch.testing import assert_close

import ritz
from ritz.errors import ArgumentError
from ritz.solvers import diagonal

from .memory import diagonal as diagonal_matrix
from .memory import peak_vectors, with_room
from .spectra import KINDS, counted, kinds, linspace, with_eigenvalues


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vectors", [math.inf, 8.0])
@pytest.mark.usefixtures("unchecked")
def test_every_entry_lies_within_its_error(kind, vectors):
    """On a sketch and, where there is no room for one, from random signs."""
    A = with_eigenvalues(kinds(150)[kind])
    truth, tight = A.dense().diagonal(), with_room(A, vectors)
    runs = [diagonal(tight, num_products=24, generator=torch.Generator().manual_seed(seed)) for seed in range(12)]
    misses = torch.stack([run.values - truth for run in runs])
    errors = torch.stack([run.standard_errors for run in runs])
    assert float((misses.abs() <= 2 * errors + 1e-12).double().mean()) >= 0.93  # of 1,800 entries
    stated = math.sqrt(sum(run.total_error**2 for run in runs) / len(runs))
    assert 0.85 < stated / float(misses.norm(dim=1).square().mean().sqrt()) < 1.4


def test_as_many_products_as_n_give_the_exact_diagonal():
    A = with_eigenvalues(linspace(-1, 2, 60))
    watched, calls = counted(A)
    result = ritz.diagonal(watched)
    assert_close(result.values, A.dense().diagonal())
    assert result.total_error == 0 and result.num_products == 60 == sum(calls)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_diagonal_of_a_low_rank_operator_is_exact(dtype):
    A = with_eigenvalues(torch.cat([linspace(1, 2, 8), torch.zeros(192)]), dtype=dtype)
    result = diagonal(A, num_products=24)
    assert_close(result.values, A.dense().diagonal(), atol=100 * torch.finfo(dtype).eps, rtol=0)
    assert result.total_error < 1000 * torch.finfo(dtype).eps


def test_a_sketch_is_far_nearer_where_the_spectrum_decays():
    A = with_eigenvalues(kinds(200)["1/k²"])
    sketch, plain = (diagonal(B, num_products=60) for B in (A, with_room(A, 8.0)))
    assert sketch.total_error < plain.total_error / 20
    assert float((sketch.values - A.dense().diagonal()).norm()) < 2 * sketch.total_error


def test_a_generator_decides_the_diagonal():
    A = with_eigenvalues(kinds(100)["uniform"])
    first, again, other = (
        diagonal(A, num_products=10, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(first.values, again.values) and not torch.equal(first.values, other.values)
    assert torch.equal(first.values, diagonal(A, num_products=10).values)
    assert "10 products" in repr(first) and "off by" in repr(first)


@pytest.mark.parametrize("num_products", [0, 1, 2.5])
@pytest.mark.usefixtures("unchecked")
def test_too_few_products_are_refused(num_products):
    with pytest.raises(ArgumentError, match="num_products"):
        diagonal(with_eigenvalues(linspace(0, 1, 20)), num_products=num_products)


@pytest.mark.parametrize("vectors, num_products", [(6.0, 6), (24.0, 6)])
def test_the_diagonal_keeps_to_its_room(vectors, num_products):
    size = 200_000
    A = with_room(diagonal_matrix(linspace(0, 1, size)), vectors)
    assert peak_vectors(lambda: diagonal(A, num_products=num_products), size) <= vectors + 2.1  # and the product's own


@pytest.mark.parametrize("scale", [1e-30, 1e30])
@pytest.mark.parametrize("vectors", [math.inf, 8.0])
def test_entries_whose_squares_are_no_float32_have_errors(scale, vectors):
    A = with_room(with_eigenvalues(kinds(150)["uniform"], dtype=torch.float32), vectors)
    result, scaled = (diagonal(B, num_products=20) for B in (A, scale * A))
    assert scaled.total_error == pytest.approx(scale * result.total_error, rel=1e-3)
