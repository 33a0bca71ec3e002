"""Condition numbers lie within what the residuals of both ends allow."""

import pytest
import torch

from ritz.errors import ConvergenceWarning, NumericalError
from ritz.operators import Operator
from ritz.solvers import condition_number

from .spectra import counted, linspace, rotated, with_eigenvalues


@pytest.mark.parametrize("low, n", [(1.0, 50), (0.5, 400), (1e-3, 400)])
def test_condition_number_is_the_ratio_of_both_ends(low, n):
    result = condition_number(with_eigenvalues(linspace(low, 10, n)))
    assert result.value == pytest.approx(10 / low, rel=1e-9) and result.standard_error <= 0.01 * result.value


@pytest.mark.parametrize("n, most", [(300, 300), (900, 1400)])
def test_a_condition_number_of_a_million_is_found_where_n_products_are_allowed(n, most):
    result = condition_number(with_eigenvalues(torch.logspace(-6, 0, n, dtype=torch.float64)))
    assert result.value == pytest.approx(1e6, rel=1e-6) and result.num_products <= most


def test_damping_moves_both_ends():
    result = condition_number(with_eigenvalues(linspace(-1, 10, 300)), damping=2.0)
    assert result.value == pytest.approx(12.0, rel=1e-9)


def test_a_condition_number_that_is_not_known_well_warns():
    with pytest.warns(ConvergenceWarning, match="max_products"):
        result = condition_number(with_eigenvalues(linspace(0.05, 1, 400)), max_products=70, tolerance=1e-9)
    assert abs(result.value - 20) < 2 * result.standard_error


def test_a_smallest_eigenvalue_of_unknown_sign_is_refused():
    A = with_eigenvalues(torch.logspace(-5, 0, 400, dtype=torch.float64))
    with pytest.raises(NumericalError, match="max_products"):
        condition_number(A, max_products=100)


def test_the_condition_number_of_the_identity_is_one():
    result = condition_number(Operator.from_matrix(torch.eye(200, dtype=torch.float64)))
    assert result.value == pytest.approx(1.0)
    assert condition_number(Operator.from_matrix(torch.full((1, 1), 3.0))).value == 1.0


def test_ends_that_a_search_finds_cost_less_than_the_whole_matrix():
    result = condition_number(rotated(linspace(1, 2, 900)))
    assert result.value == pytest.approx(2.0, abs=2 * result.standard_error) and result.num_products < 200


def test_an_eigenvalue_that_is_surely_negative_is_refused_without_a_closer_look():
    one = torch.ones(1, dtype=torch.float64)
    A, calls = counted(rotated(torch.cat([-3 * one, linspace(0, 1, 2498), 5 * one])))
    with pytest.raises(NumericalError, match="-3"):
        condition_number(A)
    assert sum(calls) <= 20
