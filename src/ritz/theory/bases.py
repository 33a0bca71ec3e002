"""Orthonormal bases of complements and of ranges, with ranks up to rounding."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

EPS = torch.finfo(torch.float64).eps


def complement(U: Float[Tensor, "n r"], count: int) -> Float[Tensor, "n k"]:
    """The first `count` columns of an orthonormal basis of the complement of span(U), U of full column rank.

    By Householder reflections: O(n r k), however large n is.
    """
    return from_complement(U, torch.eye(len(U) - U.shape[1], count, dtype=U.dtype, device=U.device))


def from_complement(U: Float[Tensor, "n r"], Z: Float[Tensor, "s k"]) -> Float[Tensor, "n k"]:
    """B Z, with B the orthonormal basis (n × n - r) of the complement of span(U) that `complement` begins."""
    padded = torch.cat([Z.new_zeros(U.shape[1], Z.shape[1]), Z])
    return torch.ormqr(*torch.geqrf(U), padded) if U.shape[1] and Z.shape[1] else padded


def in_complement(U: Float[Tensor, "n r"], A: Float[Tensor, "n k"]) -> Float[Tensor, "s k"]:
    """Bᵀ A: the coordinates of A in the same basis."""
    turned = torch.ormqr(*torch.geqrf(U), A, transpose=True) if U.shape[1] and A.shape[1] else A
    return turned[U.shape[1] :]


def unit(u: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """u/‖u‖; the first coordinate vector if u = 0, so that there is always a direction."""
    largest = u.abs().max()
    if not float(largest):
        return torch.eye(1, len(u), dtype=u.dtype, device=u.device)[0]
    scaled = u / largest  # so that the square of a tiny number does not vanish
    return scaled / scaled.norm()


def span(A: Float[Tensor, "m q"]) -> Float[Tensor, "m r"]:
    """An orthonormal basis of the range of A: its left singular vectors, without those of rounding size."""
    U, S, _ = torch.linalg.svd(A, full_matrices=False)
    return U[:, above_rounding(S, A)]


def above_rounding(sigma: Float[Tensor, " r"], A: Float[Tensor, "a b"]) -> Bool[Tensor, " r"]:
    """Which singular values of A are more than rounding, with A in its original precision.

    In float64 the decomposition rounds, by max(a, b) · eps · σ₁. If A is coarser, its own rounding is the larger error:
    entries are off by up to eps/2 of themselves and, being independent, together by less than eps · σ₁.
    """
    eps = torch.finfo(A.dtype).eps
    return sigma > (max(A.shape) * eps if A.dtype == torch.float64 else eps) * sigma.amax()
