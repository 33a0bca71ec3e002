"""The log-determinant of a positive definite operator as an Estimate."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..errors import check_positive, check_whole
from ..operators import Operator
from ..spectrum import Estimate
from ..spectrum.intervals import Sample
from .definiteness import check_damping, not_positive, smallest_eigenvalue, zero
from .eigen import SMALL
from .probe_runs import random_recursions
from .probes import source
from .small_matrices import eigenvalues
from .tridiagonal import Tridiagonal
from .vectors import room

DENSE = 2000  # the largest n whose matrix is formed where the products allow it: seconds, 32 MB
FEWEST = 2  # steps that show its error: one says of a logarithm only what it is at the mean
SEARCH = 1000  # the least limit on products of a search for the smallest eigenvalue


def log_determinant(
    A: Operator,
    *,
    damping: float = 0.0,
    num_steps: int = 128,
    num_probes: int = 8,
    generator: torch.Generator | None = None,
) -> Estimate:
    """log det(A + μ) = n ∫ log(λ + μ) dρ of a positive definite A + μ, by stochastic Lanczos quadrature.

    It is exact, from n products and up to rounding, where n ≤ 500, or n ≤ 2000 and n ≤ num_steps · num_probes.
    Otherwise the error, two of which cover 95 %, is the Monte Carlo error plus the truncation of the quadrature: a
    Gauss rule overestimates a logarithm, and the differences between the rules of m, m/2 and m/4 steps are
    extrapolated, which is a guess and not a bound. It is small once num_steps reaches the root of the condition number.
    With a single step or probe the error is unknown.
    Four vectors a probe are taken, in as many probes at a time as the operator's `room` allows.

    A matrix that is not provably positive definite is refused: its determinant may be zero. Where the smallest Ritz
    value does not prove it, n products do up to n = 1000, which then give the exact result, and beyond that a search
    for the smallest eigenvalue may, in as many products again, or in 1000 if that is more. Ubaru, Chen and Saad (2017).

    Args:
        A: Symmetric operator.
        damping: μ, which is added to every eigenvalue.
        num_steps: Lanczos steps of each probe.
        num_probes: Random vectors.
        generator: Source of the probes; without it, a new generator with seed 0.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.arange(1.0, 1301.0)))
    >>> estimate = ritz.log_determinant(A)
    >>> abs(estimate.value - torch.arange(1.0, 1301.0).log().sum()) < 3 * estimate.standard_error
    tensor(True)
    """
    check_damping(damping)
    check_whole(num_steps=num_steps, num_probes=num_probes)
    check_positive(num_steps=num_steps, num_probes=num_probes)
    generator = source(generator)
    dense = A.size <= DENSE and 3 * A.size <= room(A)
    if dense and A.size <= max(num_steps * num_probes, SMALL):
        return _exact(A, damping)
    steps = min(num_steps, A.size)
    T = random_recursions(A, num_probes, steps, generator)
    low, certain = _smallest_ritz_value(A, T, damping)
    searched = 0
    if not certain and dense and A.size <= SEARCH:
        exact = _exact(A, damping)
        return Estimate(exact.value, exact.standard_error, exact.num_products + T.diagonal.numel())
    if not certain:
        low, searched = _certified_low(A, low, damping, max(T.diagonal.numel(), SEARCH), generator)
    logs = lambda nodes: (nodes + damping).clamp(min=low).log()
    samples, p = A.size * T.integral(logs), num_probes
    value, products = float(samples.mean()), T.diagonal.numel() + searched  # a node a product
    if p == 1 or (steps < FEWEST and bool(T.residual.any())):
        return Estimate(value, None, products)
    doubt = A.size * T.truncation_error(logs) if steps < A.size else 0.0
    return Estimate(value, math.hypot(monte_carlo_error(T, logs, A.size), doubt), products)


def _smallest_ritz_value(A: Operator, T: Tridiagonal, damping: float) -> tuple[float, bool]:
    """The smallest Ritz value of A + μ, and whether its residual proves it positive; refuses a negative one."""
    theta, _, last = T.ends
    probe = int(theta[:, 0].argmin())
    low, error = float(theta[probe, 0]) + damping, float(T.residual[probe] * last[probe, 0].abs())
    least = zero(A, max(abs(low), float(theta.abs().max())))
    if low <= least:
        raise not_positive(low, error, damping, "num_steps")
    return low, low - error > least


def _certified_low(
    A: Operator, low: float, damping: float, max_products: int, generator: torch.Generator
) -> tuple[float, int]:
    """The smallest eigenvalue of A + μ, proved positive by a search, and the products that took.

    A single zero eigenvalue in a spectrum that extends down to zero hardly shows in any probe, but it decides.
    """
    search = smallest_eigenvalue(A + damping, max_products, generator)
    if search.value <= search.standard_error:
        raise not_positive(search.value, search.standard_error, damping, "num_steps")
    return min(low, search.value), search.num_products


def monte_carlo_error(T: Tridiagonal, f: Callable[[Tensor], Tensor], size: int) -> float:
    """The error of the mean of n vᵀf(A)v over probes on the sphere, of which two cover 95 %: half of an interval.

    The spectrum that the probes see determines it far better than their own scatter does; see `Sample`.
    """
    nodes, weights = T.quadrature()
    values, sample = f(nodes).reshape(1, -1), Sample(weights.flatten() / T.num_probes, size, T.num_probes)
    mean, ends = float(values @ sample.weights), sample.interval(values, values, 0.95)
    return size * max(abs(float(end) - mean) for end in ends) / 2


def _exact(A: Operator, damping: float) -> Estimate:
    """The log-determinant from all eigenvalues, with the error by which rounding or noise may have moved them."""
    values, noise = eigenvalues(A)
    values = values + damping
    least = zero(A, max(abs(damping), float((values - damping).abs().max()), float(values.abs().max())))
    if float(values[0]) <= least:
        raise not_positive(float(values[0]), least, damping, "num_steps")
    return Estimate(float(values.log().sum()), float((max(least, noise) / values).norm()), A.size)
