"""Eigenpairs by cheap products that exact ones finish: the same certificate, whatever the cheap ones are."""

import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

import ritz
from ritz.errors import ArgumentError, ConvergenceWarning, NumericalError
from ritz.operators import Operator, deflated, preconditioned
from ritz.solvers import eigenpairs
from ritz.solvers.basis import Basis
from ritz.solvers.corrections import CLOSE, Surroundings, near_capacity
from ritz.solvers.search import SPARE

from .memory import diagonal, peak_vectors, with_room
from .spectra import assert_orthonormal, counted, expected, linspace, network_like, rotated, roughened, true_residuals

SPREAD = torch.cat([linspace(3, 10, 7), linspace(-1, 1, 986), linspace(-12, -2, 7)])


def both_counted(A):
    (own, calls), (rough, rough_calls) = counted(A), counted(A.rough)
    return replace(own, rough=rough), calls, rough_calls


@pytest.mark.parametrize("which", ["largest", "smallest", "magnitude", "both"])
@pytest.mark.parametrize("k, block_size", [(1, 1), (2, 1), (7, 1), (7, 2)])
def test_the_requested_pairs_have_true_residuals_below_the_tolerance(which, k, block_size):
    A = roughened(rotated(SPREAD))
    pairs = eigenpairs(A, k, which=which, tolerance=1e-5, precision="mixed", block_size=block_size)
    assert_close(pairs.values, expected(SPREAD, k, which), atol=1e-6, rtol=0)
    assert_close(pairs.residuals, true_residuals(A, pairs), atol=1e-11, rtol=1e-4)
    assert bool(pairs.converged.all()) and float(pairs.residuals.max()) <= 1e-5 * 12
    assert_orthonormal(pairs.vectors)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-4), (torch.float64, 1e-4), (torch.float64, 1e-9)])
def test_most_products_are_rough_and_both_kinds_are_counted(dtype, tolerance):
    A, own, rough = both_counted(roughened(rotated(network_like(), dtype=dtype), bits=11 if tolerance > 1e-6 else 24))
    plain = eigenpairs(A, 10, tolerance=tolerance)
    own.clear()
    pairs = eigenpairs(A, 10, tolerance=tolerance, precision="mixed")
    assert (pairs.num_products, pairs.num_rough_products) == (sum(own) + sum(rough), sum(rough))
    assert sum(own) <= 0.5 * plain.num_products and bool(pairs.converged.all())
    assert (plain.num_rough_products, "rough" in repr(plain), f"{sum(rough)} of them rough" in repr(pairs)) == (0, 0, 1)


def test_pairs_that_are_far_off_are_corrected_by_rough_products_where_one_step_is_not_enough():
    A, own, rough = both_counted(roughened(rotated(network_like()), bits=8))
    near, far = (eigenpairs(A, 10, tolerance=tolerance, precision="mixed") for tolerance in (1e-4, 1e-5))
    assert bool(far.converged.all())
    assert near.num_products - near.num_rough_products <= 21  # trial, Rayleigh-Ritz and one correction of each
    assert far.num_products - far.num_rough_products <= 26  # 34 with corrections by own products alone
    assert (near.num_products + far.num_products, near.num_rough_products + far.num_rough_products) == (
        *(sum(own) + sum(rough), sum(rough)),
    )
    assert near.num_rough_products < far.num_rough_products - 8


@pytest.mark.parametrize("bits, least, most", [(11, 0.35, 0.55), (5, 0.0, 0.2)])
def test_every_second_rough_step_is_local_while_the_basis_stays_orthogonal(bits, least, most, monkeypatch):
    passes, whole = [], Basis.orthogonalize

    def counted_passes(self, W, **options):
        passes.append(options.get("fully", True))
        return whole(self, W, **options)

    monkeypatch.setattr(Basis, "orthogonalize", counted_passes)
    A = roughened(rotated(network_like()), bits=bits)
    pairs = eigenpairs(A, 5, tolerance=1e-4, precision="mixed", copies=False)
    assert bool(pairs.converged.all()) and least <= 1 - sum(passes) / len(passes) <= most
    assert_close(pairs.values, expected(network_like(), 5, "largest"), atol=1e-6, rtol=0)


def test_a_shifted_spectrum_is_corrected_as_fast():
    A = roughened(rotated(network_like()))
    plain, shifted = (eigenpairs(B, 5, precision="mixed") for B in (A, A + 100.0))
    assert shifted.num_products <= plain.num_products + 5 and bool(shifted.converged.all())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda V: -V,
        lambda V: 0 * V,
        lambda V: V.flip(0),
        lambda V: V * linspace(1, 9, 2000)[:, None],
        lambda V: V * math.nan,
    ],
)
def test_a_rough_operator_of_another_matrix_is_not_used(wrong):
    A, _, rough = both_counted(replace(rotated(network_like()), rough=replace(rotated(network_like()), matmat=wrong)))
    plain, pairs = eigenpairs(A, 5), eigenpairs(A, 5, precision="mixed")
    assert_close(pairs.values, plain.values, atol=1e-6, rtol=0)
    assert bool(pairs.converged.all()) and sum(rough) == pairs.num_rough_products == 1
    assert pairs.num_products == plain.num_products + 2


def test_a_rough_operator_that_is_near_on_average_alone_still_gives_a_true_certificate():
    eigenvalues = network_like()
    other = eigenvalues.clone()
    other[:10] = linspace(10, 3, 10).flip(0) * linspace(0.5, 1.1, 10)  # a random vector contains little of the ten
    A = replace(rotated(eigenvalues), rough=rotated(other))
    pairs = eigenpairs(A, 3, precision="mixed")
    assert_close(pairs.residuals, true_residuals(A, pairs), atol=1e-11, rtol=1e-4)
    assert_close(pairs.values, expected(eigenvalues, 3, "largest"), atol=1e-6, rtol=0)


def test_products_that_are_nan_are_refused_and_noise_is_flagged():
    A = roughened(rotated(network_like()))
    with pytest.raises(NumericalError, match="NaN"):
        eigenpairs(replace(A, matmat=lambda V: V * math.nan), 3, precision="mixed")
    with pytest.warns(ConvergenceWarning, match="did not reach"):
        pairs = eigenpairs(A, 5, tolerance=1e-8, max_products=30, precision="mixed")
    assert pairs.num_products <= 30 and not bool(pairs.converged.all())
    assert_close(pairs.residuals, true_residuals(A, pairs), atol=1e-11, rtol=1e-4)


ROUNDED = 600 * 10 * torch.finfo(torch.float64).eps  # n ‖A‖ eps, what the sums of a product may lose


@pytest.mark.parametrize("dtype, tolerance, most", [(torch.float32, 1e-12, 1e-4), (torch.float64, 1e-16, ROUNDED)])
def test_a_tolerance_beyond_the_precision_ends_with_a_warning(dtype, tolerance, most):
    A = roughened(rotated(network_like(600), dtype=dtype))
    with pytest.warns(ConvergenceWarning, match=str(dtype).removeprefix("torch.")):
        pairs = eigenpairs(A, 3, tolerance=tolerance, precision="mixed", max_products=400)
    assert pairs.num_products < 200 and float(pairs.residuals.max()) < most


def test_rough_products_need_not_be_symmetric():
    A = rotated(SPREAD)
    skew = torch.randn(2, A.size, generator=torch.Generator().manual_seed(0), dtype=A.dtype) / A.size**0.5
    scale = 0.02 * float(SPREAD.abs().max())
    rough = replace(A, matmat=lambda V: A @ V + scale * (skew[:1].T @ (skew[1:] @ V) - skew[1:].T @ (skew[:1] @ V)))
    with pytest.raises(ArgumentError, match="not symmetric"):
        eigenpairs(rough, 3, tolerance=1e-8)
    pairs = eigenpairs(replace(A, rough=rough), 3, precision="mixed", tolerance=1e-6)
    assert_close(pairs.values, expected(SPREAD, 3, "largest"), atol=1e-5, rtol=0)


def test_without_rough_products_there_is_nothing_to_mix():
    A = rotated(network_like())
    with pytest.raises(ArgumentError, match="no cheaper products") as caught:
        eigenpairs(A, 3, precision="mixed")
    assert len(caught.value.ways_out) == 2
    plain = eigenpairs(A, 3)
    assert_close(eigenpairs(replace(A, rough=roughened(A).rough), 3, precision="mixed").values, plain.values)
    with pytest.raises(ArgumentError, match="'own'"):
        eigenpairs(A, 3, precision="half")
    x, y = torch.randn(6, 4), torch.randint(3, (6,))
    assert ritz.hessian(ritz.Risk(torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss(), (x, y))).rough is None


def test_rough_operators_follow_the_algebra():
    A, B = roughened(rotated(linspace(-1, 2, 50)), 20), rotated(linspace(0, 1, 50), seed=2)
    Q, d = torch.linalg.qr(torch.randn(50, 3, dtype=torch.float64)).Q, linspace(1, 2, 50)
    for change in (
        *(lambda C: C + B, lambda C: B + C, lambda C: C + C, lambda C: C - B, lambda C: 3 * C + 1, lambda C: -C / 2),
        *(lambda C: deflated(C, Q), lambda C: preconditioned(C, d)),
    ):
        changed = change(A)
        assert changed.rough is not None
        error = (changed.rough.dense() - changed.dense()).norm() / changed.dense().norm()
        assert 1e-9 < float(error) < 1e-5
    assert (B + B).rough is None and (2 * B).rough is None
    with pytest.raises(ArgumentError, match="combined"):
        replace(A, rough=Operator.from_matrix(torch.eye(3)))


@pytest.mark.parametrize("k, which", [(1, "largest"), (3, "largest"), (10, "both")])
def test_a_mixed_search_takes_no_more_than_its_room(k, which):
    n = 100_000
    large = torch.cat([linspace(3, 10, 20), -linspace(2, 5, 20), linspace(-1, 1, n - 40)])
    plain = with_room(diagonal(large), 2 * k + 6)
    A = replace(plain, rough=replace(plain, matmat=lambda V: plain.matmat(V) * 1.001))
    search = lambda: eigenpairs(A, k, which=which, tolerance=1e-2, precision="mixed")
    pairs = search()
    assert bool(pairs.converged.all())
    assert_close(pairs.values.double(), expected(large, k, which), atol=1e-2, rtol=0)
    assert peak_vectors(search, n) - 3 <= 2 * k + 6.01  # a product's argument and its result, and one of this rough one


def test_a_small_room_finds_what_a_large_one_does():
    A = roughened(rotated(network_like()))
    plain, tight = (eigenpairs(B, 3, tolerance=1e-6, precision="mixed") for B in (A, with_room(A, 12)))
    assert_close(tight.values, plain.values, atol=1e-6, rtol=0)
    assert bool(tight.converged.all()) and plain.num_products <= tight.num_products


def test_rough_products_are_remembered(tmp_path):
    pairs = eigenpairs(roughened(rotated(network_like())), 3, precision="mixed")
    assert ritz.Eigenpairs.load(pairs.save(tmp_path / "pairs.npz")).num_rough_products == pairs.num_rough_products > 0


@pytest.mark.parametrize("k", [1, 2, 3])
def test_products_of_both_kinds_together_are_no_more_than_allowed(k):
    A, own, rough = both_counted(roughened(rotated(linspace(0, 1, 600))))
    for most in range(24, 28):
        own.clear(), rough.clear()
        with pytest.warns(ConvergenceWarning):
            eigenpairs(A, k, tolerance=1e-7, precision="mixed", max_products=most)
        assert sum(own) + sum(rough) <= most


def test_known_surroundings_are_solved_for_and_what_lies_close_is_taken_for_as_far():
    """A diagonal A of which three eigenpairs are known, one of them nearer to θ than can be told; all others are 1."""
    d, theta = torch.tensor([3.0, 1.75, 2.001, 1.0, 1.0], dtype=torch.float64), 2.0
    around = Surroundings(d[:3], [torch.eye(5, dtype=torch.float64)[:2], torch.eye(5, dtype=torch.float64)[2:3]], 1.0)
    r = torch.ones(1, 5, dtype=torch.float64)
    around.solve(r, theta, scale=3.0)
    distances = torch.where((theta - d).abs() < CLOSE * 3, -CLOSE * 3, theta - d)
    assert_close(r[0], (theta - 1.0) / distances)


def test_there_is_room_for_one_correction_at_least_and_two_of_all_pairs_at_most():
    assert near_capacity(5, basis_size=100, room=0.0) == 6
    assert near_capacity(5, basis_size=100, room=math.inf) == 3 * 5 + SPARE
    assert near_capacity(5, basis_size=12, room=math.inf) == 12
    assert near_capacity(5, basis_size=100, room=23.0) == 10  # each with its product, and three beside
