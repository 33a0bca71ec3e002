"""Limiting laws of large random matrices, and the power-law tail that real curvature has instead."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..arguments import guard
from ..errors import ArgumentError, check_number, check_positive
from ..spectrum import Spectrum

NODES = 2000  # atoms that stand for a density
_POSITIVE = "Variances, aspect ratios and eigenvalues of a covariance are positive."


@dataclass(frozen=True, eq=False)
class Law:
    """A probability measure ρ(x)dx on an interval plus atoms: what the spectrum of a large random matrix tends to.

    >>> semicircle(0.25)
    Law(semicircle: density on [-1, 1])
    """

    name: str
    density: Callable[[Float[Tensor, " g"]], Float[Tensor, " g"]]  # of total mass 1 - Σ masses
    support: tuple[float, float]
    atoms: tuple[tuple[float, float], ...] = ()  # (place, mass)

    def spectrum(self, num_nodes: int = NODES, *, size: int | None = None) -> Spectrum:
        """The law as atoms at x = centre - radius·cos θ, θ at midpoints of [0, π], to compare with what is measured.

        In θ a density that vanishes or grows like a square root at its edges is smooth, and midpoints integrate it to
        rounding; `marchenko_pastur` says where that takes more nodes. `size` is that of the matrix it stands for; by
        default the number of nodes.
        """
        check_positive("It counts.", num_nodes=num_nodes, size=size)
        low, high = self.support
        theta = (torch.arange(num_nodes, dtype=torch.float64) + 0.5) * math.pi / num_nodes
        nodes = (low + high) / 2 - (high - low) / 2 * theta.cos()
        weights = self.density(nodes) * theta.sin()
        places, masses = torch.tensor(self.atoms, dtype=torch.float64).view(-1, 2).T
        weights = weights / weights.sum() * (1 - masses.sum())
        both = torch.cat([nodes, places]), torch.cat([weights, masses])
        return Spectrum(both[0][None], both[1][None], size or num_nodes)

    def __repr__(self) -> str:
        low, high = self.support
        atoms = "".join(f", {mass:.3g} at {place:.6g}" for place, mass in self.atoms)
        return f"Law({self.name}: density on [{low:.6g}, {high:.6g}]{atoms})"


def marchenko_pastur(ratio: float, variance: float = 1.0) -> Law:
    """ρ(x) = √((b - x)(x - a))/(2πσ²cx) on [a, b] = σ²(1 ∓ √c)², and 1 - 1/c at zero for c > 1.

    The law of XᵀX/N for X of N × D independent entries of variance σ², as both grow with D/N = c (`ratio`). Marchenko
    and Pastur (1967). Moments of its `spectrum()` are exact to rounding at c = 1 and for |c - 1| ≥ 0.03; in between the
    pole at zero is close to the edge, and with the default 2,000 nodes they are off by 2e-11 at |c - 1| = 0.01, 2e-7 at
    0.005 and 1e-4 at 0.001 (with 20,000 nodes by 2e-12 there, and by 1e-5 at 0.0001).

    >>> marchenko_pastur(4.0)
    Law(Marchenko-Pastur: density on [1, 9], 0.75 at 0)
    """
    check_positive(_POSITIVE, ratio=ratio, variance=variance)
    low, high = variance * (1 - math.sqrt(ratio)) ** 2, variance * (1 + math.sqrt(ratio)) ** 2

    def density(x: Tensor) -> Tensor:
        inside = ((high - x) * (x - low)).clamp(min=0).sqrt() / (2 * math.pi * variance * ratio * x)
        return torch.where((x <= low) | (x >= high), 0.0, inside)  # zero is outside, and nothing is divided by it

    return Law("Marchenko-Pastur", density, (low, high), ((0.0, 1 - 1 / ratio),) if ratio > 1 else ())


def semicircle(variance: float = 1.0) -> Law:
    """ρ(x) = √(4σ² - x²)/(2πσ²) on [-2σ, 2σ].

    The law of a symmetric n × n matrix with independent entries of variance σ²/n. Wigner (1958).

    >>> round(float(semicircle(0.25).spectrum().moment(2)), 9)
    0.25
    """
    check_positive(_POSITIVE, variance=variance)
    radius = 2 * math.sqrt(variance)

    def density(x: Tensor) -> Tensor:
        return (radius**2 - x**2).clamp(min=0).sqrt() / (2 * math.pi * variance)

    return Law("semicircle", density, (-radius, radius))


@dataclass(frozen=True)
class Spike:
    """The place at which a planted eigenvalue appears, and the overlap of its eigenvector with the planted direction.

    >>> wigner_spike(0.5).place is None, wigner_spike(2.0).place
    (True, 2.5)
    """

    strength: float
    place: float | None  # None: inside the bulk
    overlap: float  # ⟨planted, found⟩², zero inside the bulk


def covariance_spike(strength: float, ratio: float, variance: float = 1.0) -> Spike:
    """ℓ → ℓ + cσ²ℓ/(ℓ - σ²), seen if |ℓ - σ²| > √c σ²; overlap (1 - cσ⁴/(ℓ-σ²)²)/(1 + cσ²/(ℓ-σ²)).

    ℓ (`strength`) is an eigenvalue of the inputs' covariance, all others being σ²; c = D/N. Baik, Ben Arous and Péché
    (2005), Baik and Silverstein (2006); the overlap is that of Paul (2007). For c ≥ 1 there is none below the bulk.

    >>> covariance_spike(3.0, ratio=1.0)
    Spike(strength=3.0, place=4.5, overlap=0.5)
    """
    check_positive(_POSITIVE, strength=strength, ratio=ratio, variance=variance)
    gap = strength - variance
    if abs(gap) <= math.sqrt(ratio) * variance:
        return Spike(strength, None, 0.0)
    overlap = (1 - ratio * (variance / gap) ** 2) / (1 + ratio * variance / gap)
    return Spike(strength, strength * (1 + ratio * variance / gap), overlap)


def wigner_spike(strength: float, variance: float = 1.0) -> Spike:
    """θ → θ + σ²/θ, seen if |θ| > σ; overlap 1 - σ²/θ²: a rank-one θuuᵀ added to a Wigner matrix. Péché (2006).

    >>> wigner_spike(2.0)
    Spike(strength=2.0, place=2.5, overlap=0.75)
    """
    check_positive(_POSITIVE, variance=variance)
    check_number(strength=strength)
    ratio = math.sqrt(variance) / abs(strength) if strength else math.inf  # whose square is always a float
    if ratio >= 1:
        return Spike(strength, None, 0.0)
    return Spike(strength, strength + variance / strength, 1 - ratio**2)


def spiked_covariance(ratio: float, spikes: Sequence[float], size: int, variance: float = 1.0) -> Law:
    """Marchenko-Pastur with an atom of mass 1/n for each spike that can be seen: `covariance_spike`.

    >>> spiked_covariance(0.25, [3.0], size=100)
    Law(spiked Marchenko-Pastur: density on [0.25, 2.25], 0.01 at 3.375)
    """
    return _spiked(marchenko_pastur(ratio, variance), [covariance_spike(s, ratio, variance) for s in spikes], size)


def spiked_wigner(spikes: Sequence[float], size: int, variance: float = 1.0) -> Law:
    """The semicircle with an atom of mass 1/n for each spike that can be seen: `wigner_spike`.

    >>> spiked_wigner([0.5, 2.0], size=100)
    Law(spiked semicircle: density on [-2, 2], 0.01 at 2.5)
    """
    return _spiked(semicircle(variance), [wigner_spike(s, variance) for s in spikes], size)


@dataclass(frozen=True)
class PowerLaw:
    """φ(x) = scale · x^(-exponent) on an interval, with the R² of the straight line in log-log coordinates.

    >>> PowerLaw(exponent=2.0, scale=1.0, r_squared=1.0, interval=(1.0, 10.0)).density(torch.tensor([1.0, 2.0]))
    tensor([1.0000, 0.2500])
    """

    exponent: float
    scale: float
    r_squared: float
    interval: tuple[float, float]

    def density(self, x: Float[Tensor, " g"]) -> Float[Tensor, " g"]:
        """φ(x), which is a density of |λ|: zero where x is not positive."""
        return torch.where(x <= 0, 0.0, self.scale * x.clamp(min=0) ** -self.exponent)


def power_law_tail(
    spectrum: Spectrum, low: float, high: float, *, width: float | None = None, num_points: int = 200
) -> PowerLaw:
    """The least-squares line through log φ(|λ|) against log|λ| on [low, high], φ the density of |λ|.

    φ(x) = q(log x)/x with q the log-density, smoothed by a Gaussian of `width` in log|λ|: that only scales a
    power law by exp(width²(b-1)²/2), which is divided out. Papyan (2019), Fig. 4; Papyan (2020), Fig. 16, where how
    the line was fitted is not said.

    >>> places = torch.linspace(-5, 5, 1001).double().exp()  # as many in every octave: φ(x) ∝ 1/x
    >>> round(power_law_tail(Spectrum.of_eigenvalues(places), 0.1, 10.0, width=0.1).exponent, 6)
    1.0
    """
    if not 0 < low < high < math.inf or num_points < 3:
        raise ArgumentError(
            f"A power law was to be fitted to {num_points} points between {low} and {high}.",
            "It is a straight line in log-log coordinates, which needs at least three points.",
            "Take 0 < low < high, on the part of the spectrum that looks straight.",
        )
    floor = min(spectrum.floor, 1e-9 * low)
    sigma = spectrum.log_width() if width is None else width
    u = torch.linspace(math.log(low), math.log(high), num_points, dtype=torch.float64)
    q = spectrum.log_density(u, width=sigma, floor=floor)
    if not bool((q > 0).all()):
        raise ArgumentError(
            f"The density is zero somewhere between {low:.4g} and {high:.4g}.",
            "Its logarithm does not exist there.",
            "Choose an interval inside the spectrum, or a larger width.",
        )
    log_phi = q.log() - u
    slope, intercept, r_squared = _line(u, log_phi)
    return PowerLaw(-slope, math.exp(intercept - (sigma * (slope + 1)) ** 2 / 2), r_squared, (low, high))


def _line(x: Tensor, y: Tensor) -> tuple[float, float, float]:
    """Slope, intercept and R² of the least-squares line."""
    dx, dy = x - x.mean(), y - y.mean()
    slope = float(dx @ dy / (dx @ dx))
    total = float(dy @ dy)
    r_squared = 1 - float((dy - slope * dx).square().sum()) / total if total else 1.0
    return slope, float(y.mean()) - slope * float(x.mean()), r_squared


def _spiked(law: Law, spikes: Sequence[Spike], size: int) -> Law:
    """The law with its spikes, whose mass is taken from the bulk: zeros of a matrix without full rank stay zeros."""
    seen = [spike.place for spike in spikes if spike.place is not None]
    bulk = 1 - sum(mass for _, mass in law.atoms)
    if size * bulk <= len(seen):
        raise ArgumentError(
            f"{len(seen)} spikes were planted in a matrix with {size * bulk:.4g} of {size} eigenvalues in its bulk.",
            "Each has mass 1/n, and the bulk needs what is left.",
            "Give the size of the matrix, in rows.",
        )
    atoms, share = (*law.atoms, *((place, 1 / size) for place in seen)), 1 - len(seen) / (size * bulk)
    return Law(f"spiked {law.name}", lambda x: share * law.density(x), law.support, atoms)


guard(__name__)
