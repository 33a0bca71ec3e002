"""Deep linear networks f(x) = W_L ⋯ W₁x under squared error: trace, bounds and spectra from weights and data.

From "How the Hessian-spectrum of linear networks depends on data" (2026), here linear2026, with index sets corrected.
P_ℓ = W_{ℓ-1} ⋯ W₁ comes before layer ℓ, S_ℓ = W_L ⋯ W_{ℓ+1} after it, Σ = XᵀX/N, and the loss is ‖f(X) - Y‖²/2N.
The trace and the bounds are computed for one network or for each in a stack, with weights … × out × in and data that
all share (N × d) or one set for each (… × N × d). Spectra are of one network at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import isfinite

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ArgumentError
from .arguments import check_in_range, layers, stacked_on, weights_and_inputs
from .assumptions import check_balance, spectral_norm, white_scale
from .bases import EPS, above_rounding, complement
from .closed_form import ClosedForm, Group
from .layer_products import Weights, products_after, products_before


def linear_trace(
    weights: Weights, X: Float[Tensor, "*b N d"] | float, *, multipliers: Sequence[float] | None = None
) -> Float[Tensor, "*B"]:
    """tr H = tr G = Σ_ℓ tr(P_ℓΣP_ℓᵀ) ‖S_ℓ‖_F²: the trace of the full Hessian, at any loss and for any data.

    linear2026, eq. (7), states it for G and white data; Singh et al. (2026), D.4. The network is linear in each layer,
    so that H - G has a zero diagonal. White data may be given by σₓ alone. With `multipliers`, layers are h ↦ m_ℓW_ℓh.

    >>> float(linear_trace([torch.tensor([[2.0]]), torch.tensor([[1.0]])], 1.0))
    5.0
    """
    frobenius = [(A.square().sum((-2, -1)), S.square().sum((-2, -1))) for A, S in _factors(weights, X, multipliers)]
    trace = torch.stack([before * after for before, after in frobenius]).sum(0)
    if not trace.ndim:
        check_in_range(trace, "The traces of the blocks of G")
    return trace


def spectral_norm_bound(weights: Weights, X: Float[Tensor, "*b N d"] | float) -> Float[Tensor, "*B"]:
    """λ_max(G) ≤ Σ_ℓ λ_max(P_ℓΣP_ℓᵀ) ‖S_ℓ‖₂², with equality for strongly balanced layers and for two layers, X white.

    linear2026, eq. (6), for any data.

    >>> float(spectral_norm_bound([torch.tensor([[2.0]]), torch.tensor([[1.0]])], 1.0))
    5.0
    """
    return _block_norms(weights, X, None).sum(0)


def sharpness_bound(
    weights: Weights, X: Float[Tensor, "*b N d"] | float, *, multipliers: Sequence[float] | None = None
) -> Float[Tensor, "*B"]:
    """λ_max(H) ≥ max_ℓ λ_max(P_ℓΣP_ℓᵀ) ‖S_ℓ‖₂², the largest eigenvalue of the diagonal blocks: at any loss.

    Singh et al. (2026), D.3.3 has the case of two layers and white X, max(‖W₁‖₂², ‖W₂‖₂²), stated as an equality, which
    holds only for the diagonal blocks. With `multipliers`, layers are h ↦ m_ℓW_ℓh.

    >>> float(sharpness_bound([torch.tensor([[2.0]]), torch.tensor([[1.0]])], 1.0))
    4.0
    """
    return _block_norms(weights, X, multipliers).amax(0)


def linear_gauss_newton(weights: Sequence[Tensor], X: Float[Tensor, "N d"]) -> ClosedForm:
    """spec G = spec Σ_ℓ (S_ℓS_ℓᵀ) ⊗ (Σ^½P_ℓᵀP_ℓΣ^½), and zeros: any weights, any data, any depth.

    The matrix has at most d₀d_L rows, however wide the layers and however many the examples; that of linear2026, eq.
    (4), (5), has N d_L rows. Lines "line i" are those above rounding.

    >>> linear_gauss_newton([torch.tensor([[2.0]]), torch.tensor([[1.0]])], torch.ones(1, 1))
    ClosedForm(2 eigenvalues, 2 lines)
      line 1  5  × 1
      zero    0  × 1
    """
    Ws, X = weights_and_inputs(weights, X)
    factors = _factors(Ws, X, None)
    values = torch.linalg.eigvalsh(sum(_kron(B @ B.T, A @ A.T) for A, B in factors)).flip(0)
    rank, size = int((values > len(values) * EPS * values.max()).sum()), sum(W.numel() for W in Ws)

    @cache
    def vectors() -> Tensor:
        J = torch.cat([_kron(B.T, A.T) for A, B in factors])  # (n, d_L d₀), rows in order (W₁ … W_L)
        return torch.linalg.svd(J, full_matrices=False).U[:, :rank]

    def column(i: int) -> Callable[[int], Tensor]:
        return lambda count: vectors()[:, i : i + count]

    lines = [Group(f"line {i + 1}", float(values[i]), 1, column(i)) for i in range(rank)]
    return ClosedForm([*lines, Group("zero", 0.0, size - rank, lambda count: complement(vectors(), count))])


def shallow_linear(W1: Float[Tensor, "m d"], W2: Float[Tensor, "k m"], sigma_x: float) -> ClosedForm:
    """λᵢⱼ = σₓ²(σᵢ²(W₁) + σⱼ²(W₂)), i ≤ d₀, j ≤ d₂, singular values continued by zeros; all others vanish.

    This is G of two layers on white data, and the Hessian wherever (f(X) - Y)ᵀX = 0, as at every least-squares minimum
    (`two_layer_linear` gives the Hessian everywhere). linear2026, eq. (10), (11), (15); the printed index set i ≤
    min(d₀, d₁), j ≤ min(d₁, d₂) misses lines where d₁ < max(d₀, d₂).

    >>> shallow_linear(torch.tensor([[2.0]]), torch.tensor([[1.0]]), 1.0)
    ClosedForm(2 eigenvalues, 2 lines)
      singular values 1, 1  5  × 1
      zero                  0  × 1
    """
    W1, W2 = layers([W1, W2])
    (m, d), k = W1.shape, len(W2)
    V, s1, L = _outer_svd(W1.T)
    U, s2, P = _outer_svd(W2)
    pairs = [(i, j) for i in range(d) for j in range(k) if float(s1[i]) or float(s2[j])]

    def vectors(lines: Sequence[tuple[int, int]]) -> Tensor:
        """(dW₁, dW₂) = (σⱼ(W₂) pⱼvᵢᵀ, σᵢ(W₁) uⱼlᵢᵀ)."""
        i, j = torch.tensor(lines, dtype=torch.int64).view(-1, 2).T
        parts = [torch.einsum("mc,dc->mdc", P[:, j], V[:, i]), torch.einsum("kc,mc->kmc", U[:, j], L[:, i])]
        flat = torch.cat([part.flatten(0, 1) for part in parts])
        return flat / flat.norm(dim=0)

    def line(i: int, j: int) -> Group:
        value = sigma_x**2 * float(s1[i] ** 2 + s2[j] ** 2)
        return Group(f"singular values {i + 1}, {j + 1}", value, 1, lambda count: vectors([(i, j)][:count]))

    zeros = Group("zero", 0.0, m * (d + k) - len(pairs), lambda count: complement(vectors(pairs), count))
    return ClosedForm([*(line(i, j) for i, j in pairs), zeros])


def tangent_kernel(weights: Sequence[Tensor], X: Float[Tensor, "N d"]) -> ClosedForm:
    """qᵢⱼ = (Xvᵢ/√N) ⊗ uⱼ/σₓ, λᵢⱼ = σₓ² Σ_ℓ ‖P_ℓvᵢ‖²‖S_ℓᵀuⱼ‖²: the kernel JJᵀ/N of the N d_L outputs, line by line.

    vᵢ, i ≤ d₀, are the right singular vectors of W₁ and uⱼ, j ≤ d_L, the left ones of W_L, including those with
    singular value zero. The kernel shares its non-zero eigenvalues with G. X must be white, and the layers any two, or
    more that are strongly balanced. linear2026, Sec. 3, Eigenvectors, and eq. (8), (9), (15), (16), with a smaller
    index set. Outputs are stacked example by example.

    >>> tangent_kernel([torch.tensor([[2.0]]), torch.tensor([[1.0]])], torch.ones(2, 1))
    ClosedForm(2 eigenvalues, 2 lines)
      q 1, 1  5  × 1
      zero    0  × 1
    """
    Ws, X = weights_and_inputs(weights, X)
    sigma_x = white_scale(X)
    if len(Ws) > 2:
        check_balance(Ws)
    V, U = _outer_svd(Ws[0].T)[0], _outer_svd(Ws[-1])[0]
    before = torch.stack([(P @ V).square().sum(0) for P in products_before(Ws)])
    after = torch.stack([(S.T @ U).square().sum(0) for S in products_after(Ws)])
    values = (sigma_x**2 * before.T @ after).tolist()
    columns = X @ V / (len(X) ** 0.5 * (sigma_x or 1.0))  # orthonormal

    def vectors(pairs: Sequence[tuple[int, int]]) -> Tensor:
        i, j = (list(part) for part in zip(*pairs, strict=True)) if pairs else ([], [])
        return torch.einsum("nc,kc->nkc", columns[:, i], U[:, j]).flatten(0, 1)

    def line(i: int, j: int) -> Group:
        return Group(f"q {i + 1}, {j + 1}", values[i][j], 1, lambda count: vectors([(i, j)][:count]))

    pairs = [(i, j) for i in range(len(V)) for j in range(len(U)) if sigma_x]
    zeros = Group("zero", 0.0, len(X) * len(U) - len(pairs), lambda count: complement(vectors(pairs), count))
    return ClosedForm([*(line(i, j) for i, j in pairs), zeros])


def _factors(
    weights: Weights, X: Tensor | float, multipliers: Sequence[float] | None
) -> list[tuple[Float[Tensor, "*B _ _"], Float[Tensor, "*B k _"]]]:
    """(m_ℓ R P_ℓᵀ, S_ℓ) for each layer, RᵀR = Σ: the first has the singular values of P_ℓΣ^½, times m_ℓ."""
    Ws, R = stacked_on(weights, X)
    multipliers = [1.0] * len(Ws) if multipliers is None else multipliers
    if len(multipliers) != len(Ws) or not all(map(isfinite, multipliers)):
        raise ArgumentError(
            f"multipliers={multipliers} were given for {len(Ws)} layers.",
            "Each layer is h ↦ mWh with a finite number m of its own.",
            "Give one for each, in the order of the layers.",
        )
    Ws = [m * W for m, W in zip(multipliers, Ws, strict=True)]
    products = zip(multipliers, products_before(Ws), products_after(Ws), strict=True)
    return [(m * R @ P.mT, S) for m, P, S in products]


def _block_norms(weights: Weights, X: Tensor | float, multipliers: Sequence[float] | None) -> Float[Tensor, "..."]:
    """λ_max of each layer's block of G; NaN for a network of a stack that has diverged."""
    norms = torch.stack([(spectral_norm(A) * spectral_norm(S)) ** 2 for A, S in _factors(weights, X, multipliers)])
    if norms.ndim == 1:
        check_in_range(norms, "The norms of the blocks of G")
    return norms


def _kron(A: Tensor, B: Tensor) -> Tensor:
    return torch.einsum("ab,cd->acbd", A, B).reshape(A.shape[0] * B.shape[0], -1)


def _outer_svd(W: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A complete basis Q of left singular vectors, the values with zeros, and WᵀQ: right vectors times values."""
    Q, S, _ = torch.linalg.svd(W, full_matrices=False)
    Q = torch.cat([Q, complement(Q, len(W) - Q.shape[1])], 1)
    values = torch.cat([torch.where(above_rounding(S, W), S, 0.0), S.new_zeros(len(W) - len(S))])
    return Q, values, torch.where(values > 0, W.T @ Q, 0.0)
