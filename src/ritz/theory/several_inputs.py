"""Two-layer linear networks with several inputs or outputs, each of which has weights of its own."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ArgumentError
from .arguments import check_lengths, check_sizes, matrix, vector
from .closed_form import ClosedForm
from .inner_products import Pair, pair_lines


def multi_input_network(
    V: Float[Tensor, "d m"],
    W: Float[Tensor, "d m"],
    X: Float[Tensor, "N d"],
    y: Float[Tensor, " N"],
    *,
    gauss_newton: bool = False,
) -> ClosedForm:
    """H of f(x) = Σ_d ⟨w_d,v_d⟩x_d: bulk ±δx_d (m - 1 each), 2D outliers eig diag(δx₁, -δx₁, …) + P Σ Pᵀ.

    Rows are w_d and v_d, coordinates (V, W). Where Σ = XᵀX/N is diagonal, the inputs decouple and each has lines of
    its own ("input 1, outlier 1"): Singh et al. (2026), Cor B.1 and eq. (113). Not in the papers for correlated
    inputs.

    >>> W, X = torch.eye(2), torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    >>> multi_input_network(W, W, X, torch.zeros(2))["input 1, bulk +"].value
    1.0
    """
    V, W, X, y = matrix("V", V), matrix("W", W), matrix("X", X), vector("y", y)
    _check_rows(V, W)
    check_sizes(f"W of shape {tuple(W.shape)} is applied to X of shape {tuple(X.shape)}", X.shape[1], len(W))
    check_lengths(X=X, y=y)
    delta = (X @ (W * V).sum(1) - y) @ X / len(X)
    slopes = 0.0 * delta if gauss_newton else delta
    return ClosedForm(pair_lines(_row_pairs(V, W, "input"), slopes, X.T @ X / len(X), 2 * W.numel()))


def diagonal_network(
    v: Float[Tensor, " d"],
    w: Float[Tensor, " d"],
    X: Float[Tensor, "N d"],
    y: Float[Tensor, " N"],
    *,
    gauss_newton: bool = False,
) -> ClosedForm:
    """H of the diagonal linear network f(x) = Σ_d w_d v_d x_d: `multi_input_network` with m = 1, so no bulk.

    Singh et al. (2026), App. B.4.1.

    >>> one, X = torch.ones(2), torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    >>> round(diagonal_network(one, one, X, torch.zeros(2))["input 1, outlier 1"].value, 9)
    3.0
    """
    v, w = vector("v", v), vector("w", w)
    return multi_input_network(v[:, None], w[:, None], X, y, gauss_newton=gauss_newton)


def multi_output_network(
    V: Float[Tensor, "k m"],
    W: Float[Tensor, "k m"],
    x: Float[Tensor, " N"],
    Y: Float[Tensor, "N k"],
    *,
    gauss_newton: bool = False,
) -> ClosedForm:
    """H of f(x)_k = ⟨w_k,v_k⟩x: one linear network for each output, "output 1, bulk +" and so on.

    Rows are w_k and v_k, coordinates (V, W). Singh et al. (2026), Cor B.2 and Cor B.3; the sign as in `linear_network`.

    >>> W = torch.eye(2)
    >>> multi_output_network(W, W, torch.ones(1), torch.zeros(1, 2))["output 2, bulk -"].value
    -1.0
    """
    V, W, x, Y = matrix("V", V), matrix("W", W), vector("x", x), matrix("Y", Y)
    _check_rows(V, W)
    check_sizes(f"W of shape {tuple(W.shape)} is compared with Y of shape {tuple(Y.shape)}", Y.shape[1], len(W))
    check_lengths(x=x, Y=Y)
    delta = x @ (torch.outer(x, (W * V).sum(1)) - Y) / len(x)
    curvature = x.square().mean() * torch.eye(len(W), dtype=x.dtype, device=x.device)
    return ClosedForm(
        pair_lines(_row_pairs(V, W, "output"), 0.0 * delta if gauss_newton else delta, curvature, 2 * W.numel())
    )


def _row_pairs(V: Tensor, W: Tensor, what: str) -> list[Pair]:
    rows = torch.arange(2 * W.numel()).reshape(2, *W.shape)
    return [Pair(f"{what} {i + 1}, ", W[i], V[i], rows[:, i].flatten()) for i in range(len(W))]


def _check_rows(V: Tensor, W: Tensor) -> None:
    if W.shape != V.shape:
        raise ArgumentError(
            f"W has shape {tuple(W.shape)} and V has shape {tuple(V.shape)}.",
            "Row d of both holds the weights of input (or output) d: w_d and v_d, m entries each.",
            "Give both as D × m (or K × m) tensors, without the zero blocks of the papers' block-diagonal form.",
        )
