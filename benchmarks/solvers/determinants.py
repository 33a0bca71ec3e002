"""log det(A + μ) by ritz, and by the quadratures of libraries that have no log-determinant of their own."""

from __future__ import annotations

from collections.abc import Callable

import torch

import ritz

from .densities import PRODUCTS, QUADRATURES, Measure, split
from .matrices import Matrix
from .views import Counted
from .work import Contestant, Work


def by_ritz(A: Counted, products: int, seed: int) -> float:
    num_probes, num_steps = split(products)
    generator, damping = torch.Generator().manual_seed(seed), A.matrix.damping
    operator = A.ritz()
    return float(
        ritz.log_determinant(operator, damping=damping, num_steps=num_steps, num_probes=num_probes, generator=generator)
    )


def by_quadrature(of: Callable[[Counted, int, int], Measure]) -> Callable[[Counted, int, int], float]:
    """n ∫ log(λ + μ) over somebody's measure."""

    def run(A: Counted, products: int, seed: int) -> float:
        nodes, weights = (part.double().cpu().nan_to_num() for part in of(A, products, seed))
        lowest = float(A.matrix.values[0])  # known to be: a ghost of rounding below it would have no logarithm
        return A.matrix.size * float((weights * (nodes.clamp(min=lowest) + A.matrix.damping).log()).sum(1).mean())

    return run


def errors(matrix: Matrix, estimate: float) -> dict[str, float]:
    """|estimate - log det(A + μ)| / n."""
    exact = matrix.sum(lambda x: (x + matrix.damping).log())
    return {"error": abs(estimate - exact) / matrix.size}


WORK = Work(
    "log-determinant",
    errors,
    {"ritz": Contestant(by_ritz, PRODUCTS)}
    | {n: Contestant(by_quadrature(c.run), PRODUCTS) for n, c in QUADRATURES.items() if n != "ritz"},
    {"error": 1e-7},
    {"error": "error of log det(A + μ) / n"},
)
