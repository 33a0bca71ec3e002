"""Whether a search has missed eigenvalues, judged by a short recursion in the space orthogonal to its pairs.

A Krylov space sees one copy of a multiple eigenvalue. A second one, from a random vector orthogonal to what was
found, sees the next copy as its own outermost eigenvalue, after few steps where that stands apart.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..spectrum.eigenpairs import DOUBT

MOST_STEPS = 10  # or a tenth of the products so far, where that is more
FEWEST_STEPS = 4  # steps before it is judged whether more could rule anything out


def reach(values: Float[Tensor, " j"], which: str) -> Float[Tensor, " j"]:
    """How far out eigenvalues lie, towards the requested end."""
    return values.abs() if which == "magnitude" else -values if which == "smallest" else values


def sides(values: Float[Tensor, " k"], which: str) -> list[tuple[str, Float[Tensor, " h"]]]:
    """The requested values of each end; the largest come first."""
    half = (len(values) + 1) // 2
    if which != "both":
        return [(which, values)]
    return [("largest", values[:half]), ("smallest", values[half:])]


def endangered(values: Float[Tensor, " k"], which: str, limit: float) -> Bool[Tensor, " k"]:
    """Which values would have further copies among the requested ones: those beyond the last one of their end."""
    parts = [reach(side, end) > reach(side[-1:], end) + limit for end, side in sides(values, which)]
    return torch.cat(parts)


def is_beyond(ritz_values: Float[Tensor, " j"], values: Float[Tensor, " k"], which: str, limit: float) -> bool:
    """Whether the space outside has a Ritz value beyond the last requested one, so that one was surely missed."""
    ends = [(end, side) for end, side in sides(values, which) if len(side)]
    return any(bool((reach(ritz_values, end) > reach(side[-1:], end) + limit).any()) for end, side in ends)


class Overlooked:
    """How likely each value is an eigenvalue that m steps from a random vector q₀ of size n have not shown.

    For an eigenvector u to λ, qₗᵀu = φₗ(λ) q₀ᵀu with the polynomials φₗ of the recursion, so Σₗ φₗ(λ)² (q₀ᵀu)² ≤ 1:
    what was overlooked is nearly orthogonal to q₀. A random q₀ is so at most with the chance √(2n / πΣφₗ(λ)²). A β that
    is below `rounding` may be anything up to that; another random vector begins a recursion of its own then.
    """

    def __init__(self, values: Float[Tensor, " k"], size: int, rounding: float = 0.0) -> None:
        self._values, self._factor, self._least = values.double(), 2 * size / math.pi, max(rounding, 1e-300)
        self._before = torch.ones_like(self._values)  # the chances of earlier recursions, together
        self._begin()

    def _begin(self) -> None:
        self._last, self._beta = torch.zeros_like(self._values), 0.0
        self._phi = torch.ones_like(self._values)
        self._sum = self._phi.square()

    def add(self, alpha: float, beta: float) -> None:
        """A step: A qₗ = β qₗ₊₁ + α qₗ + β' qₗ₋₁."""
        following = ((self._values - alpha) * self._phi - self._beta * self._last) / max(beta, self._least)
        self._last, self._phi, self._beta = self._phi, following, beta
        self._sum = (self._sum + following.square()).nan_to_num(math.inf, math.inf)
        if beta < self._least:
            self._before = self.chances
            self._begin()

    @property
    def chances(self) -> Float[Tensor, " k"]:
        """The chance that each value has been overlooked as an eigenvalue: a bound, at most 1."""
        return self._before * (self._factor / self._sum).sqrt().clamp(max=1.0)

    def is_worth_more(self, which: Bool[Tensor, " k"], steps: int, ritz_values: Float[Tensor, " j"]) -> bool:
        """Whether this many more steps may rule out some of these values.

        Σφₗ(λ)² grows as Chebyshev polynomials do outside the bulk, for which all but the outermost Ritz values stand:
        those may be the overlooked eigenvalue itself, where the sum ceases to grow.
        """
        doubtful = which & (self.chances > DOUBT)
        if len(ritz_values) < FEWEST_STEPS:
            return bool(doubtful.any())
        low, high = float(ritz_values[1]), float(ritz_values[-2])
        pace = 2 * (2 * (self._values - (low + high) / 2).abs() / max(high - low, 1e-300)).clamp(min=1).acosh()
        missing = (self._before.square() * self._factor / DOUBT**2 / self._sum).log()
        return bool((doubtful & (missing <= steps * pace)).any())
