"""Norms of an operator: spectral, Frobenius and nuclear, each as an Estimate."""

from __future__ import annotations

import math

import torch

from ..errors import ArgumentError, check_positive, check_whole
from ..operators import Operator
from ..spectrum import Estimate, Spectrum
from .assembly import spectrum_from
from .determinants import DENSE, monte_carlo_error
from .eigen import SMALL, eigenpairs
from .probe_runs import random_recursions
from .probes import gaussian, mean_of, quadratic_forms, source, traces_of_columns
from .sketches import Sketch, has_room
from .small_matrices import eigenvalues
from .vectors import norms, room

PROBES, STEPS = 8, 8  # of a nuclear norm: as many probes as make so many steps each, at least one, and eight at most
FEWEST = 4  # steps that show its error: with three or two, twice that held the truth in a third of runs or less
NUCLEAR = 1024  # products that it may take


def norm(
    A: Operator,
    ord: str | int = "fro",
    *,
    num_products: int | None = None,
    tolerance: float = 1e-4,
    generator: torch.Generator | None = None,
) -> Estimate:
    """‖A‖, with its error: "fro", √(Σ λ²); 2, max|λ|; or "nuc", Σ |λ|. The names are those of torch.linalg.norm.

    "fro" is exact where n products are allowed; else it is estimated on a sketch, as `effective_rank` does, with the
    Monte Carlo error, two of which cover 95 %. 2 is |λ| of a certified eigenpair; its error is the residual, and not
    less than `tolerance` relative, for others of its cluster may be that much larger. "nuc" is exact for n ≤ 500, or
    n ≤ 2000 where n products are allowed; else a Lanczos quadrature with eight probes, fewer below 64 products, whose
    error is Monte Carlo and what the nodes next to zero leave open; below four products it is unknown. Each keeps to
    the operator's `room`: eight vectors a probe of the sketch or none, the basis of `eigenpairs`, four vectors a probe
    of the quadrature.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.tensor([3.0, -4.0])))
    >>> [round(ritz.solvers.norm(A, ord).value, 3) for ord in ("fro", 2, "nuc")]
    [5.0, 4.0, 7.0]

    Args:
        num_products: What it may cost: 100 for "fro" unless given, 1024 for "nuc", the default of `eigenpairs` for 2.
        tolerance: Of the spectral norm.
    """
    check_whole(num_products=num_products)
    check_positive(num_products=num_products, tolerance=tolerance)
    generator = source(generator)
    if ord == "fro":
        return _frobenius(A, num_products or 100, generator)
    if ord == "nuc":
        return _nuclear(A, num_products or NUCLEAR, generator)
    if ord == 2:
        pair = eigenpairs(A, 1, which="magnitude", tolerance=tolerance, generator=generator, max_products=num_products)
        size, residual = abs(float(pair.values[0])), float(pair.residuals[0])
        error = residual if pair.num_products == A.size else max(residual, tolerance * size)
        return Estimate(size, error, pair.num_products)
    raise ArgumentError(
        f"ord={ord!r} was given.",
        "Products alone give only norms that are functions of the eigenvalues.",
        "Choose 'fro', 2 or 'nuc'.",
    )


def _frobenius(A: Operator, num_products: int, generator: torch.Generator) -> Estimate:
    """The root of tr A²; d√s = ds/2√s."""
    if num_products >= A.size:
        return Estimate(math.sqrt(traces_of_columns(A)[1]), 0.0, A.size)
    if has_room(A, num_products):
        probes = gaussian(A, num_products // 2, generator)
        estimate = Sketch.empty(A, keep_products=True).with_probes(A, probes).trace_of_square()
        square = estimate.estimate(2 * len(probes))
    else:
        (samples,) = quadratic_forms(A, num_products, generator, lambda Z, AZ: norms(AZ).square().cpu())
        square = mean_of(samples, num_products)
    root = math.sqrt(max(square.value, 0.0))
    slope = 1 / (2 * root) if root else 0.0
    return Estimate(root, slope * square.standard_error if square.has_error else None, square.num_products)


def _nuclear(A: Operator, num_products: int, generator: torch.Generator) -> Estimate:
    """n ∫ |λ| dρ."""
    if A.size <= min(max(num_products, SMALL), DENSE) and 3 * A.size <= room(A):
        values, noise = eigenvalues(A)
        return Estimate(float(values.abs().sum()), noise, A.size)
    probes, steps = probes_and_steps(A, num_products)
    T = random_recursions(A, probes, steps, generator)
    value, products = A.size * float(T.integral(torch.abs).mean()), T.diagonal.numel()
    if steps < FEWEST and bool(T.residual.any()):
        return Estimate(value, None, products)
    doubt = A.size * _doubt_at_zero(spectrum_from(T, None, A)) if steps < A.size else 0.0
    return Estimate(value, math.hypot(monte_carlo_error(T, torch.abs, A.size), doubt), products)


def probes_and_steps(A: Operator, num_products: int) -> tuple[int, int]:
    """The probes of a nuclear norm, and the steps of each: where zero lies among few nodes matters more than noise."""
    probes = min(PROBES, max(1, num_products // STEPS))
    return probes, min(num_products // probes, A.size)


def _doubt_at_zero(spectrum: Spectrum) -> float:
    """The uncertainty of ∫ |λ|, which comes from the kink at zero: a Gauss rule is exact for linear functions.

    The mass of a node is spread half as far as it may reach: half-way to its neighbours, or less where it is known to
    be nearer. It then has a larger mean of |λ| if zero lies within: anything up to that is taken as equally likely. A
    rule with zero between two nodes is too large instead: by w h/12 for a smooth density, by Euler and Maclaurin's
    formula, with the distance h and the mass w of each.
    """
    low, high = spectrum.ends
    half = (high - low) / 4
    spread = (half - spectrum.nodes.abs()).clamp(min=0) / math.sqrt(3)
    between = torch.where((low < 0) & (high > 0), half / 12, 0.0)
    return float((spectrum.weights * torch.maximum(spread, between)).sum(1).mean())
