"""The requested Ritz pairs of a search that is under way: how accurately they are known, and what they may hide."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from .ritz_pairs import ranking


@dataclass(frozen=True)
class RequestedPairs:
    """The requested Ritz pairs of the explored space, and how accurately they are known."""

    values: Float[Tensor, " k"]
    which: str
    worst: float  # their largest residual
    leading: Float[Tensor, " l"]  # residuals of the outermost pairs beside a locked space; none where nothing is locked
    repeated: bool  # whether these values were seen before, when rows were last locked
    scale: float  # the largest |λ|
    limit: float  # the residual that is aimed at
    noise: float  # the size of rounding errors

    @classmethod
    def of(
        cls,
        values: Float[Tensor, " j"],
        residuals: Float[Tensor, " j"],
        which: str,
        *,
        k: int,
        locked: int,
        seen: Float[Tensor, " k"] | None,
        scale: float,
        aim: float,
        rounding: float,
    ) -> RequestedPairs:
        """The k requested of all Ritz pairs, the first of which are locked; aim and rounding relative to max|λ|."""
        order, scale = ranking(values, which), max(scale, float(values.abs().max()))
        requested, limit = values[order[:k]], aim * scale
        outside = order[order >= locked][: 2 if which == "both" else 1] if locked else order[:0]
        repeated = seen is not None and torch.allclose(requested, seen, rtol=0.0, atol=limit)
        worst = float(residuals[order[:k]].max())
        return cls(requested, which, worst, residuals[outside], repeated, scale, limit, rounding * scale)

    @property
    def relative_residual(self) -> float:
        """The largest residual, relative to max|λ|."""
        return self.worst / (self.scale or 1.0)

    def are_settled(self) -> bool:
        """Whether they meet the aim.

        The leading pairs of a space beside a locked one must be known well: its start may contain little of a copy.
        """
        well_known = self.leading <= max(1e-3 * self.limit, 10 * self.noise)
        return self.worst <= self.limit and bool(well_known.all())

    def may_hide_copies(self) -> bool:
        """Whether they show signs of copies that have not been seen before."""
        return not self.repeated and _may_hide_copies(self.values, self.which, max(1e-3 * self.limit, self.noise))

    def are_separable(self) -> bool:
        """Whether they are known so well that copies can be distinguished: copies mix, as do their residuals."""
        return self.worst <= max(0.3 * self.limit, 10 * self.noise)


def _may_hide_copies(values: Tensor, which: str, equal: float) -> bool:
    """Whether, from either end, two values agree, or one of the smallest is zero, and another value follows."""
    for end in (values[0::2], values[1::2]) if which == "both" else (values,):
        apart = (end - end[-1:]).abs() > equal  # a copy of the last one would change nothing
        signs = end.abs() <= equal if which in ("smallest", "both") else torch.zeros_like(apart)
        signs[1:] |= end.diff().abs() <= equal
        if bool((signs & apart).any()):
            return True
    return False
