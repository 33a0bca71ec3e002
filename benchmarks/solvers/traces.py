"""The trace of a matrix, by each library: its error over the sum of all |λ|."""

from __future__ import annotations

import torch

import ritz

from .matrices import Matrix
from .views import Counted
from .work import Contestant, Work

PRODUCTS = (18, 30, 60, 120, 240, 480)  # which two and three divide


def by_ritz(A: Counted, products: int, seed: int) -> float:
    return float(ritz.trace(A.ritz(), num_products=products, generator=torch.Generator().manual_seed(seed)))


def by_curvlinops(A: Counted, products: int, estimator: str) -> float:
    import curvlinops

    return float(getattr(curvlinops, estimator)(A, products))


def by_pyhessian(A: Counted, products: int, seed: int) -> float:
    """All products: its own rule stops where two means happen to agree."""
    samples = A.pyhessian().trace(maxIter=products, tol=0.0)
    return sum(samples) / len(samples)


def by_hessian_eigenthings(A: Counted, products: int, seed: int) -> float:
    from hessian_eigenthings import trace

    return float(trace(A.hessian_eigenthings(), num_matvecs=products, seed=seed).estimate)


def errors(matrix: Matrix, estimate: float) -> dict[str, float]:
    """|estimate - tr A| / Σ|λ|."""
    return {"error": abs(estimate - matrix.sum(lambda x: x)) / matrix.sum(torch.abs)}


WORK = Work(
    "trace",
    errors,
    {
        "ritz": Contestant(by_ritz, PRODUCTS),
        "curvlinops, XTrace": Contestant(lambda A, n, seed: by_curvlinops(A, n, "xtrace"), PRODUCTS),
        "curvlinops, Hutch++": Contestant(lambda A, n, seed: by_curvlinops(A, n, "hutchpp_trace"), PRODUCTS),
        "curvlinops, Hutchinson": Contestant(lambda A, n, seed: by_curvlinops(A, n, "hutchinson_trace"), PRODUCTS),
        "PyHessian": Contestant(by_pyhessian, PRODUCTS),
        "hessian-eigenthings": Contestant(by_hessian_eigenthings, PRODUCTS),
    },
    {"error": 1e-7},
    {"error": "error of the trace / Σ|λ|"},
)
