"""Whether A + μ is positive definite: its certified smallest eigenvalue, and the refusal if it is not."""

from __future__ import annotations

import math
import warnings

import torch

from ..errors import ArgumentError, ConvergenceWarning, NumericalError
from ..operators import Operator
from ..spectrum import Eigenpairs, Estimate
from .eigen import eigenpairs

LEAST = 4  # products in which a search for one eigenvalue can end


def check_damping(damping: float) -> None:
    """Refuse NaN and infinity; a negative damping is a shift like any other."""
    if not math.isfinite(damping):
        raise ArgumentError(
            f"damping={damping} was given.",
            "The shift μ in A + μ must be a finite number.",
            "Pass a finite damping, or leave it out for μ = 0.",
        )


def zero(A: Operator, scale: float) -> float:
    """The size that rounding may give to a zero eigenvalue in a matrix of this scale."""
    return 4 * torch.finfo(A.dtype).eps * scale


def smallest_eigenvalue(A: Operator, max_products: int, generator: torch.Generator) -> Estimate:
    """λ_min with an error from its residual, by searches that tighten until its sign is certain."""
    aim, spent = 1e-4, 0
    pairs: Eigenpairs | None = None
    while True:
        left = max(max_products - spent, LEAST)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the caller judges by the residual
            pairs = eigenpairs(
                A, 1, which="smallest", tolerance=aim, start=pairs, max_products=left, generator=generator
            )
        spent += pairs.num_products
        low, error = float(pairs.values[0]), float(pairs.residuals[0])
        best = 4 * torch.finfo(A.dtype).eps
        if abs(low) > error or aim <= best or spent + LEAST > max_products:
            return Estimate(low, error, spent)
        aim = max(best, 0.1 * aim)


def not_positive(low: float, error: float, damping: float, more: str) -> NumericalError:
    """The error for a smallest eigenvalue `low` of A + μ that is not provably positive; `more` might prove it."""
    return NumericalError(
        f"The smallest eigenvalue of A + {damping:g} is {low:.3g} ± {error:.1g}.",
        "A condition number and a log-determinant need a positive definite matrix, and provably so.",
        f"Add damping: more than {max(error - low, 0.0) + damping:.3g}.",
        *([f"Raise {more}: its sign may become certain."] if abs(low) < error else []),
        "Study gauss_newton(risk), which has no negative eigenvalue, instead of the Hessian.",
    )
