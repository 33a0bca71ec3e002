"""The density of a spectrum: the Wasserstein distance of quadratures from the exact one, over the largest |λ|."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import torch
from scipy.stats import wasserstein_distance
from torch import Tensor

import ritz

from .matrices import Matrix
from .views import Counted
from .work import Contestant, Work

PRODUCTS = (16, 32, 64, 128, 256, 512)
STEPS = 64  # of a probe, where there are that many products
Measure = tuple[Tensor, Tensor]  # nodes and weights, a row for each probe


def split(products: int) -> tuple[int, int]:
    """Probes and steps, the same for everybody."""
    steps = min(products, STEPS)
    return products // steps, steps


def by_ritz(A: Counted, products: int, seed: int) -> Measure:
    num_probes, num_steps = split(products)
    generator = torch.Generator().manual_seed(seed)
    spectrum = ritz.spectral_density(A.ritz(), num_probes=num_probes, num_steps=num_steps, generator=generator)
    return spectrum.nodes, spectrum.weights


def by_curvlinops(A: Counted, products: int, seed: int) -> Measure:
    """The quadrature of curvlinops, without its search for the range and before its smoothing, which would cost it."""
    from curvlinops.papyan2020traces.spectrum import fast_lanczos

    num_probes, num_steps = split(products)
    runs: list[Any] = [fast_lanczos(A, num_steps) for _ in range(num_probes)]
    return torch.stack([nodes for nodes, _ in runs]), torch.stack([vectors[0] ** 2 for _, vectors in runs])


def by_pyhessian(A: Counted, products: int, seed: int) -> Measure:
    num_probes, num_steps = split(products)
    torch.eig = _eig  # which PyTorch has removed; a symmetric one is lent to it
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            nodes, weights = A.pyhessian().density(iter=num_steps, n_v=num_probes)
    finally:
        del torch.eig
    return torch.tensor(nodes), torch.tensor(weights)


def by_hessian_eigenthings(A: Counted, products: int, seed: int) -> Measure:
    from hessian_eigenthings import spectral_density

    num_probes, num_steps = split(products)
    operator = A.hessian_eigenthings()
    density = spectral_density(
        operator, num_runs=num_probes, lanczos_steps=num_steps, num_grid_points=2, seed=1000 * seed
    )
    return density.raw_eigenvalues, density.raw_weights


def _eig(T: Tensor, eigenvectors: bool) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eigh(T)
    return values[:, None], vectors


def errors(matrix: Matrix, measure: Measure) -> dict[str, float]:
    """W₁ / max|λ|."""
    nodes, weights = (part.double().cpu().flatten().nan_to_num().numpy() for part in measure)
    return {"distance": wasserstein_distance(nodes, matrix.values, weights, matrix.counts) / matrix.scale}


QUADRATURES = {
    "ritz": Contestant(by_ritz, PRODUCTS),
    "curvlinops": Contestant(by_curvlinops, PRODUCTS),
    "PyHessian": Contestant(by_pyhessian, PRODUCTS),
    "hessian-eigenthings": Contestant(by_hessian_eigenthings, PRODUCTS),
}
WORK = Work("density", errors, QUADRATURES, {"distance": 1e-7}, {"distance": "Wasserstein distance / max|λ|"})
