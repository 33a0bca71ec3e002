"""Checks of "How the Hessian-spectrum of linear networks depends on data" (2026), and of our generalisations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy, leaky_relu

from .. import theory
from .check import Check
from .draws import normal, scale, whole
from .oracles import dense_gauss_newton, dense_hessian, squared_error

PAPER = "linear2026"
SMOOTHING = 0.1  # of labels: without it a confident network has too little curvature to compare rounding with
Inputs = tuple[Any, ...]


def network_outputs(weights: Sequence[Tensor], X: Tensor, slope: float = 1.0) -> Tensor:
    """Outputs of layers without biases and with leaky ReLU between them; with a slope of 1 the network is linear."""
    for W in weights[:-1]:
        X = leaky_relu(X @ W.T, slope)
    return X @ weights[-1].T


def hessian(weights: Sequence[Tensor], X: Tensor, Y: Tensor, slope: float = 1.0) -> Tensor:
    """The dense Hessian of the squared loss, by autograd."""
    return dense_hessian(lambda *Ws: squared_error(network_outputs(Ws, X, slope), Y), *weights)


def gauss_newton(weights: Sequence[Tensor], X: Tensor, *_: Any) -> Tensor:
    """The dense Gauss-Newton matrix of the squared loss of a linear network."""
    return dense_gauss_newton(lambda *Ws: network_outputs(Ws, X), *weights)


def orthogonal(generator: Generator, n: int) -> Tensor:
    """A random orthogonal matrix."""
    return torch.linalg.qr(normal(generator, n, n)).Q


def white(generator: Generator, D: int, decades: float = 3.0) -> Tensor:
    """White inputs of any scale."""
    return theory.whitened(normal(generator, D + whole(generator, 0, 20), D), scale(generator, decades))


def two_layers(generator: Generator, width: int = 16, most: int = 4) -> Inputs:
    """W₁, W₂, X, Y of any scales; one draw in four has weights of low rank."""
    m, D, K, N = (whole(generator, 1, top) for top in (width, most, most, 20))
    W1, W2 = normal(generator, m, D, scale=scale(generator)), normal(generator, K, m, scale=scale(generator))
    if not whole(generator, 0, 3):
        h = normal(generator, m, 1) / m**0.5
        W1, W2 = h @ (h.T @ W1), (W2 @ h) @ h.T
    return W1, W2, normal(generator, N, D, scale=scale(generator)), normal(generator, N, K, scale=scale(generator))


def _two_layers_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    W1, W2, X, Y = (normal(generator, *shape) for shape in ((8, 2), (3, 8), (9, 2), (9, 3)))
    return {
        "m = 1": (W1[:1], W2[:, :1], X, Y),
        "D = K = 1": (W1[:, :1], W2[:1], X[:, :1], Y[:, :1]),
        "m < D + K": (W1[:3], W2[:, :3], X, Y),
        "W2 = W1ᵀ": (W1, W1.T.clone(), X, Y[:, :2]),
        "orthogonal weights": (torch.eye(8, 2).double(), torch.eye(3, 8).double(), X, Y),
        "W1 = 0": (0 * W1, W2, X, Y),
        "all weights zero": (0 * W1, 0 * W2, X, Y),
        "zero residual": (W1, W2, X, X @ W1.T @ W2.T),
        "rank deficient residual": (W1, W2, X, X @ W1.T @ W2.T + torch.outer(X[:, 0], Y[0])),
        "equal singular values of R": (W1, W2[:2], X[:2], X[:2] @ W1.T @ W2[:2].T - torch.linalg.inv(X[:2]).T),
        "rank deficient data": (W1, W2, X[:, [0, 0]], Y),
        "fewer examples than inputs": (W1, W2, X[:1], Y[:1]),
        "zero inputs": (W1, W2, 0 * X, Y),
    }


def _linear(W1: Tensor, W2: Tensor, X: Tensor, Y: Tensor) -> Tensor:
    return hessian([W1, W2], X, Y)


def _linear_ggn(W1: Tensor, W2: Tensor, X: Tensor, Y: Tensor) -> Tensor:
    return gauss_newton([W1, W2], X)


def relu_layers(generator: Generator, width: int = 12) -> Inputs:
    """W₁, W₂, X, Y with few examples, so that units share their patterns."""
    m, D, K, N = (whole(generator, 1, top) for top in (width, 3, 3, 4))
    W1, W2 = normal(generator, m, D, scale=scale(generator)), normal(generator, K, m, scale=scale(generator))
    return W1, W2, normal(generator, N, D, scale=scale(generator)), normal(generator, N, K, scale=scale(generator))


def _relu_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    W1, W2, X, Y = (normal(generator, *shape) for shape in ((20, 2), (3, 20), (2, 2), (2, 3)))
    return {
        "m = 1": (W1[:1], W2[:, :1], X, Y),
        "one pattern": (W1[:1].expand(20, 2).clone(), W2, X, Y),
        "all units off": (W1.abs(), W2, -X.abs(), Y),
        "all units on": (W1.abs(), W2, X.abs(), Y),
        "a unit that is zero": (W1 * (torch.arange(20) > 0)[:, None], W2, X, Y),
        "an input that is zero": (W1, W2, X * torch.tensor([1.0, 0]).to(X), Y),
        "zero residual": (W1, W2, X, (X @ W1.T).relu() @ W2.T),
        "one example": (W1, W2, X[:1], Y[:1]),
    }


def _relu(W1: Tensor, W2: Tensor, X: Tensor, Y: Tensor, slope: float = 0.0) -> Tensor:
    return hessian([W1, W2], X, Y, slope)


def classification(generator: Generator, shape: tuple[int, int, int] | None = None) -> Inputs:
    """A linear pair under cross-entropy inside a tanh network, whose output bias is the rest of the parameters."""
    m, D, K = shape or (whole(generator, low, top) for low, top in ((1, 12), (1, 3), (2, 3)))
    N = whole(generator, 1, 12)
    W1, W2 = normal(generator, m, D), normal(generator, K, m, scale=m**-0.5)
    labels = torch.randint(K, (N,), generator=generator)
    return W1, W2, normal(generator, N, D), labels, normal(generator, K)


def _tanh_loss(X: Tensor, labels: Tensor, M: Tensor, bias: Tensor) -> Tensor:
    return cross_entropy(torch.tanh(X @ M.T) * bias.exp() + bias, labels, label_smoothing=SMOOTHING)


def _pair(W1: Tensor, W2: Tensor, X: Tensor, labels: Tensor, bias: Tensor) -> theory.ClosedForm:
    return theory.linear_pair(W1, W2, partial(_tanh_loss, X, labels), bias)


def _pair_oracle(W1: Tensor, W2: Tensor, X: Tensor, labels: Tensor, bias: Tensor) -> Tensor:
    return dense_hessian(lambda A, B, b: _tanh_loss(X, labels, B @ A, b), W1, W2, bias)


def _pair_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    W1, W2, X, labels, bias = classification(generator)
    return {"all weights zero": (0 * W1, 0 * W2, X, labels, bias), "W₂ = 0": (W1, 0 * W2, X, labels, bias)}


def relu_classification(generator: Generator, shape: tuple[int, int, int] | None = None) -> Inputs:
    """W₁, W₂, X and labels of four examples at most, so that units share their patterns."""
    W1, W2, X, labels, _ = classification(generator, shape)
    return W1, W2, X[:4], labels[:4]


def _smoothed(labels: Tensor, outputs: Tensor) -> Tensor:
    return cross_entropy(outputs, labels, label_smoothing=SMOOTHING)


def _relu_pair(W1: Tensor, W2: Tensor, X: Tensor, labels: Tensor) -> theory.ClosedForm:
    return theory.relu_pair(W1, W2, X, partial(_smoothed, labels), slope=0.2)


def _relu_pair_oracle(W1: Tensor, W2: Tensor, X: Tensor, labels: Tensor) -> Tensor:
    return dense_hessian(lambda A, B: _smoothed(labels, network_outputs([A, B], X, 0.2)), W1, W2)


def any_widths(generator: Generator, deepest: int = 4, widest: int = 5) -> list[int]:
    """Random widths of inputs, hidden layers and outputs."""
    return [whole(generator, 1, widest) for _ in range(whole(generator, 2, deepest + 1))]


def deep(generator: Generator, widths: Sequence[int] | None = None) -> Inputs:
    """Random weights and inputs of any scale."""
    widths = widths or any_widths(generator)
    weights = [normal(generator, b, a, scale=scale(generator)) for a, b in pairwise(widths)]
    return weights, normal(generator, whole(generator, 1, 20), widths[0], scale=scale(generator))


def _deep_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    weights, X = deep(generator, (3, 4, 2, 3))
    return {
        "L = 1": deep(generator, (3, 2)),
        "L = 6": deep(generator, (2, 2, 2, 2, 2, 2, 2)),
        "bottleneck": deep(generator, (4, 1, 4)),
        "widths up": deep(generator, (1, 2, 3, 4)),
        "widths down": deep(generator, (4, 3, 2, 1)),
        "a layer that is zero": ([weights[0], 0 * weights[1], weights[2]], X),
        "orthogonal layers": ([orthogonal(generator, 3) for _ in range(3)], X),
        "rank deficient data": (weights, X[:, [0, 0, 0]]),
        "zero inputs": (weights, 0 * X),
    }


def balanced(generator: Generator, widths: Sequence[int] | None = None, rank: int | None = None) -> Inputs:
    """Singular values, widths and σₓ, with balanced weights and white data that have them."""
    widths = widths or any_widths(generator)
    top = min(widths) if rank is None else rank
    sigma = scale(generator, 1.5) * (0.05 + torch.rand(top, generator=generator, dtype=torch.float64))
    X = white(generator, widths[0], 1.5)
    frames = [orthogonal(generator, d)[:, :top] for d in widths]
    weights = [U * sigma @ V.T for V, U in pairwise(frames)]
    return sigma, widths, theory.input_scale(X), weights, X


def _balanced_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    sigma, widths, sigma_x, _, X = balanced(generator, (3, 4, 3))
    frames = [orthogonal(generator, d)[:, :3] for d in widths]
    equal = [2.0 * U @ V.T for V, U in pairwise(frames)]
    return {
        "L = 1, one singular value": (sigma[:1], (3, 1), sigma_x, [sigma[0] * torch.eye(1, 3).double()], X),
        "equal singular values": (torch.full_like(sigma, 2.0), widths, sigma_x, equal, X),
        "rank deficient": balanced(generator, (4, 5, 4, 4), 2),
        "rank zero": balanced(generator, (3, 4, 3), 0),
        "bottleneck": balanced(generator, (4, 1, 5)),
        "widths up": balanced(generator, (1, 2, 3, 4)),
        "widths down": balanced(generator, (5, 4, 3, 2)),
        "inputs narrowest": balanced(generator, (2, 5, 4)),
        "outputs narrowest": balanced(generator, (4, 5, 2)),
        "L = 6": balanced(generator, (3,) * 7),
    }


def _balanced_closed(sigma: Tensor, widths: Sequence[int], sigma_x: float, *_: Any) -> theory.ClosedForm:
    return theory.balanced_linear(sigma, widths, sigma_x)


def _balanced_oracle(sigma: Tensor, widths: Sequence[int], sigma_x: float, weights: Any, X: Tensor) -> Tensor:
    return hessian(weights, X, network_outputs(weights, X))


def solution(generator: Generator, widths: Sequence[int] | None = None) -> Inputs:
    """White inputs X, targets Y, and the widths of the hidden layers of a network that fits them."""
    widths = widths or any_widths(generator)
    X = white(generator, widths[0])
    return X, normal(generator, len(X), widths[-1], scale=scale(generator)), list(widths[1:-1])


def _solution_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    X, Y, hidden = solution(generator, (4, 5, 5, 4))
    one_hot = torch.eye(4).double()[torch.arange(len(Y)) % 4]
    return {
        "L = 1": solution(generator, (3, 2)),
        "zero loss": (X, X @ normal(generator, 4, 4), hidden),
        "a bottleneck that cuts": (X, Y, [2, 5]),
        "two layers, a bottleneck that cuts": (X, Y, [2]),
        "one-hot labels": (X, one_hot, hidden),
        "rank deficient labels": (X, Y[:, [0, 0, 0, 1]], hidden),
        "zero labels": (X, 0 * Y, hidden),
    }


def _solution_closed(X: Tensor, Y: Tensor, hidden: Sequence[int]) -> theory.ClosedForm:
    return theory.balanced_solution(X, Y, len(hidden) + 1, hidden)


def solution_weights(X: Tensor, Y: Tensor, hidden: Sequence[int]) -> list[Tensor]:
    """The balanced weights of least loss."""
    M = Y.T @ X / len(X) / theory.input_scale(X) ** 2
    return theory.balanced_weights(M, hidden, generator=Generator().manual_seed(0))


def _solution_oracle(X: Tensor, Y: Tensor, hidden: Sequence[int]) -> Tensor:
    return hessian(solution_weights(X, Y, hidden), X, Y)


def shallow(generator: Generator) -> Inputs:
    """W₁, W₂ of any scales, and white inputs X."""
    W1, W2, _, _ = two_layers(generator, width=12, most=5)
    return W1, W2, white(generator, W1.shape[1])


def _shallow_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    X = white(generator, 3)
    W1, W2 = normal(generator, 5, 3), normal(generator, 4, 5)
    return {
        "m = 1": (W1[:1], W2[:, :1], X),
        "m < D, K": (W1[:2], W2[:, :2], X),
        "m < K": (W1[:3], W2[:, :3], X),
        "equal singular values": (2 * torch.eye(5, 3).double(), 2 * torch.eye(4, 5).double(), X),
        "rank deficient": (W1 @ torch.diag(torch.tensor([1.0, 0, 0]).to(W1)), W2, X),
        "W1 = 0": (0 * W1, W2, X),
        "all weights zero": (0 * W1, 0 * W2, X),
    }


def _shallow_closed(W1: Tensor, W2: Tensor, X: Tensor) -> theory.ClosedForm:
    return theory.shallow_linear(W1, W2, theory.input_scale(X))


def _shallow_oracle(W1: Tensor, W2: Tensor, X: Tensor) -> Tensor:
    return hessian([W1, W2], X, X @ W1.T @ W2.T)


def _tangent_kernel(weights: Sequence[Tensor], X: Tensor) -> Tensor:
    """JJᵀ/N, the outputs stacked example by example."""
    shapes = [W.shape for W in weights]

    def outputs(theta: Tensor) -> Tensor:
        parts = theta.split([W.numel() for W in weights])
        return network_outputs([part.view(s) for part, s in zip(parts, shapes, strict=True)], X).flatten()

    J = torch.func.jacrev(outputs)(torch.cat([W.flatten() for W in weights]))
    return J @ J.T / len(X)


def _shallow_kernel(W1: Tensor, W2: Tensor, X: Tensor) -> theory.ClosedForm:
    return theory.tangent_kernel([W1, W2], X)


def _balanced_kernel(sigma: Tensor, widths: Any, sigma_x: float, weights: Any, X: Tensor) -> theory.ClosedForm:
    return theory.tangent_kernel(weights, X)


def balanced_with_residual(generator: Generator, widths: Sequence[int] | None = None) -> Inputs:
    """A balanced network away from its minimum, with data."""
    sigma, widths, sigma_x, _, X = balanced(generator, widths)
    U = [orthogonal(generator, d) for d in widths]
    weights = [B[:, : len(sigma)] * sigma @ A[:, : len(sigma)].T for A, B in pairwise(U)]
    q, size = min(widths[0], widths[-1]), float(sigma.max()) ** (len(widths) - 1)
    rho = normal(generator, q, scale=size * sigma_x**2)
    R = U[-1][:, :q] * rho @ U[0][:, :q].T
    return sigma, widths, sigma_x, rho, weights, X, network_outputs(weights, X) - X @ R.T / sigma_x**2


def _residual_closed(sigma: Tensor, widths: Any, sigma_x: float, rho: Tensor, *_: Any) -> theory.ClosedForm:
    return theory.balanced_linear(sigma, widths, sigma_x, residuals=rho)


def _residual_oracle(sigma: Tensor, widths: Any, sigma_x: float, rho: Tensor, weights: Any, X: Any, Y: Any) -> Tensor:
    return hessian(weights, X, Y)


def regression(generator: Generator, widths: Sequence[int] | None = None) -> Inputs:
    """Random weights, inputs and targets of any scale."""
    weights, X = deep(generator, widths)
    return weights, X, normal(generator, len(X), len(weights[-1]), scale=scale(generator))


def _trace(weights: Any, X: Tensor, Y: Tensor) -> theory.ClosedForm:
    return theory.ClosedForm([theory.Group("trace", float(theory.linear_trace(weights, X)))])


def _trace_oracle(weights: Any, X: Tensor, Y: Tensor) -> Tensor:
    return hessian(weights, X, Y).trace().view(1, 1)


_leaky = partial(theory.two_layer_relu, slope=0.2)
_two_layers_g = partial(theory.two_layer_linear, gauss_newton=True)
CHECKS = (
    Check("two layers", PAPER, "new", two_layers, theory.two_layer_linear, _linear, _two_layers_degenerate),
    Check("two layers, G", PAPER, "new", two_layers, _two_layers_g, _linear_ggn, _two_layers_degenerate),
    Check("two layers, any loss", PAPER, "new", classification, _pair, _pair_oracle, _pair_degenerate),
    Check("two layers, ReLU", PAPER, "new", relu_layers, theory.two_layer_relu, _relu, _relu_degenerate),
    Check("two layers, leaky ReLU", PAPER, "new", relu_layers, _leaky, partial(_relu, slope=0.2), _relu_degenerate),
    Check("two layers, ReLU, any loss", PAPER, "new", relu_classification, _relu_pair, _relu_pair_oracle),
    Check(
        "any layers, G", PAPER, "eq. (4), (5), new", deep, theory.linear_gauss_newton, gauss_newton, _deep_degenerate
    ),
    Check("trace", PAPER, "eq. (7)", regression, _trace, _trace_oracle),
    Check("balanced layers", PAPER, "eq. (8), (9)", balanced, _balanced_closed, _balanced_oracle, _balanced_degenerate),
    Check("balanced layers, any loss", PAPER, "new", balanced_with_residual, _residual_closed, _residual_oracle),
    Check(
        "balanced solution", PAPER, "eq. (12)-(14)", solution, _solution_closed, _solution_oracle, _solution_degenerate
    ),
    Check(
        "shallow network", PAPER, "eq. (10), (15), (16)", shallow, _shallow_closed, _shallow_oracle, _shallow_degenerate
    ),
    Check(
        "shallow network, vectors of the kernel",
        PAPER,
        "eq. (15), (16)",
        shallow,
        _shallow_kernel,
        lambda W1, W2, X: _tangent_kernel([W1, W2], X),
        _shallow_degenerate,
    ),
    Check(
        "balanced layers, vectors of the kernel",
        PAPER,
        "Sec. 3, eq. (5), (8), (9)",
        balanced,
        _balanced_kernel,
        lambda sigma, widths, sigma_x, weights, X: _tangent_kernel(weights, X),
        _balanced_degenerate,
    ),
)
