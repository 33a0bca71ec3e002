"""Weights and data as the closed forms want them: float64 on the CPU, finite, of shapes that fit together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..errors import ArgumentError
from .closed_form import Group
from .layer_products import Weights

EPS = torch.finfo(torch.float64).eps


def matrix(name: str, A: Tensor) -> Float[Tensor, "a b"]:
    """A in float64 on the CPU; refused unless it is a finite matrix with entries."""
    finite = bool(A.isfinite().all())
    if A.ndim != 2 or not A.numel() or not finite:
        raise ArgumentError(
            f"{name} has shape {tuple(A.shape)}{'' if finite else ' and NaN or infinite entries'}.",
            "A closed form takes finite matrices: weights are out × in, data are rows (N × D, N × K).",
            f"Give {name} two dimensions, for instance {name}[:, None] for a single column.",
        )
    return A.detach().to("cpu", torch.float64)


def layers(weights: Sequence[Tensor]) -> list[Tensor]:
    """W₁ … W_L in float64; refused unless each takes what the one before it gives."""
    if not len(weights):
        raise ArgumentError(
            "No weights were given.",
            "A network has at least one layer.",
            "Pass a sequence W1, …, WL of out × in matrices.",
        )
    found = [matrix(f"W{i}", W) for i, W in enumerate(weights, 1)]
    for i, (W, after) in enumerate(pairwise(found), 1):
        fits(f"W{i + 1} {tuple(after.shape)} follows W{i} {tuple(W.shape)}", after.shape[1], len(W))
    return found


def fits(seen: str, found: int, wanted: int) -> None:
    """Refuse two sizes that should agree and do not."""
    if found != wanted:
        raise ArgumentError(
            f"{seen}: {found} is not {wanted}.",
            "Weights are out × in (y = W x), data are rows: X is N × D, Y is N × K.",
            "Transpose the one that is the other way round.",
        )


def regression(weights: Sequence[Tensor], X: Tensor, Y: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
    """Weights, inputs and targets of one linear regression, in float64 and fitting together."""
    (Ws, X), Y = applied(weights, X), matrix("Y", Y)
    fits(f"The last layer {tuple(Ws[-1].shape)} is compared with Y {tuple(Y.shape)}", Y.shape[1], len(Ws[-1]))
    fits(f"X has {len(X)} rows and Y has {len(Y)}", len(Y), len(X))
    return Ws, X, Y


def applied(weights: Sequence[Tensor], X: Tensor) -> tuple[list[Tensor], Tensor]:
    """Weights and inputs, in float64 and fitting together."""
    Ws, X = layers(weights), matrix("X", X)
    fits(f"W1 {tuple(Ws[0].shape)} is applied to X {tuple(X.shape)}", X.shape[1], Ws[0].shape[1])
    return Ws, X


def stacked(weights: Weights) -> list[Float[Tensor, "*B _ _"]]:
    """W₁ … W_L of one network, as `layers` has them; those of a stack in float64 on their own device.

    A stack may have networks with NaN or infinite entries, since training diverges: what is computed of them is NaN.
    """
    if not len(weights) or all(W.ndim == 2 for W in weights):
        return layers(weights)
    for i, (W, after) in enumerate(pairwise(weights), 1):
        fits(f"W{i + 1} {tuple(after.shape)} follows W{i} {tuple(W.shape)}", after.shape[-1], W.shape[-2])
    return [W.detach().double() for W in weights]


def stacked_on(
    weights: Weights, X: Float[Tensor, "*b N d"] | float
) -> tuple[list[Float[Tensor, "*B _ _"]], Float[Tensor, "*b q d"]]:
    """Weights, and R with RᵀR = XᵀX/N of at most d rows; R = σₓI where data are told by σₓ."""
    Ws = stacked(weights)
    d = Ws[0].shape[-1]
    if not isinstance(X, Tensor):
        return Ws, X * torch.eye(d).to(Ws[0])
    rows = (matrix("X", X) if X.ndim == 2 else X.detach()).to(Ws[0]) / X.shape[-2] ** 0.5
    fits(f"W1 {tuple(Ws[0].shape)} is applied to X {tuple(X.shape)}", X.shape[-1], d)
    return Ws, rows if rows.shape[-2] <= d else torch.linalg.qr(rows, mode="r").R


def span(A: Float[Tensor, "m q"]) -> Float[Tensor, "m r"]:
    """An orthonormal basis of the columns of A: its left singular vectors, those of rounding size left out."""
    U, S, _ = torch.linalg.svd(A, full_matrices=False)
    return U[:, above_rounding(S, A)]


def above_rounding(sigma: Float[Tensor, " r"], A: Float[Tensor, "a b"]) -> Bool[Tensor, " r"]:
    """Which singular values of A, given in the precision that it came in, are more than rounding made of zeros.

    In float64 it is the decomposition that rounds, by max(a, b) · eps · σ₁. Where A is coarser, its own rounding is the
    larger error: entries are off by up to eps/2 of themselves, and being independent, together by less than eps · σ₁.
    """
    eps = torch.finfo(A.dtype).eps
    return sigma > (max(A.shape) * eps if A.dtype == torch.float64 else eps) * sigma.amax()


def eigenlines(A: Float[Tensor, "r r"], name: Callable[[int], str], lift: Callable[[Tensor], Tensor]) -> list[Group]:
    """One group for each eigenvalue of a small symmetric matrix, largest first.

    Eigenvectors (r, k) are computed when the first is asked for; `lift` maps them to those of the large one, (n, k).
    """

    @cache
    def vectors() -> Tensor:
        return torch.linalg.eigh(A).eigenvectors.flip(1)

    def column(i: int) -> Callable[[int], Tensor]:
        return lambda count: lift(vectors()[:, i : i + count])

    values = torch.linalg.eigvalsh(A).flip(0).tolist()
    return [Group(name(i), value, 1, column(i)) for i, value in enumerate(values)]
