"""The mass of a spectrum below zero, the fraction of negative eigenvalues, as an Estimate."""

from __future__ import annotations

import math

import torch

from ..errors import check_tolerance
from ..operators import Operator
from ..spectrum import Estimate, Spectrum
from .densities import spectral_density


def negative_mass(
    A: Operator,
    *,
    tolerance: float | None = None,
    num_steps: int = 128,
    num_probes: int = 8,
    generator: torch.Generator | None = None,
) -> Estimate:
    """The fraction of eigenvalues below -tolerance, by stochastic Lanczos quadrature without smoothing.

    A rank-deficient operator has zero eigenvalues that are computed as rounding of either sign; the default tolerance,
    16 eps max|λ| in the operator's precision, excludes them. The mass of the two nodes next to zero may lie on either
    side: it is divided by interpolation, and the uncertainty of that is added to the Monte Carlo error, which it
    exceeds where eigenvalues crowd around zero. More steps reduce it.

    Args:
        A: Symmetric operator.
        tolerance: What is nearer to zero counts as zero.
        num_steps: Lanczos steps of each probe.
        num_probes: Random vectors.
        generator: Source of the probes; without it, a new generator with seed 0.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.arange(1.0, 301.0)))
    >>> estimate = ritz.negative_mass(A - 75.5)  # 75 of 300 are negative
    >>> abs(estimate.value - 0.25) < 3 * estimate.standard_error
    True
    """
    if tolerance is not None:
        check_tolerance(tolerance)
    spectrum = spectral_density(A, num_steps=num_steps, num_probes=num_probes, generator=generator)
    mass = mass_below(spectrum, resolved_zero(spectrum) if tolerance is None else tolerance)
    return Estimate(mass.value, mass.standard_error, spectrum.num_products)


def mass_below(spectrum: Spectrum, tolerance: float) -> Estimate:
    """The mass of a known spectrum below -tolerance, as in `negative_mass`, without a product."""
    return spectrum.mass(-math.inf, math.nextafter(-tolerance, -math.inf))


def resolved_zero(spectrum: Spectrum) -> float:
    """16 eps max|λ| in the precision of the products: below it the sign of an eigenvalue is rounding."""
    return 16 * spectrum.precision * max(map(abs, spectrum.range))
