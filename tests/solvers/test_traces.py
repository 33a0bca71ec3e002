"""Traces cover the truth at the rate their error states."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from ritz.errors import ConvergenceWarning
from ritz.operators import Operator
from ritz.solvers import hutchinson, trace
from ritz.solvers.probes import gaussian, student_factor
from ritz.solvers.sketches import Sketch, _beside
from ritz.solvers.split_traces import _combined_mean

from .spectra import (
    DECAY,
    FLAT,
    INDEFINITE,
    KINDS,
    OUTLIERS,
    coverage,
    kinds,
    linspace,
    rotated,
    runs,
    with_eigenvalues,
)


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
    omega = gaussian(A, 12, torch.Generator().manual_seed(1))
    sketch = Sketch.empty(A).with_probes(A, omega)
    assert sketch.trace().mean == pytest.approx(leave_one_out_by_hand(A, omega), rel=1e-9)
    result = trace(A, num_products=24, generator=torch.Generator().manual_seed(1))
    assert result.num_products == 24
    if eigenvalues is DECAY:
        assert result.value == pytest.approx(sketch.trace().mean, rel=1e-12)


@pytest.mark.parametrize(
    "eigenvalues, least, most", [(DECAY, 0.8, 1.2), (OUTLIERS, 0.6, 1.2), (FLAT, 0.6, 0.9), (INDEFINITE, 0.6, 0.9)]
)
@pytest.mark.usefixtures("unchecked")
def test_products_go_where_they_lower_the_error(eigenvalues, least, most):
    """Into a sketch where the spectrum decays, and into samples where it is flat: against a sketch alone."""
    A, truth = with_eigenvalues(eigenvalues), float(eigenvalues.sum())
    alone = lambda generator: Sketch.empty(A).with_probes(A, gaussian(A, 30, generator)).trace().estimate(60)
    split, sketched = (runs(f, 100)[0] - truth for f in (lambda g: trace(A, num_products=60, generator=g), alone))
    assert least < float(split.square().mean().sqrt() / sketched.square().mean().sqrt()) < most


@pytest.mark.parametrize("eigenvalues", [DECAY, FLAT, INDEFINITE, OUTLIERS])
@pytest.mark.parametrize("num_products", [30, 80])
def test_the_trace_lies_within_its_error(eigenvalues, num_products):
    A = with_eigenvalues(eigenvalues)
    estimate = lambda generator: trace(A, num_products=num_products, generator=generator)
    assert coverage(estimate, float(eigenvalues.sum())) >= 0.87  # 95 % of 60 runs, less three standard deviations


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("unchecked")
def test_the_error_of_the_trace_is_neither_exaggerated_nor_too_small(kind):
    eigenvalues = kinds(200)[kind]
    A, truth = with_eigenvalues(eigenvalues), float(eigenvalues.sum())
    values, errors = runs(lambda generator: trace(A, num_products=40, generator=generator), 200)
    misses = values - truth
    assert 0.85 < float(errors.square().mean().sqrt() / misses.square().mean().sqrt()) < 1.3
    assert float((misses.abs() <= 2 * errors).double().mean()) >= 0.91  # 95 %, less three standard deviations


def test_the_trace_stops_at_its_tolerance(generator):
    A, columns = with_eigenvalues(DECAY), []
    watched = Operator(lambda V: columns.append(V.shape[1]) or A @ V, A.size, A.dtype, A.device)
    result = trace(watched, tolerance=0.02, generator=generator)
    assert result.standard_error <= 0.02 * result.value and result.num_products == sum(columns) < 200
    assert result.value == pytest.approx(float(DECAY.sum()), rel=0.06)


def test_growing_the_sketch_is_starting_with_all_probes(generator):
    A = with_eigenvalues(DECAY)
    grown = trace(A, tolerance=1e-9, num_products=64, generator=torch.Generator().manual_seed(2))
    probes = gaussian(A, 32, torch.Generator().manual_seed(2))
    assert grown.num_products == 64
    assert grown.value == pytest.approx(leave_one_out_by_hand(A, probes), rel=1e-12)
    assert grown.value == pytest.approx(float(DECAY.sum()), abs=4 * grown.standard_error)


def test_as_many_products_as_n_give_the_exact_trace(generator):
    A = with_eigenvalues(INDEFINITE[:70])
    result = trace(A, num_products=70, generator=generator)
    assert result.value == pytest.approx(float(INDEFINITE[:70].sum())) and result.standard_error == 0
    assert result.num_products == 70 and trace(A, generator=generator).standard_error == 0


@pytest.mark.parametrize("rank", [0, 1, 5])
def test_the_trace_of_a_low_rank_operator_is_exact(rank, generator):
    eigenvalues = torch.cat([torch.arange(1.0, rank + 1), torch.zeros(300 - rank)])
    result = trace(with_eigenvalues(eigenvalues), num_products=20, generator=generator)
    assert result.value == pytest.approx(float(eigenvalues.sum()), abs=1e-10)
    assert result.standard_error < 1e-9


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_scaling_the_operator_scales_its_estimates(scale):
    for estimate in (trace, hutchinson):
        plain, scaled = (
            estimate(with_eigenvalues(s * DECAY), num_products=20, generator=torch.Generator().manual_seed(0))
            for s in (1.0, scale)
        )
        assert scaled.value / scale == pytest.approx(plain.value, rel=1e-10)
        assert scaled.standard_error / scale == pytest.approx(plain.standard_error, rel=1e-10)


def test_float32_operators_have_their_trace(generator):
    result = trace(with_eigenvalues(OUTLIERS, dtype=torch.float32), num_products=60, generator=generator)
    assert abs(result.value - float(OUTLIERS.sum())) < 3 * result.standard_error + 1e-4


def test_a_trace_that_misses_its_default_tolerance_warns(generator):
    A = with_eigenvalues(torch.cat([linspace(0.5, 1, 200), -linspace(0.5, 1, 200)]))
    with pytest.warns(ConvergenceWarning, match="num_products"):
        trace(A, generator=generator)


def test_hutchinson_is_exact_on_diagonal_matrices(generator):
    result = hutchinson(Operator.from_matrix(torch.diag(DECAY)), num_products=3, generator=generator)
    assert result.value == pytest.approx(float(DECAY.sum())) and result.standard_error < 1e-12


@pytest.mark.parametrize("eigenvalues", [FLAT, INDEFINITE])
def test_hutchinson_lies_within_its_error(eigenvalues):
    A = with_eigenvalues(eigenvalues)
    rate = coverage(lambda generator: hutchinson(A, num_products=60, generator=generator), float(eigenvalues.sum()))
    assert rate >= 0.87


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("variance, spread, freedom", [(0.3, 0.0, 4), (0.0, 1.0, 2), (25.0, 0.0, 4)])
def test_an_error_of_two_kinds_has_the_freedom_of_the_kind_that_makes_it(variance, spread, freedom):
    """Five probes in a sketch and three samples, of which one kind alone varies: Student's factor is that kind's."""
    own = SimpleNamespace(mean=7.0, variance=variance)
    samples = 7.0 + spread * torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    found = _combined_mean(SimpleNamespace(trace=lambda: own, omega=torch.zeros(5, 9)), samples)
    error = math.sqrt((5 / 8) ** 2 * variance + (3 / 8) ** 2 * spread**2 / 3)
    assert found.standard_error == pytest.approx(student_factor(1 + freedom) * error)
    assert (found.value, found.num_products) == (pytest.approx(7.0), 13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rank", [3, 7, 10])
def test_a_sketch_that_outgrows_the_rank_counts_nothing_twice(rank, dtype):
    eigenvalues = torch.cat([linspace(5, 10, rank), torch.zeros(1000 - rank)])
    A = rotated(eigenvalues, dtype=dtype)
    for seed in range(10):
        estimate = trace(A, num_products=40, generator=torch.Generator().manual_seed(seed))
        slack = 1e2 * torch.finfo(dtype).eps * 7.5 * rank
        assert abs(estimate.value - 7.5 * rank) <= 4 * estimate.standard_error + slack
        assert estimate.standard_error <= 1e-2


def test_new_directions_are_orthogonal_to_those_that_have_everything():
    rows = torch.randn(12, 400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Q = torch.linalg.qr(rows[:8].T).Q.T.contiguous()
    Y = rows[8:] @ Q.T @ Q
    new, above, below = _beside(Q, Y)
    whole = torch.cat([Q, new])
    assert_close(whole @ whole.T, torch.eye(12, dtype=torch.float64), atol=1e-12, rtol=0)
    assert_close(above.T @ Q + below.T @ new, Y, atol=1e-12, rtol=0)
