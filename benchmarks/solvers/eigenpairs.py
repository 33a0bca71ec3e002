"""The five largest eigenpairs, each with its residual: the products that certify it are counted for everybody."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse.linalg import ArpackNoConvergence, eigsh, lobpcg
from torch import Tensor

import ritz

from .matrices import Matrix
from .views import Counted
from .work import PRODUCTS, Contestant, Work

K = 5
TOLERANCES = (1.0, 0.3, 0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
Pairs = tuple[Tensor, Tensor]  # values, and vectors in columns


def by_ritz(A: Counted, products: int, seed: int) -> Pairs:
    generator = torch.Generator().manual_seed(seed)
    pairs = ritz.eigenpairs(A.ritz(), K, tolerance=1e-9, max_products=products, generator=generator)
    return pairs.values, pairs.vectors


def by_arpack(A: Counted, tolerance: float, seed: int, ncv: int | None = None) -> Pairs:
    """Eigenpairs by ARPACK to a tolerance: where it runs out of products, it returns only those that have converged."""
    start = np.random.default_rng(seed).standard_normal(A.shape[0]).astype(np.float32)
    try:
        values, vectors = eigsh(A.scipy(), K, which="LA", tol=tolerance, v0=start, ncv=ncv, maxiter=40)
    except ArpackNoConvergence as error:
        values, vectors = error.eigenvalues, error.eigenvectors
    if len(values) < K:
        raise RuntimeError(f"ARPACK found {len(values)} of {K} eigenpairs to {tolerance:g} in 40 restarts")
    return torch.from_numpy(values.copy()), torch.from_numpy(vectors.copy())


def by_scipy_lobpcg(A: Counted, products: int, seed: int) -> Pairs:
    start = np.random.default_rng(seed).standard_normal((A.shape[0], K)).astype(np.float32)
    iterations = max(1, (products - K) // K - 2)  # its first and last Rayleigh-Ritz step multiply, too
    values, vectors = lobpcg(A.scipy(), start, maxiter=iterations, tol=1e-9, largest=True)
    return torch.from_numpy(values), torch.from_numpy(vectors)


def by_torch_lobpcg(A: Counted, products: int, seed: int) -> Pairs:
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(A.shape[0], K, generator=generator).to(A.device)
    iterations = max(1, (products - 4 * K) // (4 * K))
    with A.dense() as matrix:
        return torch.lobpcg(matrix, K, X=start, niter=iterations, tol=1e-9, largest=True)


def by_pyhessian(A: Counted, products: int, seed: int) -> Pairs:
    values, vectors = A.pyhessian().eigenvalues(maxIter=max(2, (products - K) // K), tol=0.0, top_n=K)
    return torch.tensor(values), torch.stack([vector for (vector,) in vectors], dim=1)


def by_hessian_eigenthings(A: Counted, products: int, seed: int) -> Pairs:
    """Reorthogonalised, which it leaves away beyond 50 steps unless asked."""
    from hessian_eigenthings import lanczos

    operator = A.hessian_eigenthings()
    pairs = lanczos(operator, k=K, max_iter=products - K, which="LA", reorthogonalize=True, seed=seed)
    return pairs.eigenvalues, pairs.eigenvectors.T


def errors(matrix: Matrix, pairs: Pairs) -> dict[str, float]:
    """The worst of the five: relative error of the eigenvalue, and residual over the largest |λ|."""
    order = pairs[0].double().cpu().argsort(descending=True)
    values, vectors = pairs[0].double().cpu()[order], pairs[1][:, order.to(pairs[1].device)].to(matrix.device)
    vectors = vectors / vectors.norm(dim=0)
    products = torch.cat([matrix.product(column[:, None].float()) for column in vectors.T], dim=1)
    residuals = (products.double() - vectors.double() * values.to(matrix.device)).norm(dim=0)
    exact = matrix.largest(K)
    return {"value": float(((values - exact) / exact).abs().max()), "residual": float(residuals.max()) / matrix.scale}


WORK = Work(
    "eigenpairs",
    errors,
    {
        "ritz": Contestant(by_ritz),
        "ARPACK": Contestant(by_arpack, TOLERANCES, K),
        "ARPACK, 100 vectors": Contestant(lambda *a: by_arpack(*a, ncv=100), TOLERANCES, K),
        "LOBPCG (SciPy)": Contestant(by_scipy_lobpcg, PRODUCTS, K),
        "LOBPCG (PyTorch)": Contestant(by_torch_lobpcg, (48, 64, 96, 128, 192, 256), K),
        "PyHessian": Contestant(by_pyhessian, PRODUCTS, K),
        "hessian-eigenthings": Contestant(by_hessian_eigenthings, PRODUCTS, K),
    },
    floors={"value": 1e-6, "residual": 1e-6},
    labels={"value": "worst error of 5 eigenvalues", "residual": "largest residual / max|λ|"},
)
