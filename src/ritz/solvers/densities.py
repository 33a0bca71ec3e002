"""The density of a spectrum by stochastic Lanczos quadrature, and the interval that should contain it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import ArgumentError, check_whole
from ..operators import Operator
from ..record.checkpoints import State
from ..record.layouts import check_arrays
from ..spectrum import Eigenpairs, Spectrum
from ..spectrum.measure import EPS
from .assembly import spectrum_from
from .lanczos_recursion import recursion
from .probe_runs import random_recursions
from .probes import gaussian, source
from .quadratures import LanczosQuadrature, certified
from .resumption import Resumption


def spectral_density(
    A: Operator,
    *,
    num_steps: int | None = None,
    num_probes: int | None = None,
    outliers: int | Eigenpairs = 0,
    tolerance: float | None = None,
    max_products: int | None = None,
    generator: torch.Generator | None = None,
    checkpoint: str | Path | None = None,
) -> Spectrum:
    """The spectrum Σᵢ δ(λ - λᵢ)/n by stochastic Lanczos quadrature: E Σᵢ (vᵀuᵢ)² δ(λ - λᵢ) for v on the sphere.

    Ritz values to which most probes have converged are atoms: each counts as one eigenvalue, whatever its mass in a
    probe, or as several where the parts that the probes have of it lie along several directions. (To one probe, a
    double eigenvalue among many simple ones looks simple.) A probe takes at most four vectors, including those of its
    product, and as many probes run in step as the operator's `room` allows; a basis is kept only where all n steps are
    made. Papyan (2020), Alg. 3 and Sec. C.8; Papyan (2019), Alg. 3.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.arange(1.0, 301.0)))
    >>> spectrum = ritz.spectral_density(A, num_steps=20, outliers=2)
    >>> outliers, bulk = spectrum.split(2)
    >>> outliers.round(decimals=2), bulk.size
    (tensor([300., 299.], dtype=torch.float64), 298)
    >>> spectrum = ritz.spectral_density(A, tolerance=0.1)
    >>> spectrum.wasserstein_bound() <= 0.1 * 300, spectrum.num_products
    (True, 64)

    Args:
        A: Symmetric operator.
        num_steps: Lanczos steps of each probe, which give the resolution; 128 unless given, and n at most.
        num_probes: Random vectors, whose mean lowers the noise; 8 unless given.
        outliers: That many certified eigenpairs of largest |λ|, or the Eigenpairs given, are atoms of mass exactly 1/n.
            The probes measure the rest on their orthogonal complement, so that the zeros of a deflated operator, which
            Papyan (2020) counts, are never seen.
        tolerance: In place of numbers of steps and probes: both grow until the spectrum's `wasserstein_bound` is at
            most `tolerance` · max|λ|. The result's `num_products` says what that took, and `LanczosQuadrature.refine`
            does the same and can go on.
        max_products: The most products that a tolerance may take.
        generator: Source of the probes; without it, a new generator with seed 0, so that two calls share their probes.
        checkpoint: A file from which a computation that was killed goes on to the same bits; started again when it is
            over, it reads its result there. At most six probes then run in step, and their two vectors each are written
            every half minute, or less often where that would take a twentieth of the time. It belongs to this operator
            and these arguments. Outliers that are searched for have a file of their own beside it; with a tolerance,
            only the result is written.
    """
    generator = source(generator)
    _check_alone(tolerance, max_products, num_steps, num_probes)
    file = Resumption.of(
        checkpoint,
        A,
        "spectral_density",
        generator,
        settings=(num_steps, num_probes, outliers, tolerance, max_products),
    )
    if file is not None and file.is_over:
        return file.read(partial(_read_spectrum, A, generator))
    spectrum = _spectrum(A, num_steps, num_probes, outliers, tolerance, max_products, generator, file)
    if file is not None:
        file.keep(partial(_written_spectrum, spectrum, generator), over=True)
    return spectrum


def _written_spectrum(spectrum: Spectrum, generator: torch.Generator) -> State:
    arrays, facts = spectrum.state()
    return {**arrays, "generator": generator.get_state()}, {"facts": facts}


def _read_spectrum(
    A: Operator, generator: torch.Generator, arrays: Mapping[str, Tensor], header: Mapping[str, Any]
) -> Spectrum:
    parts: dict[str, Any] = {name: array for name, array in arrays.items() if name != "generator"}
    check_arrays({"generator": arrays["generator"]}, {"generator": generator.get_state()})
    spectrum = Spectrum.of_state(parts, header["facts"])
    if spectrum.size != A.size or spectrum.precision not in {torch.finfo(A.dtype).eps, EPS}:
        raise ValueError(f"it has {spectrum.size:,} eigenvalues, to {spectrum.precision}")
    if not spectrum.is_exact and spectrum.num_products < spectrum.num_probes:
        raise ValueError(f"it took {spectrum.num_products} products for {spectrum.num_probes} probes")
    generator.set_state(arrays["generator"])
    return spectrum


def _spectrum(
    A: Operator,
    num_steps: int | None,
    num_probes: int | None,
    outliers: int | Eigenpairs,
    tolerance: float | None,
    max_products: int | None,
    generator: torch.Generator,
    file: Resumption | None,
) -> Spectrum:
    if tolerance is not None:
        quadrature = LanczosQuadrature(A, outliers=outliers, generator=generator)
        return quadrature.refine(tolerance, max_products=max_products)
    num_steps, num_probes = (128 if num_steps is None else num_steps), (8 if num_probes is None else num_probes)
    count = len(outliers) if isinstance(outliers, Eigenpairs) else outliers
    _check_counts(A, num_steps, num_probes, count)
    pairs = certified(A, outliers, generator, None if file is None else file.beside("outliers"))
    made = 0 if pairs is None or isinstance(outliers, Eigenpairs) else pairs.num_products
    if pairs is not None and count == A.size:
        values = pairs.values.double().cpu()
        spectrum = Spectrum.of_eigenvalues(values, num_probes=num_probes, precision=torch.finfo(A.dtype).eps)
        return replace(spectrum, num_products=made)
    outside = None if pairs is None else pairs.vectors.T
    T = random_recursions(A, num_probes, min(num_steps, A.size - count), generator, outside=outside, file=file)
    return replace(spectrum_from(T, pairs, A), num_products=made + T.num_probes * T.num_steps)


def spectral_range(
    A: Operator, *, num_steps: int = 32, margin: float = 0.05, generator: torch.Generator | None = None
) -> tuple[float, float]:
    """An interval that should contain the spectrum: θ₁ - β|y₁[m]| to θₘ + β|yₘ[m]|, plus a `margin` on each side.

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
        raise ArgumentError(
            f"margin={margin} was given.", "It widens the interval, so it cannot be negative.", "Pass 0 or more."
        )
    T = recursion(A, gaussian(A, 1, source(generator)), min(num_steps, A.size), keep_basis=False)
    (theta,), (S,) = T.eigh()
    residuals = T.residual[0] * S[-1].abs()
    low, high = float((theta - residuals).min()), float((theta + residuals).max())
    return low - margin * (high - low), high + margin * (high - low)


def _check_counts(A: Operator, num_steps: int, num_probes: int, outliers: int) -> None:
    check_whole(num_steps=num_steps, num_probes=num_probes, outliers=outliers)
    if num_steps < 1 or num_probes < 1 or not 0 <= outliers <= A.size:
        raise ArgumentError(
            f"num_steps={num_steps}, num_probes={num_probes} and outliers={outliers} were given for size {A.size}.",
            "A quadrature needs at least one step and one probe, and outliers can be 0 to n eigenvalues.",
            "Leave them out: the defaults are num_steps=128, num_probes=8, outliers=0.",
        )


def _check_alone(
    tolerance: float | None, max_products: int | None, num_steps: int | None, num_probes: int | None
) -> None:
    """Refuse a tolerance together with numbers of probes or steps, and a limit without a tolerance."""
    numbers = num_steps is not None or num_probes is not None
    if (tolerance is not None and numbers) or (tolerance is None and max_products is not None):
        raise ArgumentError(
            f"tolerance={tolerance}, max_products={max_products}, num_steps={num_steps} and num_probes={num_probes} "
            "were given.",
            "A tolerance decides how many steps and probes are made, and max_products limits what it may take.",
            "Pass tolerance, with or without max_products, or num_steps and num_probes.",
        )
