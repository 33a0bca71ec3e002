"""Intervals that hold the means of a spectrum: what its probes leave open, and what their quadratures do."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ArgumentError, NumericalError, kind_of

FEWEST = 0.5  # of 1/ν: two samples' worth of a variance, at least
DRAWS = 400  # of the Monte Carlo error of a whole distribution function


def values_of(f: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
    """f at each of the points, in float64; refused where f is no function of single numbers, or has no value there."""
    values = f(points)
    if not isinstance(values, Tensor) or values.shape != points.shape:
        what = f"a tensor of shape {tuple(values.shape)}" if isinstance(values, Tensor) else kind_of(values)
        raise ArgumentError(
            f"f returned {what} for a tensor of shape {tuple(points.shape)}.",
            "It stands for a function of single eigenvalues, and has a value for each.",
            "Pass a function that takes tensors element by element, such as lambda t: t.clamp(min=0).sqrt().",
        )
    if not bool(values.isfinite().all()):
        raise NumericalError(
            f"f is NaN or infinite at {float(points[~values.isfinite()][0]):.3g}.",
            "It is evaluated between the ends of the spectrum, and a mean of such values says nothing.",
            "Pass a function that is finite there, such as lambda t: t.clamp(min=0).sqrt().",
        )
    return values.double()


@dataclass(frozen=True)
class Sample:
    """The masses that p probes saw of `size` eigenvalues."""

    weights: Float[Tensor, " k"]  # of the nodes of all probes; their sum is one
    size: float
    num_probes: int

    def interval(
        self, least: Float[Tensor, "g k"], most: Float[Tensor, "g k"], rate: float
    ) -> tuple[Float[Tensor, " g"], Float[Tensor, " g"]]:
        """An interval for ∫ f, where f lies between its values here wherever the mass of a node may be."""
        tail = (1 - rate) / 2
        return self._quantile(least, 1 - tail), self._quantile(most, tail)

    def variance(self, f: Float[Tensor, "g k"]) -> Float[Tensor, " g"]:
        """The variance of the mean of f over probes on the sphere, exactly: 2/((n + 2) p) (∫ f² - (∫ f)²)."""
        centred = f - (f @ self.weights)[:, None]
        return 2 / ((self.size + 2) * self.num_probes) * (centred.square() @ self.weights)

    def wasserstein(self, nodes: Float[Tensor, " k"], rate: float) -> float:
        """A bound on the W₁ between these masses and the true ones that holds with this probability.

        The mass that p directions have in a space of dimension r follows a Gamma distribution of shape p r/2 before all
        are divided by their sum: drawn anew with the masses seen in place of the true ones.
        """
        x, order = nodes.sort()
        weights = self.weights[order].numpy()
        draws = np.random.default_rng(0).gamma(self.size * self.num_probes / 2 * weights, size=(DRAWS, len(weights)))
        masses = draws / np.maximum(draws.sum(1, keepdims=True), 1e-300)
        distances = np.abs((masses - weights).cumsum(1))[:, :-1] @ x.diff().numpy()
        return float(np.quantile(distances, rate))

    def _quantile(self, f: Float[Tensor, "g k"], level: float) -> Float[Tensor, " g"]:
        """The ∫ f for which the probes would see at most what they saw with this probability.

        f is taken for an `_indicator` of as many eigenvalues as have the same mean and variance; the mass that a random
        direction has in their space follows a Beta distribution.
        """
        from scipy.special import betaincinv  # importing it takes longer than all of ritz

        least = f.amin(1)
        f = f - least[:, None]
        unit = f.amax(1).where(f.amax(1) > 0, 1.0)  # fourth powers of f itself may be out of the range of float64
        f = f / unit[:, None]
        height, shares = self._indicator(f)
        share = shares.numpy()
        inside = np.maximum(self.size * share, 1.0) * self.num_probes / 2
        outside = np.maximum(self.size * (1 - share), 1.0) * self.num_probes / 2
        beta = betaincinv(inside, outside, level)
        odds = share / np.maximum(1 - share, 1e-300) * (1 - beta) / np.maximum(beta, 1e-300) * inside / outside
        with np.errstate(invalid="ignore"):
            bound = np.where(np.isfinite(odds), odds / (1 + odds), 1.0)
        end = height * torch.from_numpy(bound / np.maximum(share, 1e-300))
        return least + unit * (f @ self.weights + (end - height) * self._rarity(f, shares)).clamp(min=0)

    def _indicator(self, f: Float[Tensor, "g k"]) -> tuple[Float[Tensor, " g"], Float[Tensor, " g"]]:
        """The indicator that stands for f ≥ 0: how far the mean of f lies above its zeros, and its share of ones.

        With its zeros at 0 it has the mean and variance of f, and at most its skewness. Where most of it are ones, and
        f reaches further up than these, as λ³ does on both sides, its zeros lie higher, so that the skewness agrees.
        """
        mean, square = f @ self.weights, f.square() @ self.weights
        share = torch.where(square > 0, mean.square() / square, 1.0).clamp(max=1.0)
        centred = f - mean[:, None]
        variance = (centred.square() @ self.weights).clamp(min=1e-300)
        skewness = (centred**3 @ self.weights) / variance**1.5
        agreed = (1 - skewness / (4 + skewness.square()).sqrt()) / 2
        higher = (share > 0.5) & (agreed < share)
        return torch.where(higher, (variance * agreed / (1 - agreed)).sqrt(), mean), torch.where(higher, agreed, share)

    def _rarity(self, f: Float[Tensor, "g k"], share: Float[Tensor, " g"]) -> Float[Tensor, " g"]:
        """The factor by which an interval is widened because few eigenvalues determine its variance.

        That variance scatters by 2κ/np with the kurtosis κ of f, as one from np/κ samples does: Student's quantiles, by
        their expansion. An indicator has κ = 1 + skewness², and its Beta distribution knows of that.
        """
        centred = f - (f @ self.weights)[:, None]
        variance = (centred.square() @ self.weights).clamp(min=1e-300)
        skewness = (centred**3 @ self.weights) / variance**1.5
        kurtosis = (centred**4 @ self.weights) / variance.square()
        of_share = (1 - 2 * share) / (share * (1 - share)).clamp(min=1e-300).sqrt()
        known = torch.minimum(skewness.abs(), of_share.abs()).square().where(skewness * of_share > 0, 0.0)
        x = ((kurtosis - 1 - known) / (self.size * self.num_probes)).nan_to_num(0.0).clamp(0, FEWEST)
        return 1 + 1.25 * x + 1.53 * x.square() + 1.43 * x**3


def gaussians(x: Float[Tensor, " g"], centres: Float[Tensor, "*rows k"], width: float) -> Float[Tensor, "g k"]:
    """g_σ(x - c) for all points x and all centres, which may be others for each point."""
    scale = 1 / (width * math.sqrt(2 * math.pi))
    return ((x[:, None] - centres) / width).square_().mul_(-0.5).exp_().mul_(scale)


def peaks(centres: Float[Tensor, "p k"], weights: Float[Tensor, "p k"]) -> Float[Tensor, "p k"]:
    """The share of each node's mass that is more than its two neighbours have together: 0 where a density is smooth.

    A node that stands for a multiple eigenvalue, or for all that are nearly zero, has most of it for itself.
    """
    order = centres.where(weights > 0, math.inf).argsort(dim=1)
    ascending = torch.nn.functional.pad(weights.gather(1, order), (1, 1))
    excess = 1 - (ascending[:, :-2] + ascending[:, 2:]) / ascending[:, 1:-1]
    return torch.empty_like(weights).scatter_(1, order, excess.nan_to_num(0.0).clamp(min=0))


def gaussian_extremes(
    x: Float[Tensor, " g"],
    centres: Float[Tensor, " k"],
    lower: Float[Tensor, " k"],
    upper: Float[Tensor, " k"],
    width: float,
    peaks: Float[Tensor, " k"],
) -> tuple[Float[Tensor, "g k"], Float[Tensor, "g k"]]:
    """The least and the largest value that a Gaussian at x may have in place of that at the centre.

    Anything between its extremes on [lower, upper] where that is wide, or where it holds one eigenvalue. Nodes that are
    h apart show a smooth density but for what is as fine as they are: a share of 2 exp(-2π²σ²/h²) in a comb, by
    Poisson's summation formula. The share of a node that is a peak (`peaks`) is not of a smooth density.
    """
    h = (upper - lower).clamp(min=1e-300) / 2
    open_share = torch.maximum((2 * torch.exp(-2 * (math.pi * width / h) ** 2)).clamp(max=1.0), peaks)
    middle = gaussians(x, centres, width)
    nearest = torch.maximum(torch.minimum(x[:, None], upper), lower)
    farthest = torch.where((x[:, None] - lower).abs() > (x[:, None] - upper).abs(), lower, upper)
    top, low = gaussians(x, nearest, width), gaussians(x, farthest, width)
    return middle - open_share * (middle - low), middle + open_share * (top - middle)
