"""Vectors in rows keep their digits."""

import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from ritz.errors import ArgumentError
from ritz.solvers import eigenpairs, function, lanczos, solve, subspace_iteration, vectors
from ritz.solvers.vectors import inner

from .spectra import linspace, rotated

TAKING = {  # vectors of the user's, by the name they have there
    "b": solve,
    "v": lambda A, v: function(A, torch.exp, v),
    "starts": lambda A, v: lanczos(A, v, 3),
    "start": lambda A, v: eigenpairs(A, 1, start=v),
    "start ": lambda A, v: subspace_iteration(A, 1, 3, start=v),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", TAKING)
@pytest.mark.parametrize(
    "shape, dtype, device",
    [
        *(((40,), torch.float32, "cpu"), ((40, 2), torch.float16, "cpu"), ((40, 2), torch.float64, "meta")),
        *((shape, torch.float64, "cpu") for shape in ((39,), (2, 40), (40, 1, 1), (40, 0))),
    ],
)
def test_vectors_that_are_not_in_the_operators_precision_and_place_are_refused(name, shape, dtype, device):
    """A copy would hide which precision the result has, and where it was computed."""
    A = replace(rotated(linspace(1, 2, 40)), device=torch.device(device))
    with pytest.raises(ArgumentError) as caught:
        TAKING[name](A, torch.ones(shape, dtype=dtype))
    assert caught.value.seen == f"{name.strip()} of shape {shape} in {dtype} on cpu was given for {A!r}."
    assert "with the operator's dtype and device" in caught.value.why
    assert caught.value.ways_out[0] == f"Convert it: {name.strip()}.to(A.device, A.dtype)."


@pytest.mark.parametrize("name", TAKING)
@pytest.mark.parametrize("shape", [(40,), (40, 2)])
def test_vectors_that_are_infinite_or_nan_are_refused(name, shape):
    for bad in (math.nan, math.inf):
        v = torch.ones(shape, dtype=torch.float64)
        v.view(-1)[-1] = bad
        with pytest.raises(ArgumentError, match=f"{name.strip()} has entries that are infinite or NaN"):
            TAKING[name](rotated(linspace(1, 2, 40)), v)


@pytest.mark.parametrize("name", ["starts", "start", "start "])
def test_a_start_without_direction_is_refused(name):
    v = torch.ones(40, 2, dtype=torch.float64)
    v[:, 1] = 0
    with pytest.raises(ArgumentError, match=f"{name.strip()} has a column that is zero"):
        TAKING[name](rotated(linspace(1, 2, 40)), v)


def test_pairs_of_another_precision_are_refused_with_what_converts_them():
    A, B = (rotated(linspace(1, 2, 600), dtype=dtype) for dtype in (torch.float32, torch.float64))
    pairs = eigenpairs(A, 2)
    with pytest.raises(ArgumentError, match=r"Convert it: start\.vectors\.to\(A\.device, A\.dtype\)"):
        eigenpairs(B, 2, start=pairs)
    assert bool(eigenpairs(B, 2, start=pairs.vectors.to(B.device, B.dtype)).converged.all())


def test_a_vector_is_one_column_wherever_columns_are_taken():
    A, v = rotated(linspace(1, 2, 40)), torch.linspace(1, 2, 40, dtype=torch.float64)
    for keep_basis in (True, False):
        alone, column = lanczos(A, v, 5, keep_basis=keep_basis), lanczos(A, v[:, None], 5, keep_basis=keep_basis)
        assert torch.equal(alone.diagonal, column.diagonal) and alone.num_probes == 1
    assert torch.equal(v, torch.linspace(1, 2, 40, dtype=torch.float64))


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
