"""The effective rank of an operator, (tr A)²/tr A², as an Estimate."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import check_positive, check_whole
from ..operators import Operator
from ..spectrum import Estimate
from .probes import gaussian, interval_factor, quadratic_forms, source, traces_of_columns
from .sketches import LeaveOneOut, Sketch, has_room
from .vectors import inner, norms


def effective_rank(A: Operator, *, num_products: int = 100, generator: torch.Generator | None = None) -> Estimate:
    """(tr A)²/tr A²: the number of non-zero eigenvalues, if these were equal.

    With n products it is exact. With fewer, both traces are estimated on one sketch as in `trace`, at two products a
    probe; if there is no room for eight vectors a probe, by zᵀAz and ‖Az‖² of random signs z, which keeps nothing. The
    error is the Monte Carlo error of the ratio, two of which cover 95 %: by the delta method, and the square of two
    standard errors of the trace, which dominates near tr A = 0. A zero operator has effective rank zero.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.tensor([3.0] * 50 + [0.0] * 250)))
    >>> round(ritz.effective_rank(A, num_products=120).value, 3)
    50.0
    """
    check_positive(num_products=num_products)
    check_whole(num_products=num_products)
    generator = source(generator)
    if num_products >= A.size:
        return _exact_rank(A)
    if has_room(A, num_products):
        probes = gaussian(A, num_products // 2, generator)
        sketch = Sketch.empty(A, keep_products=True).with_probes(A, probes)
        return _ratio(sketch.trace(), sketch.trace_of_square(), 2 * len(probes))
    forms = (lambda Z, AZ: inner(Z, AZ).diagonal(), lambda Z, AZ: norms(AZ).square().cpu())
    return rank_from(*quadratic_forms(A, num_products, generator, *forms))


def rank_from(first: Float[Tensor, " p"], second: Float[Tensor, " p"]) -> Estimate:
    """(tr A)²/tr A² from samples of both traces, one for each probe."""
    independent = torch.zeros(len(first), len(first), dtype=torch.float64)
    return _ratio(LeaveOneOut(first, independent), LeaveOneOut(second, independent), len(first))


def _ratio(first: LeaveOneOut, second: LeaveOneOut, num_products: int) -> Estimate:
    """a²/b of two means, without the bias of the square: E a² exceeds (E a)² by the variance of a."""
    count, a, b = len(first.values), first.mean, second.mean
    if b == 0:
        return Estimate(0.0, 0.0, num_products)
    if count == 1:
        return Estimate(a**2 / b, None, num_products)
    variance = first.variance
    slope = first.combined(2 * a / b, second, -((a / b) ** 2))  # d(a²/b)
    spread = math.sqrt(slope.variance) + 2 * variance / b  # (|a| + 2σ)² ends so far above a²
    return Estimate(max(a**2 - variance, 0.0) / b, interval_factor(slope.values) * spread, num_products)


def _exact_rank(A: Operator) -> Estimate:
    """The effective rank from all n columns."""
    first, second = traces_of_columns(A)
    return Estimate(first**2 / second if second else 0.0, 0.0, A.size)
