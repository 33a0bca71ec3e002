"""Log-determinants cover the truth at the rate their error states, and are refused where there is none."""

import math

import pytest
import torch

from ritz.errors import NumericalError
from ritz.operators import Operator
from ritz.solvers import log_determinant

from .memory import with_room
from .spectra import FLAT, KINDS, counted, coverage, kinds, linspace, rotated, runs, with_eigenvalues


def positive(kind, n):
    """The kinds of spectra, moved so that none is below 1/20 of its largest value."""
    eigenvalues = kinds(n)[kind]
    return eigenvalues - eigenvalues.min() + eigenvalues.abs().max() / 20


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("unchecked")
def test_log_determinant_lies_within_its_error(kind):
    eigenvalues = positive(kind, 600)
    A, truth = rotated(eigenvalues), float(eigenvalues.log().sum())
    estimate = lambda generator: log_determinant(A, num_steps=16, num_probes=6, generator=generator)
    values, errors = runs(estimate, 100)
    misses = values - truth
    assert float((misses.abs() <= 2 * errors + 1e-9).double().mean()) >= 0.89  # 95 %, less three standard deviations
    most = 1.6 if kind == "1/k²" else 1.4  # few eigenvalues decide: the truth may lie further above than below
    assert float(errors.mean()) < most * float(misses.square().mean().sqrt()) + 1e-9


@pytest.mark.parametrize("spectrum, num_steps", [("logarithmic", 6), ("linear", 4), ("cubic", 12)])
@pytest.mark.usefixtures("unchecked")
def test_log_determinant_lies_within_its_error_where_the_quadrature_is_far_from_done(spectrum, num_steps):
    t = linspace(0, 1, 1100)
    eigenvalues = {"logarithmic": 10 ** (2 * t - 2), "linear": t + 1e-3, "cubic": t**3 + 1e-2}[spectrum]
    A, truth = rotated(eigenvalues), float(eigenvalues.log().sum())
    values, errors = runs(lambda generator: log_determinant(A, num_steps=num_steps, generator=generator), 2)
    assert bool(((values - truth).abs() <= 2.5 * errors).all())


def test_a_quadrature_that_is_done_has_the_error_of_its_probes_alone(generator):
    A = rotated(linspace(0.5, 1.5, 600))
    scatter = math.sqrt(2 * 600 / 602) * float((linspace(0.5, 1.5, 600)).log().std()) * math.sqrt(600)
    result = log_determinant(A, num_steps=50, generator=generator)
    assert result.standard_error == pytest.approx(scatter / 8**0.5, rel=0.1)
    identity = log_determinant(rotated(torch.full((600,), 2.0)), num_steps=1)
    assert identity.standard_error == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("num_probes", [2, 3])
def test_the_error_of_a_log_determinant_knows_how_few_eigenvalues_decide(num_probes):
    A, truth = rotated(torch.cat([linspace(5, 5, 1), linspace(0, 0, 1199)])), math.log(5.5) + 1199 * math.log(0.5)
    options = {"damping": 0.5, "num_steps": 16, "num_probes": num_probes}
    rate = coverage(lambda generator: log_determinant(A, **options, generator=generator), truth, 100)
    assert rate >= 0.9  # 0.73 and 0.82 by the variance that the probes show


def test_log_determinant_counts_its_products(generator):
    for A, num_steps in [(rotated(linspace(1, 2, 600)), 15), (with_eigenvalues(FLAT), 15), (rotated(DENSE_LOW), 15)]:
        watched, columns = counted(A)
        assert log_determinant(watched, num_steps=num_steps, generator=generator).num_products == sum(columns)


DENSE_LOW = linspace(0, 1, 600) + 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_small_log_determinant_is_exact(dtype):
    matrix = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=dtype)
    result = log_determinant(Operator.from_matrix(matrix))
    assert result.value == pytest.approx(math.log(1.75), rel=1e-6) and result.num_products == 2
    assert result.standard_error < 1e-5
    eigenvalues = 10 ** (3 * linspace(0, 1, 300) - 3)
    result = log_determinant(with_eigenvalues(eigenvalues, dtype=dtype), damping=1e-4, num_steps=4)
    assert abs(result.value - float((eigenvalues + 1e-4).log().sum())) <= 2 * result.standard_error + 1e-9


@pytest.mark.parametrize("n, num_steps", [(400, 128), (800, 20), (800, 128), (1050, 40)])
def test_one_zero_among_many_eigenvalues_has_no_log_determinant(n, num_steps):
    A = rotated(torch.cat([linspace(0.01, 1, n - 1), torch.zeros(1)]))
    with pytest.raises(NumericalError, match="damping"):
        log_determinant(A, num_steps=num_steps)
    assert log_determinant(A, damping=0.5, num_steps=num_steps).value < 0


def test_without_room_for_the_matrix_it_is_not_formed(generator):
    A = with_room(with_eigenvalues(FLAT), 60)
    result = log_determinant(A, num_steps=20, generator=generator)
    assert result.num_products == 160 and abs(result.value - float(FLAT.log().sum())) < 3 * result.standard_error


@pytest.mark.usefixtures("unchecked")
def test_a_single_step_has_no_error_to_state():
    A = rotated(linspace(0.01, 1, 2100) ** 2)
    one, two = (log_determinant(A, num_steps=m) for m in (1, 2))
    assert not one.has_error and two.has_error  # 0 ± 200 held the truth in no run


@pytest.mark.usefixtures("unchecked")
def test_a_few_steps_are_not_extrapolated_from_a_single_one():
    u = linspace(-1, 1, 1052)[1:-1]
    tails = u / (1 - u.square()).sqrt()  # the quantiles of Student's distribution with two degrees of freedom
    eigenvalues = 1e-4 + (tails - tails[0]) / (tails[-1] - tails[0])
    A, truth = rotated(eigenvalues), float(eigenvalues.log().sum())
    assert coverage(lambda generator: log_determinant(A, num_steps=4, generator=generator), truth, 30) >= 0.9
