"""Residuals of Ritz pairs by fresh products: what vouches for the pairs that a recursion has found."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..operators import Operator
from .goals import Goal
from .ritz_pairs import selection
from .vectors import inner, mix, norms, orthonormalize, product, subtract


def fresh_residuals(
    A: Operator, goal: Goal, X: Float[Tensor, "k n"]
) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
    """λ = xᵀAx and ‖A x - λ x‖ of all rows x, one product each; the rows are put in the order of these λ."""
    orthonormalize(X)
    parts = [_residuals(A, rows) for rows in X.split(goal.columns)]
    values, residuals = (torch.cat(numbers) for numbers in zip(*parts, strict=True))
    order = selection(values, goal.which, goal.k)
    if not torch.equal(order, torch.arange(goal.k)):  # fresh products may reorder near ties
        mix(X, torch.eye(goal.k, dtype=torch.float64)[:, order])
        values, residuals = values[order], residuals[order]
    return values, residuals


def _residuals(A: Operator, X: Float[Tensor, "c n"]) -> tuple[Float[Tensor, " c"], Float[Tensor, " c"]]:
    """λ = xᵀAx of each unit row x and ‖A x - λ x‖, from fresh products."""
    R = product(A, X)
    values = inner(X, R).diagonal()
    return values, norms(R.addcmul_(X, values[:, None].to(X), value=-1)).cpu()


def recursion_error(
    A: Operator,
    X: Float[Tensor, "k n"],
    P: Float[Tensor, "b n"],
    values: Float[Tensor, " k"],
    coupling: Float[Tensor, "b k"],
    num_products: int,
    generator: torch.Generator,
) -> float:
    """‖D‖ for D = A X - XΘ - P B, the error of the recursion's residuals, as the root of E‖Dω‖² over normal ω."""
    shape, squares = (num_products, len(values)), []
    for omega in torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device).cpu():
        combination = torch.zeros_like(X[:1])
        subtract(combination, -omega.to(X)[None], X)
        d = product(A, combination)
        subtract(d, (omega * values).to(X)[None], X)
        subtract(d, (coupling @ omega).to(X)[None], P)
        squares.append(float(norms(d)) ** 2)
    return math.sqrt(sum(squares) / len(squares))
