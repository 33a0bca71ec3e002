"""Knockouts against their definitions in dense matrices, square or not, of full rank or less."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from ritz import Operator, low_rank
from ritz.classes import knockouts as knockout
from ritz.errors import ArgumentError, NumericalError
from ritz.testing import check_operator
from tests.seeds import normal

SHAPES = [(7, 7), (9, 4), (4, 9), (1, 5)]


def of_rank(shape, rank, seed=1):
    return normal(shape[0], rank, seed=seed) @ normal(rank, shape[1], seed=seed + 1)


def projected(A, B):
    """(I - B B⁺) A (I - B⁺ B) as it is written."""
    pseudo = torch.linalg.pinv(B, rtol=1e-12)
    eye = lambda n: torch.eye(n, dtype=A.dtype)
    return (eye(len(B)) - B @ pseudo) @ A @ (eye(B.shape[1]) - pseudo @ B)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rank", [0, 1, 3])
def test_matrices_are_projected_as_defined(shape, rank):
    A, B = normal(*shape), of_rank(shape, min(rank, *shape))
    assert_close(knockout.project(A, B), projected(A, B), rtol=1e-10, atol=1e-12)
    assert_close(knockout.subtract(A, B), A - B)


def test_only_the_directions_of_non_zero_singular_values_go():
    A, B = normal(6, 4), of_rank((6, 4), 2)
    left = knockout.project(A, B)
    assert torch.linalg.matrix_rank(left, rtol=1e-10) == 2  # with all singular vectors nothing would be left
    assert (B.T @ left).abs().max() < 1e-13 and (left @ B.T).abs().max() < 1e-13


def test_a_matrix_that_is_not_symmetric_loses_the_rows_of_its_own_range():
    A, B = normal(5, 5), of_rank((5, 5), 2)
    pseudo, eye = torch.linalg.pinv(B, rtol=1e-12), torch.eye(5, dtype=torch.float64)
    as_printed = (eye - B @ pseudo) @ A @ (eye - B @ pseudo)
    assert (knockout.project(A, B) - as_printed).abs().max() > 0.1
    S, T = A + A.T, B @ B.T
    by_columns = (eye - T @ torch.linalg.pinv(T, rtol=1e-12)) @ S @ (eye - T @ torch.linalg.pinv(T, rtol=1e-12))
    assert_close(knockout.project(S, T), by_columns, rtol=1e-10, atol=1e-12)  # for symmetric ones they are the same


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 8), st.integers(0, 1000))
def test_projecting_twice_is_projecting_once(rows, columns, rank, seed):
    A, B = normal(rows, columns, seed=seed), of_rank((rows, columns), min(rank, rows, columns), seed=seed + 1)
    once = knockout.project(A, B)
    assert_close(knockout.project(once, B), once, rtol=1e-9, atol=1e-11)
    assert_close(knockout.project(A, -3 * B), once, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_operators_are_projected_like_their_matrices(rank):
    A, U = normal(8, 8), torch.cat([of_rank((8, 4), rank), torch.zeros(8, 1, dtype=torch.float64)], 1)
    A, B = A + A.T, low_rank(U)
    check_operator(knockout.project(Operator.from_matrix(A), B), projected(A, U @ U.T))
    check_operator(knockout.subtract(Operator.from_matrix(A), B), A - U @ U.T)


def test_an_operator_of_more_factors_than_dimensions_is_projected_out_whole():
    A, U = normal(5, 5), normal(5, 12)
    left = knockout.project(Operator.from_matrix(A + A.T), low_rank(U)).dense()
    assert left.abs().max() < 1e-13


def test_the_outliers_go_with_what_made_them():
    bulk, U = normal(40, 60) / 8, 10 * normal(40, 3, seed=5)
    A = Operator.from_matrix(bulk @ bulk.T + U @ U.T)
    edge = torch.linalg.eigvalsh(bulk @ bulk.T)[-1]
    assert torch.linalg.eigvalsh(A.dense())[-3] > 10 * edge
    for left in (knockout.project(A, low_rank(U)), knockout.subtract(A, low_rank(U))):
        assert torch.linalg.eigvalsh(left.dense())[-1] < 1.01 * edge


def test_the_tolerance_decides_what_counts_as_zero():
    Q = torch.linalg.qr(normal(6, 2)).Q
    A, B = torch.eye(6, dtype=torch.float64), Q @ torch.diag(torch.tensor([1.0, 1e-6]).double()) @ Q.T
    assert_close(knockout.project(A, B).trace(), torch.tensor(4.0).double())
    assert_close(knockout.project(A, B, tolerance=1e-3).trace(), torch.tensor(5.0).double())
    factor = low_rank(Q * torch.tensor([1.0, 1e-6]).double())
    assert_close(
        knockout.project(Operator.from_matrix(A), factor, tolerance=1e-3).dense().trace(), torch.tensor(5.0).double()
    )


def test_an_operator_without_a_factor_cannot_be_projected_out():
    A = Operator.from_matrix(torch.eye(3, dtype=torch.float64))
    with pytest.raises(ArgumentError, match=r"no known factor[\s\S]*low_rank"):
        knockout.project(A, A)
    assert not knockout.subtract(A, A).dense().any()


@pytest.mark.parametrize("function", [knockout.subtract, knockout.project])
def test_what_does_not_fit_together_is_refused(function, unchecked):
    A, operator = normal(3, 3), low_rank(normal(3, 1))
    with pytest.raises(ArgumentError, match="two tensors or two operators"):
        function(A, operator)
    with pytest.raises(ArgumentError, match="two tensors or two operators"):
        function(A.numpy(), A.numpy())
    for other in (normal(3, 4), A.float(), normal(3)):
        with pytest.raises(ArgumentError, match="same shape"):
            function(A, other)
    with pytest.raises(ArgumentError, match="were combined"):
        function(low_rank(normal(4, 1)), operator)


def test_numbers_that_are_not_finite_are_refused():
    A = normal(3, 3)
    with pytest.raises(NumericalError, match="NaN or infinity"):
        knockout.project(A, A / 0)
    with pytest.raises(ArgumentError, match="tolerance=2"):
        knockout.project(A, A, tolerance=2.0)
