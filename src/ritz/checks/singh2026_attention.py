"""Checks of Singh et al. (2026), Sec. 3.3: one head of self-attention, and our generalisations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from .. import theory
from .check import Check
from .draws import normal, scale, whole, width
from .oracles import dense_gauss_newton, dense_hessian, squared_error

PAPER = "Singh et al. 2026"
Inputs = tuple[Any, ...]


def head(generator: Generator, d: int | None = None) -> Inputs:
    """w_v, w_q, w_k, x, y, with scores up to about ten: far beyond that, autograd loses its digits."""
    d, n = d or width(generator, 1, 140), whole(generator, 1, 12)
    x, y = normal(generator, n, scale=scale(generator, 1)), normal(generator, n, scale=scale(generator))
    size = scale(generator, 0.5) * d**0.25 / float(x.abs().max())
    w_q, w_k = (normal(generator, d) * size / d**0.25 for _ in range(2))
    return float(normal(generator, 1, scale=scale(generator))), w_q, w_k, x, y


def degenerate_heads(generator: Generator) -> Mapping[str, Inputs]:
    """w_v, w_q, w_k, x, y at which eigenvalues coincide, change sign or vanish, by name."""
    w_q, w_k, x, y = (normal(generator, size) for size in (4, 4, 6, 6))
    solved = head_outputs(torch.tensor(0.7, dtype=torch.float64), w_q, w_k, x)
    return {
        "d = 1": (0.7, w_q[:1], w_k[:1], x, y),
        "w_q = w_k": (0.7, w_q, w_q, x, y),
        "w_q = -w_k": (0.7, w_q, -w_q, x, y),
        "w_q = 0": (0.7, 0 * w_q, w_k, x, y),
        "w_v = 0, so γ = ζ = 0": (0.0, w_q, w_k, x, y),
        "zero residual, γ = 0": (0.7, w_q, w_k, x, solved),
        "ζ < 0": (0.7, w_q, w_k, x, solved + 30 * x),
        "ζ > 0": (0.7, w_q, w_k, x, solved - 30 * x),
        "one position": (0.7, w_q, w_k, x[:1], y[:1]),
        "equal positions": (0.7, w_q, w_k, x[:1].expand(5), y[:5]),
        "x = 0": (0.7, w_q, w_k, 0 * x, y),
    }


def head_outputs(
    w_v: Tensor, w_q: Tensor, w_k: Tensor, x: Tensor, bias: Tensor | float = 0.0, mask: Tensor | None = None
) -> Tensor:
    """The outputs of one head for a sequence of scalars."""
    scores = torch.outer(x, x) * (w_q @ w_k) / len(w_q) ** 0.5 + bias
    scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    return w_v * (scores.softmax(1) @ x)


def attention_hessian(w_v: float, w_q: Tensor, w_k: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """H of one head of self-attention, θ = (w_v, w_q, w_k)."""
    value = torch.tensor(w_v, dtype=torch.float64)
    return dense_hessian(lambda w_v, w_q, w_k: squared_error(head_outputs(w_v, w_q, w_k, x), y), value, w_q, w_k)


def _attention_ggn(w_v: float, w_q: Tensor, w_k: Tensor, x: Tensor, y: Tensor) -> Tensor:
    value = torch.tensor(w_v, dtype=torch.float64)
    return dense_gauss_newton(lambda w_v, w_q, w_k: head_outputs(w_v, w_q, w_k, x), value, w_q, w_k)


def heads(generator: Generator, d: int | None = None) -> Inputs:
    """Sequences of several lengths, with score biases (a sink on the first position) and causal masks."""
    w_v, w_q, w_k, _, _ = head(generator, d)
    size = 1 / max(1.0, float((w_q @ w_k).abs()) ** 0.5)
    lengths = [whole(generator, 1, 8) for _ in range(whole(generator, 1, 4))]
    xs, ys = ([normal(generator, n, scale=3 * size) for n in lengths] for _ in range(2))
    biases = [normal(generator, n, n) + 3.0 * torch.eye(n)[:1].double() for n in lengths]
    return w_v, w_q, w_k, xs, ys, biases, [torch.ones(n, n).tril().bool() for n in lengths]


def _batch(w_v: float, w_q: Tensor, w_k: Tensor, xs: Any, ys: Any, biases: Any, masks: Any) -> theory.ClosedForm:
    return theory.self_attention(w_v, w_q, w_k, xs, ys, scores_bias=biases, mask=masks)


def _batch_oracle(w_v: float, w_q: Tensor, w_k: Tensor, xs: Any, ys: Any, biases: Any, masks: Any) -> Tensor:
    def loss(w_v: Tensor, w_q: Tensor, w_k: Tensor) -> Tensor:
        outputs = [head_outputs(w_v, w_q, w_k, *each) for each in zip(xs, biases, masks, strict=True)]
        return squared_error(torch.cat(outputs), torch.cat(list(ys)))

    return dense_hessian(loss, torch.tensor(w_v, dtype=torch.float64), w_q, w_k)


def _smooth(w_v: Tensor, s: Tensor) -> Tensor:
    """A loss of (w_v, s) from a model without softmax: sigmoid scores and a cubic term."""
    return torch.sin(w_v * s) + 0.1 * (w_v + s) ** 3 + torch.sigmoid(s) * w_v**2


def any_head(generator: Generator, d: int | None = None) -> Inputs:
    """w_v, w_q, w_k alone, for a loss without data."""
    d = d or width(generator, 1, 140)
    w_q, w_k = normal(generator, d), normal(generator, d)
    return float(normal(generator, 1)), w_q, w_k


def _any_head_closed(w_v: float, w_q: Tensor, w_k: Tensor) -> theory.ClosedForm:
    return theory.attention_product(w_v, w_q, w_k, _smooth)


def _any_head_oracle(w_v: float, w_q: Tensor, w_k: Tensor) -> Tensor:
    value = torch.tensor(w_v, dtype=torch.float64)
    return dense_hessian(lambda w_v, w_q, w_k: _smooth(w_v, (w_q @ w_k) / len(w_q) ** 0.5), value, w_q, w_k)


def wide_head(generator: Generator, e: int | None = None, d: int | None = None) -> Inputs:
    """Keys (d × e), queries (e × d), values (e), inputs (n × e) and targets (n), most often with d > 2e."""
    e, d, n = e or whole(generator, 1, 3), d or width(generator, 1, 30), whole(generator, 1, 6)
    shapes = ((d, e), (e, d), (e,), (n, e), (n,))
    return tuple(normal(generator, *shape) / (d**0.25 if d in shape else 1.0) for shape in shapes)


def _wide_loss(X: Tensor, y: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda M, values: squared_error((X @ M @ X.T).softmax(1) @ (X @ values), y)


def _wide_closed(K: Tensor, Q: Tensor, values: Tensor, X: Tensor, y: Tensor) -> theory.ClosedForm:
    return theory.linear_pair(K, Q, _wide_loss(X, y), values)


def _wide_oracle(K: Tensor, Q: Tensor, values: Tensor, X: Tensor, y: Tensor) -> Tensor:
    return dense_hessian(lambda K, Q, values: _wide_loss(X, y)(Q @ K, values), K, Q, values)


CHECKS = (
    Check("self-attention", PAPER, "Thm 3.5", head, theory.self_attention, attention_hessian, degenerate_heads),
    Check(
        "self-attention, G",
        PAPER,
        "Rem. B.3, new",
        head,
        partial(theory.self_attention, gauss_newton=True),
        _attention_ggn,
        degenerate_heads,
    ),
    Check("self-attention, batches", PAPER, "Thm 3.5, new", heads, _batch, _batch_oracle),
    Check("self-attention, any loss", PAPER, "Thm 3.5, new", any_head, _any_head_closed, _any_head_oracle),
    Check("self-attention, wide", PAPER, "Thm 3.5, new", wide_head, _wide_closed, _wide_oracle),
)
