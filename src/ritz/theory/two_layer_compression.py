"""Two-layer networks of any width, compressed without loss to the few hidden directions that their weights use.

A hidden unit of a linear pair W₂W₁ is one column of [W₁, W₂ᵀ]ᵀ, at most D + K of which are independent. In all other
directions of the hidden space the Hessian is the same small matrix, and its eigenvalues are ±σᵢ(R), R = ∂F/∂(W₂W₁).
Singh et al. (2026), Thm 3.1 and 3.4 are the cases D = K = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.func import grad, jacfwd

from ..errors import ArgumentError
from .arguments import layers, regression, weights_and_inputs
from .bases import EPS, complement, span
from .closed_form import ClosedForm, Group, eigenlines

ROWS = 20_000  # of the compressed matrix, beyond which it is refused: 3.2 GB, and hours to diagonalise


def two_layer_linear(
    W1: Float[Tensor, "m d"],
    W2: Float[Tensor, "k m"],
    X: Float[Tensor, "N d"],
    Y: Float[Tensor, "N k"],
    *,
    gauss_newton: bool = False,
) -> ClosedForm:
    """spec ∇²ℓ = spec(width r) ∪ (m - r) × {±σᵢ(R), 0^|D-K|} for ℓ = ‖X W₁ᵀW₂ᵀ - Y‖²/2N, at any loss.

    R = (1/N) Σᵢ (W₂W₁xᵢ - yᵢ)xᵢᵀ and r = rank[W₁, W₂ᵀ] ≤ D + K. The lines "outlier i", "zero" are those of the network
    compressed to r hidden units, a matrix of r(D + K) rows: the cost does not grow with the width, nor with the number
    of examples beyond their second moments. Where r = D + K, each ±σᵢ is once more among them. A bias of the first
    layer is an input that is constantly 1. Not in the papers for D, K > 1.

    >>> W1, W2, X, Y = torch.ones(5, 1), torch.ones(1, 5), torch.ones(2, 1), torch.zeros(2, 1)
    >>> two_layer_linear(W1, W2, X, Y)["bulk + 1"].multiplicity
    4
    """
    (W1, W2), X, Y = regression([W1, W2], X, Y)
    S, R = X.T @ X / len(X), (X @ (W2 @ W1).T - Y).T @ X / len(X)
    folds = [Fold(torch.arange(len(W1)), span(torch.cat([W1, W2.T], 1)), R * (not gauss_newton))]
    H = _squared_error_hessian(_compressed(folds, W1, W2), S[None, :, None], folds)
    return _closed_form(folds, H, W1, W2)


def two_layer_relu(
    W1: Float[Tensor, "m d"],
    W2: Float[Tensor, "k m"],
    X: Float[Tensor, "N d"],
    Y: Float[Tensor, "N k"],
    *,
    slope: float = 0.0,
    gauss_newton: bool = False,
) -> ClosedForm:
    """spec ∇²ℓ = spec(Σ_g r_g units) ∪_g (m_g - r_g) × {±σᵢ(R_g), 0^|D-K|} for f = W₂φ(W₁x), φ (leaky) ReLU.

    Units with the same slopes a ∈ {1, slope}ᴺ on the data form a pattern g, with R_g = (1/N) Σᵢ aᵢ(f(xᵢ) - yᵢ)xᵢᵀ and
    r_g = rank[W₁, W₂ᵀ]_g; within a pattern the network is linear. `slope` is φ' left of zero and at zero, as in
    autograd. What compresses is a pattern of more than D + K units. Singh et al. (2026), Thm 3.4 is D = K = 1; not in
    the papers beyond.

    >>> W1, W2, X, Y = torch.ones(5, 1), torch.ones(1, 5), torch.ones(2, 1), torch.zeros(2, 1)
    >>> two_layer_relu(W1, W2, X, Y)["bulk + 1"].multiplicity
    4
    """
    (W1, W2), X, Y = regression([W1, W2], X, Y)
    patterns, members = _patterns(W1, X, slope)
    delta = (_outputs(W1, W2, X, slope) - Y) / len(X)
    R = torch.einsum("ik,gi,id->gkd", delta, patterns, X) * (not gauss_newton)
    folds = _folds(W1, W2, members, R)
    weights = _compressed(folds, W1, W2)
    features = torch.einsum("gi,id->igd", patterns, X)
    S = torch.einsum("igd,ihe->gdhe", features, features) / len(X)
    return _closed_form(folds, _squared_error_hessian(weights, S, folds), W1, W2)


def linear_pair(
    W1: Float[Tensor, "m d"],
    W2: Float[Tensor, "k m"],
    loss: Callable[..., Tensor],
    rest: Float[Tensor, " q"] | None = None,
) -> ClosedForm:
    """spec ∇²F(W₂W₁, φ) = spec(width r) ∪ (m - r) × {±σᵢ(R), 0^|D-K|}, R = ∂F/∂(W₂W₁), for any twice smooth F.

    `loss(M)`, or `loss(M, rest)` where the network has further parameters φ: a flat vector, whose coordinates come
    after those of W₁ and W₂. Only `loss` sees the data (in float64, on the CPU), so the pair may sit anywhere in any
    network. Not in the papers.

    >>> form = linear_pair(torch.ones(5, 1), torch.ones(1, 5), lambda M: M.square().sum() / 2)
    >>> form["bulk + 1"].value, form["bulk + 1"].multiplicity
    (5.0, 4)
    """
    W1, W2 = layers([W1, W2])
    others = W1.new_zeros(0) if rest is None else rest.detach().to(W1)
    arguments = () if rest is None else (others,)
    R = grad(loss)(W2 @ W1, *arguments)
    folds = [Fold(torch.arange(len(W1)), span(torch.cat([W1, W2.T], 1)), R)]
    V1, V2 = _compressed(folds, W1, W2, others.numel())

    def compressed_loss(theta: Tensor) -> Tensor:
        A, B, phi = theta.split([V1.numel(), V2.numel(), others.numel()])
        return loss(B.view_as(V2) @ A.view_as(V1), *([phi] if arguments else []))

    return _closed_form(folds, _dense(compressed_loss, V1, V2, others), W1, W2, others.numel())


def relu_pair(
    W1: Float[Tensor, "m d"],
    W2: Float[Tensor, "k m"],
    X: Float[Tensor, "N d"],
    loss: Callable[[Tensor], Tensor],
    *,
    slope: float = 0.0,
) -> ClosedForm:
    """spec ∇²F(f(X)) for f = W₂φ(W₁x), as `two_layer_relu`, for any twice smooth F of the outputs (N × K).

    R_g = Σᵢ aᵢ (∂F/∂fᵢ) xᵢᵀ: for example cross-entropy, averaged over the rows. Not in the papers.

    >>> form = relu_pair(torch.ones(5, 1), torch.ones(1, 5), torch.ones(1, 1), lambda f: f.square().sum() / 2)
    >>> form["bulk + 1"].value, form["bulk + 1"].multiplicity
    (5.0, 4)
    """
    (W1, W2), X = weights_and_inputs([W1, W2], X)
    patterns, members = _patterns(W1, X, slope)
    R = torch.einsum("ik,gi,id->gkd", grad(loss)(_outputs(W1, W2, X, slope)), patterns, X)
    folds = _folds(W1, W2, members, R)
    V1, V2 = _compressed(folds, W1, W2)
    slopes = patterns.repeat_interleave(torch.tensor([fold.rank for fold in folds]), 0).T

    def compressed_loss(theta: Tensor) -> Tensor:
        A, B = theta.split([V1.numel(), V2.numel()])
        return loss((slopes * (X @ A.view_as(V1).T)) @ B.view_as(V2).T)

    return _closed_form(folds, _dense(compressed_loss, V1, V2), W1, W2)


@dataclass(frozen=True, eq=False)
class Fold:
    """Hidden units that act as one linear pair: which they are, the directions they use, and their R = ∂F/∂(W₂W₁)."""

    units: Int[Tensor, " m"]
    U: Float[Tensor, "m r"]
    R: Float[Tensor, "k d"]

    @property
    def rank(self) -> int:
        """r, the number of hidden directions that the weights use."""
        return self.U.shape[1]


def _outputs(W1: Tensor, W2: Tensor, X: Tensor, slope: float) -> Tensor:
    return torch.nn.functional.leaky_relu(X @ W1.T, slope) @ W2.T


def _patterns(W1: Tensor, X: Tensor, slope: float) -> tuple[Tensor, Tensor]:
    """The distinct slope patterns (g, N), and for each unit which of them is its own."""
    active, members = (X @ W1.T > 0).T.unique(dim=0, return_inverse=True)
    return active.to(X) + slope * (~active).to(X), members


def _folds(W1: Tensor, W2: Tensor, members: Tensor, R: Tensor) -> list[Fold]:
    patterns = [(members == g).nonzero()[:, 0] for g in range(len(R))]
    return [Fold(units, span(torch.cat([W1[units], W2.T[units]], 1)), R[g]) for g, units in enumerate(patterns)]


def _compressed(folds: list[Fold], W1: Tensor, W2: Tensor, num_rest: int = 0) -> tuple[Tensor, Tensor]:
    """The weights UᵀW₁ and W₂U of the network of Σ r_g hidden units; refused where its Hessian would be too large."""
    _check_rows(sum(fold.rank for fold in folds), W1.shape[1] + len(W2), num_rest, len(folds))
    V1 = torch.cat([fold.U.T @ W1[fold.units] for fold in folds])
    return V1, torch.cat([W2[:, fold.units] @ fold.U for fold in folds], 1)


def _check_rows(r: int, ends: int, num_rest: int, num_patterns: int) -> None:
    rows = r * ends + num_rest
    if rows > ROWS:
        patterns = f" in {num_patterns} activation patterns" if num_patterns > 1 else ""
        raise ArgumentError(
            f"The compressed Hessian would have {rows:,} rows: {r} hidden directions{patterns}, D + K = {ends}.",
            f"That matrix of r(D + K) rows, whatever the width, would be formed and diagonalised: {ROWS:,} rows at "
            "most.",
            "Measure it instead: ritz.spectral_density(ritz.hessian(risk)) takes products only.",
            "Give fewer inputs or outputs, or for ReLU fewer examples, so that units share their patterns.",
        )


def _squared_error_hessian(weights: tuple[Tensor, Tensor], S: Tensor, folds: list[Fold]) -> Float[Tensor, "n n"]:
    """The Hessian of ℓ for units that belong to folds g with second moments S_gh = (1/N) Σᵢ a_gᵢ a_hᵢ xᵢxᵢᵀ.

    Blocks (W₂ᵀW₂ ⊗ Σ) and (I ⊗ W₁ΣW₁ᵀ) as in Singh et al. (2026), D.3.3, for rows stacked one after another.
    """
    W1, W2 = weights
    (r, d), k = W1.shape, len(W2)
    fold_of = torch.arange(len(folds)).repeat_interleave(torch.tensor([fold.rank for fold in folds]))
    S = S[fold_of][:, :, fold_of]  # (r, d, r, d)
    WS = torch.einsum("adbe,be->adb", S, W1)
    H = W1.new_zeros(r * (d + k), r * (d + k))
    H[: r * d, : r * d] = ((W2.T @ W2)[:, None, :, None] * S).reshape(r * d, r * d)
    H[r * d :, r * d :] = torch.block_diag(*[torch.einsum("ad,adb->ab", W1, WS)] * k)
    across = torch.einsum("ka,adb->adkb", W2, WS)
    across[torch.arange(r), :, :, torch.arange(r)] += torch.stack([fold.R.T for fold in folds])[fold_of]
    H[: r * d, r * d :] = across.reshape(r * d, k * r)
    H[r * d :, : r * d] = H[: r * d, r * d :].T
    return H


def _dense(loss: Callable[[Tensor], Tensor], *parts: Tensor) -> Float[Tensor, "n n"]:
    theta = torch.cat([part.flatten() for part in parts])
    if not len(theta):  # all weights are zero; jacfwd takes no empty vector
        return torch.zeros(0, 0).to(theta)
    H = jacfwd(grad(loss))(theta)
    return (H + H.T) / 2


def _closed_form(folds: list[Fold], H: Tensor, W1: Tensor, W2: Tensor, num_rest: int = 0) -> ClosedForm:
    (m, d), k = W1.shape, len(W2)
    r = sum(fold.rank for fold in folds)

    def lift(Z: Tensor) -> Tensor:
        A, B, phi = Z.split([r * d, k * r, num_rest])
        A, B = A.unflatten(0, (r, d)), B.unflatten(0, (k, r))  # which may be empty: all weights are zero
        return torch.cat([_unfolded(folds, A, m), _unfolded(folds, B, m, 1), phi])

    outliers = _with_one_zero(eigenlines(H, "outlier", lift))
    prefixes = [f"pattern {g + 1}, " if len(folds) > 1 else "" for g in range(len(folds))]
    bulks = [_bulk(prefix, fold, m, num_rest) for prefix, fold in zip(prefixes, folds, strict=True)]
    return ClosedForm([*outliers, *(line for bulk in bulks for line in bulk)])


def _with_one_zero(lines: list[Group]) -> list[Group]:
    """The lines with those of rounding size merged into one zero line."""
    rounding = len(lines) * EPS * max((abs(line.value) for line in lines), default=0.0)
    zeros = [line for line in lines if abs(line.value) <= rounding]

    def basis(count: int) -> Tensor:
        return torch.cat([line.basis(1) for line in zeros[:count] if line.basis], 1)

    return [*(line for line in lines if abs(line.value) > rounding), Group("zero", 0.0, len(zeros), basis)]


def _unfolded(folds: list[Fold], A: Tensor, m: int, dim: int = 0) -> Tensor:
    """Hidden dimension `dim` of A spread from the r directions over the m units; flat but for the last dimension."""
    out = A.new_zeros(*(m if i == dim else size for i, size in enumerate(A.shape)))
    pieces = A.split([fold.rank for fold in folds], dim)
    for fold, piece in zip(folds, pieces, strict=True):
        out.index_copy_(dim, fold.units, torch.tensordot(fold.U, piece, ([1], [dim])).movedim(0, dim))
    return out.flatten(0, 1)


def _bulk(prefix: str, fold: Fold, m: int, num_rest: int) -> list[Group]:
    """Lines ±σᵢ(R): (dW₁, dW₂) = (h bᵢᵀ, ±aᵢ hᵀ)/√2 for every h ⟂ U; zeros (h bᵀ, 0) or (0, a hᵀ) where D ≠ K."""
    A, sigma, Bt = torch.linalg.svd(fold.R)
    count, q = len(fold.U) - fold.rank, len(sigma)

    def basis(a: Tensor, b: Tensor) -> Callable[[int], Tensor]:
        def vectors(number: int) -> Tensor:
            h = a.new_zeros(m, number)
            h[fold.units] = complement(fold.U, number)
            parts = [torch.einsum("mc,d->mdc", h, b), torch.einsum("k,mc->kmc", a, h)]
            return torch.cat([*(part.flatten(0, 1) for part in parts), a.new_zeros(num_rest, number)])

        return vectors

    root = 0.5**0.5
    lines = [
        Group(f"{prefix}bulk {sign} {i + 1}", s * float(sigma[i]) + 0.0, count, basis(s * root * A[:, i], root * Bt[i]))
        for sign, s in (("+", 1.0), ("-", -1.0))
        for i in range(q)
    ]
    flat = [(A[:, i], torch.zeros_like(Bt[0])) for i in range(q, len(A))]
    flat += [(torch.zeros_like(A[:, 0]), Bt[i]) for i in range(q, len(Bt))]
    return lines + [Group(f"{prefix}bulk 0, {i + 1}", 0.0, count, basis(a, b)) for i, (a, b) in enumerate(flat)]
