"""Knockouts: take one matrix out of another and see which spectral features disappear.

Papyan (2020), Sec. 3. What disappears with B is attributed to B.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ArgumentError, NumericalError
from ..operators import Operator, deflated

Matrix = TypeVar("Matrix", Tensor, Operator)


def subtract(A: Matrix, B: Matrix) -> Matrix:
    """A - B, the subtraction knockout A ⊖ B of two matrices of any shape, or of two operators.

    Papyan (2020), Def. 3.1.

    >>> A, B = torch.diag(torch.tensor([3.0, 2.0])), torch.diag(torch.tensor([1.0, 0.0]))
    >>> subtract(A, B).diagonal()
    tensor([2., 2.])
    """
    _check_kinds(A, B)
    if isinstance(A, Tensor) and isinstance(B, Tensor):
        _check_matrices(A, B)
    return A - B


def project(A: Matrix, B: Matrix, *, tolerance: float | None = None) -> Matrix:
    """(I - B B⁺) A (I - B⁺ B), the projection knockout: A without the columns and rows that B spans.

    A and B are matrices of any shape, or operators of which B has a known `factor`. Only singular values above
    `tolerance` times the largest count as non-zero, by default min(max(shape), 64) · eps: with all singular vectors, as
    Papyan (2020), Def. 3.2 reads for matrices that are not square, nothing would be left. For an operator they are the
    singular values of its factor, so that eigenvalues of B down to the square of that tolerance still count.

    >>> A, B = torch.diag(torch.tensor([3.0, 2.0])), torch.diag(torch.tensor([1.0, 0.0]))
    >>> project(A, B).diagonal()
    tensor([0., 2.])
    """
    _check_kinds(A, B)
    _check_tolerance(tolerance)
    if isinstance(A, Operator) and isinstance(B, Operator):
        return _projected_operator(A, B, tolerance)
    assert isinstance(A, Tensor) and isinstance(B, Tensor)  # for the type checker: _check_kinds has made sure
    _check_matrices(A, B)
    U, V = _singular_vectors(B, tolerance)
    A = A - U @ (U.T @ A)
    return A - (A @ V) @ V.T


def _projected_operator(A: Operator, B: Operator, tolerance: float | None) -> Operator:
    if B.factor is None:
        raise ArgumentError(
            f"{B!r} has no known factor.",
            "To project a matrix out, its range must be known, and products alone do not reveal it.",
            "Build it as low_rank(U), or low_rank(U, values) with non-negative values.",
            "For the leading part of an operator: pairs = eigenpairs(B, k); low_rank(pairs.vectors, pairs.values).",
            "If it is made of class means that exceed the memory budget: raise Risk(..., memory=...) or restrict the "
            "risk to a layer.",
            "Use subtract(A, B), which needs no factor.",
        )
    _ = A + B  # refuses operators on different spaces
    Q, R = torch.linalg.qr(_finite(B.factor))
    return deflated(A, Q @ _singular_vectors(R, tolerance, of=B.factor)[0])


def _singular_vectors(
    B: Float[Tensor, "m n"], tolerance: float | None, *, of: Tensor | None = None
) -> tuple[Float[Tensor, "m r"], Float[Tensor, "n r"]]:
    """Left and right singular vectors of the non-zero singular values; on the CPU, as CUDA's SVD may take minutes."""
    U, values, Vh = (t.to(B.device) for t in torch.linalg.svd(_finite(B).cpu(), full_matrices=False))
    shape = B.shape if of is None else of.shape
    relative = min(max(shape), 64) * torch.finfo(B.dtype).eps if tolerance is None else tolerance
    rank = int((values > relative * values.max()).sum()) if len(values) else 0
    return U[:, :rank], Vh[:rank].T


def _finite(B: Tensor) -> Tensor:
    if not bool(torch.isfinite(B).all()):
        raise NumericalError(
            "The matrix to knock out holds NaN or infinity.",
            "Such a matrix has no singular vectors.",
            "Look for a division by zero where it was built.",
        )
    return B


def _check_kinds(A: object, B: object) -> None:
    if not any(isinstance(A, kind) and isinstance(B, kind) for kind in (Tensor, Operator)):
        raise ArgumentError(
            f"A {type(A).__name__} and a {type(B).__name__} were given.",
            "A knockout takes two tensors or two operators.",
            "Wrap a symmetric matrix as Operator.from_matrix(A), or form a small operator's matrix: A.dense().",
        )


def _check_matrices(A: Tensor, B: Tensor) -> None:
    if A.ndim != 2 or (A.shape, A.dtype, A.device) != (B.shape, B.dtype, B.device) or not A.is_floating_point():
        raise ArgumentError(
            f"Matrices of shape {tuple(A.shape)} ({A.dtype}, {A.device}) and {tuple(B.shape)} ({B.dtype}, {B.device}) "
            "were given.",
            "One is knocked out of the other, so both must be real, with the same shape, dtype and device.",
            "Convert with .to(A.device, A.dtype), or transpose one.",
        )


def _check_tolerance(tolerance: float | None) -> None:
    if tolerance is not None and not 0 <= tolerance < 1:
        raise ArgumentError(
            f"tolerance={tolerance} was given.",
            "It is relative to the largest singular value, so it must lie between 0 and 1.",
            "Pass 0 or a small number such as 1e-6, or leave it out.",
        )
