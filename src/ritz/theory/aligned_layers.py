"""Deep linear networks whose layers share singular vectors: the whole Hessian, at any loss, in blocks of 2L rows.

A direction i of the data passes through the layers with factors s_{1,i} … s_{L,i} and leaves a residual ρᵢ. For each
pair {i, j}, the Hessian then couples the entries Aᵢⱼ and Aⱼᵢ of all layers with one another, and with no others.
Not in the papers; strongly balanced networks at a minimum (linear2026, Sec. 3 and 4) are the case s_{ℓ,i} = sᵢ, ρ = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod, sqrt

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..errors import ArgumentError
from .arguments import matrix, regression
from .assumptions import TOLERANCE, white_scale
from .bases import EPS, above_rounding, complement
from .closed_form import ClosedForm, Group
from .layer_products import product

LINKED = 1e-10  # a factor below this times the norm ends a direction: above the rounding accumulated around the circle
ROUNDED = 1e-12  # a residual below this times the terms of its difference is taken for zero
SAME = 1e-7  # of the largest, between eigenvalues of one eigenspace: rounding turns vectors by less across a larger gap
Spaces = tuple[Float[Tensor, "p p"], Float[Tensor, " p"]]
Inputs = tuple[Float[Tensor, "p p"], Float[Tensor, " p"], Float[Tensor, "p t"]]  # and what is taken of them
GOLDEN = 0.6180339887498949  # multiples of it, modulo one, are spread as evenly as can be


@dataclass(frozen=True, eq=False)
class Directions:
    """q directions through a network of L layers: factors, residuals, and the levels 0 … L at which each exists."""

    factors: Float[Tensor, "l q"]  # zero where the direction ends
    residuals: Float[Tensor, " q"]  # ρ, with R = (1/N)(f(X) - Y)ᵀX = Σᵢ ρᵢ u_{L,i}u_{0,i}ᵀ
    present: Bool[Tensor, "l1 q"]
    bases: tuple[Float[Tensor, "_ q"], ...] | None = None  # u_{ℓ,i}, zero where absent; None: not known


def aligned_linear(
    weights: Sequence[Tensor], X: Float[Tensor, "N d"], Y: Float[Tensor, "N k"], *, gauss_newton: bool = False
) -> ClosedForm:
    """spec ∇²ℓ = ∪_{i≤j} spec(σₓ²(gᵢⱼgᵢⱼᵀ ⊕ gⱼᵢgⱼᵢᵀ) + Fᵢⱼ), blocks of 2L rows, where W_ℓ = U_ℓS_ℓU_{ℓ-1}ᵀ.

    gᵢⱼ has the entries Π_{k>ℓ}s_{k,i} Π_{k<ℓ}s_{k,j}; F couples Aᵏᵢⱼ and Aˡⱼᵢ, k > l, by
    ρᵢ Π_{m>k}s_{m,i} Π_{l<m<k}s_{m,j} Π_{m<l}s_{m,i}. The layers need not be balanced, nor the loss zero; X must be
    white and R = (1/N)(f(X) - Y)ᵀX aligned as well: true of balanced layers at and on the way to a minimum. Lines
    "directions i, j: n"; what rounding cannot tell from zero is one line "zero". Not in the papers.

    >>> W, X = torch.eye(1), torch.ones(1, 1)
    >>> aligned_linear([2 * W, W], X, 2 * X)
    ClosedForm(2 eigenvalues, 2 lines)
      directions 1, 1: 2  5  × 1
      zero                0  × 1
    """
    Ws, X, Y = regression(weights, X, Y)
    sigma_x = white_scale(X)
    R = (X @ product(Ws).T - Y).T @ X / len(X)
    norms = [float(torch.linalg.matrix_norm(W, 2)) for W in Ws]
    scale = sigma_x**2 * prod(norms) + float((Y.T @ X).norm()) / len(X)  # what R is a difference of
    return _lines(_directions(Ws, R * (not gauss_newton), [*norms, scale]), sigma_x)


def balanced_linear(
    singular_values: Float[Tensor, " r"],
    widths: Sequence[int],
    sigma_x: float,
    *,
    residuals: Float[Tensor, " q"] | None = None,
) -> ClosedForm:
    """λᵢⱼ = σₓ² Σ_ℓ σᵢ^(2(L-ℓ)) σⱼ^(2(ℓ-1)), i ≤ d_L, j ≤ d₀, singular values continued by zeros, 0⁰ = 1; else zero.

    Strongly balanced layers of `widths` (d₀, …, d_L), each with the given singular values; those of the product
    W_L ⋯ W₁ are their L-th powers, so that `svdvals(product) ** (1 / L)` are those of a layer. It holds where
    (f(X) - Y)ᵀX = 0; elsewhere give `residuals` ρ, the diagonal of U_Lᵀ R U₀. Without weights there are no
    eigenvectors: see `aligned_linear`. linear2026, eq. (8), (9a), (9b); its index set, min(d)² lines, is right for
    d₀ = d_L = min(d) alone.

    >>> balanced_linear(torch.tensor([2.0]), (1, 1, 1), 1.0)
    ClosedForm(2 eigenvalues, 2 lines)
      singular values 1, 1  8  × 1
      zero                  0  × 1
    """
    sigma, widths = _check_balanced(singular_values, widths)
    if residuals is None and len(widths) > 2:
        return _balanced_minimum(sigma[sigma > 0], widths, sigma_x)
    depth, q = len(widths) - 1, max(widths)
    rho = sigma.new_zeros(q)
    if residuals is not None:
        _check_residuals(residuals, widths)
        rho[: len(residuals)] = residuals.detach().to(sigma)
    factors = sigma.new_zeros(depth, q)
    factors[:, : len(sigma)] = sigma
    present = torch.arange(q) < torch.tensor(list(widths))[:, None]
    return _lines(Directions(factors, rho, present), sigma_x)


def balanced_solution(
    X: Float[Tensor, "N d"], Y: Float[Tensor, "N k"], depth: int, widths: int | Sequence[int]
) -> ClosedForm:
    """σᵢ(W)^L = σᵢ(YᵀX)/(Nσₓ²), hence λ_max = Lσₓ² σ₁(W)^(2(L-1)): the balanced least-squares minimum, from data alone.

    `widths` are those of the hidden layers. linear2026, eq. (12), (13), (14), which need zero loss and have σᵢ(Y)/(√N
    σₓ); with YᵀX in its place they hold at the minimum however large its loss. Where a hidden layer is narrower than
    the rank of YᵀX, what it cuts off remains as residual ρᵢ = -σᵢ(YᵀX)/N and the Hessian is more than G.

    >>> X = torch.ones(1, 1)
    >>> balanced_solution(X, 4 * X, 2, 1).scale
    8.0
    """
    X, Y = matrix("X", X), matrix("Y", Y)
    sigma_x = white_scale(X)
    hidden = [widths] * (depth - 1) if isinstance(widths, int) else list(widths)
    if depth < 1 or len(hidden) != depth - 1 or len(X) != len(Y):
        raise ArgumentError(
            f"A network of depth {depth} was given {len(hidden)} hidden widths; X has {len(X)} rows, Y has {len(Y)}.",
            "A network of L layers has L - 1 hidden widths, and every input row its target row.",
            "Pass one integer for hidden layers of equal width.",
        )
    moments = torch.linalg.svdvals(Y.T @ X) / len(X)
    moments = torch.where(above_rounding(moments, X), moments, 0.0)
    kept = torch.arange(len(moments)) < min([len(moments), *hidden])
    rho = torch.where(kept, 0.0, -moments)
    sigma = (moments[kept] / sigma_x**2) ** (1 / depth) if sigma_x else moments[kept]
    all_widths = [X.shape[1], *hidden, Y.shape[1]]
    return balanced_linear(sigma, all_widths, sigma_x, residuals=rho if bool(rho.any()) else None)


def _balanced_minimum(sigma: Tensor, widths: Sequence[int], sigma_x: float) -> ClosedForm:
    """The lines of `balanced_linear` at R = 0: r(d₀ + d_L - r) of them do not vanish."""
    depth, r = len(widths) - 1, len(sigma)
    powers = torch.stack([sigma ** (2 * k) for k in range(depth)])
    values = (sigma_x**2 * powers.flip(0).T @ powers).tolist()
    lines = [
        Group(f"singular values {i + 1}, {j + 1}", values[i][j], 1 if i == j else 2)
        for i in range(r)
        for j in range(i, r)
    ]
    beyond = widths[0] + widths[-1] - 2 * r
    edges = [Group(f"singular value {i + 1}, none", sigma_x**2 * float(powers[-1, i]), beyond) for i in range(r)]
    size = sum(a * b for a, b in pairwise(widths))
    return ClosedForm([*lines, *edges, Group("zero", 0.0, size - r * (widths[0] + widths[-1] - r))])


def _lines(directions: Directions, sigma_x: float) -> ClosedForm:
    """Diagonalise all blocks at once. Entries that do not exist are moved above every eigenvalue, and dropped."""
    first, second = torch.triu_indices(len(directions.residuals), len(directions.residuals))
    blocks, exists = _blocks(directions, first, second, sigma_x)
    above = 2 * blocks.square().sum((1, 2)).sqrt() + 1e-300
    above = torch.where(above > 1e-200, above, 1.0)
    values, vectors = torch.linalg.eigh(blocks + torch.diag_embed((~exists) * above[:, None]))
    block, line = (torch.arange(values.shape[1]) < exists.sum(1, keepdim=True)).nonzero().T
    eigenvalues, Z = values[block, line], vectors[block, :, line].T  # (2L, n)
    small = eigenvalues.abs() <= 100 * EPS * float(eigenvalues.abs().max())

    def lifted(which: Tensor) -> Tensor:
        return _lift(directions, first[block[which]], second[block[which]], Z[:, which])

    def basis(which: Tensor) -> Callable[[int], Tensor] | None:
        return None if directions.bases is None else lambda count: lifted(which[:count])

    def name(b: int, n: int) -> str:
        return f"directions {int(first[b]) + 1}, {int(second[b]) + 1}: {n + 1}"

    kept, zeros = (~small).nonzero()[:, 0], small.nonzero()[:, 0]
    groups = [Group(name(int(block[n]), int(line[n])), float(eigenvalues[n]), 1, basis(n[None])) for n in kept]
    return ClosedForm([*groups, Group("zero", 0.0, len(zeros), basis(zeros))])


def _blocks(directions: Directions, i: Tensor, j: Tensor, sigma_x: float) -> tuple[Tensor, Tensor]:
    """Blocks (b, 2L, 2L) for pairs (i, j), entries (A¹ᵢⱼ … Aᴸᵢⱼ, A¹ⱼᵢ … Aᴸⱼᵢ), and which of their entries exist."""
    s, rho, present = directions.factors, directions.residuals, directions.present
    same = (i == j)[:, None, None]
    exists = torch.cat([present[1:, i] & present[:-1, j], present[1:, j] & present[:-1, i] & (i != j)]).T
    G, Gt = (sigma_x**2 * g[:, :, None] * g[:, None, :] for g in (_gradient(s, i, j), _gradient(s, j, i)))
    F, Ft = _coupling(s, rho, i, j), _coupling(s, rho, j, i).mT
    across = torch.where(same, 0.0, F + Ft)
    blocks = torch.cat([torch.cat([G + torch.where(same, F + Ft, 0.0), across], 2), torch.cat([across.mT, Gt], 2)], 1)
    return torch.where(exists[:, :, None] & exists[:, None, :], blocks, 0.0), exists


def _gradient(s: Tensor, i: Tensor, j: Tensor) -> Float[Tensor, "b l"]:
    """∂(U_LᵀfU₀)ᵢⱼ/∂Aˡᵢⱼ = Π_{k>l}s_{k,i} Π_{k<l}s_{k,j}."""
    return torch.stack([s[k + 1 :, i].prod(0) * s[:k, j].prod(0) for k in range(len(s))], 1)


def _coupling(s: Tensor, rho: Tensor, i: Tensor, j: Tensor) -> Float[Tensor, "b l l"]:
    """ρᵢ Π_{m>k}s_{m,i} Π_{l<m<k}s_{m,j} Π_{m<l}s_{m,i} at (k, l) with k > l: between Aᵏᵢⱼ and Aˡⱼᵢ."""
    F = s.new_zeros(len(i), len(s), len(s))
    for k in range(len(s)):
        for low in range(k):
            F[:, k, low] = rho[i] * s[k + 1 :, i].prod(0) * s[low + 1 : k, j].prod(0) * s[:low, i].prod(0)
    return F


def _lift(directions: Directions, i: Tensor, j: Tensor, Z: Float[Tensor, "l2 c"]) -> Float[Tensor, "n c"]:
    """dW_ℓ = z_ℓ u_{ℓ,i}u_{ℓ-1,j}ᵀ + z_{L+ℓ} u_{ℓ,j}u_{ℓ-1,i}ᵀ, flat, column by column."""
    U = directions.bases
    assert U is not None
    depth = len(U) - 1
    parts = [
        (Z[k] * U[k + 1][:, i])[:, None] * U[k][:, j] + (Z[depth + k] * U[k + 1][:, j])[:, None] * U[k][:, i]
        for k in range(depth)
    ]
    return torch.cat([part.flatten(0, 1) for part in parts])


def _directions(weights: Sequence[Tensor], R: Tensor, norms: Sequence[float]) -> Directions:
    """The common singular directions of W₁ … W_L and R, found by following them around the circle of these maps.

    A direction begins outside the range of a layer and continues, from the last layer to the inputs through Rᵀ, until a
    factor is zero; the remaining ones begin at the inputs. `norms` are those of the layers, and the scale for R.
    """
    R = R if float(R.norm()) > ROUNDED * norms[-1] else torch.zeros_like(R)
    between = sqrt(float(R.norm()) * norms[-1])  # R splits what the layers leave equal; its rounding stays small
    maps = [C / (norm or 1.0) for C, norm in zip([*weights, R.T], [*norms[:-1], between], strict=True)]
    least = [*[LINKED] * len(weights), ROUNDED * norms[-1] / (between or 1.0)]
    depth, pieces, at_input = len(weights), [], [R.new_zeros(R.shape[1], 0)]
    spaces = _input_spaces(maps[:-1])
    for level in [*range(1, depth + 1), 0]:
        reached = _range(maps[level - 1]) if level else torch.cat(at_input, 1)
        left = max(len(reached) - reached.shape[1], 0)  # none where more directions arrive than can be orthogonal
        free = complement(reached, left) if left else reached[:, :0]
        inputs = (*spaces, torch.cat(at_input, 1))
        pieces.append(_unit_vectors(maps, least, level, free @ _common_eigenvectors(maps, level, free), inputs))
        at_input.append(pieces[-1][0][:, pieces[-1][0].any(0)])
    bases = [torch.cat([piece[level] for piece in pieces], 1) for level in range(depth + 1)]
    factors = torch.stack([((U.T @ W).T * V).sum(0) for W, V, U in zip(weights, bases, bases[1:], strict=False)])
    residuals = ((bases[-1].T @ R).T * bases[0]).sum(0)
    order = factors.sum(0).argsort(descending=True, stable=True)
    bases = [U[:, order] for U in bases]
    directions = Directions(factors[:, order], residuals[order], torch.stack([U.any(0) for U in bases]), tuple(bases))
    _check_aligned(directions, [*weights, R], norms)
    return directions


def _range(C: Tensor) -> Tensor:
    U, S, _ = torch.linalg.svd(C, full_matrices=False)
    return U[:, S > LINKED]


def _common_eigenvectors(maps: Sequence[Tensor], level: int, free: Float[Tensor, "d q"]) -> Float[Tensor, "q q"]:
    """Eigenvectors that all TᵀT share, T being the maps after `level` on the circle: those of one combination."""
    T, total = free, free.new_zeros(free.shape[1], free.shape[1])
    for step in range(len(maps)):
        T = maps[(level + step) % len(maps)] @ T
        total = total + (1 + (step * GOLDEN) % 1) * T.T @ T
    loop = free.T @ T  # once around; its sign tells ρ from -ρ
    return torch.linalg.eigh(total + GOLDEN * (loop + loop.T)).eigenvectors


def _input_spaces(layers: Sequence[Tensor]) -> Spaces:
    """Eigenvectors at the inputs that all layers share, and for each the number of its eigenspace."""
    identity = torch.eye(layers[0].shape[1]).to(layers[0])
    T, total = identity, torch.zeros_like(identity)
    for step, W in enumerate(layers):
        T = W @ T
        total = total + (1 + (step * GOLDEN) % 1) * T.T @ T
    values, vectors = torch.linalg.eigh(total)
    return vectors, torch.cat([values.new_zeros(1), (values.diff() > SAME * values.abs().max()).to(values)]).cumsum(0)


def _in_their_spaces(V: Float[Tensor, "d q"], inputs: Inputs) -> Float[Tensor, "d q"]:
    """Each column projected onto the space that contains most of it, without the directions already there.

    A small residual is a difference of large numbers, and so tilts the directions that pass through it: a component
    that rounding puts into another eigenspace of the layers would continue through them as a direction of its own.
    """
    vectors, number, taken = inputs
    C = vectors.T @ (V - taken @ (taken.T @ V))
    shares = torch.stack([C[number == n].square().sum(0) for n in range(int(number[-1]) + 1)])
    return vectors @ torch.where(number[:, None] == shares.argmax(0), C, 0.0)


def _unit_vectors(
    maps: Sequence[Tensor], least: Sequence[float], start: int, V: Float[Tensor, "d q"], inputs: Inputs
) -> dict[int, Tensor]:
    """The unit vectors u_{ℓ,i} ∝ C u_{ℓ-1,i} of directions that begin with V, at every level; zero once they end.

    They end where a map shrinks them below its `least`. They are orthogonalised from the largest factor down, so that
    rounding in the large ones does not grow in the small.
    """
    vectors = {start: V}
    for step in range(len(maps) - 1):
        level = (start + step) % len(maps)
        image = maps[level] @ vectors[level]
        image = _in_their_spaces(image, inputs) if level + 1 == len(maps) else image
        alive = image.norm(dim=0) > least[level]
        order = image.norm(dim=0).argsort(descending=True)[: min(int(alive.sum()), len(image))]
        Q, triangle = torch.linalg.qr(image[:, order])
        following = torch.zeros_like(image)
        following[:, order] = Q * triangle.diagonal().sign()
        vectors[(level + 1) % len(maps)] = following
    return vectors


def _check_aligned(directions: Directions, matrices: Sequence[Tensor], norms: Sequence[float]) -> None:
    """Refuse matrices that the directions do not decompose: A = UdVᵀ, and AᵀU = Vd, for U need not be orthogonal."""
    assert directions.bases is not None
    pairs = [*zip(directions.bases[1:], directions.bases, strict=False), (directions.bases[-1], directions.bases[0])]
    parts = zip(matrices, pairs, [*directions.factors, directions.residuals], strict=True)
    gaps = [max(float((A - U * d @ V.T).norm()), float((A.T @ U - V * d).norm())) for A, (U, V), d in parts]
    errors = [gap / (norm or 1.0) for gap, norm in zip(gaps, norms, strict=True)]
    complete = all(int(here.sum()) == len(U) for here, U in zip(directions.present, directions.bases, strict=True))
    if max(errors) > TOLERANCE or not complete:
        raise ArgumentError(
            f"The layers and the residual share no singular vectors: they differ by {max(errors):.2g}, relative.",
            "The blocks need W_ℓ = U_ℓ S_ℓ U_{ℓ-1}ᵀ for all layers and R = (1/N)(f(X) - Y)ᵀX = U_L diag(ρ) U₀ᵀ.",
            "balanced_weights(M, hidden) makes such layers; with gauss_newton=True the residual does not matter.",
            "two_layer_linear takes any two layers, linear_gauss_newton any number.",
        )


def _check_residuals(residuals: Tensor, widths: Sequence[int]) -> None:
    if residuals.ndim != 1 or len(residuals) > min(widths[0], widths[-1]) or not bool(residuals.isfinite().all()):
        raise ArgumentError(
            f"Residuals of shape {tuple(residuals.shape)} were given for widths {tuple(widths)}.",
            "They are the diagonal of a matrix of d_L rows and d₀ columns, min(d₀, d_L) finite numbers at most.",
            "Give the widths as (inputs, hidden …, outputs), and leave out what lies beyond that diagonal.",
        )


def _check_balanced(singular_values: Tensor, widths: Sequence[int]) -> tuple[Tensor, Sequence[int]]:
    sigma = singular_values.detach().to("cpu", torch.float64)
    if sigma.ndim != 1 or len(widths) < 2 or min(widths) < max(len(sigma), 1) or not bool((sigma >= 0).all()):
        raise ArgumentError(
            f"Singular values of shape {tuple(sigma.shape)} were given for widths {tuple(widths)}.",
            "Balanced layers share at most min(d₀, …, d_L) singular values, none of them negative.",
            "Give the widths as (inputs, hidden …, outputs), and one vector of singular values.",
        )
    return sigma, widths
