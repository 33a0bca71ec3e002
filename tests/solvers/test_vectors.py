"""Vectors in rows keep their digits."""

import torch
from torch.testing import assert_close

from ritz.solvers import vectors
from ritz.solvers.vectors import inner


def test_inner_products_are_summed_in_float64():
    ones = torch.full((1, 3 * 2**20), 0.1, dtype=torch.float32)
    exact = ones.double().square().sum()
    assert_close(inner(ones, ones)[0, 0], exact, rtol=1e-10, atol=0)


def test_components_keep_digits_that_one_sum_loses(generator):
    W, Q = (torch.randn(rows, 2**20 + 7, generator=generator) + 0.1 for rows in (1, 3))
    exact = W.double() @ Q.double().T
    assert_close(vectors.components(W, Q).double(), exact, rtol=1e-6, atol=0)
    assert vectors.components(W[:, :9], Q[:0, :9]).shape == (1, 0)


def test_matrices_too_large_for_kernels_are_multiplied_vector_by_vector(generator, monkeypatch):
    W, Q = (torch.randn(rows, 50, generator=generator, dtype=torch.float64) for rows in (2, 3))
    C, mixed = W @ Q.T, Q.T.flip(1) @ torch.eye(3, dtype=torch.float64)
    monkeypatch.setattr(vectors, "INDEXED", 0)
    monkeypatch.setattr(vectors, "PIECE", 16)
    monkeypatch.setattr(vectors, "LENGTH", 16)
    assert_close(vectors.components(W, Q), C)
    rest = W.clone()
    vectors.subtract(rest, C, Q)
    assert_close(rest, W - C @ Q)
    vectors.mix(Q, torch.eye(3, dtype=torch.float64).flip(1))
    assert_close(Q, mixed.T)
