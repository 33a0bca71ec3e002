"""Norms and alignments of weight matrices, to be compared with the sharpness.

Matrices may be stacks of networks, B × out × in; the results then have one entry for each.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import ArgumentError


@dataclass(frozen=True)
class Norms:
    """Three norms that are one for vectors: √Σσ², max σ and Σσ. Singh et al. (2026), D.1.3.

    >>> Norms(*torch.tensor([5.0, 4.0, 7.0])).nuclear
    tensor(7.)
    """

    frobenius: Float[Tensor, "*B"]
    spectral: Float[Tensor, "*B"]
    nuclear: Float[Tensor, "*B"]


@dataclass(frozen=True)
class Alignments:
    """How a layer W aligns with the next one V: three products that equal |⟨v, w⟩| for vectors, and one angle.

    >>> alignments(torch.eye(2), 3 * torch.eye(2)).spectral
    tensor(3.)
    """

    frobenius: Float[Tensor, "*B"]  # |tr VW|, NaN where VW is not square
    spectral: Float[Tensor, "*B"]  # σ_max(VW)
    nuclear: Float[Tensor, "*B"]  # Σσ(VW)
    leading: Float[Tensor, "*B"]  # |cos| between the first left vector of W and the first right vector of V


def norms(W: Float[Tensor, "*B m n"]) -> Norms:
    """‖W‖_F, ‖W‖₂ and ‖W‖_*; NaN where W has entries that are not finite.

    >>> norms(torch.diag(torch.tensor([3.0, 4.0])))
    Norms(frobenius=tensor(5.), spectral=tensor(4.), nuclear=tensor(7.))
    """
    if 0 in W.shape[-2:]:
        raise ArgumentError(
            f"W has the shape {tuple(W.shape)}.", "It has no entries.", "Pass at least one row and column."
        )
    sigma = _singular_values(W)
    return Norms(sigma.square().sum(-1).sqrt(), sigma.amax(-1), sigma.sum(-1))


def alignments(W: Float[Tensor, "*B m n"], V: Float[Tensor, "*B k m"]) -> Alignments:
    """The alignments of a layer W with the next one V, by their product: ⟨Vᵀ, W⟩ = tr VW. Singh et al. (2026), D.1.3.

    The paper's Fig. 15 has absolute values, so all are: as printed, only the Frobenius product has a sign.
    `leading` is 1 for aligned layers (linear2026, Sec. 3: left vectors of a layer are right vectors of the next).

    >>> W, V = torch.tensor([[3.0], [4.0]]), torch.tensor([[3.0, 4.0]])
    >>> round(float(alignments(W, V).leading), 6), round(float(alignments(W, V).frobenius), 4)
    (1.0, 25.0)
    """
    wide = torch.promote_types(W.dtype, V.dtype)
    W, V = W.to(wide), V.to(wide)
    P = V @ W
    sigma = _singular_values(P)
    square = P.shape[-1] == P.shape[-2]
    trace = P.diagonal(dim1=-2, dim2=-1).sum(-1).abs() if square else torch.full_like(sigma[..., 0], torch.nan)
    left, right = _factors(W)[0][..., :, 0], _factors(V)[1][..., 0, :]
    return Alignments(trace, sigma.amax(-1), sigma.sum(-1), (left * right).sum(-1).abs())


def pearson(x: Float[Tensor, " B"], y: Float[Tensor, " B"]) -> float:
    """The correlation coefficient over the networks for which both are finite; NaN for fewer than three.

    >>> x = torch.tensor([1.0, 2.0, 3.0, torch.nan])
    >>> round(pearson(x, -2 * x), 6)
    -1.0
    """
    finite = x.isfinite() & y.isfinite()
    if int(finite.sum()) < 3:
        return float("nan")
    return float(torch.corrcoef(torch.stack([x[finite].double(), y[finite].double()]))[0, 1])


def _singular_values(W: Tensor) -> Tensor:
    return _factors(W)[2]


def _factors(W: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U, Vᵀ and σ; NaN for a matrix with entries that are not finite, which LAPACK would refuse for all."""
    sound = W.isfinite().all(-1).all(-1)[..., None, None]
    U, sigma, Vh = torch.linalg.svd(torch.where(sound, W, 0.0), full_matrices=False)
    U, Vh, sigma = (torch.where(sound, part, torch.nan) for part in (U, Vh, sigma[..., None, :]))
    return U, Vh, sigma[..., 0, :]
