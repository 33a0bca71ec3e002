"""Solvers stay within the room that an operator allows beside its products, with the same results."""

import pytest
import torch
from torch.testing import assert_close

from ritz.solvers import (
    effective_rank,
    eigenpairs,
    hutchinson,
    log_determinant,
    negative_mass,
    spectral_density,
    trace,
)  # fmt: skip
from ritz.solvers.probes import gaussian, signs

from .memory import diagonal, peak_vectors, with_room
from .spectra import expected, linspace, network_like, rotated

N = 200_000
LARGE = torch.cat([linspace(3, 10, 20), -linspace(2, 5, 20), linspace(-1, 1, N - 40)])
CLUSTER = torch.cat([torch.tensor([5, 4.99, 4.98, 4.97, 4.96]).double(), linspace(0, 4.5, 2000)])
DECAY = torch.arange(1, 2001, dtype=torch.float64) ** -2.0


@pytest.mark.parametrize("k, which", [(1, "largest"), (3, "largest"), (3, "both"), (10, "both")])
@pytest.mark.parametrize("block_size", [1, 2])
def test_a_search_takes_no_more_than_its_room(k, which, block_size):
    A = with_room(diagonal(LARGE), 2 * k + 6)
    own = 2 * block_size  # a product's argument and its result; small matrices are below a hundredth
    search = lambda **start: eigenpairs(A, k, which=which, block_size=block_size, tolerance=1e-2, **start)
    results = []
    assert peak_vectors(lambda: results.append(search()), N) - own <= 2 * k + 6.01
    (pairs,) = results
    assert bool(pairs.converged.all()) and pairs.basis_size <= 2 * k + 5
    assert_close(pairs.values.double(), expected(LARGE, k, which), atol=1e-2, rtol=0)
    assert peak_vectors(lambda: search(start=pairs), N) - own <= 2 * k + 6.01


def test_what_is_returned_keeps_nothing_else_alive():
    pairs = eigenpairs(with_room(diagonal(LARGE), 12), 3, tolerance=1e-2)
    assert pairs.vectors.untyped_storage().nbytes() == 3 * N * 4


@pytest.mark.parametrize("eigenvalues", [network_like(), CLUSTER, DECAY])
@pytest.mark.parametrize("k, which", [(1, "largest"), (3, "largest"), (3, "both")])
def test_a_small_basis_finds_what_a_large_one_does(eigenvalues, k, which):
    A = rotated(eigenvalues)
    plain, tight = eigenpairs(A, k, which=which), eigenpairs(with_room(A, 2 * k + 6), k, which=which)
    scale = float(eigenvalues.abs().max())
    assert plain.num_products <= tight.num_products <= 4 * plain.num_products
    assert bool(tight.converged.all()) and float(tight.residuals.max()) <= 1e-4 * scale
    assert_close(tight.values, plain.values, atol=1e-4 * scale, rtol=0)


@pytest.mark.parametrize("eigenvalues", [network_like(), DECAY])
def test_the_least_basis_suffices(eigenvalues):
    A = with_room(rotated(eigenvalues), 7.5)
    pairs = eigenpairs(A, 3)
    assert pairs.basis_size == 6 and bool(pairs.converged.all())
    assert_close(pairs.values, expected(eigenvalues, 3, "largest"), atol=1e-3, rtol=0)


@pytest.mark.parametrize("vectors", [0.0, 6.5])
def test_with_too_little_room_a_search_takes_what_it_needs(vectors):
    pairs = eigenpairs(with_room(rotated(network_like()), vectors), 3)
    assert bool(pairs.converged.all()) and pairs.basis_size == 11


@pytest.mark.parametrize(
    "work",
    [
        lambda A: spectral_density(A, num_steps=10, num_probes=4),
        lambda A: negative_mass(A, num_steps=10, num_probes=4),
        lambda A: log_determinant(A, damping=20.0, num_steps=10, num_probes=4),
        lambda A: hutchinson(A, num_products=6),
        lambda A: effective_rank(A, num_products=6),
        lambda A: trace(A, num_products=6),
    ],
)
def test_probes_take_four_vectors_each_and_come_as_the_room_allows(work):
    A = diagonal(LARGE)
    for vectors in (4.0, 9.0, 0.0):
        peak = peak_vectors(lambda: work(with_room(A, vectors)), N)
        assert peak <= 4.3 * max(1, vectors // 4)  # the product's argument and result among them
    assert peak_vectors(lambda: spectral_density(A, num_steps=5, num_probes=4), N) <= 4 * 4


@pytest.mark.parametrize("num_steps", [15, 2000])
def test_probes_one_after_the_other_are_the_probes_in_step(num_steps):
    A = rotated(torch.cat([linspace(1, 2, 100), torch.ones(20)]).double())
    plain, tight = (spectral_density(B, num_steps=num_steps, num_probes=4) for B in (A, with_room(A, 500)))
    assert_close(tight.nodes, plain.nodes, atol=1e-8, rtol=0)
    assert_close(tight.weights, plain.weights, atol=1e-8, rtol=0)


def test_random_numbers_come_in_pieces_that_leave_no_trace(monkeypatch):
    A = diagonal(linspace(0, 1, 1003))
    draws = lambda count: [f(A, count, torch.Generator().manual_seed(1)) for f in (gaussian, signs)]
    plain, (one, _) = draws(3), draws(1)
    assert torch.equal(one[0], torch.randn(1003, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(one[0], plain[0][0]) and set(plain[1].unique().tolist()) == {-1.0, 1.0}
    monkeypatch.setattr("ritz.solvers.probes.DRAW", 64)
    assert all(torch.equal(a, b) for a, b in zip(plain, draws(3), strict=True))
