"""The mass of a spectrum below zero, the fraction of negative eigenvalues, as an Estimate."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import check_tolerance
from ..operators import Operator
from ..spectrum import Estimate, Spectrum
from .densities import spectral_density
from .probes import mean_of


def negative_mass(
    A: Operator,
    *,
    tolerance: float | None = None,
    num_steps: int = 128,
    num_probes: int = 8,
    generator: torch.Generator | None = None,
) -> Estimate:
    """The fraction of eigenvalues below -tolerance, by stochastic Lanczos quadrature without smoothing.

    A rank-deficient operator has zeros that come out as rounding of either sign; by default the tolerance,
    16 eps max|λ| in the operator's precision, leaves them out. The mass of the two nodes next to zero may lie on either
    side: it is shared by interpolation, and what that leaves open is added to the Monte Carlo error, which it
    exceeds where eigenvalues crowd around zero. More steps make it smaller.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.arange(1.0, 301.0)))
    >>> estimate = ritz.negative_mass(A - 75.5)  # 75 of 300 are negative
    >>> abs(estimate.value - 0.25) < 3 * estimate.standard_error
    True
    """
    if tolerance is not None:
        check_tolerance(tolerance)
    spectrum = spectral_density(A, num_steps=num_steps, num_probes=num_probes, generator=generator)
    return mass_from(spectrum, resolved_zero(spectrum, A.dtype) if tolerance is None else tolerance, num_steps)


def mass_from(spectrum: Spectrum, tolerance: float, num_steps: int, *, atoms: int = 0) -> Estimate:
    """The mass below -tolerance as `negative_mass` takes it, where the first `atoms` nodes of a row are eigenvalues."""
    nodes, weights = spectrum.nodes[:, atoms:], spectrum.weights[:, atoms:]
    exhausted = nodes.shape[1] < num_steps or num_steps >= spectrum.size - atoms  # then the nodes are eigenvalues
    rows = [mass_below(*row, tolerance, exhausted) for row in zip(nodes, weights, strict=True)]
    masses, doubts = torch.tensor(rows, dtype=torch.float64).T
    estimate = mean_of(masses, spectrum.nodes.numel())  # a node a product
    error = math.hypot(estimate.standard_error, float(doubts.mean())) if estimate.has_error else None
    exact = int((spectrum.nodes[0, :atoms] < -tolerance).sum()) / spectrum.size
    return Estimate(exact + estimate.value, error, estimate.num_products)


def resolved_zero(spectrum: Spectrum, dtype: torch.dtype) -> float:
    """16 eps max|λ| in the precision of the products: below it the sign of an eigenvalue is rounding."""
    return 16 * torch.finfo(dtype).eps * max(map(abs, spectrum.range))


def mass_below(nodes: Tensor, weights: Tensor, tolerance: float, exhausted: bool) -> tuple[float, float]:
    """The mass below -tolerance, and the standard deviation of what the nodes on both sides of zero leave open.

    By the Chebyshev-Markov-Stieltjes inequalities the mass lies between its sum without the last negative node and
    its sum with the first positive one. A node at zero is an eigenvalue: then nothing is open.
    """
    negative, positive = nodes < -tolerance, nodes > tolerance
    mass, support = float(weights[negative].sum()), weights > 0
    atom = bool((~negative & ~positive & support).any())
    if exhausted or atom or not bool(negative.any()) or not bool(positive.any()):
        return mass, 0.0
    last, first = nodes.where(negative, -math.inf).argmax(), nodes.where(positive, math.inf).argmin()
    below, above, open_mass = float(nodes[last]), float(nodes[first]), float(weights[last] + weights[first]) / 2
    share = -float(weights[last]) / 2 + open_mass * -below / (above - below)
    return min(max(mass + share, 0.0), 1.0), open_mass / math.sqrt(3)  # of a uniform distribution over that width
