"""Eigenpairs of matrices with known spectra: certified, complete, and never one twice."""

import math

import jaxtyping
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import eigsh
from torch.testing import assert_close

import ritz
from ritz.errors import ArgumentError, ConvergenceWarning, NumericalError
from ritz.operators import Operator
from ritz.solvers.eigen import eigenpairs, subspace_iteration


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def linspace(low, high, num):
    return torch.linspace(low, high, num, dtype=torch.float64)


def rotated(eigenvalues, *, dtype=torch.float64, seed=5):
    """An operator with these eigenvalues whose eigenvectors are no unit vectors: a reflected diagonal."""
    d, n = eigenvalues.to(dtype), len(eigenvalues)
    u = torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    u = (u / u.norm()).to(dtype)[:, None]
    reflected = lambda V: V - 2 * u * (u.T @ V)
    return Operator(lambda V: reflected(d[:, None] * reflected(V)), n, dtype, torch.device("cpu"))


def network_like(n=2000, seed=0):
    """Ten outliers, a tail of both signs that decays, and most of the mass near zero."""
    generator = torch.Generator().manual_seed(seed)
    bulk = 0.1 * torch.randn(n - 10, generator=generator, dtype=torch.float64) ** 3
    return torch.cat([linspace(3, 10, 10), bulk.clamp(-2, 2)])


def expected(eigenvalues, k, which):
    ascending = eigenvalues.sort().values
    if which == "magnitude":
        return eigenvalues[eigenvalues.abs().argsort(descending=True)][:k]
    if which == "both":
        return torch.cat([ascending.flip(0)[: (k + 1) // 2], ascending[: k // 2]])
    return (ascending.flip(0) if which == "largest" else ascending)[:k]


def true_residuals(A, pairs):
    return (A @ pairs.vectors - pairs.vectors * pairs.values).norm(dim=0)


def assert_orthonormal(vectors, tolerance=1e-12):
    gram = (vectors.double().T @ vectors.double()).cpu()
    assert_close(gram, torch.eye(gram.shape[0], dtype=torch.float64), atol=tolerance, rtol=0)


@pytest.mark.parametrize("which", ["largest", "smallest", "magnitude", "both"])
@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize("n", [60, 1000])
def test_the_wanted_end_comes_first(which, k, n, generator):
    eigenvalues = torch.cat([linspace(3, 10, 7), linspace(-1, 1, n - 14), linspace(-12, -2, 7)])
    pairs = eigenpairs(rotated(eigenvalues), k, which=which, tolerance=1e-8, generator=generator)
    assert_close(pairs.values, expected(eigenvalues, k, which), atol=1e-9, rtol=0)
    assert bool(pairs.converged.all())
    assert_orthonormal(pairs.vectors)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-10])
@pytest.mark.parametrize("fresh_products", [None, 2])
def test_residuals_are_true_and_below_the_tolerance(tolerance, fresh_products, generator):
    A = rotated(network_like())
    pairs = eigenpairs(A, 10, tolerance=tolerance, generator=generator, fresh_products=fresh_products)
    assert_close(pairs.residuals, true_residuals(A, pairs), atol=1e-11, rtol=1e-4)
    assert float(pairs.residuals.max()) <= tolerance * 10
    assert_close(pairs.values, linspace(10, 3, 10), atol=200 * tolerance**2 + 1e-9, rtol=0)  # r²/gap


def test_eigenpairs_agree_with_arpack(generator):
    A = rotated(network_like())
    pairs = eigenpairs(A, 6, which="largest", tolerance=1e-9, generator=generator)
    values, vectors = eigsh(A.to_scipy(), k=6, which="LA", tol=1e-10)
    assert_close(pairs.values, torch.from_numpy(values[::-1].copy()), atol=1e-9, rtol=0)
    overlaps = (pairs.vectors * torch.from_numpy(vectors[:, ::-1].copy())).sum(0).abs()
    assert_close(overlaps, torch.ones(6, dtype=torch.float64), atol=1e-8, rtol=0)


def test_the_reported_number_of_products_is_the_true_one(generator):
    A, columns = rotated(network_like()), []
    watched = Operator(lambda V: columns.append(V.shape[1]) or A @ V, A.size, A.dtype, A.device)
    pairs = eigenpairs(watched, 10, generator=generator)
    assert pairs.num_products == sum(columns) and columns[-1] == 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_search_needs_no_more_products_than_arpack(dtype):
    A, ours, theirs = rotated(network_like(5000), dtype=dtype), 0, [0]
    counting = Operator(lambda V: theirs.__setitem__(0, theirs[0] + V.shape[1]) or A @ V, A.size, dtype, A.device)
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        start = torch.randn(5000, generator=generator, dtype=torch.float64).numpy()
        ours += eigenpairs(A, 10, generator=generator, fresh_products=1).num_products
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


@pytest.mark.parametrize("n, rank", [(300, 20), (300, 150), (2000, 20), (2000, 200)])
@pytest.mark.parametrize("which", ["smallest", "both"])
def test_a_singular_operator_has_as_many_zeros_as_are_wanted(n, rank, which, generator):
    eigenvalues = torch.cat([linspace(0.14, 1, rank), torch.zeros(n - rank, dtype=torch.float64)])
    pairs = eigenpairs(rotated(eigenvalues), 7, which=which, generator=generator)
    assert_close(pairs.values, expected(eigenvalues, 7, which), atol=1e-6, rtol=0)
    assert_orthonormal(pairs.vectors)


@pytest.mark.parametrize("n", [300, 1500])
@pytest.mark.parametrize("tolerance", [1e-4, 1e-8])
def test_a_five_fold_eigenvalue_comes_five_times(n, tolerance):
    eigenvalues = torch.cat([torch.full((5,), 5.0, dtype=torch.float64), linspace(0, 4.5, n)])
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        A = rotated(eigenvalues)
        pairs = eigenpairs(A, 7, tolerance=tolerance, generator=generator)
        assert_close(pairs.values, expected(eigenvalues, 7, "largest"), atol=20 * tolerance, rtol=0)
        assert_close(pairs.residuals, true_residuals(A, pairs), atol=1e-11, rtol=1e-4)
        assert bool(pairs.converged.all()) and int((pairs.values > 4.9).sum()) == 5


def test_a_search_for_copies_that_runs_out_of_products_says_so(generator):
    eigenvalues = torch.cat([torch.full((5,), 5.0, dtype=torch.float64), linspace(0, 4.5, 1500)])
    with pytest.warns(ConvergenceWarning, match="copies"):
        eigenpairs(rotated(eigenvalues), 7, max_products=250, generator=generator)


def test_gauss_newton_of_a_small_network_has_all_its_zeros(generator):
    model = torch.nn.Sequential(torch.nn.Linear(10, 30), torch.nn.Tanh(), torch.nn.Linear(30, 10)).double()  # n = 640
    x = torch.randn(9, 10, generator=generator, dtype=torch.float64)
    y = torch.randint(10, (9,), generator=generator)
    A = ritz.gauss_newton(ritz.Risk(model, ritz.CrossEntropy(), [(x[:6], y[:6]), (x[6:], y[6:])]))
    truth = torch.linalg.eigvalsh(A.dense())
    pairs = eigenpairs(A, 10, which="both", generator=generator)
    assert_close(pairs.values, expected(truth, 10, "both"), atol=1e-6 * float(truth[-1]), rtol=0)


def test_values_that_lie_close_but_apart_cost_no_search_for_copies():
    A = rotated(torch.cat([torch.tensor([10.0, 9.99, 8.0, 7.0]).double(), network_like(2000).clamp(-2, 2)]))
    assert eigenpairs(A, 4).num_products < 60


def test_sizes_below_five_hundred_are_exact_unless_less_is_allowed(generator):
    A = rotated(network_like(400))
    assert eigenpairs(A, 3).num_products == 400
    assert eigenpairs(A, 3, max_products=200).num_products < 200
    assert eigenpairs(A, 3, basis_size=100).num_products < 200


@pytest.mark.parametrize("n", [1, 2, 5, 30, 120])
def test_all_n_eigenpairs_can_be_had(n, generator):
    matrix = torch.randn(n, n, generator=generator, dtype=torch.float64)
    A = Operator.from_matrix(matrix + matrix.T)
    pairs = eigenpairs(A, n)
    assert_close(pairs.values, torch.linalg.eigvalsh(A.dense()).flip(0))
    assert_close(pairs.vectors @ torch.diag(pairs.values) @ pairs.vectors.T, A.dense())


@pytest.mark.parametrize("n", [20, 600])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_identity_and_rank_one_operators_have_their_eigenpairs(n, dtype):
    u = torch.ones(n, dtype=dtype)
    zero, one = torch.zeros(n, n, dtype=dtype), torch.eye(n, dtype=dtype)
    for matrix, values in [(zero, [0, 0, 0]), (one, [1, 1, 1]), (torch.outer(u, u), [n, 0, 0]), (-one, [-1, -1, -1])]:
        pairs = eigenpairs(Operator.from_matrix(matrix), 3)
        assert_close(pairs.values.double(), torch.tensor(values, dtype=torch.float64), atol=1e-5 * n, rtol=0)
        assert bool(pairs.converged.all()) and pairs.num_products <= 20
        assert_orthonormal(pairs.vectors, 1e-5)


def test_an_operator_that_returns_its_argument_is_the_identity():
    A = Operator(lambda V: V, 300, torch.float64, torch.device("cpu"))
    assert_close(eigenpairs(A, 3).values, torch.ones(3, dtype=torch.float64))
    assert_close(subspace_iteration(A, 3, 2).values, torch.ones(3, dtype=torch.float64))


def test_no_eigenvalue_appears_twice_after_many_steps(generator):
    eigenvalues = torch.cat([torch.tensor([100.0]), linspace(0, 1, 600) ** 3])
    pairs = eigenpairs(rotated(eigenvalues, dtype=torch.float32), 30, tolerance=1e-6, generator=generator)
    assert int((pairs.values > 50).sum()) == 1
    assert_orthonormal(pairs.vectors, 1e-5)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scaled_operators_have_scaled_eigenvalues_at_the_same_cost(scale, dtype):
    plain, scaled = (eigenpairs(rotated(s * network_like(), dtype=dtype), 5) for s in (1.0, scale))
    assert_close(scaled.values.double() / scale, plain.values.double(), atol=1e-4, rtol=0)
    assert bool(scaled.converged.all()) and abs(scaled.num_products - plain.num_products) <= 3


def test_signs_are_kept(generator):
    eigenvalues = torch.cat([torch.tensor([-9.0, 8.0, -7.0]), linspace(-1, 1, 500)])
    pairs = eigenpairs(rotated(eigenvalues), 3, which="magnitude", generator=generator)
    assert_close(pairs.values, torch.tensor([-9.0, 8.0, -7.0], dtype=torch.float64), atol=1e-6, rtol=0)


def test_a_warm_start_saves_products(generator):
    A, near = rotated(network_like()), rotated(1.01 * network_like() + 1e-3)
    before = eigenpairs(A, 10, generator=generator)
    for start in (before, before.vectors, before.vectors[:, 0]):
        k = 1 if isinstance(start, torch.Tensor) and start.ndim == 1 else 10
        cold, warm = eigenpairs(near, k, generator=generator), eigenpairs(near, k, start=start, generator=generator)
        assert warm.num_products < cold.num_products
        assert_close(warm.values, cold.values, atol=1e-6, rtol=0)


def test_a_start_in_the_wrong_place_still_leads_to_the_wanted_end(generator):
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


@pytest.mark.parametrize("n", [20, 600])
def test_nan_products_are_refused(n):
    with pytest.raises(NumericalError, match="NaN"):
        eigenpairs(Operator(lambda V: V * math.nan, n, torch.float64, torch.device("cpu")), 2)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"k": 0}, {"k": 301}, {"which": "LM"}, {"block_size": 0}, {"basis_size": 5}, {"max_products": 5}),
        *({"k": 2.0}, {"k": True}, {"block_size": 1.0}, {"max_products": 100.0}, {"basis_size": 50.0}),
        *({"generator": 0}, {"tolerance": -1.0}, {"tolerance": math.nan}, {"tolerance": math.inf}),
        *({"start": torch.ones(299)}, {"start": torch.zeros(300)}, {"start": torch.full((300, 2), math.nan)}),
    ],
)
def test_what_cannot_be_asked_is_refused_in_three_parts(wrong, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users run it
    arguments = {"k": 5, **wrong}
    with pytest.raises(ArgumentError) as caught:
        eigenpairs(rotated(linspace(0, 1, 300)), arguments.pop("k"), **arguments)
    assert caught.value.seen and caught.value.why and caught.value.ways_out


def test_without_a_generator_the_result_repeats_and_global_state_is_untouched():
    A, state = rotated(network_like()), torch.get_rng_state()
    first, again = eigenpairs(A, 3), eigenpairs(A, 3)
    assert torch.equal(first.vectors, again.vectors) and torch.equal(state, torch.get_rng_state())


def test_every_column_is_handed_over_contiguous(generator):
    A, strides = rotated(network_like()), set()
    watched = Operator(lambda V: strides.add(V.stride(0)) or A @ V, A.size, A.dtype, A.device)
    eigenpairs(watched, 5, generator=generator)
    eigenpairs(watched, 5, block_size=3, generator=generator)
    assert strides == {1}


@pytest.mark.parametrize("piece, rows", [(100, 3), (7, 16)])
def test_memory_pieces_do_not_change_the_result(piece, rows, monkeypatch):
    A = rotated(network_like(500))
    plain = eigenpairs(A, 6, basis_size=20)
    monkeypatch.setattr("ritz.solvers.basis.PIECE", piece)
    monkeypatch.setattr("ritz.solvers.basis.ROWS", rows)
    assert_close(eigenpairs(A, 6, basis_size=20).values, plain.values)


def test_subspace_iteration_gives_ritz_values_with_their_signs(generator):
    eigenvalues = torch.cat([torch.tensor([-10.0, 8.0, -6.0, 4.0]), linspace(-0.5, 0.5, 200)])
    A = rotated(eigenvalues)
    pairs = subspace_iteration(A, 4, 30, generator=generator)
    assert_close(pairs.values, eigenvalues[:4], atol=1e-6, rtol=0)
    assert_close(pairs.residuals, true_residuals(A, pairs), atol=1e-12, rtol=1e-6)
    assert bool(pairs.converged.all()) and pairs.num_products == 120
    assert_orthonormal(pairs.vectors)


def test_subspace_iteration_separates_a_pair_of_opposite_eigenvalues(generator):
    eigenvalues = torch.cat([torch.tensor([5.0, -5.0]), linspace(-1, 1, 100)])
    pairs = subspace_iteration(rotated(eigenvalues), 2, 25, generator=generator)
    assert_close(pairs.values.sort().values, torch.tensor([-5.0, 5.0], dtype=torch.float64))
    assert bool(pairs.converged.all())


def test_subspace_iteration_starts_warm_and_flags_what_is_not_there_yet(generator):
    A = rotated(network_like())
    cold = subspace_iteration(A, 10, 2, generator=generator)
    warm = subspace_iteration(A, 10, 1, start=eigenpairs(A, 10, generator=generator), generator=generator)
    assert not bool(cold.converged.all()) and bool(warm.converged.all())
    with pytest.raises(ArgumentError):
        subspace_iteration(A, 10, 0)


def test_products_that_run_out_before_all_copies_are_found_end_with_a_warning(generator):
    eigenvalues = torch.cat([torch.full((3,), 5.0), torch.full((3,), -7.0), torch.ones(200)]).double()
    for max_products in (13, 14, 15):  # 10 find and confirm all copies, 6 certify
        with pytest.warns(ConvergenceWarning, match="max_products"):
            pairs = eigenpairs(rotated(eigenvalues), 6, max_products=max_products, generator=generator)
        assert pairs.num_products <= max_products and len(pairs) == 6
