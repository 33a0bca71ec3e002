"""The effective rank of an operator, (tr A)²/tr A², as an Estimate."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import check_positive, check_whole
from ..operators import Operator
from ..spectrum import Estimate
from .probes import quadratic_forms, source
from .vectors import inner, norms


def effective_rank(A: Operator, *, num_products: int = 100, generator: torch.Generator | None = None) -> Estimate:
    """(tr A)²/tr A²: the number of eigenvalues, if all that matter were equal. One product a probe: zᵀAz and ‖Az‖².

    The error is the Monte Carlo error of the ratio by the delta method, from both sums over the same probes, with the
    square's own second order: near tr A = 0 it is all there is. A zero operator has effective rank zero.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.tensor([3.0] * 50 + [0.0] * 250)))
    >>> ritz.effective_rank(A)
    50 ± 0 (100 products)
    """
    check_positive(num_products=num_products)
    check_whole(num_products=num_products)
    forms = (lambda Z, AZ: inner(Z, AZ).diagonal(), lambda Z, AZ: norms(AZ).square().cpu())
    return rank_from(*quadratic_forms(A, num_products, source(generator), *forms))


def rank_from(first: Float[Tensor, " p"], second: Float[Tensor, " p"]) -> Estimate:
    """(tr A)²/tr A² from a sample of both for each probe, as `effective_rank` takes it."""
    count, a, b = len(first), float(first.mean()), float(second.mean())
    if b == 0:
        return Estimate(0.0, 0.0, count)
    if count == 1:
        return Estimate(a**2 / b, None, 1)
    variance = float(first.var()) / count
    slope = (2 * a * first - a**2 / b * second) / b  # d(a²/b), up to a constant
    error = math.sqrt(float(slope.var()) / count + 2 * (variance / b) ** 2)
    return Estimate(max(a**2 - variance, 0.0) / b, error, count)  # E a² exceeds (tr A)² by the variance
