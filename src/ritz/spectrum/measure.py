"""A probability measure on the line, as nodes and weights, and the means that can be taken of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ArgumentError, NumericalError, check_instance, check_positive, check_whole

EPS = torch.finfo(torch.float64).eps
FINEST = 3e3 * EPS  # width that float64 resolves, beside numbers of the size of one
KAPPA = 3.0  # a Gaussian has fallen to 1/κ half a spacing away; Papyan (2020), Sec. D.2
LOG_KAPPA = 1.04  # the paper takes "a different value" for logarithms and does not say which; curvlinops takes this one
STEPS = 128  # resolution lent to exact spectra, which have none: that of Papyan (2020), Sec. D.2
TENSOR = "Convert it: torch.as_tensor(...)."
CHUNK = 2**22  # entries of a kernel matrix held at a time: 32 MB
PIECE, FARTHEST = 64, 38.0  # points smoothed at a time; widths beyond which a Gaussian is zero to float64


@dataclass(frozen=True, repr=False, eq=False)
class Measure:
    """Σₖ wₖ δ(λ - λₖ), averaged over p independent probes; held in float64 on the CPU."""

    nodes: Float[Tensor, "p k"]
    weights: Float[Tensor, "p k"]  # not negative; each row sums to one
    size: int  # n, the number of eigenvalues
    resolution: float | None = None  # None: the atoms are exact
    num_atoms: int = 0
    reach: Float[Tensor, "2 p k"] | None = None  # the ends between which each node's mass lies; None: its neighbours
    precision: float = EPS  # of the products, relative to the largest eigenvalue
    num_products: int = 0  # that it took; 0 where that is not known

    def __post_init__(self) -> None:
        check_instance(Tensor, TENSOR, nodes=self.nodes, weights=self.weights)
        check_whole(size=self.size)
        if self.reach is None:
            object.__setattr__(self, "reach", self._default_reach())
        for name in ("nodes", "weights", "reach"):
            object.__setattr__(self, name, getattr(self, name).detach().to("cpu", torch.float64))
        _check_measure(self.nodes, self.weights)
        check_positive("It counts the eigenvalues.", size=self.size)

    def _default_reach(self) -> Tensor:
        """The default reach: for atoms their place, for a node the interval between its neighbours."""
        places = self.nodes.expand(2, -1, -1)
        if self.is_exact:
            return places
        return torch.cat([places[..., : self.num_atoms], _between(self.nodes)[..., self.num_atoms :]], 2)

    @property
    def is_exact(self) -> bool:
        """Whether the atoms are the eigenvalues, with their masses."""
        return self.resolution is None

    @property
    def num_probes(self) -> int:
        """p, the number of independent probes."""
        return len(self.nodes)

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest node that carries mass."""
        support = self.nodes[self.weights > 0]
        return float(support.min()), float(support.max())

    @property
    def floor(self) -> float:
        """The size below which rounding makes zeros: max|λ| times n eps of float64, or 16 times the `precision`."""
        return max(self.size * EPS, 16 * self.precision) * self._scale

    @property
    def width(self) -> float:
        """Default Gaussian width σ: the resolution of a quadrature.

        An exact spectrum is lent the width of Papyan (2020), Alg. 3, for 128 nodes: g_σ(half a spacing) = g_σ(0)/κ.
        """
        low, high = self.range
        width = self.resolution or lent_width(high - low or self._scale)
        return max(width, FINEST * self._scale)

    def log_width(self, floor: float | None = None) -> float:
        """Default Gaussian width in u = log(|λ| + floor), for as many nodes as there are in the range of u."""
        low, high = self._log_range(floor)
        steps = STEPS if self.is_exact else max(self.nodes.shape[1], 2)
        width = ((high - low) or 1.0) / (steps - 1) / math.sqrt(8 * math.log(LOG_KAPPA))
        return max(width, FINEST)

    def density(self, x: Float[Tensor, " g"], width: float | None = None) -> Float[Tensor, " g"]:
        """ρ(x) = Σₖ wₖ g_σ(x - λₖ), which integrates to one. Papyan (2020), Alg. 3, de-normalised."""
        return self._smoothed(x, self.nodes, self.width if width is None else width)

    def log_density(
        self, u: Float[Tensor, " g"], *, width: float | None = None, floor: float | None = None
    ) -> Float[Tensor, " g"]:
        """q(u) = Σₖ wₖ g_σ(u - log(|λₖ| + floor)): the density of u = log(|λ| + floor), with ∫ q du = 1.

        Papyan (2020), Sec. C.7 and Papyan (2019), eq. (7), without the factor 1/θ: with it, it is no density of log|λ|.
        """
        epsilon = self._log_floor(floor)
        return self._smoothed(u, (self.nodes.abs() + epsilon).log(), self.log_width(floor) if width is None else width)

    def grid(self, num_points: int = 2000, *, width: float | None = None) -> Float[Tensor, " g"]:
        """Points λ that show the whole density: the range and four widths on either side."""
        low, high = self.range
        margin = 4 * (self.width if width is None else width)
        return torch.linspace(low - margin, high + margin, num_points, dtype=torch.float64)

    def log_grid(
        self, num_points: int = 2000, *, width: float | None = None, floor: float | None = None
    ) -> Float[Tensor, " g"]:
        """Points u = log(|λ| + floor) that show the whole log-density."""
        low, high = self._log_range(floor)
        margin = 4 * (self.log_width(floor) if width is None else width)
        return torch.linspace(low - margin, high + margin, num_points, dtype=torch.float64)

    def cdf(self, x: Float[Tensor, " g"]) -> Float[Tensor, " g"]:
        """F(x), the mass of (-∞, x]."""
        check_instance(Tensor, TENSOR, points=x)
        nodes, order = self.nodes.flatten().sort()
        mass = self.weights.flatten()[order].cumsum(0) / self.num_probes
        x = x.to(nodes)
        below = torch.searchsorted(nodes, x, right=True)
        return torch.cat([mass.new_zeros(1), mass])[below].clamp(max=1.0).where(~x.isnan(), math.nan)

    def moment(self, degree: int) -> float:
        """∫ λᵈ dμ = tr(Aᵈ)/n; exact for each probe's measure while d < 2m."""
        check_degree(degree)
        return float((self.weights * self.nodes**degree).sum(1).mean())

    def zero_mass(self, tolerance: float | None = None) -> float:
        """Fraction of eigenvalues with |λ| ≤ tolerance; by default `floor`, which follows the precision of products."""
        tolerance = self.floor if tolerance is None else tolerance
        return float((self.weights * (self.nodes.abs() <= tolerance)).sum(1).mean())

    @property
    def _scale(self) -> float:
        return max(map(abs, self.range)) or 1.0

    def _log_floor(self, floor: float | None) -> float:
        check_positive("A logarithm needs a positive floor.", floor=floor)
        return self.floor if floor is None else floor

    def _log_range(self, floor: float | None) -> tuple[float, float]:
        epsilon = self._log_floor(floor)
        least = float(self.nodes[self.weights > 0].abs().min())
        return math.log(least + epsilon), math.log(self._scale + epsilon)

    @property
    def ends(self) -> Float[Tensor, "2 p k"]:
        """The `reach`, which is never left open."""
        assert self.reach is not None  # since the beginning
        return self.reach

    def _smoothed(self, x: Tensor, centres: Tensor, width: float) -> Tensor:
        check_instance(Tensor, TENSOR, points=x)
        check_positive("A Gaussian needs a positive width.", width=width)
        centres, order = (centres.flatten() / width).sort()
        points, weights = x.to(centres) / width, self.weights.flatten()[order]
        pieces = points.split(min(PIECE, max(1, CHUNK // len(centres)))) if len(points) else ()
        rows = [_gaussians(piece, centres, weights) for piece in pieces]
        return torch.cat([points.new_zeros(0), *rows]) / (self.num_probes * width * math.sqrt(2 * math.pi))


def _gaussians(points: Float[Tensor, " g"], centres: Float[Tensor, " k"], weights: Tensor) -> Float[Tensor, " g"]:
    """Σₖ wₖ exp(-(x - cₖ)²/2) at every point x, over those of the ascending centres that are near any of them."""
    ends = torch.stack([points.min() - FARTHEST, points.max() + FARTHEST])
    low, high = torch.searchsorted(centres, ends).tolist() if ends.isfinite().all() else (0, len(centres))
    return torch.exp(-0.5 * (points[:, None] - centres[low:high]).square_()) @ weights[low:high]


def check_degree(degree: int) -> None:
    """Refuse an impossible degree of a moment."""
    check_whole(degree=degree)
    if degree is None or degree < 0:
        raise ArgumentError(
            f"degree={degree} was given.",
            "The degree of a moment is the power of λ in it, and cannot be negative.",
            "Ask for 0 or more.",
        )


def lent_width(spread: float, steps: int = STEPS) -> float:
    """The width of Papyan (2020), Alg. 3, for this many nodes on an interval of this length."""
    return spread / (steps - 1) / math.sqrt(8 * math.log(KAPPA))


def _between(nodes: Float[Tensor, "p k"]) -> Float[Tensor, "2 p k"]:
    """The interval from the neighbour below each node to that above, in each row."""
    ascending, order = nodes.sort(dim=1)
    below = torch.cat([ascending[:, :1], ascending[:, :-1]], dim=1)
    above = torch.cat([ascending[:, 1:], ascending[:, -1:]], dim=1)
    place = order.argsort(dim=1)
    return torch.stack([below.gather(1, place), above.gather(1, place)])


def _check_measure(nodes: Tensor, weights: Tensor) -> None:
    if nodes.ndim != 2 or nodes.shape != weights.shape or nodes.numel() == 0:
        raise ArgumentError(
            f"Nodes of shape {tuple(nodes.shape)} and weights of shape {tuple(weights.shape)} were given.",
            "A spectrum has one row of atoms for each probe, and a weight for each atom.",
            "Spectrum.of_eigenvalues(values) takes plain eigenvalues.",
        )
    if not bool(nodes.isfinite().all() and weights.isfinite().all()):
        raise NumericalError(
            "A spectrum has NaN or infinite nodes or weights.",
            "No density, moment or distance exists.",
            "Check the operator: (A @ v).isfinite().all() for a random v.",
        )
    if bool((weights < 0).any()) or float((weights.sum(1) - 1).abs().max()) > 1e-6:
        raise ArgumentError(
            f"The weights lie between {float(weights.min()):.3g} and {float(weights.max()):.3g}; "
            f"their rows sum to {float(weights.sum(1).min()):.6g} to {float(weights.sum(1).max()):.6g}.",
            "Each row must be a probability measure: not negative, with sum one.",
            "Divide the weights by their sum.",
        )
