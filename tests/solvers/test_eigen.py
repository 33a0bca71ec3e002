"""Eigenpairs of matrices with known spectra: certified, complete, from the requested end."""

import math

import pytest
import torch
from scipy.sparse.linalg import eigsh
from torch.testing import assert_close

import ritz
from ritz.errors import ArgumentError, NumericalError
from ritz.operators import Operator
from ritz.solvers import eigenpairs, subspace_iteration

from .spectra import assert_orthonormal, expected, linspace, network_like, rotated, true_residuals


@pytest.mark.parametrize("which", ["largest", "smallest", "magnitude", "both"])
@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize("n", [60, 1000])
def test_the_requested_end_comes_first(which, k, n, generator):
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
    assert pairs.num_products == sum(columns) and 10 in columns


@pytest.mark.parametrize("n, rank", [(300, 20), (300, 150), (2000, 20), (2000, 200)])
@pytest.mark.parametrize("which", ["smallest", "both"])
def test_a_singular_operator_has_as_many_zeros_as_are_requested(n, rank, which, generator):
    eigenvalues = torch.cat([linspace(0.14, 1, rank), torch.zeros(n - rank, dtype=torch.float64)])
    pairs = eigenpairs(rotated(eigenvalues), 7, which=which, generator=generator)
    assert_close(pairs.values, expected(eigenvalues, 7, which), atol=1e-6, rtol=0)
    assert_orthonormal(pairs.vectors)


def test_gauss_newton_of_a_small_network_has_all_its_zeros(generator):
    model = torch.nn.Sequential(torch.nn.Linear(10, 30), torch.nn.Tanh(), torch.nn.Linear(30, 10)).double()  # n = 640
    x = torch.randn(9, 10, generator=generator, dtype=torch.float64)
    y = torch.randint(10, (9,), generator=generator)
    A = ritz.gauss_newton(ritz.Risk(model, ritz.CrossEntropy(), [(x[:6], y[:6]), (x[6:], y[6:])]))
    truth = torch.linalg.eigvalsh(A.dense())
    pairs = eigenpairs(A, 10, which="both", generator=generator)
    assert_close(pairs.values, expected(truth, 10, "both"), atol=1e-6 * float(truth[-1]), rtol=0)


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


@pytest.mark.parametrize("scale", [1e-12, 1e12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scaled_operators_have_scaled_eigenvalues_at_the_same_cost(scale, dtype):
    plain, scaled = (eigenpairs(rotated(s * network_like(), dtype=dtype), 5) for s in (1.0, scale))
    assert_close(scaled.values.double() / scale, plain.values.double(), atol=1e-4, rtol=0)
    assert bool(scaled.converged.all()) and abs(scaled.num_products - plain.num_products) <= 3


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_an_infinite_matrix_is_no_operator(bad):
    with pytest.raises(ArgumentError, match="infinite or NaN"):
        Operator.from_matrix(torch.diag(torch.tensor([1.0, bad])))


def test_a_product_that_is_kept_elsewhere_is_not_changed(generator):
    kept = torch.zeros(700, 1, dtype=torch.float64)
    eigenpairs(Operator(lambda V: kept.expand(-1, V.shape[1]), 700, torch.float64, torch.device("cpu")), 2)
    assert not kept.any()


def test_signs_are_kept(generator):
    eigenvalues = torch.cat([torch.tensor([-9.0, 8.0, -7.0]), linspace(-1, 1, 500)])
    pairs = eigenpairs(rotated(eigenvalues), 3, which="magnitude", generator=generator)
    assert_close(pairs.values, torch.tensor([-9.0, 8.0, -7.0], dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize("n", [20, 600])
def test_nan_products_are_refused(n):
    with pytest.raises(NumericalError, match="NaN"):
        eigenpairs(Operator(lambda V: V * math.nan, n, torch.float64, torch.device("cpu")), 2)
    with pytest.raises(NumericalError, match="NaN"):
        subspace_iteration(Operator(lambda V: V * math.nan, n, torch.float64, torch.device("cpu")), 2, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"k": 0}, {"k": 301}, {"which": "LM"}, {"block_size": 0}, {"basis_size": 5}, {"max_products": 5}),
        *({"k": 2.0}, {"k": True}, {"block_size": 1.0}, {"max_products": 100.0}, {"basis_size": 50.0}),
        *({"max_products": 0}, {"basis_size": 0}, {"basis_size": -3}, {"fresh_products": 0}, {"fresh_products": -1}),
        *({"generator": 0}, {"tolerance": -1.0}, {"tolerance": math.nan}, {"tolerance": math.inf}),
        *({"start": torch.ones(299)}, {"start": torch.zeros(300)}, {"start": torch.full((300, 2), math.nan)}),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_impossible_requests_are_refused_in_three_parts(wrong):
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
