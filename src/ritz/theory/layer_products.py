"""Products of the layers of a linear network: those before a layer, those after it, all but one.

Weights are W₁ … W_L, out × in, or stacks of them, … × out × in: products are then of each network, on its device.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import accumulate, pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ArgumentError

Weights = Sequence[Float[Tensor, "*B _ _"]]


def product(weights: Weights) -> Float[Tensor, "*B k d"]:
    """W_L ⋯ W₁."""
    return reduce(lambda before, after: after @ before, weights)


def products_before(weights: Weights) -> list[Float[Tensor, "*B _ d"]]:
    """P₁ = I, P_ℓ = W_{ℓ-1} ⋯ W₁: what comes before each layer.

    >>> W1, W2, W3 = torch.tensor([[2.0]]), torch.tensor([[3.0]]), torch.tensor([[5.0]])
    >>> [float(P) for P in products_before([W1, W2, W3])]
    [1.0, 2.0, 6.0]
    """
    check_has_layers(weights)
    return [_identity(weights[0], -1), *accumulate(weights[:-1], lambda before, W: W @ before)]


def products_after(weights: Weights) -> list[Float[Tensor, "*B k _"]]:
    """S_L = I, S_ℓ = W_L ⋯ W_{ℓ+1}: what comes after each layer, multiplied from the last one on.

    >>> W1, W2, W3 = torch.tensor([[2.0]]), torch.tensor([[3.0]]), torch.tensor([[5.0]])
    >>> [float(S) for S in products_after([W1, W2, W3])]
    [15.0, 5.0, 1.0]
    """
    check_has_layers(weights)
    products = accumulate(reversed(weights[1:]), lambda after, W: after @ W)
    return [_identity(weights[-1], -2), *products][::-1]


def check_has_layers(weights: Weights | Sequence[Tensor]) -> None:
    """Refuse a network without layers."""
    if not len(weights):
        raise ArgumentError(
            "No weights were given.",
            "A network has at least one layer.",
            "Pass a sequence W1, …, WL of out × in matrices.",
        )


def product_without(weights: Weights, left_out: int) -> Float[Tensor, "*B p q"]:
    """Ŵᵢ = W_L ⋯ W_{i+1} W_{i-1} ⋯ W₁, layers counted from 0. Singh et al. (2026), D.1.4.

    >>> W1, W2, W3 = torch.tensor([[2.0]]), torch.tensor([[3.0]]), torch.tensor([[5.0]])
    >>> float(product_without([W1, W2, W3], 1))
    10.0
    """
    check_has_layers(weights)
    others = [W for layer, W in enumerate(weights) if layer not in (left_out, left_out + len(weights))]
    if len(others) != len(weights) - 1 or not others or not _chained(others):
        raise ArgumentError(
            f"Layer {left_out} was to be left out of layers {[tuple(W.shape) for W in weights]}.",
            "The layers on either side of it must fit together, so it is the first, the last, or a square one.",
            f"Choose another layer, from 0 to {len(weights) - 1}.",
        )
    return product(others)


def _identity(W: Tensor, dim: int) -> Tensor:
    """I of the size that W has in this dimension, for each network."""
    return torch.eye(W.shape[dim], dtype=W.dtype, device=W.device).expand(*W.shape[:-2], -1, -1)


def _chained(weights: Weights) -> bool:
    return all(before.shape[-2] == after.shape[-1] for before, after in pairwise(weights))
