"""Vectors as the solvers keep them: in rows, so that each is contiguous and `A @ rows.T` hands the engine columns."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..operators import Operator

PIECE = 2**20  # coordinates turned to float64 at a time: 8 MB for each vector


def product(A: Operator, rows: Float[Tensor, "p n"]) -> Float[Tensor, "p n"]:
    """(A Vᵀ)ᵀ for vectors in rows."""
    return (A @ rows.T).T.contiguous()


def norms(rows: Float[Tensor, "p n"]) -> Float[Tensor, " p"]:
    """The Euclidean norm of each row, in float64: neither 1e-30 nor 1e+30 is lost in float32 squares."""
    return torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64)


def inner(X: Float[Tensor, "a n"], Y: Float[Tensor, "b n"]) -> Float[Tensor, "a b"]:
    """X Yᵀ summed in float64, on the CPU."""
    pieces = zip(X.split(PIECE, dim=1), Y.split(PIECE, dim=1), strict=True)
    return torch.stack([x.double() @ y.double().T for x, y in pieces]).sum(0).cpu()


def orthonormal(X: Float[Tensor, "k n"]) -> Float[Tensor, "k n"]:
    """Rows that are orthonormal but for rounding, made so to working precision: L⁻¹X with XXᵀ = LLᵀ."""
    L = torch.linalg.cholesky(inner(X, X))
    return torch.linalg.inv(L).to(X) @ X


def rounding(A: Operator) -> float:
    """Relative size of a residual that is nothing but rounding.

    Not n · eps: for a million parameters in float32 that is 0.1, and real residuals of a bulk are smaller.
    """
    return min(max(A.size, 8), 64) * torch.finfo(A.dtype).eps
