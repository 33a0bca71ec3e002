"""Estimates cover the truth at the rate their error states."""

import math

import jaxtyping
import pytest
import torch
from torch.testing import assert_close

from ritz.errors import ArgumentError, ConvergenceWarning, NumericalError
from ritz.operators import Operator
from ritz.solvers import basis as vectors
from ritz.solvers.estimates import condition_number, effective_rank, hutchinson, log_determinant, negative_mass, trace


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def linspace(low, high, num):
    return torch.linspace(low, high, num, dtype=torch.float64)


def with_eigenvalues(eigenvalues, seed=0, dtype=torch.float64):
    n, generator = len(eigenvalues), torch.Generator().manual_seed(seed)
    Q, _ = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64))
    A = (Q * eigenvalues.double()) @ Q.T
    return Operator.from_matrix(((A + A.T) / 2).to(dtype))


def coverage(estimate, truth, num_runs=60):
    """The share of runs whose truth lies within two standard errors."""
    runs = [estimate(torch.Generator().manual_seed(seed)) for seed in range(num_runs)]
    return sum(abs(run.value - truth) <= 2 * run.standard_error for run in runs) / num_runs


DECAY = torch.arange(1, 301, dtype=torch.float64) ** -1.5
FLAT = linspace(0.5, 1.5, 300)
INDEFINITE = torch.randn(300, generator=torch.Generator().manual_seed(3), dtype=torch.float64) + 0.5
OUTLIERS = torch.cat([linspace(3, 10, 10), 0.05 * linspace(0, 1, 290)])


def leave_one_out_by_hand(A, omega):
    """XTrace as it is defined: a new basis and a new residual for every probe left out."""
    M, (m, n), estimates = A.dense(), omega.shape, []
    for i in range(m):
        others, w = omega[torch.arange(m) != i].T, omega[i]
        Q, _ = torch.linalg.qr(M @ others)
        x = w - Q @ (Q.T @ w)
        estimates.append(torch.trace(Q.T @ M @ Q) + (n - m + 1) / (x @ x) * (x @ M @ x))
    return float(torch.stack(estimates).mean())


@pytest.mark.parametrize("eigenvalues", [DECAY, FLAT, INDEFINITE, OUTLIERS])
def test_the_trace_is_the_mean_of_the_leave_one_out_estimates(eigenvalues):
    A = with_eigenvalues(eigenvalues)
    omega = vectors.gaussian(A, 12, torch.Generator().manual_seed(1))
    found = trace(A, num_products=24, generator=torch.Generator().manual_seed(1))
    assert found.value == pytest.approx(leave_one_out_by_hand(A, omega), rel=1e-9)
    assert found.num_products == 24


@pytest.mark.parametrize("eigenvalues", [DECAY, FLAT, INDEFINITE, OUTLIERS])
@pytest.mark.parametrize("num_products", [30, 80])
def test_the_trace_lies_within_its_error(eigenvalues, num_products):
    A = with_eigenvalues(eigenvalues)
    estimate = lambda generator: trace(A, num_products=num_products, generator=generator)
    assert coverage(estimate, float(eigenvalues.sum())) >= 0.87  # 95 % of 60 runs, less three standard deviations


def test_the_error_of_the_trace_is_not_exaggerated():
    A, truth = with_eigenvalues(FLAT), float(FLAT.sum())
    runs = [trace(A, num_products=40, generator=torch.Generator().manual_seed(seed)) for seed in range(60)]
    scatter = math.sqrt(sum((run.value - truth) ** 2 for run in runs) / 60)
    assert sum(run.standard_error for run in runs) / 60 < 2 * scatter


def test_the_trace_stops_at_its_tolerance(generator):
    A, columns = with_eigenvalues(DECAY), []
    watched = Operator(lambda V: columns.append(V.shape[1]) or A @ V, A.size, A.dtype, A.device)
    found = trace(watched, tolerance=0.02, generator=generator)
    assert found.standard_error <= 0.02 * found.value and found.num_products == sum(columns) < 200
    assert found.value == pytest.approx(float(DECAY.sum()), rel=0.06)


def test_growing_the_sketch_is_starting_with_all_probes(generator):
    A = with_eigenvalues(DECAY)
    grown = trace(A, tolerance=1e-9, num_products=64, generator=torch.Generator().manual_seed(2))
    probes = vectors.gaussian(A, 32, torch.Generator().manual_seed(2))
    assert grown.num_products == 64
    assert grown.value == pytest.approx(leave_one_out_by_hand(A, probes), rel=0.1)
    assert grown.value == pytest.approx(float(DECAY.sum()), abs=4 * grown.standard_error)


def test_as_many_products_as_n_give_the_exact_trace(generator):
    A = with_eigenvalues(INDEFINITE[:70])
    found = trace(A, num_products=70, generator=generator)
    assert found.value == pytest.approx(float(INDEFINITE[:70].sum())) and found.standard_error == 0
    assert found.num_products == 70 and trace(A, generator=generator).standard_error == 0


@pytest.mark.parametrize("rank", [0, 1, 5])
def test_the_trace_of_a_low_rank_operator_is_exact(rank, generator):
    eigenvalues = torch.cat([torch.arange(1.0, rank + 1), torch.zeros(300 - rank)])
    found = trace(with_eigenvalues(eigenvalues), num_products=20, generator=generator)
    assert found.value == pytest.approx(float(eigenvalues.sum()), abs=1e-10)
    assert found.standard_error < 1e-9


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_scaling_the_operator_scales_its_estimates(scale):
    for estimate in (trace, hutchinson):
        plain, scaled = (
            estimate(with_eigenvalues(s * DECAY), num_products=20, generator=torch.Generator().manual_seed(0))
            for s in (1.0, scale)
        )
        assert scaled.value / scale == pytest.approx(plain.value, rel=1e-6)
        assert scaled.standard_error / scale == pytest.approx(plain.standard_error, rel=1e-6)


def test_float32_operators_have_their_trace(generator):
    found = trace(with_eigenvalues(OUTLIERS, dtype=torch.float32), num_products=60, generator=generator)
    assert abs(found.value - float(OUTLIERS.sum())) < 3 * found.standard_error + 1e-4


def test_a_trace_that_misses_its_default_tolerance_warns(generator):
    A = with_eigenvalues(torch.cat([linspace(0.5, 1, 200), -linspace(0.5, 1, 200)]))
    with pytest.warns(ConvergenceWarning, match="num_products"):
        trace(A, generator=generator)


def test_hutchinson_is_exact_on_diagonal_matrices(generator):
    found = hutchinson(Operator.from_matrix(torch.diag(DECAY)), num_products=3, generator=generator)
    assert found.value == pytest.approx(float(DECAY.sum())) and found.standard_error < 1e-12


@pytest.mark.parametrize("eigenvalues", [FLAT, INDEFINITE])
def test_hutchinson_lies_within_its_error(eigenvalues):
    A = with_eigenvalues(eigenvalues)
    rate = coverage(lambda generator: hutchinson(A, num_products=60, generator=generator), float(eigenvalues.sum()))
    assert rate >= 0.87


def test_one_probe_has_no_error(generator):
    A = with_eigenvalues(FLAT)
    few = [hutchinson(A, num_products=1, generator=generator), effective_rank(A, num_products=1, generator=generator)]
    few += [trace(A, num_products=p, generator=generator) for p in (1, 2, 3)]
    few += [log_determinant(A, num_probes=1, generator=generator)]
    for estimate in few:
        with pytest.raises(ArgumentError, match="one probe"):
            estimate.standard_error


@pytest.mark.parametrize("eigenvalues", [DECAY, FLAT, INDEFINITE])
def test_effective_rank_lies_within_its_error(eigenvalues):
    A, truth = with_eigenvalues(eigenvalues), float(eigenvalues.sum() ** 2 / eigenvalues.square().sum())
    assert coverage(lambda generator: effective_rank(A, num_products=200, generator=generator), truth) >= 0.87


def test_effective_rank_counts_equal_eigenvalues(generator):
    eigenvalues = torch.cat([torch.full((30,), 2.0), torch.zeros(170)])
    found = effective_rank(with_eigenvalues(eigenvalues), num_products=2000, generator=generator)
    assert abs(found.value - 30) < 4 * found.standard_error and found.standard_error < 1
    assert effective_rank(with_eigenvalues(torch.zeros(50)), generator=generator).value == 0.0


@pytest.mark.parametrize("damping", [0.0, 2.0])
def test_log_determinant_lies_within_its_error(damping):
    A, truth = with_eigenvalues(FLAT), float((FLAT + damping).log().sum())
    estimate = lambda generator: log_determinant(A, damping=damping, num_steps=20, num_probes=20, generator=generator)
    assert coverage(estimate, truth, 40) >= 0.82


@pytest.mark.parametrize("num_steps", [4, 10, 30, 60])
@pytest.mark.parametrize("spectrum", ["logarithmic", "linear", "cubic"])
def test_log_determinant_lies_within_its_error_where_the_quadrature_is_far_from_done(spectrum, num_steps):
    t = linspace(0, 1, 300)
    eigenvalues = {"logarithmic": 10 ** (6 * t - 6), "linear": t + 1e-6, "cubic": t**3 + 1e-6}[spectrum]  # κ = 10⁶
    A, truth = with_eigenvalues(eigenvalues), float(eigenvalues.log().sum())
    estimate = lambda generator: log_determinant(A, num_steps=num_steps, generator=generator)
    assert coverage(estimate, truth, 30) >= 0.83


def test_a_quadrature_that_is_done_adds_nothing_to_the_error(generator):
    A, probes = with_eigenvalues(FLAT), vectors.gaussian(with_eigenvalues(FLAT), 8, torch.Generator().manual_seed(0))
    found = log_determinant(A, num_steps=60, generator=generator)
    V = probes / probes.norm(dim=1, keepdim=True)
    values, U = torch.linalg.eigh(A.dense())
    samples = 300 * ((V @ U).square() * values.log()).sum(1)
    assert found.standard_error == pytest.approx(float(samples.std()) / 8**0.5, rel=1e-6)
    identity = log_determinant(Operator.from_matrix(2 * torch.eye(300, dtype=torch.float64)), num_steps=1)
    assert identity.standard_error == pytest.approx(0, abs=1e-9)
    assert log_determinant(A, num_steps=1).standard_error > 5  # one node sees the mean alone


def test_log_determinant_counts_its_products(generator):
    A, columns = with_eigenvalues(FLAT), []
    watched = Operator(lambda V: columns.append(V.shape[1]) or A @ V, A.size, A.dtype, A.device)
    assert log_determinant(watched, num_steps=15, generator=generator).num_products == sum(columns)


@pytest.mark.parametrize("eigenvalues", [INDEFINITE, OUTLIERS * 0, torch.cat([torch.ones(5), torch.zeros(295)])])
def test_what_is_not_positive_definite_has_no_log_determinant_or_condition_number(eigenvalues, generator):
    A = with_eigenvalues(eigenvalues)
    for quantity in (log_determinant, condition_number):
        with pytest.raises(NumericalError, match="damping") as caught:
            quantity(A, generator=generator)
        assert caught.value.seen and caught.value.why and caught.value.ways_out
        assert quantity(A, damping=10.0, generator=generator).value > 0


CROWDED = 0.1 * torch.randn(400, generator=torch.Generator().manual_seed(4), dtype=torch.float64) ** 3


@pytest.mark.parametrize(
    "eigenvalues", [torch.cat([linspace(-2, -0.5, 90), linspace(0.5, 3, 210)]), INDEFINITE, CROWDED]
)
@pytest.mark.parametrize("num_steps", [10, 60])
def test_negative_mass_lies_within_its_error(eigenvalues, num_steps):
    A, truth = with_eigenvalues(eigenvalues), float((eigenvalues < 0).double().mean())
    estimate = lambda generator: negative_mass(A, num_steps=num_steps, num_probes=12, generator=generator)
    assert coverage(estimate, truth, 40) >= 0.82


def test_negative_mass_is_exact_where_the_krylov_space_is_exhausted(generator):
    eigenvalues = torch.cat([torch.full((30,), -1.0), torch.full((70,), 2.0)])
    runs = [negative_mass(with_eigenvalues(eigenvalues), num_probes=50, generator=generator) for _ in range(5)]
    assert all(abs(run.value - 0.3) < 4 * run.standard_error and run.standard_error < 0.02 for run in runs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zeros_of_a_rank_deficient_operator_are_not_negative(dtype, generator):
    eigenvalues = torch.cat([linspace(1, 2, 20), torch.zeros(280)])
    assert negative_mass(with_eigenvalues(eigenvalues, dtype=dtype), generator=generator).value == 0.0
    found = negative_mass(with_eigenvalues(-eigenvalues, dtype=dtype), num_probes=40, generator=generator)
    assert abs(found.value - 20 / 300) < 4 * found.standard_error


@pytest.mark.parametrize("low, n", [(1.0, 50), (0.5, 400), (1e-3, 400)])
def test_condition_number_is_the_ratio_of_both_ends(low, n):
    found = condition_number(with_eigenvalues(linspace(low, 10, n)))
    assert found.value == pytest.approx(10 / low, rel=0.01) and found.standard_error <= 0.01 * found.value


@pytest.mark.parametrize("n, most", [(300, 300), (900, 1400)])
def test_a_condition_number_of_a_million_is_found_where_n_products_are_allowed(n, most):
    found = condition_number(with_eigenvalues(torch.logspace(-6, 0, n, dtype=torch.float64)))
    assert found.value == pytest.approx(1e6, rel=1e-6) and found.num_products <= most


def test_damping_moves_both_ends():
    found = condition_number(with_eigenvalues(linspace(-1, 10, 300)), damping=2.0)
    assert found.value == pytest.approx(12.0, rel=0.01)


def test_a_condition_number_that_is_not_known_well_warns():
    with pytest.warns(ConvergenceWarning, match="max_products"):
        found = condition_number(with_eigenvalues(linspace(0.05, 1, 400)), max_products=70, tolerance=1e-9)
    assert abs(found.value - 20) < 2 * found.standard_error


def test_a_smallest_eigenvalue_of_unknown_sign_is_refused():
    A = with_eigenvalues(torch.logspace(-5, 0, 400, dtype=torch.float64))
    with pytest.raises(NumericalError, match="max_products"):
        condition_number(A, max_products=100)


def test_the_condition_number_of_the_identity_is_one():
    found = condition_number(Operator.from_matrix(torch.eye(200, dtype=torch.float64)))
    assert found.value == pytest.approx(1.0)
    assert condition_number(Operator.from_matrix(torch.full((1, 1), 3.0))).value == 1.0


@pytest.mark.parametrize("estimate", [trace, hutchinson, effective_rank])
def test_nan_products_and_senseless_budgets_are_refused(estimate, generator):
    A = Operator(lambda V: V * math.nan, 300, torch.float64, torch.device("cpu"))
    with pytest.raises(NumericalError, match="NaN"):
        estimate(A, num_products=20, generator=generator)
    with pytest.raises(ArgumentError, match="num_products=0"):
        estimate(A, num_products=0, generator=generator)


def test_estimates_repeat_with_their_generator():
    A = with_eigenvalues(DECAY)
    for estimate in (trace, hutchinson, effective_rank, negative_mass):
        first, again, other = (estimate(A, generator=torch.Generator().manual_seed(s)).value for s in (0, 0, 1))
        assert first == again and (first != other or estimate is negative_mass)


@pytest.mark.parametrize("estimate", [trace, hutchinson, effective_rank, log_determinant, negative_mass])
def test_without_a_generator_the_seed_is_zero(estimate):
    A = with_eigenvalues(FLAT)
    assert estimate(A).value == estimate(A, generator=torch.Generator().manual_seed(0)).value


@pytest.mark.parametrize(
    "estimate, wrong",
    [
        *((f, {"generator": 0}) for f in (trace, hutchinson, effective_rank, log_determinant, negative_mass)),
        *((f, {"num_products": 8.0}) for f in (trace, hutchinson, effective_rank)),
        *((f, {name: 8.0}) for f in (log_determinant, negative_mass) for name in ("num_steps", "num_probes")),
        *((f, {"damping": bad}) for f in (log_determinant, condition_number) for bad in (math.nan, math.inf)),
        *((f, {"tolerance": bad}) for f in (trace, negative_mass, condition_number) for bad in (-1.0, math.nan)),
        *((condition_number, {"max_products": 100.0}), (condition_number, {"generator": 0})),
        *((log_determinant, {"num_steps": 0}), (log_determinant, {"num_probes": 0})),
    ],
)
def test_arguments_that_make_no_sense_are_refused_by_name(estimate, wrong, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users run it
    with pytest.raises(ArgumentError, match=next(iter(wrong))) as caught:
        estimate(with_eigenvalues(FLAT), **wrong)
    assert caught.value.seen and caught.value.why and caught.value.ways_out


def test_inner_products_are_summed_in_float64():
    ones = torch.full((1, 3 * 2**20), 0.1, dtype=torch.float32)
    exact = ones.double().square().sum()
    assert_close(vectors.inner(ones, ones)[0, 0], exact, rtol=1e-10, atol=0)
