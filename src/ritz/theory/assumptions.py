"""The assumptions of linear2026, white data and balanced layers: how well they hold, and how to make them hold.

Balancedness is that of one network or of each in a stack, with weights … × out × in.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ArgumentError, check_positive, check_whole
from .arguments import check_stacks, matrix, stacked
from .bases import above_rounding
from .layer_products import Weights

TOLERANCE = 1e-6  # of an assumption, relative: what float32 leaves of one that holds; the spectrum errs by as much


def whiteness(X: Float[Tensor, "N d"]) -> float:
    """‖XᵀX/N - σ²I‖₂/σ² with σ² = tr(XᵀX)/ND: zero where data are white. linear2026, Assumption 2.

    >>> whiteness(torch.eye(3)), round(whiteness(torch.tensor([[1.0, 0.0], [0.0, 2.0]])), 6)
    (0.0, 0.6)
    """
    X = matrix("X", X)
    X = X / (float(X.abs().max()) or 1.0)  # its scale changes nothing, but the square of it may be beyond float64
    values = torch.linalg.eigvalsh(X.T @ X / len(X))
    return float((values - values.mean()).abs().max() / values.mean()) if float(values.mean()) else 0.0


def input_scale(X: Float[Tensor, "N d"]) -> float:
    """σₓ = ‖X‖_F/√(ND), the standard deviation of one input where they are white.

    >>> input_scale(2 * torch.ones(5, 3))
    2.0
    """
    X = matrix("X", X)
    return float(X.norm()) / X.numel() ** 0.5


def balancedness(weights: Weights) -> Float[Tensor, "*B"]:
    """max_ℓ ‖W_ℓW_ℓᵀ - W_{ℓ+1}ᵀW_{ℓ+1}‖₂ / max_ℓ ‖W_ℓ‖₂²: zero where layers are balanced. linear2026, Assumption 3.

    >>> float(balancedness([torch.tensor([[2.0]]), torch.tensor([[1.0]])]))
    0.75
    """
    Ws = stacked(weights)
    check_stacks(Ws)
    scale = reduce(torch.maximum, map(spectral_norm, Ws)) ** 2
    gaps = [torch.zeros_like(scale), *(spectral_norm(W @ W.mT - V.mT @ V) for W, V in pairwise(Ws))]
    return reduce(torch.maximum, gaps) / torch.where(scale == 0, 1.0, scale)


def whitened(X: Float[Tensor, "N d"], sigma_x: float = 1.0, *, keep_inputs: bool = False) -> Float[Tensor, "N r"]:
    """√N σₓ U_r from the thin SVD X = U_r S V_rᵀ: white inputs that are functions of the data, r = rank X of them.

    linear2026, App. C takes a QR decomposition, which invents inputs where X is rank deficient. `keep_inputs` keeps d
    of them: √N σₓ U_rV_rᵀ, with a second moment σₓ² on the row space of X and zero elsewhere. In float64, on the device
    of the data; a direction counts that stands out from the rounding of their own precision.

    >>> X = whitened(torch.tensor([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]))  # of rank one
    >>> X.shape, round(whiteness(X), 12)
    (torch.Size([3, 1]), 0.0)
    """
    matrix("X", X)
    check_positive("It is the standard deviation of an input.", sigma_x=sigma_x)
    U, S, Vt = torch.linalg.svd(X.detach().double(), full_matrices=False)
    rank = int(above_rounding(S, X).sum())
    return len(X) ** 0.5 * sigma_x * (U[:, :rank] @ Vt[:rank] if keep_inputs else U[:, :rank])


def balanced_weights(
    M: Float[Tensor, "k d"], hidden: Sequence[int], *, generator: torch.Generator | None = None
) -> list[Tensor]:
    """W_ℓ = U_ℓ S^(1/L) U_{ℓ-1}ᵀ with W_L ⋯ W₁ = M: strongly balanced factors of M = U_L S U₀ᵀ.

    M is cut to the rank that the narrowest layer passes, which is the best approximation. Hidden directions are random
    with a generator and coordinate axes without. linear2026, App. C; there "right" in step 1 is to read "left".

    >>> W1, W2 = balanced_weights(torch.tensor([[4.0]]), [2])
    >>> (W2 @ W1).tolist(), float(balancedness([W1, W2]))
    ([[4.0]], 0.0)
    """
    for width in hidden:
        check_whole(hidden=width)
        check_positive("It is the width of a hidden layer.", hidden=width)
    U, S, Vt = torch.linalg.svd(matrix("M", M), full_matrices=False)
    S = torch.where(above_rounding(S, M), S, 0.0)  # the L-th root of rounding is large
    rank = min([*M.shape, *hidden])
    bases = [Vt[:rank].T, *(_frame(width, rank, generator) for width in hidden), U[:, :rank]]
    root = S[:rank] ** (1 / (len(bases) - 1))
    return [after * root @ before.T for before, after in pairwise(bases)]


def white_scale(X: Float[Tensor, "N d"]) -> float:
    """σₓ of white data; refused where the data are not white."""
    deviation = whiteness(X)
    if deviation > TOLERANCE:
        raise ArgumentError(
            f"The inputs are not white: ‖XᵀX/N - σ²I‖/σ² = {deviation:.2g} (whiteness(X)).",
            "The closed form has one variance σ² for every direction of the input (linear2026, Assumption 2).",
            "Pass whitened(X).",
            "linear_gauss_newton and two_layer_linear take any data.",
        )
    return input_scale(X)


def check_balance(weights: Sequence[Tensor]) -> None:
    """Refuse layers that are not strongly balanced."""
    deviation = float(balancedness(weights))
    if not deviation <= TOLERANCE:
        raise ArgumentError(
            f"The layers are not balanced: they differ by {deviation:.2g} of ‖W‖² (balancedness(weights)).",
            "The closed form needs W_ℓW_ℓᵀ = W_{ℓ+1}ᵀW_{ℓ+1} for more than two layers (linear2026, Assumption 3).",
            "balanced_weights(M, hidden) makes such layers.",
            "linear_gauss_newton takes any.",
        )


def spectral_norm(A: Float[Tensor, "*B a b"]) -> Float[Tensor, "*B"]:
    """‖A‖₂; NaN for a network with entries that are NaN or infinite, which LAPACK would refuse for all."""
    finite = A.isfinite().all(-1).all(-1)
    norms = torch.linalg.matrix_norm(torch.where(finite[..., None, None], A, 0.0), 2)
    return torch.where(finite, norms, torch.nan)


def _frame(width: int, rank: int, generator: torch.Generator | None) -> Tensor:
    if generator is None:
        return torch.eye(width, rank, dtype=torch.float64)
    return torch.linalg.qr(torch.randn(width, rank, generator=generator, dtype=torch.float64)).Q
