"""The log-determinant of a positive definite operator as an Estimate."""

from __future__ import annotations

import math

import torch

from ..errors import check_positive, check_whole
from ..operators import Operator
from ..spectrum import Estimate
from .damping import check_damping, not_positive
from .lanczos_recursion import random_recursions
from .probes import mean_of, source


def log_determinant(
    A: Operator,
    *,
    damping: float = 0.0,
    num_steps: int = 128,
    num_probes: int = 8,
    generator: torch.Generator | None = None,
) -> Estimate:
    """log det(A + μ) = n ∫ log(λ + μ) dρ of a positive definite A + μ, by stochastic Lanczos quadrature.

    The error is the Monte Carlo error and, added to it, what the quadrature leaves open: a Gauss rule overestimates a
    logarithm, and what the rules of m, m/2 and m/4 steps lose from one to the next is extrapolated, a guess and no
    bound. It is small once num_steps reaches the root of the condition number. A Ritz value that is not positive proves
    that A + μ is not positive definite, and is refused. Ubaru, Chen and Saad (2017).

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.arange(1.0, 301.0)))
    >>> estimate = ritz.log_determinant(A)
    >>> abs(estimate.value - torch.arange(1.0, 301.0).log().sum()) < 3 * estimate.standard_error
    tensor(True)
    """
    check_damping(damping)
    check_whole(num_steps=num_steps, num_probes=num_probes)
    check_positive(num_steps=num_steps, num_probes=num_probes)
    steps = min(num_steps, A.size)
    T = random_recursions(A, num_probes, steps, source(generator))
    nodes, _ = T.quadrature()
    low, high = float(nodes.min()) + damping, float(nodes.max()) + damping
    if low <= 4 * torch.finfo(A.dtype).eps * max(abs(low), abs(high), abs(high - damping)):
        raise not_positive(low, 0.0, damping)
    logs = lambda nodes: (nodes + damping).clamp(min=low).log()
    estimate = mean_of(A.size * T.integral(logs), nodes.numel())  # a node a product
    doubt = A.size * T.truncation_error(logs) if steps < A.size else 0.0
    error = math.hypot(estimate.standard_error, doubt) if estimate.has_error else None
    return Estimate(estimate.value, error, estimate.num_products)
