"""Quadratures that go on: what is added in pieces is what one run makes, within the operator's room."""

import pytest
import torch
from torch.testing import assert_close

from ritz.errors import ArgumentError
from ritz.solvers import LanczosQuadrature, eigenpairs
from ritz.solvers.lanczos_recursion import random_recursions

from .memory import diagonal, peak_vectors, with_room
from .spectra import counted, linspace, network_like, rotated, with_eigenvalues

NAMES = ("diagonal", "off_diagonal", "residual")
LARGE = torch.cat([linspace(3, 10, 20), linspace(-1, 1, 49_980)])


def seeded():
    return torch.Generator().manual_seed(7)


def quadrature(A, *stages, **options):
    result = LanczosQuadrature(A, generator=seeded(), **options)
    for num_probes, num_steps in stages:
        result.extend(num_probes=num_probes, num_steps=num_steps)
    return result


def assert_same(first, second, **tolerances):
    a, b = first.tridiagonal(), second.tridiagonal()
    for name in NAMES:
        assert_close(getattr(a, name), getattr(b, name), **(tolerances or {"atol": 0.0, "rtol": 0.0}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("outliers", [0, 3])
def test_steps_added_are_those_of_one_run_to_the_bit(dtype, outliers):
    A = rotated(network_like(), dtype=dtype)
    pieces = quadrature(A, (3, 10), (3, 11), (3, 40), outliers=outliers)
    assert_same(pieces, quadrature(A, (3, 40), outliers=outliers))


def test_probes_added_are_those_of_one_run():
    A = rotated(network_like())
    pieces = quadrature(A, (1, 8), (4, 20), (6, 20))
    assert_same(pieces, quadrature(A, (6, 20)), atol=1e-8, rtol=1e-8)  # rounding grows along a recursion


def test_one_run_is_that_of_a_density(generator):
    A = rotated(network_like())
    T = random_recursions(A, 3, 30, seeded())
    assert all(torch.equal(getattr(T, name), getattr(quadrature(A, (3, 30)).tridiagonal(), name)) for name in NAMES)


@pytest.mark.parametrize("outliers", [0, 4])
def test_nothing_is_multiplied_twice_and_all_is_counted(outliers):
    A, calls = counted(rotated(network_like()))
    result = quadrature(A, (2, 10), (5, 25), outliers=outliers)
    assert result.num_products == sum(calls)
    assert result.num_products - 5 * 25 == (eigenpairs(A, outliers, which="magnitude").num_products if outliers else 0)
    assert (result.num_probes, result.num_steps) == (5, 25)


def test_pairs_that_are_given_cost_nothing():
    A, calls = counted(rotated(network_like()))
    pairs = eigenpairs(A, 3, which="magnitude")
    calls.clear()
    assert quadrature(A, (2, 10), outliers=pairs).num_products == sum(calls) == 20


def test_small_matrices_can_be_exhausted_in_pieces():
    values = torch.cat([linspace(0, 1, 50), torch.tensor([3.0, 3.0, 9.0]).double()])
    nodes, weights = quadrature(with_eigenvalues(values), (2, 5), (2, 60)).tridiagonal().quadrature()
    distinct = values.unique()
    for row, mass in zip(nodes, weights, strict=True):
        assert_close(row[mass > 1e-12], distinct, atol=1e-10, rtol=0)  # each once: no copies


def test_a_space_that_is_invariant_takes_no_more_products():
    A, calls = counted(rotated(torch.cat([torch.ones(800), 2 * torch.ones(200)]).double()))
    result = quadrature(A, (2, 1), (2, 30))
    made = sum(calls)
    result.extend(num_steps=60)
    assert made == sum(calls) == result.num_products < 10


def test_probes_that_do_not_fit_run_one_after_the_other_within_the_room():
    A = with_room(diagonal(LARGE), 9)
    run = lambda: quadrature(A, (3, 6), (8, 6))
    assert peak_vectors(run, len(LARGE)) <= 9.2
    assert_same(run(), quadrature(diagonal(LARGE), (8, 6)), atol=1e-4, rtol=1e-3)  # float32, other columns


def test_steps_of_vectors_that_were_dropped_are_refused_and_the_ways_out_work():
    A = with_room(diagonal(LARGE), 9)
    result = quadrature(A, (5, 6))
    with pytest.raises(ArgumentError, match="no room to keep the vectors"):
        result.extend(num_steps=12)
    result.extend(num_probes=6)
    assert (result.num_probes, result.num_steps, result.num_products) == (6, 6, 36)
    assert quadrature(A, (5, 12)).num_products == 60


def test_vectors_in_another_place_come_back_and_go_on(monkeypatch):
    A = with_room(rotated(network_like()), 9)
    monkeypatch.setattr(LanczosQuadrature, "_put_away", lambda self, run: run)  # as if there were main memory beside
    assert_same(quadrature(A, (5, 6), (5, 20)), quadrature(A, (5, 20)))


@pytest.mark.parametrize("probes, steps", [(2, 10), (3, 9), (0, 10), (3, 0)])
def test_what_was_made_is_not_taken_back(probes, steps):
    result = quadrature(rotated(network_like()), (3, 10))
    with pytest.raises(ArgumentError, match="Ask for num_probes=3 and num_steps=10"):
        result.extend(num_probes=probes, num_steps=steps)
    result.extend(num_probes=3, num_steps=10)
    assert result.num_products == 30


def test_it_begins_with_a_probe_and_a_step():
    result = LanczosQuadrature(rotated(network_like()))
    with pytest.raises(ArgumentError, match="num_probes=1 and num_steps=1"):
        result.extend(num_probes=3)
    result.extend(num_probes=1, num_steps=1)
