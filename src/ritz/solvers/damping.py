"""The refusal of an A + μ that is not positive definite, with the damping μ that would help."""

from __future__ import annotations

import math

from ..errors import ArgumentError, NumericalError


def check_damping(damping: float) -> None:
    """Refuse NaN and infinity; a negative damping is a shift like any other."""
    if not math.isfinite(damping):
        raise ArgumentError(f"damping={damping} was given.", "A + μ needs a number.", "Leave it out for μ = 0.")


def not_positive(low: float, error: float, damping: float) -> NumericalError:
    """The error for a smallest eigenvalue `low` of A + μ that is not provably positive."""
    return NumericalError(
        f"The smallest eigenvalue of A + {damping:g} is {low:.3g} ± {error:.1g}.",
        "A condition number and a log-determinant need a positive definite matrix, and provably so.",
        f"Add damping: more than {max(error - low, 0.0) + damping:.3g}.",
        *(["Allow more products: with max_products, its sign may become certain."] if abs(low) < error else []),
        "Study gauss_newton(risk), which has no negative eigenvalue, instead of the Hessian.",
    )
