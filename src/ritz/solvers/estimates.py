"""Numbers that summarise a spectrum, each an Estimate with its error and its cost.

The error is the Monte Carlo error: the scatter over random probes. What a quadrature of finite resolution adds to it is
said where there is one. Without a generator, each uses a new one with seed 0, so that two calls share their probes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from .. import progress
from ..errors import (
    ArgumentError,
    ConvergenceWarning,
    NumericalError,
    check_finite,
    check_positive,
    check_tolerance,
    check_whole,
)
from ..operators import Operator
from ..spectrum import Eigenpairs, Estimate, Spectrum
from .basis import gaussian, inner, norms, product, source
from .eigen import eigenpairs
from .krylov import lanczos, spectral_density

BLOCK = 8  # columns multiplied at a time where nothing else decides
GROUPS = 32  # of probes left out in turn: enough for an error good to an eighth
DEFAULT_TOLERANCE = 0.01
DENSE = 2000  # the largest n solved exactly where a search has not settled a condition number: seconds, 32 MB
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
    the Monte Carlo error. Epperly, Tropp and Webber (2024), with their normalisation.
    """
    check_positive(tolerance=tolerance, num_products=num_products)
    check_whole(num_products=num_products)
    generator = source(generator)
    budget = num_products or DEFAULT_PRODUCTS
    if budget >= A.size or budget < 2:
        return _exact_trace(A) if budget >= A.size else hutchinson(A, num_products=budget, generator=generator)
    goal = 0.0 if tolerance is None and num_products else tolerance or DEFAULT_TOLERANCE
    sketch, target = _Sketch.empty(A), min(BLOCK, budget // 2) if goal else budget // 2
    with progress.bar("Trace", total=budget) as bar:
        while True:
            added = target - len(sketch.omega)
            sketch = sketch.extended(A, gaussian(A, added, generator))
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
    """
    check_positive(num_products=num_products)
    check_whole(num_products=num_products)
    samples = _samples(A, num_products, source(generator), lambda Z, AZ: inner(Z, AZ).diagonal())
    return mean_of(samples[0], num_products)


def effective_rank(A: Operator, *, num_products: int = 100, generator: torch.Generator | None = None) -> Estimate:
    """(tr A)²/tr A²: the number of eigenvalues, if all that matter were equal. One product a probe: zᵀAz and ‖Az‖².

    The error is the Monte Carlo error of the ratio by the delta method, from both sums over the same probes, with the
    square's own second order: near tr A = 0 it is all there is. A zero operator has effective rank zero.
    """
    check_positive(num_products=num_products)
    check_whole(num_products=num_products)
    forms = (lambda Z, AZ: inner(Z, AZ).diagonal(), lambda Z, AZ: norms(AZ).square().cpu())
    return rank_from(*_samples(A, num_products, source(generator), *forms))


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
    """
    _check_damping(damping)
    check_whole(num_steps=num_steps, num_probes=num_probes)
    check_positive(num_steps=num_steps, num_probes=num_probes)
    steps = min(num_steps, A.size)
    T = lanczos(A, gaussian(A, num_probes, source(generator)).T, steps, keep_basis=steps == A.size)
    nodes, _ = T.quadrature()
    low, high = float(nodes.min()) + damping, float(nodes.max()) + damping
    if low <= 4 * torch.finfo(A.dtype).eps * max(abs(low), abs(high), abs(high - damping)):
        raise _not_positive(low, 0.0, damping)
    logs = lambda nodes: (nodes + damping).clamp(min=low).log()
    estimate = mean_of(A.size * T.integral(logs), nodes.numel())  # a node a product
    doubt = A.size * T.unresolved(logs) if steps < A.size else 0.0
    error = math.hypot(estimate.standard_error, doubt) if estimate.has_error else None
    return Estimate(estimate.value, error, estimate.num_products)


def negative_mass(
    A: Operator,
    *,
    tolerance: float | None = None,
    num_steps: int = 128,
    num_probes: int = 8,
    generator: torch.Generator | None = None,
) -> Estimate:
    """The fraction of eigenvalues below -tolerance, by stochastic Lanczos quadrature without smoothing.

    A rank-deficient operator has zeros that come out as rounding of either sign; by default the tolerance,
    16 eps max|λ| in the operator's precision, leaves them out. The mass of the two nodes next to zero may lie on either
    side: it is shared by interpolation, and what that leaves open is added to the Monte Carlo error, which it
    exceeds where eigenvalues crowd around zero. More steps make it smaller.
    """
    if tolerance is not None:
        check_tolerance(tolerance)
    spectrum = spectral_density(A, num_steps=num_steps, num_probes=num_probes, generator=generator)
    return mass_from(spectrum, resolved_zero(spectrum, A.dtype) if tolerance is None else tolerance, num_steps)


def mass_from(spectrum: Spectrum, tolerance: float, num_steps: int, *, atoms: int = 0) -> Estimate:
    """The mass below -tolerance as `negative_mass` takes it, where the first `atoms` nodes of a row are eigenvalues."""
    nodes, weights = spectrum.nodes[:, atoms:], spectrum.weights[:, atoms:]
    exhausted = nodes.shape[1] < num_steps or num_steps >= spectrum.size - atoms  # then the nodes are eigenvalues
    rows = [mass_below(*row, tolerance, exhausted) for row in zip(nodes, weights, strict=True)]
    masses, doubts = torch.tensor(rows, dtype=torch.float64).T
    estimate = mean_of(masses, spectrum.nodes.numel())  # a node a product
    error = math.hypot(estimate.standard_error, float(doubts.mean())) if estimate.has_error else None
    exact = int((spectrum.nodes[0, :atoms] < -tolerance).sum()) / spectrum.size
    return Estimate(exact + estimate.value, error, estimate.num_products)


def resolved_zero(spectrum: Spectrum, dtype: torch.dtype) -> float:
    """16 eps max|λ| in the precision of the products: below it the sign of an eigenvalue is rounding."""
    return 16 * torch.finfo(dtype).eps * max(map(abs, spectrum.range))


def condition_number(
    A: Operator,
    *,
    damping: float = 0.0,
    tolerance: float = 1e-2,
    max_products: int = 2000,
    generator: torch.Generator | None = None,
) -> Estimate:
    """κ(A + μ) = (λ_max + μ)/(λ_min + μ) of a positive definite A + μ.

    Its error is not a Monte Carlo error but what the certified residuals of both ends allow, below `tolerance` relative
    unless a ConvergenceWarning says otherwise; Ritz values lie inside the spectrum, so it errs towards less. An A + μ
    that is not provably positive definite in this precision is refused. Where max_products allows n, all n ≤ 500 are
    solved exactly, and n ≤ 2000 where a first search does not suffice.
    """
    check_positive(tolerance=tolerance, max_products=max_products)
    check_whole(max_products=max_products)
    _check_damping(damping)
    shifted = A + damping if damping else A
    ends = _Ends.of(shifted, tolerance, max_products, source(generator))
    if ends.low - ends.low_error <= 4 * torch.finfo(A.dtype).eps * abs(ends.high):
        raise _not_positive(ends.low, ends.low_error, damping)
    if ends.relative_error > tolerance:
        warnings.warn(
            f"The condition number is known to {ends.relative_error:.0%} only, after {ends.num_products} products.\n"
            "  - Raise max_products, or add damping.",
            ConvergenceWarning,
            stacklevel=2,
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
        """Of high/low, while both are positive."""
        if self.low <= self.low_error:
            return math.inf
        return self.high_error / self.high + self.low_error / (self.low - self.low_error)

    @classmethod
    def of(cls, A: Operator, tolerance: float, max_products: int, generator: torch.Generator) -> _Ends:
        """Tighten until the small end is known relative to itself, is negative, or can be known no better."""
        aim, spent, pairs = 1e-4, 0, None
        best = 4 * torch.finfo(A.dtype).eps
        while True:
            left = max(max_products - spent, 8)
            dense = pairs is not None and A.size <= min(left, DENSE)
            pairs = _both_ends(A, aim, pairs, left, generator, A.size if dense else None)
            spent += pairs.num_products
            (high, low), (above, below) = pairs.values[[0, -1]].tolist(), pairs.residuals[[0, -1]].tolist()
            ends = cls(high, above, low, below, spent)
            known = ends.relative_error <= tolerance or low < -below or aim <= best
            if known or dense or spent >= max_products:
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

    def extended(self, A: Operator, probes: Float[Tensor, "b n"]) -> _Sketch:
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


def _samples(
    A: Operator, count: int, generator: torch.Generator, *forms: Callable[[Tensor, Tensor], Tensor]
) -> list[Float[Tensor, " count"]]:
    """Each form of (z, A z), for `count` vectors z of random signs."""
    found: list[list[Tensor]] = [[] for _ in forms]
    with progress.bar("Probes", total=count) as bar:
        for first in range(0, count, BLOCK):
            Z = _signs(A, min(BLOCK, count - first), generator)
            AZ = product(A, Z)
            for values, form in zip(found, forms, strict=True):
                values.append(form(Z, AZ))
            bar.advance(len(Z))
    samples = [torch.cat(values) for values in found]
    check_finite(float(sum(values.sum() for values in samples)))
    return samples


def _signs(A: Operator, count: int, generator: torch.Generator) -> Float[Tensor, "count n"]:
    """Independent random signs in rows."""
    bits = torch.randint(0, 2, (count, A.size), generator=generator, dtype=torch.int8, device=generator.device)
    return (2 * bits - 1).to(A.device, A.dtype)


def mean_of(samples: Float[Tensor, " p"], num_products: int) -> Estimate:
    """The mean of independent samples, with std/√p where there are two."""
    error = float(samples.std()) / math.sqrt(len(samples)) if len(samples) > 1 else None
    return Estimate(float(samples.mean()), error, num_products)


def mass_below(nodes: Tensor, weights: Tensor, tolerance: float, exhausted: bool) -> tuple[float, float]:
    """The mass below -tolerance, and the standard deviation of what the nodes on both sides of zero leave open.

    By the Chebyshev-Markov-Stieltjes inequalities the mass lies between its sum without the last negative node and
    its sum with the first positive one. A node at zero is an eigenvalue: then nothing is open.
    """
    negative, positive = nodes < -tolerance, nodes > tolerance
    mass, carried = float(weights[negative].sum()), weights > 0
    atom = bool((~negative & ~positive & carried).any())
    if exhausted or atom or not bool(negative.any()) or not bool(positive.any()):
        return mass, 0.0
    last, first = nodes.where(negative, -math.inf).argmax(), nodes.where(positive, math.inf).argmin()
    below, above, open_mass = float(nodes[last]), float(nodes[first]), float(weights[last] + weights[first]) / 2
    share = -float(weights[last]) / 2 + open_mass * -below / (above - below)
    return min(max(mass + share, 0.0), 1.0), open_mass / math.sqrt(3)  # of a uniform distribution over that width


def _check_damping(damping: float) -> None:
    if not math.isfinite(damping):
        raise ArgumentError(f"damping={damping} was given.", "A + μ needs a number.", "Leave it out for μ = 0.")


def _not_positive(low: float, error: float, damping: float) -> NumericalError:
    return NumericalError(
        f"The smallest eigenvalue of A + {damping:g} is {low:.3g} ± {error:.1g}.",
        "A condition number and a log-determinant need a positive definite matrix, and provably so.",
        f"Add damping: more than {max(error - low, 0.0) + damping:.3g}.",
        *(["Allow more products: with max_products, its sign may become certain."] if abs(low) < error else []),
        "Study gauss_newton(risk), which has no negative eigenvalue, instead of the Hessian.",
    )
