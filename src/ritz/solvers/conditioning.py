"""The condition number of a positive definite operator, from certified eigenvalues at both ends."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch

from ..errors import ConvergenceWarning, check_positive, check_whole, warn_user
from ..operators import Operator
from ..spectrum import Eigenpairs, Estimate
from .definiteness import check_damping, not_positive, zero
from .eigen import eigenpairs
from .probes import source

DENSE = 2000  # the largest n solved exactly where a search has not settled a condition number: seconds, 32 MB


def condition_number(
    A: Operator,
    *,
    damping: float = 0.0,
    tolerance: float = 1e-2,
    max_products: int = 2000,
    generator: torch.Generator | None = None,
) -> Estimate:
    """κ(A + μ) = (λ_max + μ)/(λ_min + μ) of a positive definite A + μ.

    Its error is not a Monte Carlo error but follows from the certified residuals of both ends, and is relatively below
    `tolerance` unless a ConvergenceWarning says otherwise. Ritz values lie inside the spectrum, so that the result is
    rather too small than too large, and by a few errors where an end is that of a dense bulk. An A + μ that is not
    provably positive definite in this precision is refused. Where max_products allows n, all n ≤ 500 are solved
    exactly, and n ≤ 2000 where a first search does not suffice.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.tensor([1.0, 2.0, 3.0, 9.0])))
    >>> round(ritz.solvers.condition_number(A, damping=1.0).value, 3)
    5.0
    """
    check_positive(tolerance=tolerance, max_products=max_products)
    check_whole(max_products=max_products)
    check_damping(damping)
    shifted = A + damping if damping else A
    ends = _Ends.of(shifted, tolerance, max_products, source(generator))
    if ends.low - ends.low_error <= zero(A, abs(ends.high)):
        raise not_positive(ends.low, ends.low_error, damping, "max_products")
    if ends.relative_error > tolerance:
        warn_user(
            f"The condition number is known only to within {ends.relative_error:.1g} of it, after {ends.num_products} "
            "products.\n"
            "  - Raise max_products, or add damping.",
            ConvergenceWarning,
        )
    ratio = ends.high / ends.low
    return Estimate(ratio, ratio * ends.relative_error, ends.num_products)


@dataclass(frozen=True)
class _Ends:
    """Both ends of a spectrum, each with the largest error that its residual allows."""

    high: float
    high_error: float
    low: float
    low_error: float
    num_products: int

    @property
    def relative_error(self) -> float:
        """The relative error of high/low, while both are positive."""
        if self.low <= self.low_error:
            return math.inf
        return self.high_error / self.high + self.low_error / (self.low - self.low_error)

    @classmethod
    def of(cls, A: Operator, tolerance: float, max_products: int, generator: torch.Generator) -> _Ends:
        """Tighten until the small end is known relative to itself, is negative, or cannot be known better."""
        aim, spent, pairs = 1e-4, 0, None
        best = 4 * torch.finfo(A.dtype).eps
        while True:
            left = max(max_products - spent, 8)
            dense = pairs is not None and A.size <= min(left, DENSE)
            pairs = _both_ends(A, aim, pairs, left, generator, A.size if dense else None)
            spent += pairs.num_products
            (high, low), (above, below) = pairs.values[[0, -1]].tolist(), pairs.residuals[[0, -1]].tolist()
            ends = cls(high, above, low, below, spent)
            done = ends.relative_error <= tolerance or low < -below or aim <= best
            if done or dense or spent >= max_products:
                return ends
            aim = max(best, min(0.1 * aim, 0.3 * tolerance * abs(low) / (max(abs(high), abs(low)) or 1.0)))


def _both_ends(
    A: Operator,
    tolerance: float,
    start: Eigenpairs | None,
    max_products: int,
    generator: torch.Generator,
    basis_size: int | None,
) -> Eigenpairs:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the caller judges by the residuals
        return eigenpairs(
            A,
            min(2, A.size),
            which="both",
            tolerance=tolerance,
            start=start,
            generator=generator,
            max_products=max_products,
            basis_size=basis_size,
        )
