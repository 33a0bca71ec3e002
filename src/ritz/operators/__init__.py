"""Symmetric operators known by their products: any matrix, their algebra, and the curvature matrices of a risk."""

from ..arguments import guard
from .algebra import deflated, low_rank, orthonormal_columns, preconditioned
from .curvature_matrices import (
    curvature,
    empirical_fisher,
    functional_hessian,
    gauss_newton,
    gradient_covariance,
    hessian,
    monte_carlo_fisher,
    ntk,
)
from .operator import Operator, Scalar, reciprocal

__all__ = [
    "Operator",
    "Scalar",
    "curvature",
    "deflated",
    "empirical_fisher",
    "functional_hessian",
    "gauss_newton",
    "gradient_covariance",
    "hessian",
    "low_rank",
    "monte_carlo_fisher",
    "ntk",
    "orthonormal_columns",
    "preconditioned",
    "reciprocal",
]

guard(__name__)
