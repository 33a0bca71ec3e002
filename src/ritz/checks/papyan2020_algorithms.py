"""Checks of Papyan (2020), App. C: Algorithms 1 to 5, corrected, against dense linear algebra on small matrices."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import log, pi, sqrt
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ..operators import Operator
from ..solvers import lanczos, spectral_density, subspace_iteration
from ..solvers.densities import spectral_range
from ..solvers.probes import gaussian
from ..spectrum import Spectrum
from ..spectrum.measure import KAPPA, lent_width
from ..theory import ClosedForm, Group
from .check import Check, lines
from .draws import normal, scale, whole
from .papyan2020 import PAPER

Inputs = tuple[Any, ...]
MARGIN = 0.05  # τ, Sec. D.2
FLOOR = 1e-5  # ε of log(|λ| + ε), Fig. 6
POINTS = 9  # points at which a density is compared


def drawn(generator: Generator) -> Inputs:
    """A symmetric matrix with three to ten rows, a number of steps, and a seed for the start vector."""
    n = whole(generator, 3, 10)
    Q = torch.linalg.qr(normal(generator, n, n)).Q
    A = (Q * normal(generator, n)) @ Q.T * scale(generator, 1.0)
    return (A + A.T) / 2, whole(generator, 2, n), whole(generator, 0, 10**6)


def unfinished(generator: Generator) -> Inputs:
    """Inputs like `drawn`, with fewer steps than rows: after as many, the residual is rounding, and so is any bound."""
    A, steps, seed = drawn(generator)
    return A, min(steps, len(A) - 1), seed


def separated(generator: Generator) -> Inputs:
    """A matrix with eigenvalues ±4⁻ⁱ, how many of them are requested, and a seed for the start vectors."""
    n = whole(generator, 4, 8)
    Q = torch.linalg.qr(normal(generator, n, n)).Q
    values = 0.25 ** torch.arange(n).double() * torch.where(normal(generator, n) > 0, 1.0, -1.0)
    return (Q * values) @ Q.T, whole(generator, 1, 3), whole(generator, 0, 10**6)


def _pairs(_: Generator) -> Mapping[str, Inputs]:
    values = torch.tensor([2.0, -2.0, 0.1, 0.05, 0.0], dtype=torch.float64)
    return {"a pair ±λ": (values.diag(), 2, 0), "all of them": (values[:3].diag(), 3, 0)}


def _seeded(seed: int) -> Generator:
    return torch.Generator().manual_seed(seed)


def _columns(vectors: Tensor, first: int, count: int) -> Tensor:
    return vectors[:, first : first + count]


def _start(A: Tensor, seed: int) -> Float[Tensor, " n"]:
    """The start vector that a solver draws with this seed."""
    v = gaussian(Operator.from_matrix(A), 1, _seeded(seed))[0]
    return v / v.norm()


def _krylov(A: Tensor, steps: int, seed: int) -> tuple[Float[Tensor, "n m"], Float[Tensor, " m"], Float[Tensor, "m m"]]:
    """V, θ and y of the Krylov space, by QR decompositions instead of the recursion."""
    V = _start(A, seed)[:, None]
    for _ in range(steps - 1):
        V = torch.linalg.qr(torch.cat([V, A @ V[:, -1:]], 1)).Q
    V[:, 0] *= torch.sign(V[:, 0] @ _start(A, seed))
    theta, y = torch.linalg.eigh(V.T @ A @ V)
    return V, theta, y


def all_steps(A: Tensor, _: int, seed: int) -> ClosedForm:
    """Alg. 1: the eigenvalues of T after n steps, with the vectors V y."""
    T = lanczos(Operator.from_matrix(A), _start(A, seed)[:, None], len(A), keep_basis=True)
    (theta,), (y,) = T.eigh()
    assert T.basis is not None  # it was asked for
    vectors = T.basis[0] @ y
    return ClosedForm(
        [Group(f"line {i + 1}", value, 1, partial(_columns, vectors, i)) for i, value in enumerate(theta.tolist())]
    )


def itself(A: Tensor, *_: int) -> Tensor:
    """The matrix itself, as the oracle of decompositions of it."""
    return A


def moments(A: Tensor, steps: int, seed: int) -> ClosedForm:
    """Alg. 2: the quadrature's ∫ λᵏ for k < 2M, without reorthogonalisation."""
    A = A / torch.linalg.matrix_norm(A, 2)
    T = lanczos(Operator.from_matrix(A), _start(A, seed)[:, None], steps)
    return lines([torch.cat([T.integral(partial(torch.pow, exponent=k)) for k in range(2 * steps)]).diag()])


def moments_oracle(A: Tensor, steps: int, seed: int) -> Tensor:
    """vᵀAᵏv."""
    A, v = A / torch.linalg.matrix_norm(A, 2), _start(A, seed)
    return torch.stack([v @ torch.linalg.matrix_power(A, k) @ v for k in range(2 * steps)]).diag()


def density(A: Tensor, steps: int, seed: int) -> ClosedForm:
    """Alg. 3: the density of one probe, in units of λ."""
    nodes, weights = lanczos(Operator.from_matrix(A), _start(A, seed)[:, None], steps).quadrature()
    width = lent_width(float(nodes.max() - nodes.min()), steps)
    return lines([Spectrum(nodes, weights, len(A), width).density(_grid(A)).diag()])


def density_oracle(A: Tensor, steps: int, seed: int) -> Tensor:
    """Σ y[1]² g_{dσ}(λ - θ), d half the range of θ and σ = 2/((M - 1)√(8 log κ)): what de-normalising leaves."""
    _, theta, y = _krylov(A, steps, seed)
    half = float(theta[-1] - theta[0]) / 2
    sigma = half * 2 / ((steps - 1) * sqrt(8 * log(KAPPA)))
    return (_gaussians(_grid(A), theta, sigma) @ y[0].square()).diag()


def interval(A: Tensor, steps: int, seed: int) -> ClosedForm:
    """Alg. 4: both ends of the interval."""
    low, high = spectral_range(Operator.from_matrix(A), num_steps=steps, margin=MARGIN, generator=_seeded(seed))
    return lines([torch.tensor([low, high], dtype=torch.float64).diag()])


def interval_oracle(A: Tensor, steps: int, seed: int) -> Tensor:
    """θ ∓ ‖(A - θ)V y‖ at both ends, and the margin."""
    V, theta, y = _krylov(A, steps, seed)
    residuals = (A @ V @ y - V @ y * theta).norm(dim=0)
    low, high = (theta - residuals).min(), (theta + residuals).max()
    margin = MARGIN * (high - low)
    return torch.stack([low - margin, high + margin]).diag()


def log_density(A: Tensor, *_: int) -> ClosedForm:
    """Sec. C.7: the density of log(|λ| + ε) of a matrix of any signs, and its integral."""
    spectrum, u = Spectrum.of_matrix(A), _log_grid(A)
    q = spectrum.log_density(u, floor=FLOOR)
    return lines([torch.cat([q[:: len(q) // POINTS], torch.trapezoid(q, u)[None]]).diag()])


def log_density_oracle(A: Tensor, *_: int) -> Tensor:
    """(1/n) Σ g_σ(u - log(|λ| + ε)), and one."""
    values, u = torch.linalg.eigvalsh(A), _log_grid(A)
    centres, sigma = (values.abs() + FLOOR).log(), Spectrum.of_matrix(A).log_width(FLOOR)
    q = _gaussians(u[:: len(u) // POINTS], centres, sigma).mean(1)
    return torch.cat([q, q.new_ones(1)]).diag()


def _log_grid(A: Tensor) -> Float[Tensor, " g"]:
    """Points from the least |λ| to the largest, and eight widths beyond, where nothing is left of a Gaussian.

    The width is a share of that range: however narrow it is, several points lie within a width.
    """
    spectrum = Spectrum.of_matrix(A)
    beyond, sizes = 8 * spectrum.log_width(FLOOR), (spectrum.nodes.abs() + FLOOR).log()
    return torch.linspace(float(sizes.min()) - beyond, float(sizes.max()) + beyond, 2000, dtype=torch.float64)


def iterated(A: Tensor, count: int, seed: int) -> ClosedForm:
    """Alg. 5: Σ λ v vᵀ over the Ritz pairs after 60 sweeps, which leave 1e-36 of the rest, and A without it."""
    pairs = subspace_iteration(Operator.from_matrix(A), count, 60, generator=_seeded(seed))
    top = (pairs.vectors * pairs.values) @ pairs.vectors.T
    return lines([top, A - top])


def iterated_oracle(A: Tensor, count: int, _: int) -> Tensor:
    """A split by its eigenvalues of largest magnitude, as `iterated` splits it."""
    values, vectors = torch.linalg.eigh(A)
    largest = values.abs().argsort(descending=True)[:count]
    top = (vectors[:, largest] * values[largest]) @ vectors[:, largest].T
    return torch.block_diag(top, A - top)


def deflated(A: Tensor, count: int, seed: int) -> ClosedForm:
    """Sec. C.8: the nodes of a deflated density after all steps, with no zero for the vectors taken out."""
    spectrum = spectral_density(
        Operator.from_matrix(A), num_steps=len(A), num_probes=1, outliers=count, generator=_seeded(seed)
    )
    return ClosedForm(Group(f"node {i + 1}", value) for i, value in enumerate(spectrum.nodes[0].tolist()))


def _grid(A: Tensor) -> Float[Tensor, " g"]:
    """Points at which a density is compared, across the spectrum."""
    reach = float(torch.linalg.matrix_norm(A, 2))
    return torch.linspace(-reach, reach, POINTS, dtype=torch.float64)


def _gaussians(x: Float[Tensor, " g"], centres: Float[Tensor, " m"], sigma: float) -> Float[Tensor, "g m"]:
    return torch.exp(-0.5 * ((x[:, None] - centres) / sigma) ** 2) / (sigma * sqrt(2 * pi))


CHECKS = (
    Check("SlowLanczos", PAPER, "Alg. 1", drawn, all_steps, itself),
    Check("FastLanczos", PAPER, "Alg. 2", drawn, moments, moments_oracle),
    Check("LanczosApproxSpec", PAPER, "Alg. 3", drawn, density, density_oracle),
    Check("Normalization", PAPER, "Alg. 4", unfinished, interval, interval_oracle),
    Check("log spectrum", PAPER, "Sec. C.7", drawn, log_density, log_density_oracle),
    Check("SubspaceIteration", PAPER, "Alg. 5", separated, iterated, iterated_oracle, _pairs),
    Check("deflated density", PAPER, "Sec. C.8", separated, deflated, itself),
)
