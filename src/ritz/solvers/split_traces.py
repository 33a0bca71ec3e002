"""A trace by a sketch, which takes care of decaying eigenvalues, and by plain samples of the rest.

A sketch of m probes costs 2m products and leaves out ‖(I - QQᵀ)A‖² = F². Of N products in all, its m estimates and
N - 2m samples of the rest have the variance 2F²/(N - m): the sketch grows while that falls.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from .. import progress
from ..errors import check_finite
from ..operators import Operator
from ..spectrum import Estimate
from .probes import BLOCK, gaussian, is_settled, student_factor
from .sketches import Sketch
from .vectors import dots, norms, product

PILOT, SHARE = 6, 6  # probes that a sketch begins with: this many, or one for this many products
DOUBT = 2.0  # times the observed decay: missing a decay costs far more than sketching a flat spectrum


def split_trace(A: Operator, goal: float, budget: int, generator: torch.Generator) -> Estimate:
    """tr A, doubling the products until the relative error is below the goal or the budget is spent."""
    sketch, samples = Sketch.empty(A), torch.zeros(0, dtype=torch.float64)
    total = min(2 * BLOCK, budget) if goal else budget
    with progress.bar("Trace", total=budget) as bar:
        while True:
            made = 2 * len(sketch.omega) + len(samples)
            if not len(samples):  # once the rest was sampled, the sketch must not grow
                sketch = _grown(sketch, A, total, generator)
            more = total - 2 * len(sketch.omega) - len(samples)
            samples = torch.cat([samples, _samples(A, sketch, more if more > 1 else 0, generator)])
            estimate = _combined_mean(sketch, samples)
            bar.advance(estimate.num_products - made, products=estimate.num_products)
            if is_settled(estimate, goal) or total == budget:
                return estimate
            total = min(2 * total, budget)


def _grown(sketch: Sketch, A: Operator, total: int, generator: torch.Generator) -> Sketch:
    """The sketch, grown to as many probes as are worth their two products each, for this many products in total."""
    while (more := _size(sketch, total) - len(sketch.omega)) > 0:
        sketch = sketch.with_probes(A, gaussian(A, more, generator))
    return sketch


def _size(sketch: Sketch, total: int) -> int:
    """The probes to go on to, at most twice as many; F² ~ m⁻ᵖ makes F²/(N - m) least at m = pN/(1 + p)."""
    m, most, first = len(sketch.omega), total // 2, max(PILOT, total // SHARE)
    if m < first:
        return min(first, most)
    pace = DOUBT * decay(sketch.R)
    best = most if pace >= 1 else math.ceil(pace * total / (1 + pace))
    return min(most, max(m, best), 2 * m)


def decay(R: Float[Tensor, "m m"]) -> float:
    """p of F² ~ m⁻ᵖ, the larger of two estimates: from one probe, and from half the probes, to all probes but one."""
    m, half = len(R), len(R) // 2
    triangle = R + torch.diag((R.diagonal() == 0).to(R) * torch.finfo(R.dtype).tiny)
    after = float(torch.linalg.inv(triangle).square().sum(1).reciprocal().mean())
    if not after > 0:
        return math.inf
    paces = []
    for count in (1, half):
        before = float(R[count:, count:].square().sum()) / (m - count)
        paces.append(math.log(max(before / after, 1.0)) / math.log((m - 1) / count))
    return max(paces)


def _samples(A: Operator, sketch: Sketch, count: int, generator: torch.Generator) -> Float[Tensor, " count"]:
    """tr A by vectors orthogonal to the sketch, one product each: tr QᵀAQ + (n - m) xᵀAx / xᵀx."""
    inside, dimension, parts = float(sketch.H.trace()), A.size - len(sketch.Q), []
    for first in range(0, count, BLOCK):
        X = gaussian(A, min(BLOCK, count - first), generator)
        for _ in range(2):
            X -= (X @ sketch.Q.T) @ sketch.Q
        X /= norms(X)[:, None].to(X)
        parts.append(inside + dimension * dots(X, product(A, X)).cpu())
    samples = torch.cat([torch.zeros(0, dtype=torch.float64), *parts])
    check_finite(float(samples.sum()))
    return samples


def _combined_mean(sketch: Sketch, samples: Float[Tensor, " k"]) -> Estimate:
    """The mean of both kinds with equal weights; they are uncorrelated, since samples are unbiased given Q."""
    own, m, k = sketch.trace(), len(sketch.omega), len(samples)
    if not k:
        return own.estimate(2 * m)
    share = m / (m + k)
    parts = (share**2 * own.variance, (1 - share) ** 2 * float(samples.var()) / k)
    freedom = sum(parts) ** 2 / ((parts[0] ** 2 / (m - 1) + parts[1] ** 2 / (k - 1)) or 1.0)  # Satterthwaite (1946)
    error = student_factor(1 + max(1, round(freedom))) * math.sqrt(sum(parts))
    return Estimate(share * own.mean + (1 - share) * float(samples.mean()), error, 2 * m + k)
