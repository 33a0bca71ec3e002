"""Data as a linear network sees them: moments, whitened inputs and principal axes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ritz.errors import ArgumentError
from ritz.lab.training import compressed
from ritz.papers.linear2026 import data
from ritz.papers.linear2026.data import White
from tests.papers.linear2026.problems import dense_hessian, gaussian_weights, loss_of, problem


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 4), st.floats(0.2, 3.0))
def test_examples_of_white_data_have_their_loss_and_hessian(seed, D, K, sigma_x):
    generator = torch.Generator().manual_seed(seed)
    X, Y = problem(generator, D=D, K=K, sigma_x=sigma_x)
    weights, small = gaussian_weights(generator, D, 3, K), White.of(X, Y, sigma_x).examples()
    assert len(small.x) == D + 1
    shapes, theta = [W.shape for W in weights], torch.cat([W.flatten() for W in weights])
    torch.testing.assert_close(loss_of(shapes, *small)(theta), loss_of(shapes, X, Y)(theta))
    torch.testing.assert_close(dense_hessian(weights, *small), dense_hessian(weights, X, Y))


def test_the_loss_of_white_data_is_that_of_the_data(generator):
    X, Y = problem(generator)
    for widths in ((9, 3), (9, 4, 5, 3)):
        weights = gaussian_weights(generator, *widths)
        theta, shapes = torch.cat([W.flatten() for W in weights]), [W.shape for W in weights]
        assert White.of(X, Y, 1.5).loss(weights) == pytest.approx(float(loss_of(shapes, X, Y)(theta)), rel=1e-12)


def test_inputs_that_are_not_white_are_refused(generator):
    X, Y = problem(generator, N=60, D=40, sigma_x=1.5)
    for wrong in (X * (torch.arange(40) != 7), 1.01 * X, X + 0.01 * X.roll(1, 1)):
        with pytest.raises(ArgumentError, match="not white"):
            White.of(wrong, Y, 1.5)


def test_full_rank_is_distinguished_from_deficient(generator):
    X = torch.randn(60, 20, generator=generator, dtype=torch.float64)
    assert data.has_full_rank(X) and data.has_full_rank(X * torch.logspace(0, -5, 20).double())
    assert not data.has_full_rank(torch.cat([X, X[:, :3] @ torch.rand(3, 2, generator=generator).double()], 1))
    assert not data.has_full_rank(X * (torch.arange(20) != 7))


def test_rank_revealing_inputs_are_fewer_only_where_the_data_are_deficient(generator):
    X = torch.randn(60, 20, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(data.white_inputs(X, 2.0, "rank"), data.white_inputs(X, 2.0, "qr"))
    X[:, 4] = 0
    assert data.white_inputs(X, 2.0, "qr").shape[1] == 20
    white = data.white_inputs(X, 2.0, "rank")
    torch.testing.assert_close(white.T @ white / 60, 4 * torch.eye(19, dtype=torch.float64))


def test_subsets_have_the_share_asked_for_and_are_nested():
    digits = data.training_set("digits", None)
    small, large = (data.subset(digits, 100, alpha_max=alpha, seed=0) for alpha in (0.28, 0.55))
    assert [data.largest_share(small), data.largest_share(large)] == [0.28, 0.55]
    of_zero = [{tuple(row) for row in part.x[part.y == 0].tolist()} for part in (small, large)]
    assert of_zero[0] < of_zero[1]


def test_principal_examples_have_the_loss_of_the_data_they_stand_for(generator):
    scales = torch.tensor([9, 3, 1, 0.1, 0.01, 0], dtype=torch.float64)
    X = torch.randn(30, 6, generator=generator, dtype=torch.float64) * scales
    Y, W = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((30, 2), (2, 6)))
    V, (x, y) = data.principal_examples(compressed(X, Y))
    assert torch.count_nonzero(x) == 5 and x.shape == (7, 6)
    few, many = ((a @ w.T - b).square().sum() / len(a) for a, b, w in ((x, y, W @ V), (X, Y, W)))
    torch.testing.assert_close(few, many)
