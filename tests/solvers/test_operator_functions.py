"""f(A) v is that of the eigenvectors, within an error that does not flatter."""

import math

import pytest
import torch
from torch.testing import assert_close

from ritz.errors import ArgumentError, ConvergenceWarning, NumericalError
from ritz.solvers import function, solve

from .memory import diagonal, peak_vectors, with_room
from .spectra import KINDS, counted, kinds, linspace, random, rotated, with_eigenvalues

FUNCTIONS = {
    "exp(-t)": lambda t: torch.exp(-t),
    "root": lambda t: t.clamp(min=0).sqrt(),
    "inverse root": lambda t: (t.abs() + 0.01).rsqrt(),
    "logarithm": lambda t: (t.clamp(min=0) + 1e-3).log(),
    "|t|": torch.abs,
    "step": lambda t: torch.sign(t - 0.0517),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vectors, max_steps", [(math.inf, 5), (math.inf, 15), (20.0, 15), (math.inf, 60), (20.0, 60)])
@pytest.mark.filterwarnings("ignore::ritz.errors.ConvergenceWarning")
@pytest.mark.usefixtures("unchecked")
def test_the_error_of_a_function_of_an_operator_is_at_least_two_thirds_of_the_true_one(
    kind, vectors, max_steps, generator
):
    """With a basis, and in two runs where there is no room for one; converged or not."""
    eigenvalues = kinds(300)[kind]
    A, v = with_room(rotated(eigenvalues), vectors), random(300, 2, generator=generator)
    for name, f in FUNCTIONS.items():
        result = function(A, f, v, tolerance=1e-8, max_steps=max_steps)
        exact = rotated(f(eigenvalues)) @ v
        misses = (result.x - exact).norm(dim=0)
        assert bool((misses <= 1.5 * result.errors + 1e-12 * exact.norm(dim=0)).all()), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore::ritz.errors.ConvergenceWarning")  # zero is below rounding
def test_a_function_of_an_operator_is_exact_where_the_krylov_space_is_exhausted(kind, dtype, generator):
    eigenvalues = kinds(40)[kind]
    A, v = with_eigenvalues(eigenvalues, dtype=dtype), random(40, generator=generator, dtype=dtype)
    result = function(A, torch.exp, v, tolerance=0.0)
    values, U = torch.linalg.eigh(A.dense().double())
    exact, eps = (U * values.exp()) @ (U.T @ v.double()), torch.finfo(dtype).eps
    assert float((result.x.double() - exact).norm()) <= 200 * eps * float(exact.norm())
    assert float(result.errors) <= 1e-4 * float(exact.norm()) and result.num_products <= 40


@pytest.mark.parametrize("name, f", [("exp(-t)", lambda t: torch.exp(-t)), ("step", lambda t: (t < 100).double())])
@pytest.mark.parametrize("max_steps", [60, None])
def test_a_function_of_small_eigenvalues_alone_is_not_taken_for_zero(name, f, max_steps, generator):
    """All Ritz values of the first ten steps are so large that f is zero there."""
    eigenvalues = 10 ** linspace(-3, 6, 2000)
    v = random(2000, generator=generator)
    with pytest.warns(ConvergenceWarning):
        result = function(diagonal(eigenvalues, torch.float64), f, v, max_steps=max_steps)
    assert float((result.x - f(eigenvalues) * v).norm()) <= 1.5 * float(result.errors)


def test_an_even_function_that_is_steep_at_a_zero_eigenvalue_is_as_uncertain_as_it_is_steep(generator):
    """The zeros of a float32 matrix are Ritz values of 1e-9, where log |λ| is far from what it is at zero."""
    f, eigenvalues = lambda t: (t.abs() + 1e-12).log(), torch.cat([linspace(1, 1, 1), linspace(0, 0, 999)])
    v = random(1000, generator=generator, dtype=torch.float32)
    with pytest.warns(ConvergenceWarning):
        result = function(rotated(eigenvalues, dtype=torch.float32), f, v)
    off = float((result.x.double() - rotated(f(eigenvalues)) @ v.double()).norm())
    assert 10 < off <= 1.5 * float(result.errors[0])


def test_the_tolerance_decides_the_number_of_steps(generator):
    A, v = rotated(linspace(0.01, 1, 600)), random(600, 3, generator=generator)
    rough, fine = (function(A, torch.sqrt, v, tolerance=tolerance) for tolerance in (1e-3, 1e-8))
    exact = rotated(linspace(0.01, 1, 600).sqrt()) @ v
    assert rough.num_products < fine.num_products
    for result, tolerance in [(rough, 1e-3), (fine, 1e-8)]:
        assert float(((result.x - exact).norm(dim=0) / exact.norm(dim=0)).max()) <= tolerance
        assert float((result.errors / exact.norm(dim=0)).max()) <= tolerance


def test_two_runs_cost_twice_the_products_and_give_the_same(generator):
    A, v = rotated(linspace(0.5, 1, 600)), random(600, 2, generator=generator)
    (plain, calls), (tight, more) = counted(A), counted(with_room(A, 20.0))
    one, two = function(plain, torch.log, v), function(with_room(tight, 20.0), torch.log, v)
    assert_close(one.x, two.x, atol=1e-10, rtol=0)
    assert one.num_products == sum(calls) and two.num_products == sum(more) == 2 * one.num_products - 2


def test_the_inverse_is_the_solution(generator):
    A, v = rotated(linspace(0.1, 1, 600)), random(600, generator=generator)
    result = function(A, torch.reciprocal, v, tolerance=1e-6)
    assert_close(result.x, solve(A, v, tolerance=1e-10).x, atol=1e-4, rtol=0)
    assert result.x.shape == v.shape and "1 vector" in repr(result) and len(result) == 1
    nothing = function(A, torch.exp, 0 * v)
    assert float(nothing.x.norm()) == 0 == nothing.num_products


@pytest.mark.filterwarnings("ignore::ritz.errors.ConvergenceWarning")  # rounding of 100 is rounding of its exponential
def test_a_function_that_is_too_large_for_its_precision_is_refused():
    A, v = rotated(linspace(0, 100, 50), dtype=torch.float32), torch.ones(50)
    with pytest.raises(NumericalError, match=r"f\(A\) v has entries beyond 3.4e\+38"):
        function(A, torch.exp, v)
    x = function(A, lambda t: torch.exp(t - 100), v).x
    assert_close(x.double(), rotated(torch.exp(linspace(-100, 0, 50))) @ v.double(), atol=1e-4, rtol=0)


def test_a_function_that_does_not_converge_warns(generator):
    A, v = rotated(linspace(-1, 1, 600)), random(600, generator=generator)
    with pytest.warns(ConvergenceWarning, match="max_steps"):
        result = function(A, torch.sign, v, max_steps=20)
    assert float(result.errors) > 0.01 * float(result.x.norm())


def test_a_function_that_is_not_finite_at_ritz_values_is_refused(generator):
    A, v = rotated(linspace(-1, 1, 600)), random(600, generator=generator)
    with pytest.raises(NumericalError, match="Ritz values"):
        function(A, torch.log, v)
    assert bool(function(A + 1.5, torch.log, v).x.isfinite().all())  # the first way out
    with pytest.raises(NumericalError, match="shape"):
        function(A, lambda t: t.sum(), v)


@pytest.mark.parametrize(
    "wrong",
    [{"v": torch.ones(9)}, {"v": torch.ones(10)}, {"v": torch.full((10,), math.nan).double()}, {"tolerance": -1.0},
     {"max_steps": 0}, {"max_steps": 1.5}],
    ids=str,
)  # fmt: skip
@pytest.mark.usefixtures("unchecked")
def test_arguments_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        function(with_eigenvalues(linspace(0, 1, 10)), torch.exp, **{"v": torch.ones(10).double(), **wrong})


def test_without_a_basis_few_vectors_are_kept():
    size = 200_000
    A, v = with_room(diagonal(linspace(0.9, 1, size)), 6.0), torch.ones(size, 2)
    assert peak_vectors(lambda: function(A, torch.sqrt, v, tolerance=1e-3), size) <= 6 + 2 + 2.1  # x, and v's copy
