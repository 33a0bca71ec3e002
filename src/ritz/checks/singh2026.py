"""Checks of Singh et al. (2026), Sec. 3.1, 3.2 and 4.1: two-layer networks, and what theory adds to them."""

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
    """w, v, x, y of any width up to `largest` and any scale within 10^±3."""
    m, N = width(generator, 1, largest), whole(generator, 1, 30)
    return tuple(normal(generator, size, scale=scale(generator)) for size in (m, m, N, N))


def _scalar_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    w, x, y = normal(generator, 6), normal(generator, 9), normal(generator, 9)
    v = normal(generator, 6)
    nought = torch.zeros_like(w)
    return {
        "m = 1": (w[:1], v[:1], x, y),
        "w ∥ v": (w, -0.5 * w, x, y),
        "w = v": (w, w, x, y),
        "w = -v": (w, -w, x, y),
        "w = 0": (nought, v, x, y),
        "all weights zero": (nought, nought, x, y),
        "zero residual": (w, v, x, (w @ v) * x),
        "positive residual": (w, v, x, (w @ v - 3.0) * x),
        "negative residual": (w, v, x, (w @ v + 3.0) * x),
        "zero inputs": (w, v, 0 * x, y),
        "one example": (w, v, x[:1], y[:1]),
        "all zero": (nought, nought, 0 * x, 0 * y),
    }


def linear_hessian(w: Tensor, v: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """H of a linear network with scalar inputs and outputs, θ = (v, w)."""
    return dense_hessian(lambda v, w: squared_error((w @ v) * x, y), v, w)


def _linear_ggn(w: Tensor, v: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return dense_gauss_newton(lambda v, w: (w @ v) * x, v, w)


def _logistic(x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
    """Cross-entropy of a scalar network, with a cosine that makes F'' negative in places."""
    return lambda c: softplus(-c * x * y.sign()).mean() + 0.3 * torch.cos(c)


def _any_loss(w: Tensor, v: Tensor, x: Tensor, y: Tensor) -> theory.ClosedForm:
    return theory.product_network(w, v, _logistic(x, y))


def _any_loss_oracle(w: Tensor, v: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return dense_hessian(lambda v, w: _logistic(x, y)(w @ v), v, w)


def _unit_scales(generator: Generator) -> Inputs:
    m, N = width(generator, 1, 150), whole(generator, 1, 30)
    return tuple(normal(generator, size) for size in (m, m, N, N))


def _cells_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    w, v, x, y = (normal(generator, size) for size in (6, 6, 9, 9))
    some = torch.tensor([1.0, 0, 1, 1, 0, 1]).to(v)
    return {
        **_scalar_degenerate(generator),
        "cell - empty": (w, v.abs(), x, y),
        "cell + empty": (w, -v.abs(), x, y),
        "no data in cell +": (w, v, -x.abs(), y),
        "no data in cell -": (w, v, x.abs(), y),
        "some v = 0": (w, v * some, x, y),
        "some x = 0": (w, v, x * (x.abs() > 0.5), y),
        "one unit per cell": (w[:2], torch.tensor([1.0, -2.0]).to(v), x, y),
    }


def relu_hessian(w: Tensor, v: Tensor, x: Tensor, y: Tensor, slope: float = 0.0) -> Tensor:
    """H of a ReLU network with scalar inputs and outputs, θ = (v, w)."""
    # leaky_relu(·, 0) has relu'(0) = 0, as relu has
    return dense_hessian(lambda v, w: squared_error(leaky_relu(torch.outer(x, v), slope) @ w, y), v, w)


def _leaky(w: Tensor, v: Tensor, x: Tensor, y: Tensor) -> theory.ClosedForm:
    return theory.relu_network(w, v, x, y, slope=0.1)


def _relu_ggn(w: Tensor, v: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return dense_gauss_newton(lambda v, w: torch.relu(torch.outer(x, v)) @ w, v, w)


def _bias(generator: Generator) -> Inputs:
    m, N = width(generator, 1, 100), whole(generator, 1, 30)
    return tuple(normal(generator, size, scale=scale(generator)) for size in (m, m, m, N, N))


def theorem_b1_inputs(generator: Generator, m: int | None = None) -> Inputs:
    """w, v, b, x, y as Thm B.1 has them: v ⟂ b of equal norm, x and y centred, var x = 1, no correlation."""
    m, N = m or width(generator, 2, 100), whole(generator, 4, 30)
    v, b = (scale(generator, 1.5) * torch.linalg.qr(normal(generator, m, 2)).Q).unbind(1)
    columns = torch.linalg.qr(torch.cat([torch.ones(N, 1, dtype=torch.float64), normal(generator, N, 2)], 1)).Q
    w = normal(generator, m, scale=scale(generator, 1.5))
    x, y = N**0.5 * columns[:, 1], scale(generator, 1) * float(w @ w + v @ v) * columns[:, 2]
    return w, v, b, x, y


def _theorem_b1_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    w, v, b, x, y = theorem_b1_inputs(generator)
    return {
        "m = 2": (w[:2], torch.tensor([1.0, 2]).to(w), torch.tensor([-2.0, 1]).to(w), x, y),
        "w = 0, so ρ = 0": (0 * w, v, b, x, y),
        "w ∥ v": (3 * v, v, b, x, y),
        "w = b": (b.clone(), v, b, x, y),
        "v = b = 0": (w, 0 * v, 0 * b, x, y),
        "w ⟂ v, b": (
            w - torch.stack([v, b], 1) @ torch.linalg.lstsq(torch.stack([v, b], 1), w[:, None]).solution[:, 0],
            v,
            b,
            x,
            y,
        ),
        "y = 0": (w, v, b, x, 0 * y),
    }


def _bias_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    w, v, b = (normal(generator, 5) for _ in range(3))
    x, y = normal(generator, 9), normal(generator, 9)
    return {
        "m = 1": (w[:1], v[:1], b[:1], x, y),
        "m = 2": (w[:2], v[:2], b[:2], x, y),
        "m = 3": (w[:3], v[:3], b[:3], x, y),
        "b = 0": (w, v, 0 * b, x, y),
        "v = b": (w, v, v, x, y),
        "w ∥ v ∥ b": (w, 2 * w, -w, x, y),
        "zero residual": (w, v, b, x, (w @ v) * x + w @ b),
        "all weights zero": (0 * w, 0 * w, 0 * w, x, y),
        "one example": (w, v, b, x[:1], y[:1]),
    }


def bias_hessian(w: Tensor, v: Tensor, b: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """H of a linear network whose hidden units have biases, θ = (v, b, w)."""
    return dense_hessian(lambda v, b, w: squared_error((w @ v) * x + w @ b, y), v, b, w)


def several_inputs(generator: Generator, D: int | None = None, m: int | None = None, *, correlated: bool) -> Inputs:
    """W, V, X, y of any scales: D inputs with m hidden units each."""
    D, m = D or whole(generator, 1, 5), m or width(generator, 1, 30)
    N = D + whole(generator, 1, 30)
    X = normal(generator, N, D, scale=scale(generator))
    if not correlated:
        X = N**0.5 * torch.linalg.qr(X).Q * torch.tensor([scale(generator, 1.5) for _ in range(D)]).to(X)
    else:
        X = X @ normal(generator, D, D)
    W, V = (normal(generator, D, m, scale=scale(generator)) for _ in range(2))
    return W, V, X, normal(generator, N, scale=scale(generator))


def _inputs_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    W, V, X, y = (normal(generator, *shape) for shape in ((3, 4), (3, 4), (8, 3), (8,)))
    return {
        "m = 1": (W[:, :1], V[:, :1], X, y),
        "D = 1": (W[:1], V[:1], X[:, :1], y),
        "W = V": (W, W, X, y),
        "W = -V": (W, -W, X, y),
        "an input that is zero": (W, V, X * torch.tensor([1.0, 0, 1]).to(X), y),
        "equal inputs": (W, V, X[:, [0, 0, 1]], y),
        "fewer examples than inputs": (W, V, X[:1], y[:1]),
        "zero residual": (W, V, X, X @ (W * V).sum(1)),
        "all weights zero": (0 * W, 0 * V, X, y),
    }


def _multi_input(W: Tensor, V: Tensor, X: Tensor, y: Tensor) -> Tensor:
    return dense_hessian(lambda V, W: squared_error(X @ (W * V).sum(1), y), V, W)


def diagonal(generator: Generator, D: int | None = None) -> Inputs:
    """w, v, X, y of any scales: one hidden unit for each of D inputs."""
    D, N = D or width(generator, 1, 40), whole(generator, 1, 30)
    w, v = (normal(generator, D, scale=scale(generator)) for _ in range(2))
    return w, v, normal(generator, N, D, scale=scale(generator)), normal(generator, N, scale=scale(generator))


def _diagonal_oracle(w: Tensor, v: Tensor, X: Tensor, y: Tensor) -> Tensor:
    return dense_hessian(lambda v, w: squared_error(X @ (w * v), y), v, w)


def _outputs(generator: Generator) -> Inputs:
    K, m, N = whole(generator, 1, 5), width(generator, 1, 30), whole(generator, 1, 30)
    W, V = (normal(generator, K, m, scale=scale(generator)) for _ in range(2))
    return W, V, normal(generator, N, scale=scale(generator)), normal(generator, N, K, scale=scale(generator))


def _outputs_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    W, V, x, Y = (normal(generator, *shape) for shape in ((3, 4), (3, 4), (8,), (8, 3)))
    return {
        "m = 1": (W[:, :1], V[:, :1], x, Y),
        "K = 1": (W[:1], V[:1], x, Y[:, :1]),
        "W = V": (W, W, x, Y),
        "equal outputs": (W[[0, 0, 1]], V[[0, 0, 1]], x, Y[:, [0, 0, 1]]),
        "zero residual": (W, V, x, torch.outer(x, (W * V).sum(1))),
    }


def _multi_output(W: Tensor, V: Tensor, x: Tensor, Y: Tensor) -> Tensor:
    return dense_hessian(lambda V, W: squared_error(torch.outer(x, (W * V).sum(1)), Y), V, W)


def outlier_pairs(generator: Generator, m: int | None = None, D: int | None = None) -> Inputs:
    """w, V, X, y with orthogonal columns of V of equal norm and white inputs, as Sec. 4.1 pairs its outliers."""
    D = D or whole(generator, 1, 6)
    m = m or width(generator, D, 40)
    N = D + whole(generator, 2, 30)
    V = scale(generator, 1.5) * torch.linalg.qr(normal(generator, m, D)).Q
    w = normal(generator, m, scale=scale(generator, 1.5))
    columns = torch.linalg.qr(normal(generator, N, D + 1)).Q
    sigma, kappa = scale(generator, 1.5), float(normal(generator, 1))
    X, noise = sigma * N**0.5 * columns[:, :D], scale(generator, 1) * sigma * float(w @ w + V[:, 0] @ V[:, 0])
    return w, V, X, kappa * (X @ (V.T @ w)) + noise * columns[:, D]


def _outlier_pairs_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    w, V, X, y = outlier_pairs(generator, 5, 3)
    return {
        "m = D": outlier_pairs(generator, 3, 3),
        "D = 1": outlier_pairs(generator, 4, 1),
        "m = D = 1": outlier_pairs(generator, 1, 1),
        "w = 0": (0 * w, V, X, 0 * y),
        "V = 0": (w, 0 * V, X, 0 * y),
        "w along a column of V": (V[:, 0].clone(), V, X, 0 * y),
        "zero residual": (w, V, X, X @ (V.T @ w)),
    }


def _outlier_pairs_oracle(w: Tensor, V: Tensor, X: Tensor, y: Tensor) -> Tensor:
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
