"""The trace of an operator as an Estimate, by XTrace or Hutchinson's mean over random signs."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from .. import progress
from ..errors import ConvergenceWarning, check_finite, check_positive, check_whole
from ..operators import Operator
from ..spectrum import Estimate
from .probes import BLOCK, gaussian, mean_of, quadratic_forms, source
from .vectors import inner, norms, product, room

KEPT = 6  # vectors that XTrace takes for each of its probes, of which there are half as many as products
GROUPS = 32  # of probes left out in turn: enough for an error good to an eighth
DEFAULT_TOLERANCE = 0.01
DEFAULT_PRODUCTS = 256  # where a tolerance alone is given: XTrace keeps one vector for each product


def trace(
    A: Operator,
    *,
    tolerance: float | None = None,
    num_products: int | None = None,
    generator: torch.Generator | None = None,
) -> Estimate:
    """tr A by XTrace: exact on a random subspace, stochastic on the rest, averaged over which probe is left out.

    Stops when the standard error is below `tolerance` relative, or when `num_products` are made, whichever comes
    first; 1 % within 256 products if neither is given. As many products as n give the exact trace. The error is
    the Monte Carlo error. Where there is no room for six vectors a probe, it is `hutchinson` with all the products,
    which keeps nothing. Epperly, Tropp and Webber (2024), with their normalisation.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.arange(1.0, 301.0)))
    >>> estimate = ritz.trace(A, num_products=40)
    >>> abs(estimate.value - 45150) < 3 * estimate.standard_error
    True
    >>> ritz.trace(A, num_products=300)
    45150 ± 0 (300 products)
    """
    check_positive(tolerance=tolerance, num_products=num_products)
    check_whole(num_products=num_products)
    generator = source(generator)
    budget = num_products or DEFAULT_PRODUCTS
    if budget >= A.size:
        return _exact_trace(A)
    if budget < 2 or KEPT * (budget // 2) > room(A):
        return hutchinson(A, num_products=budget, generator=generator)
    goal = 0.0 if tolerance is None and num_products else tolerance or DEFAULT_TOLERANCE
    sketch, target = _Sketch.empty(A), min(BLOCK, budget // 2) if goal else budget // 2
    with progress.bar("Trace", total=budget) as bar:
        while True:
            added = target - len(sketch.omega)
            sketch = sketch.with_probes(A, gaussian(A, added, generator))
            estimate = sketch.trace(A.size)
            bar.advance(2 * added, products=estimate.num_products)
            settled = estimate.has_error and estimate.standard_error <= goal * abs(estimate.value)
            if settled or target == budget // 2:
                break
            target = min(2 * target, budget // 2)
    if not settled and num_products is None:
        warnings.warn(
            f"The trace is known to {estimate} only.\n  - Pass num_products to allow more.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return estimate


def hutchinson(A: Operator, *, num_products: int = 100, generator: torch.Generator | None = None) -> Estimate:
    """tr A = E zᵀAz for random signs z: one product a probe, and nothing kept. Hutchinson (1990).

    The error is the Monte Carlo error; `trace` has a far smaller one where the spectrum decays.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.arange(1.0, 301.0)))
    >>> ritz.solvers.hutchinson(A, num_products=10)  # of a diagonal matrix, random signs see the trace itself
    45150 ± 0 (10 products)
    """
    check_positive(num_products=num_products)
    check_whole(num_products=num_products)
    samples = quadratic_forms(A, num_products, source(generator), lambda Z, AZ: inner(Z, AZ).diagonal())
    return mean_of(samples[0], num_products)


@dataclass(frozen=True)
class _Sketch:
    """The state of XTrace: probes Ω, the basis Q of A Ω = Q R, and H = QᵀAQ. Vectors in rows."""

    omega: Float[Tensor, "m n"]
    Q: Float[Tensor, "m n"]
    R: Float[Tensor, "m m"]
    H: Float[Tensor, "m m"]

    @classmethod
    def empty(cls, A: Operator) -> _Sketch:
        """No probes yet."""
        rows, small = torch.zeros(0, A.size, dtype=A.dtype, device=A.device), torch.zeros(0, 0, dtype=torch.float64)
        return cls(rows, rows, small, small)

    def with_probes(self, A: Operator, probes: Float[Tensor, "b n"]) -> _Sketch:
        """The sketch with more probes, at two products each; nothing is multiplied twice."""
        Y = product(A, probes)
        check_finite(float(norms(Y).sum()))
        above = torch.zeros(len(self.Q), len(probes), dtype=torch.float64)
        for _ in range(2 if len(self.Q) else 0):
            C = self.Q @ Y.T
            Y, above = Y - C.T @ self.Q, above + C.double().cpu()
        new, below = torch.linalg.qr(Y.T)
        Q = torch.cat([self.Q, new.T])
        H = inner(Q, product(A, new.T.contiguous()))
        old = len(self.Q)
        R = torch.cat([torch.cat([self.R, torch.zeros(len(probes), old, dtype=torch.float64)]),
                       torch.cat([above, below.double().cpu()])], dim=1)  # fmt: skip
        H = torch.cat([torch.cat([self.H, H[:old].T]), torch.cat([H[:old], (H[old:] + H[old:].T) / 2])], dim=1)
        return _Sketch(torch.cat([self.omega, probes]), Q, R, H)

    def trace(self, size: int) -> Estimate:
        """The mean of the leave-one-out estimates, with a jackknife error over groups of probes.

        Their own scatter, which the paper takes, is too small by up to 1.6, for they share probes. Leaving some out
        costs no product: their columns of A Ω = Q R cut away, R' = Q₂R₂, and Q Q₂ is the basis of the others.
        """
        W, squares = inner(self.Q, self.omega), norms(self.omega).square().cpu()
        value = float(_leave_one_out(self.R, W, self.H, squares, size).mean())
        m, num_groups, without = len(self.Q), min(len(self.Q), GROUPS), []
        for group in range(num_groups if m > 1 else 0):
            others = torch.arange(m) % num_groups != group
            Q, R = torch.linalg.qr(self.R[:, others])
            estimates = _leave_one_out(R, Q.T @ W[:, others], Q.T @ self.H @ Q, squares[others], size)
            without.append(estimates.mean())
        error = (num_groups - 1) / math.sqrt(num_groups) * float(torch.stack(without).std()) if without else None
        return Estimate(value, error, 2 * m)


def _leave_one_out(R: Tensor, W: Tensor, H: Tensor, squares: Tensor, size: int) -> Float[Tensor, " m"]:
    """tr PᵢA + scaleᵢ · xᵢᵀAxᵢ for each i, with xᵢ = (I - Pᵢ)ωᵢ and Pᵢ the projection on all A ωⱼ but A ωᵢ.

    Pᵢ = Q(I - sᵢsᵢᵀ)Qᵀ with sᵢ along column i of R⁻ᵀ; for u = QᵀPᵢωᵢ, w = Qᵀωᵢ, symmetric A: xᵀAx = rᵀw - 2rᵀu + uᵀHu.
    """
    S = torch.linalg.inv(_invertible(R)).T
    S = S / S.norm(dim=0)
    U = W - S * (S * W).sum(0)
    rest = (R * (W - 2 * U)).sum(0) + (U * (H @ U)).sum(0)
    inside = H.trace() - (S * (H @ S)).sum(0)
    return inside + (size - len(R) + 1) / (squares - U.square().sum(0)) * rest


def _invertible(R: Float[Tensor, "m m"]) -> Float[Tensor, "m m"]:
    """R with zero pivots made tiny: where A has rank below m, leaving out any direction outside its range is right."""
    tiny = torch.finfo(torch.float64).eps * (float(R.abs().max()) or 1.0)
    pivots = R.diagonal()
    return R + torch.diag(torch.where(pivots.abs() < tiny, tiny - pivots, 0.0))


def _exact_trace(A: Operator) -> Estimate:
    """The sum of all n diagonal entries."""
    total = 0.0
    with progress.bar("Trace", total=A.size) as bar:
        for first in range(0, A.size, BLOCK):
            rows = torch.arange(first, min(first + BLOCK, A.size), device=A.device)
            unit = torch.zeros(len(rows), A.size, dtype=A.dtype, device=A.device).scatter_(1, rows[:, None], 1.0)
            total += float(product(A, unit).gather(1, rows[:, None]).double().sum())
            bar.advance(len(rows))
    check_finite(total)
    return Estimate(total, 0.0, A.size)
