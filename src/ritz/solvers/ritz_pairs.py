"""Eigenpairs from a subspace by Rayleigh-Ritz, ordered from the requested end of the spectrum."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import check_finite
from ..spectrum import Eigenpairs
from .vectors import inner, norms

ENDS = ("largest", "smallest", "magnitude", "both")


def ranking(values: Float[Tensor, " j"], which: str) -> Tensor:
    """Indices that sort values from the requested end; for "both", from either end in turn."""
    if which == "magnitude":
        return values.abs().argsort(descending=True, stable=True)
    order = values.argsort(descending=which != "smallest", stable=True)
    if which != "both":
        return order
    half = (len(order) + 1) // 2
    turns = torch.empty_like(order)
    turns[0::2], turns[1::2] = order[:half], order[half:].flip(0)
    return turns


def selection(values: Float[Tensor, " j"], which: str, k: int) -> Tensor:
    """Indices of the k requested values in the order they are returned in."""
    order = ranking(values, which)[:k]
    return torch.cat([order[0::2], order[1::2]]) if which == "both" else order


def rayleigh_ritz(X: Float[Tensor, "k n"], AX: Float[Tensor, "k n"], which: str) -> tuple[Tensor, Tensor, Tensor]:
    """Ritz values, vectors (in rows) and true residuals of A on the span of orthonormal rows."""
    H = inner(X, AX)
    values, S = torch.linalg.eigh((H + H.T) / 2)
    order = selection(values, which, len(values))
    values, S = values[order].to(X.device), S[:, order].to(X.device)
    vectors = S.T.to(X) @ X
    return values, vectors, norms(S.T.to(AX) @ AX - values[:, None].to(AX) * vectors.to(AX))


def as_eigenpairs(
    values: Tensor, vectors: Tensor, residuals: Tensor, limit: float, num_products: int, basis_size: int
) -> Eigenpairs:
    """Pairs whose vectors lie in rows, with those below the limit marked as converged."""
    own = values.to(vectors)
    check_finite(float(own.abs().max()))  # an eigenvalue may be larger than all entries
    return Eigenpairs(own, vectors.T, residuals.to(vectors), residuals <= limit, num_products, basis_size)
