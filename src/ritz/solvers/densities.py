"""The density of a spectrum by stochastic Lanczos quadrature, with the interval that should hold it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import ArgumentError, check_whole
from ..operators import Operator, orthonormal_columns
from ..spectrum import Eigenpairs, Spectrum
from .eigen import eigenpairs
from .lanczos_recursion import random_recursions, recursion
from .probes import gaussian, source


def spectral_density(
    A: Operator,
    *,
    num_steps: int = 128,
    num_probes: int = 8,
    outliers: int | Eigenpairs = 0,
    generator: torch.Generator | None = None,
) -> Spectrum:
    """The spectrum Σᵢ δ(λ - λᵢ)/n by stochastic Lanczos quadrature: E Σᵢ (vᵀuᵢ)² δ(λ - λᵢ) for v on the sphere.

    Four vectors a probe are taken at most, its product's among them, and as many probes run in step as the operator's
    `room` allows. No basis is kept but where every step is made, so that a line may stand there several times, with the
    right mass in all. The range is that of the Ritz values. With outliers, that many certified eigenpairs of largest
    |λ|, or those given, are atoms of mass exactly 1/n, and the probes measure the rest on their orthogonal complement,
    so that the zeros of a deflated operator are never seen. Papyan (2020), Alg. 3 and Sec. C.8, which counts them;
    Papyan (2019), Alg. 3. No more than n steps are made. Without a generator, a new one with seed 0 is used: two such
    calls share their probes.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.arange(1.0, 301.0)))
    >>> spectrum = ritz.spectral_density(A, num_steps=20, outliers=2)
    >>> outliers, bulk = spectrum.split(2)
    >>> outliers.round(decimals=2), bulk.size
    (tensor([300., 299.], dtype=torch.float64), 298)
    """
    generator = source(generator)
    count = len(outliers) if isinstance(outliers, Eigenpairs) else outliers
    _check_counts(A, num_steps, num_probes, count)
    pairs = outliers if isinstance(outliers, Eigenpairs) else None
    if pairs is not None:
        orthonormal_columns(A, pairs)
    if pairs is None and count:
        pairs = eigenpairs(A, count, which="magnitude", generator=generator)
    values = torch.zeros(0) if pairs is None else pairs.values.double().cpu()
    if count == A.size:
        return Spectrum.of_eigenvalues(values, probes=num_probes)
    steps = min(num_steps, A.size - count)
    outside = None if pairs is None else pairs.vectors.T
    T = random_recursions(A, num_probes, steps, generator, outside=outside)
    return _with_atoms(*T.quadrature(), values, A.size, steps)


def spectral_range(
    A: Operator, *, num_steps: int = 32, margin: float = 0.05, generator: torch.Generator | None = None
) -> tuple[float, float]:
    """An interval that should hold the spectrum: θ₁ - β|y₁[m]| to θₘ + β|yₘ[m]|, and `margin` of it on each side.

    No guarantee: an eigenvector that the start hardly contains is not seen. Papyan (2020), Alg. 4 and Sec. D.2 for the
    defaults; its residual ‖(A - θ)y‖ should read ‖(A - θ)V y‖ = β|y[m]|. Papyan (2019), Alg. 4. Without a generator,
    one with seed 0 is used.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.arange(1.0, 301.0)))
    >>> low, high = ritz.solvers.spectral_range(A)
    >>> low < 1 and 300 < high < 330
    True
    """
    _check_counts(A, num_steps, 1, 0)
    if not (math.isfinite(margin) and margin >= 0):
        raise ArgumentError(f"margin={margin} was given.", "It widens the interval.", "Pass 0 or more.")
    T = recursion(A, gaussian(A, 1, source(generator)), min(num_steps, A.size), keep_basis=False)
    (theta,), (S,) = T.eigh()
    residuals = T.residual[0] * S[-1].abs()
    low, high = float((theta - residuals).min()), float((theta + residuals).max())
    return low - margin * (high - low), high + margin * (high - low)


def _with_atoms(nodes: Tensor, weights: Tensor, values: Tensor, size: int, steps: int) -> Spectrum:
    """The measure of the bulk, of mass (n - k)/n, and k atoms of mass 1/n before it in every row."""
    share, atoms = len(values) / size, values.to(nodes).expand(len(nodes), -1)
    spread = float(nodes.max() - nodes.min()) / max(steps - 1, 1)
    resolution = spread or float(nodes.abs().max()) / max(steps, 2) or 1.0 / max(steps, 2)
    together = torch.cat([atoms, nodes], dim=1)
    masses = torch.cat([torch.full_like(atoms, 1 / size), weights * (1 - share)], dim=1)
    return Spectrum(together, masses, size, resolution)


def _check_counts(A: Operator, num_steps: int, num_probes: int, outliers: int) -> None:
    check_whole(num_steps=num_steps, num_probes=num_probes, outliers=outliers)
    if num_steps < 1 or num_probes < 1 or not 0 <= outliers <= A.size:
        raise ArgumentError(
            f"num_steps={num_steps}, num_probes={num_probes} and outliers={outliers} were given for size {A.size}.",
            "A quadrature takes one step and one probe at least; outliers are eigenvalues, 0 to n of them.",
            "The defaults are num_steps=128, num_probes=8, outliers=0.",
        )
