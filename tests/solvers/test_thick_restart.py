"""The search for eigenpairs: what it costs, which copies it sees, and when it gives up."""

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import eigsh
from torch.testing import assert_close

from ritz.errors import ConvergenceWarning
from ritz.operators import Operator
from ritz.solvers import eigenpairs
from tests.shapes import unchecked

from .spectra import assert_orthonormal, expected, linspace, network_like, rotated, roughened, true_residuals


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_search_needs_no_more_products_than_arpack(dtype):
    A, ours, theirs = rotated(network_like(5000), dtype=dtype), 0, [0]
    counting = Operator(lambda V: theirs.__setitem__(0, theirs[0] + V.shape[1]) or A @ V, A.size, dtype, A.device)
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        start = torch.randn(5000, generator=generator, dtype=torch.float64).numpy()
        ours += eigenpairs(A, 10, generator=generator, fresh_products=1, copies=False).num_products
        eigsh(
            counting.to_scipy(), k=10, which="LA", tol=1e-4, v0=start.astype("f4" if dtype == torch.float32 else "f8")
        )
    assert ours <= theirs[0]


def test_restarts_find_the_same_pairs(generator):
    eigenvalues = network_like()
    pairs = eigenpairs(rotated(eigenvalues), 10, basis_size=24, tolerance=1e-8, generator=generator)
    assert pairs.num_products > 40  # so it did restart
    assert_close(pairs.values, linspace(10, 3, 10), atol=1e-8, rtol=0)
    assert_orthonormal(pairs.vectors)


@pytest.mark.parametrize("precision", ["own", "mixed"])
def test_a_tolerance_is_relative_to_the_largest_eigenvalue_even_where_a_restart_has_dropped_it(precision, generator):
    eigenvalues = torch.cat([torch.tensor([1e8]).double(), torch.rand(699, generator=generator, dtype=torch.float64)])
    A = roughened(rotated(eigenvalues))
    pairs = eigenpairs(A, 6, which="smallest", tolerance=1e-3, precision=precision, generator=generator)
    assert bool(pairs.converged.all()) and float(pairs.residuals.max()) <= 1e-3 * 1e8
    assert pairs.num_products <= 40  # once the largest is known, any vector will do


@pytest.mark.parametrize("block_size", [2, 5])
def test_blocks_see_every_copy_up_to_their_width(block_size, generator):
    copies = torch.full((block_size,), 5.0, dtype=torch.float64)
    eigenvalues = torch.cat([copies, linspace(0, 4.5, 1000)])
    pairs = eigenpairs(rotated(eigenvalues), block_size + 1, block_size=block_size, tolerance=1e-6, generator=generator)
    assert_close(pairs.values[:block_size], copies, atol=1e-8, rtol=0)
    assert float(pairs.values[block_size]) == pytest.approx(4.5, abs=1e-4)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.sampled_from(["largest", "smallest", "magnitude"]))
@settings(max_examples=30, deadline=None)
def test_few_distinct_eigenvalues_come_with_all_their_copies(first, second, k, which):
    eigenvalues = torch.cat([5.0 * torch.ones(first), -7.0 * torch.ones(second), torch.ones(600)]).double()
    pairs = eigenpairs(rotated(eigenvalues), k, which=which)
    assert_close(pairs.values, expected(eigenvalues, k, which), atol=1e-9, rtol=0)
    assert_orthonormal(pairs.vectors)


@pytest.mark.parametrize("n, tolerance", [(300, 1e-4), (700, 1e-8), (1500, 1e-4)])
def test_a_five_fold_eigenvalue_comes_five_times(n, tolerance):
    eigenvalues = torch.cat([torch.full((5,), 5.0, dtype=torch.float64), linspace(0, 4.5, n)])
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        A = rotated(eigenvalues)
        with unchecked() if seed else nullcontext():
            pairs = eigenpairs(A, 7, tolerance=tolerance, generator=generator)
        assert_close(pairs.values, expected(eigenvalues, 7, "largest"), atol=20 * tolerance, rtol=0)
        assert_close(pairs.residuals, true_residuals(A, pairs), atol=1e-11, rtol=1e-4)
        assert bool(pairs.converged.all()) and int((pairs.values > 4.9).sum()) == 5


def test_a_search_for_copies_that_runs_out_of_products_says_so(generator):
    eigenvalues = torch.cat([torch.full((5,), 5.0, dtype=torch.float64), linspace(0, 4.5, 1500)])
    with pytest.warns(ConvergenceWarning, match="copies"):
        eigenpairs(rotated(eigenvalues), 7, max_products=250, generator=generator)


def test_values_that_lie_close_but_apart_cost_no_search_for_copies():
    A = rotated(torch.cat([torch.tensor([10.0, 9.99, 8.0, 7.0]).double(), network_like(2000).clamp(-2, 2)]))
    assert eigenpairs(A, 4).num_products < 60


def test_no_eigenvalue_appears_twice_after_many_steps(generator):
    eigenvalues = torch.cat([torch.tensor([100.0]), linspace(0, 1, 600) ** 3])
    pairs = eigenpairs(rotated(eigenvalues, dtype=torch.float32), 30, tolerance=1e-6, generator=generator)
    assert int((pairs.values > 50).sum()) == 1
    assert_orthonormal(pairs.vectors, 1e-5)


def test_a_warm_start_saves_products(generator):
    A, near = rotated(network_like()), rotated(1.01 * network_like() + 1e-3)
    before = eigenpairs(A, 10, generator=generator)
    for start in (before, before.vectors, before.vectors[:, 0]):
        k = 1 if isinstance(start, torch.Tensor) and start.ndim == 1 else 10
        cold, warm = eigenpairs(near, k, generator=generator), eigenpairs(near, k, start=start, generator=generator)
        assert warm.num_products < cold.num_products
        assert_close(warm.values, cold.values, atol=1e-6, rtol=0)


def test_a_start_in_the_wrong_place_still_leads_to_the_requested_end(generator):
    A = rotated(network_like())
    wrong = eigenpairs(A, 5, which="smallest", generator=generator)
    for start, block_size in ((wrong, 1), (wrong, 5), (eigenpairs(A, 2, generator=generator).vectors[:, 1], 1)):
        pairs = eigenpairs(A, 3, start=start, block_size=block_size, generator=generator)
        assert_close(pairs.values, linspace(10, 3, 10)[:3], atol=1e-6, rtol=0)


def test_giving_up_warns_and_flags(generator):
    A = rotated(linspace(0, 1, 3000))
    with pytest.warns(ConvergenceWarning, match="did not reach"):
        pairs = eigenpairs(A, 5, tolerance=1e-10, max_products=40, generator=generator)
    assert pairs.num_products <= 40 and not bool(pairs.converged.all())
    assert_close(pairs.residuals, true_residuals(A, pairs), atol=1e-12, rtol=1e-6)


def test_a_tolerance_beyond_the_precision_ends_with_a_warning(generator):
    A = rotated(network_like(), dtype=torch.float32)
    with pytest.warns(ConvergenceWarning, match="float32"):
        pairs = eigenpairs(A, 5, tolerance=1e-12, generator=generator)
    assert pairs.num_products < 400 and float(pairs.residuals.max()) < 1e-4


@pytest.mark.parametrize("fresh_products", [None, 1])
def test_noise_in_the_products_shows_in_the_residuals(fresh_products, generator):
    A, noise = rotated(network_like()), torch.Generator().manual_seed(1)
    noisy = lambda V: (
        A @ V + 1e-2 * torch.randn(V.shape, generator=noise, dtype=V.dtype) / len(V) ** 0.5 * V.norm(dim=0)
    )
    with pytest.warns(ConvergenceWarning):
        B = Operator(noisy, A.size, A.dtype, A.device)
        pairs = eigenpairs(B, 3, tolerance=1e-4, generator=generator, fresh_products=fresh_products, max_products=150)
    assert 3e-3 < float(pairs.residuals.max()) < 0.3 and not bool(pairs.converged.all())


def test_products_that_run_out_before_all_copies_are_found_end_with_a_warning(generator):
    eigenvalues = torch.cat([torch.full((3,), 5.0), torch.full((3,), -7.0), torch.ones(200)]).double()
    for max_products in (13, 14, 15):  # 10 find and confirm all copies, 6 certify
        with pytest.warns(ConvergenceWarning, match="max_products"):
            pairs = eigenpairs(rotated(eigenvalues), 6, max_products=max_products, generator=generator)
        assert pairs.num_products <= max_products and len(pairs) == 6
