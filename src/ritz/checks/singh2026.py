"""Checks of Singh et al. (2026), Sec. 3.1, 3.2 and 4.1: two-layer networks, and our generalisations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn.functional import leaky_relu, softplus

from .. import theory
from .check import Check
from .draws import normal, scale, whole, width
from .oracles import dense_gauss_newton, dense_hessian, squared_error

PAPER = "Singh et al. 2026"
Inputs = tuple[Any, ...]


def _scalar(generator: Generator, largest: int = 150) -> Inputs:
    """v, w, x, y of any width up to `largest` and any scale within 10^±3."""
    m, N = width(generator, 1, largest), whole(generator, 1, 30)
    return tuple(normal(generator, size, scale=scale(generator)) for size in (m, m, N, N))


def _scalar_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    w, x, y = normal(generator, 6), normal(generator, 9), normal(generator, 9)
    v = normal(generator, 6)
    nought = torch.zeros_like(w)
    return {
        "m = 1": (v[:1], w[:1], x, y),
        "w ∥ v": (-0.5 * w, w, x, y),
        "w = v": (w, w, x, y),
        "w = -v": (-w, w, x, y),
        "w = 0": (v, nought, x, y),
        "all weights zero": (nought, nought, x, y),
        "zero residual": (v, w, x, (w @ v) * x),
        "positive residual": (v, w, x, (w @ v - 3.0) * x),
        "negative residual": (v, w, x, (w @ v + 3.0) * x),
        "zero inputs": (v, w, 0 * x, y),
        "one example": (v, w, x[:1], y[:1]),
        "all zero": (nought, nought, 0 * x, 0 * y),
    }


def linear_hessian(v: Tensor, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """H of a linear network with scalar inputs and outputs, θ = (v, w)."""
    return dense_hessian(lambda v, w: squared_error((w @ v) * x, y), v, w)


def _linear_ggn(v: Tensor, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return dense_gauss_newton(lambda v, w: (w @ v) * x, v, w)


def _logistic(x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
    """Cross-entropy of a scalar network, plus a cosine that makes F'' negative in places."""
    return lambda c: softplus(-c * x * y.sign()).mean() + 0.3 * torch.cos(c)


def _any_loss(v: Tensor, w: Tensor, x: Tensor, y: Tensor) -> theory.ClosedForm:
    return theory.product_network(v, w, _logistic(x, y))


def _any_loss_oracle(v: Tensor, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return dense_hessian(lambda v, w: _logistic(x, y)(w @ v), v, w)


def _unit_scales(generator: Generator) -> Inputs:
    m, N = width(generator, 1, 150), whole(generator, 1, 30)
    return tuple(normal(generator, size) for size in (m, m, N, N))


def _cells_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    v, w, x, y = (normal(generator, size) for size in (6, 6, 9, 9))
    some = torch.tensor([1.0, 0, 1, 1, 0, 1]).to(v)
    return {
        **_scalar_degenerate(generator),
        "cell - empty": (v.abs(), w, x, y),
        "cell + empty": (-v.abs(), w, x, y),
        "no data in cell +": (v, w, -x.abs(), y),
        "no data in cell -": (v, w, x.abs(), y),
        "some v = 0": (v * some, w, x, y),
        "some x = 0": (v, w, x * (x.abs() > 0.5), y),
        "one unit per cell": (torch.tensor([1.0, -2.0]).to(v), w[:2], x, y),
    }


def relu_hessian(v: Tensor, w: Tensor, x: Tensor, y: Tensor, slope: float = 0.0) -> Tensor:
    """H of a ReLU network with scalar inputs and outputs, θ = (v, w)."""
    # leaky_relu(·, 0) has relu'(0) = 0, as relu has
    return dense_hessian(lambda v, w: squared_error(leaky_relu(torch.outer(x, v), slope) @ w, y), v, w)


def _leaky(v: Tensor, w: Tensor, x: Tensor, y: Tensor) -> theory.ClosedForm:
    return theory.relu_network(v, w, x, y, slope=0.1)


def _relu_ggn(v: Tensor, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return dense_gauss_newton(lambda v, w: torch.relu(torch.outer(x, v)) @ w, v, w)


def _bias(generator: Generator) -> Inputs:
    m, N = width(generator, 1, 100), whole(generator, 1, 30)
    return tuple(normal(generator, size, scale=scale(generator)) for size in (m, m, m, N, N))


def theorem_b1_inputs(generator: Generator, m: int | None = None) -> Inputs:
    """v, b, w, x, y as Thm B.1 assumes them: v ⟂ b of equal norm, x and y centred, var x = 1, no correlation."""
    m, N = m or width(generator, 2, 100), whole(generator, 4, 30)
    v, b = (scale(generator, 1.5) * torch.linalg.qr(normal(generator, m, 2)).Q).unbind(1)
    columns = torch.linalg.qr(torch.cat([torch.ones(N, 1, dtype=torch.float64), normal(generator, N, 2)], 1)).Q
    w = normal(generator, m, scale=scale(generator, 1.5))
    x, y = N**0.5 * columns[:, 1], scale(generator, 1) * float(w @ w + v @ v) * columns[:, 2]
    return v, b, w, x, y


def _theorem_b1_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    v, b, w, x, y = theorem_b1_inputs(generator)
    return {
        "m = 2": (torch.tensor([1.0, 2]).to(w), torch.tensor([-2.0, 1]).to(w), w[:2], x, y),
        "w = 0, so ρ = 0": (v, b, 0 * w, x, y),
        "w ∥ v": (v, b, 3 * v, x, y),
        "w = b": (v, b, b.clone(), x, y),
        "v = b = 0": (0 * v, 0 * b, w, x, y),
        "w ⟂ v, b": (
            v,
            b,
            w - torch.stack([v, b], 1) @ torch.linalg.lstsq(torch.stack([v, b], 1), w[:, None]).solution[:, 0],
            x,
            y,
        ),
        "y = 0": (v, b, w, x, 0 * y),
    }


def _bias_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    v, b, w = (normal(generator, 5) for _ in range(3))
    x, y = normal(generator, 9), normal(generator, 9)
    return {
        "m = 1": (v[:1], b[:1], w[:1], x, y),
        "m = 2": (v[:2], b[:2], w[:2], x, y),
        "m = 3": (v[:3], b[:3], w[:3], x, y),
        "b = 0": (v, 0 * b, w, x, y),
        "v = b": (v, v, w, x, y),
        "w ∥ v ∥ b": (2 * w, -w, w, x, y),
        "zero residual": (v, b, w, x, (w @ v) * x + w @ b),
        "all weights zero": (0 * w, 0 * w, 0 * w, x, y),
        "one example": (v, b, w, x[:1], y[:1]),
    }


def bias_hessian(v: Tensor, b: Tensor, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """H of a linear network whose hidden units have biases, θ = (v, b, w)."""
    return dense_hessian(lambda v, b, w: squared_error((w @ v) * x + w @ b, y), v, b, w)


def several_inputs(generator: Generator, D: int | None = None, m: int | None = None, *, correlated: bool) -> Inputs:
    """V, W, X, y of any scales: D inputs with m hidden units each."""
    D, m = D or whole(generator, 1, 5), m or width(generator, 1, 30)
    N = D + whole(generator, 1, 30)
    X = normal(generator, N, D, scale=scale(generator))
    if not correlated:
        X = N**0.5 * torch.linalg.qr(X).Q * torch.tensor([scale(generator, 1.5) for _ in range(D)]).to(X)
    else:
        X = X @ normal(generator, D, D)
    V, W = (normal(generator, D, m, scale=scale(generator)) for _ in range(2))
    return V, W, X, normal(generator, N, scale=scale(generator))


def _inputs_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    V, W, X, y = (normal(generator, *shape) for shape in ((3, 4), (3, 4), (8, 3), (8,)))
    return {
        "m = 1": (V[:, :1], W[:, :1], X, y),
        "D = 1": (V[:1], W[:1], X[:, :1], y),
        "W = V": (W, W, X, y),
        "W = -V": (-W, W, X, y),
        "an input that is zero": (V, W, X * torch.tensor([1.0, 0, 1]).to(X), y),
        "equal inputs": (V, W, X[:, [0, 0, 1]], y),
        "fewer examples than inputs": (V, W, X[:1], y[:1]),
        "zero residual": (V, W, X, X @ (W * V).sum(1)),
        "all weights zero": (0 * V, 0 * W, X, y),
    }


def _multi_input(V: Tensor, W: Tensor, X: Tensor, y: Tensor) -> Tensor:
    return dense_hessian(lambda V, W: squared_error(X @ (W * V).sum(1), y), V, W)


def diagonal(generator: Generator, D: int | None = None) -> Inputs:
    """v, w, X, y of any scales: one hidden unit for each of D inputs."""
    D, N = D or width(generator, 1, 40), whole(generator, 1, 30)
    v, w = (normal(generator, D, scale=scale(generator)) for _ in range(2))
    return v, w, normal(generator, N, D, scale=scale(generator)), normal(generator, N, scale=scale(generator))


def _diagonal_oracle(v: Tensor, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
    return dense_hessian(lambda v, w: squared_error(X @ (w * v), y), v, w)


def _outputs(generator: Generator) -> Inputs:
    K, m, N = whole(generator, 1, 5), width(generator, 1, 30), whole(generator, 1, 30)
    V, W = (normal(generator, K, m, scale=scale(generator)) for _ in range(2))
    return V, W, normal(generator, N, scale=scale(generator)), normal(generator, N, K, scale=scale(generator))


def _outputs_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    V, W, x, Y = (normal(generator, *shape) for shape in ((3, 4), (3, 4), (8,), (8, 3)))
    return {
        "m = 1": (V[:, :1], W[:, :1], x, Y),
        "K = 1": (V[:1], W[:1], x, Y[:, :1]),
        "W = V": (W, W, x, Y),
        "equal outputs": (V[[0, 0, 1]], W[[0, 0, 1]], x, Y[:, [0, 0, 1]]),
        "zero residual": (V, W, x, torch.outer(x, (W * V).sum(1))),
    }


def _multi_output(V: Tensor, W: Tensor, x: Tensor, Y: Tensor) -> Tensor:
    return dense_hessian(lambda V, W: squared_error(torch.outer(x, (W * V).sum(1)), Y), V, W)


def outlier_pairs(generator: Generator, m: int | None = None, D: int | None = None) -> Inputs:
    """V, w, X, y with orthogonal columns of V of equal norm and white inputs, for which Sec. 4.1 pairs the outliers."""
    D = D or whole(generator, 1, 6)
    m = m or width(generator, D, 40)
    N = D + whole(generator, 2, 30)
    V = scale(generator, 1.5) * torch.linalg.qr(normal(generator, m, D)).Q
    w = normal(generator, m, scale=scale(generator, 1.5))
    columns = torch.linalg.qr(normal(generator, N, D + 1)).Q
    sigma, kappa = scale(generator, 1.5), float(normal(generator, 1))
    X, noise = sigma * N**0.5 * columns[:, :D], scale(generator, 1) * sigma * float(w @ w + V[:, 0] @ V[:, 0])
    return V, w, X, kappa * (X @ (V.T @ w)) + noise * columns[:, D]


def _outlier_pairs_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    V, w, X, y = outlier_pairs(generator, 5, 3)
    return {
        "m = D": outlier_pairs(generator, 3, 3),
        "D = 1": outlier_pairs(generator, 4, 1),
        "m = D = 1": outlier_pairs(generator, 1, 1),
        "w = 0": (V, 0 * w, X, 0 * y),
        "V = 0": (0 * V, w, X, 0 * y),
        "w along a column of V": (V, V[:, 0].clone(), X, 0 * y),
        "zero residual": (V, w, X, X @ (V.T @ w)),
    }


def _outlier_pairs_oracle(V: Tensor, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
    return dense_hessian(lambda V, w: squared_error(X @ (V.T @ w), y), V, w)


def _ggn(function: Callable[..., theory.ClosedForm]) -> Callable[..., theory.ClosedForm]:
    return partial(function, gauss_newton=True)


CHECKS = (
    Check("linear network", PAPER, "Thm 3.1-3.3", _scalar, theory.linear_network, linear_hessian, _scalar_degenerate),
    Check("linear network, G", PAPER, "Thm 3.1", _scalar, _ggn(theory.linear_network), _linear_ggn, _scalar_degenerate),
    Check("linear network, any loss", PAPER, "Thm 3.1-3.3, new", _unit_scales, _any_loss, _any_loss_oracle),
    Check("ReLU network", PAPER, "Thm 3.4", _scalar, theory.relu_network, relu_hessian, _cells_degenerate),
    Check("ReLU network, G", PAPER, "Thm 3.4", _scalar, _ggn(theory.relu_network), _relu_ggn, _cells_degenerate),
    Check(
        "leaky ReLU network",
        PAPER,
        "Thm 3.4, new",
        _scalar,
        _leaky,
        partial(relu_hessian, slope=0.1),
        _cells_degenerate,
    ),
    Check(
        "bias network", PAPER, "Thm B.1", theorem_b1_inputs, theory.bias_network, bias_hessian, _theorem_b1_degenerate
    ),
    Check("bias network, any weights", PAPER, "B.3, new", _bias, theory.bias_network, bias_hessian, _bias_degenerate),
    Check(
        "several inputs",
        PAPER,
        "Cor B.1",
        partial(several_inputs, correlated=False),
        theory.multi_input_network,
        _multi_input,
    ),
    Check(
        "correlated inputs",
        PAPER,
        "Cor B.1, new",
        partial(several_inputs, correlated=True),
        theory.multi_input_network,
        _multi_input,
        _inputs_degenerate,
    ),
    Check("diagonal network", PAPER, "B.4.1, new", diagonal, theory.diagonal_network, _diagonal_oracle),
    Check(
        "several outputs",
        PAPER,
        "Cor B.2, B.3",
        _outputs,
        theory.multi_output_network,
        _multi_output,
        _outputs_degenerate,
    ),
    Check(
        "paired outliers",
        PAPER,
        "Sec. 4.1, new",
        outlier_pairs,
        theory.paired_outliers,
        _outlier_pairs_oracle,
        _outlier_pairs_degenerate,
    ),
)
