"""The density of a spectrum by stochastic Lanczos quadrature, with the interval that should hold it."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ArgumentError, check_whole
from ..operators import Operator, orthonormal_columns
from ..spectrum import Eigenpairs, Spectrum
from ..spectrum.measure import STEPS, lent_width
from .atoms import Atoms, Row, beyond, common_atoms, rows_of
from .eigen import eigenpairs
from .lanczos_recursion import Tridiagonal, random_recursions, recursion
from .probes import gaussian, source

TINY = 1e-300  # below every mass, and not zero
NOISIEST = 0.15  # relative Monte Carlo error beyond which a coarser quadrature would be no sharper


def spectral_density(
    A: Operator,
    *,
    num_steps: int = 128,
    num_probes: int = 8,
    outliers: int | Eigenpairs = 0,
    generator: torch.Generator | None = None,
) -> Spectrum:
    """The spectrum Σᵢ δ(λ - λᵢ)/n by stochastic Lanczos quadrature: E Σᵢ (vᵀuᵢ)² δ(λ - λᵢ) for v on the sphere.

    Four vectors a probe are taken at most, its product's among them, and as many probes run in step as the operator's
    `room` allows. No basis is kept but where every step is made. Ritz values that all probes have converged to are
    atoms: each counts once, whatever its mass in a probe, unless the masses say that it is several eigenvalues. One
    that is double among many simple ones is not told from them by a few probes. With outliers, that many certified
    eigenpairs of largest |λ|, or those given, are atoms of mass exactly 1/n, and the probes measure the rest on their
    orthogonal complement, so that the zeros of a deflated operator are never seen. Papyan (2020), Alg. 3 and Sec. C.8,
    which counts them; Papyan (2019), Alg. 3. No more than n steps are made. Without a generator, a new one with seed 0
    is used: two such calls share their probes.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.arange(1.0, 301.0)))
    >>> spectrum = ritz.spectral_density(A, num_steps=20, outliers=2)
    >>> outliers, bulk = spectrum.split(2)
    >>> outliers.round(decimals=2), bulk.size
    (tensor([300., 299.], dtype=torch.float64), 298)
    """
    generator = source(generator)
    count = len(outliers) if isinstance(outliers, Eigenpairs) else outliers
    _check_counts(A, num_steps, num_probes, count)
    pairs = outliers if isinstance(outliers, Eigenpairs) else None
    if pairs is not None:
        orthonormal_columns(A, pairs)
    if pairs is None and count:
        pairs = eigenpairs(A, count, which="magnitude", generator=generator)
    values = torch.zeros(0, dtype=torch.float64) if pairs is None else pairs.values.double().cpu()
    if count == A.size:
        return Spectrum.of_eigenvalues(values, probes=num_probes)
    steps = min(num_steps, A.size - count)
    outside = None if pairs is None else pairs.vectors.T
    T = random_recursions(A, num_probes, steps, generator, outside=outside)
    return spectrum_from(T, values, A)


def spectral_range(
    A: Operator, *, num_steps: int = 32, margin: float = 0.05, generator: torch.Generator | None = None
) -> tuple[float, float]:
    """An interval that should hold the spectrum: θ₁ - β|y₁[m]| to θₘ + β|yₘ[m]|, and `margin` of it on each side.

    No guarantee: an eigenvector that the start hardly contains is not seen. Papyan (2020), Alg. 4 and Sec. D.2 for the
    defaults; its residual ‖(A - θ)y‖ should read ‖(A - θ)V y‖ = β|y[m]|. Papyan (2019), Alg. 4. Without a generator,
    one with seed 0 is used.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.arange(1.0, 301.0)))
    >>> low, high = ritz.solvers.spectral_range(A)
    >>> low < 1 and 300 < high < 330
    True
    """
    _check_counts(A, num_steps, 1, 0)
    if not (math.isfinite(margin) and margin >= 0):
        raise ArgumentError(f"margin={margin} was given.", "It widens the interval.", "Pass 0 or more.")
    T = recursion(A, gaussian(A, 1, source(generator)), min(num_steps, A.size), keep_basis=False)
    (theta,), (S,) = T.eigh()
    residuals = T.residual[0] * S[-1].abs()
    low, high = float((theta - residuals).min()), float((theta + residuals).max())
    return low - margin * (high - low), high + margin * (high - low)


def spectrum_from(T: Tridiagonal, values: Float[Tensor, " k"], A: Operator) -> Spectrum:
    """The measure of all rows: certified eigenvalues, then those that every row has found, then the rest of each."""
    size, eps = A.size - len(values), torch.finfo(A.dtype).eps
    rows = rows_of(T, size, eps, float(values.abs().amax()) if len(values) else 0.0)
    atoms = common_atoms(rows, size)
    rest = _remainders(rows, atoms, beyond(rows, size, T.diagonal.shape[1]))
    share = (size - int(atoms.multiplicities.sum())) / A.size
    masses = share * rest[1] / rest[1].sum(1, keepdim=True).clamp(min=TINY)
    known = torch.cat([values, atoms.values]).expand(len(rows), -1)
    counts = torch.cat([torch.ones_like(values), atoms.multiplicities.double()]).expand(len(rows), -1)
    radii = torch.cat([torch.zeros_like(values), atoms.radii])
    reach = torch.cat([torch.stack([known - radii, known + radii]), rest[2:]], dim=2)
    resolution = _resolution(rows, size) if share > 0 else None
    nodes, weights = torch.cat([known, rest[0]], dim=1), torch.cat([counts / A.size, masses], dim=1)
    return Spectrum(nodes, weights, A.size, resolution, known.shape[1], reach, eps)


def _remainders(rows: list[Row], atoms: Atoms, edge: float) -> Float[Tensor, "4 p k"]:
    """The nodes of all rows that are no atoms, with their weights and both ends of their reach.

    As many in every row: those that a row lacks carry no weight.
    """
    pieces = []
    for row, places in zip(rows, atoms.places, strict=True):
        left = torch.ones(len(row.nodes), dtype=torch.bool)
        left[places[places >= 0]] = False
        pieces.append(torch.stack([row.nodes, row.weights, *row.reach(edge)])[:, left])
    longest = max(piece.shape[1] for piece in pieces)
    missing = [piece[:, -1:].repeat(1, longest - piece.shape[1]) for piece in pieces]
    for piece in missing:
        piece[1] = 0
    return torch.stack([torch.cat(pair, dim=1) for pair in zip(pieces, missing, strict=True)], dim=1)


def _resolution(rows: list[Row], size: int) -> float:
    """The width at which the error of the quadrature is about half of the Monte Carlo error.

    m nodes on an interval of length R are π R/2m apart in its middle: of a comb that fine, a Gaussian of width c R/m
    leaves 2 exp(-8c²). The relative Monte Carlo error is √(2/kp), with 2√π c n/m eigenvalues k under the Gaussian; for
    it, c = 1 and 128 steps are precise enough.
    """
    spacings = [spacing for row in rows if (spacing := row.spacing(size))]
    if not spacings:
        low, high = min(float(row.nodes[0]) for row in rows), max(float(row.nodes[-1]) for row in rows)
        return lent_width(high - low or abs(high) or 1.0)
    noise = math.sqrt(STEPS / (math.sqrt(math.pi) * size * len(rows)))
    return math.sqrt(math.log(4 / min(noise, NOISIEST)) / 8) * sum(spacings) / len(spacings)


def _check_counts(A: Operator, num_steps: int, num_probes: int, outliers: int) -> None:
    check_whole(num_steps=num_steps, num_probes=num_probes, outliers=outliers)
    if num_steps < 1 or num_probes < 1 or not 0 <= outliers <= A.size:
        raise ArgumentError(
            f"num_steps={num_steps}, num_probes={num_probes} and outliers={outliers} were given for size {A.size}.",
            "A quadrature takes one step and one probe at least; outliers are eigenvalues, 0 to n of them.",
            "The defaults are num_steps=128, num_probes=8, outliers=0.",
        )
