"""A random sketch of an operator: estimates that each leave out one probe, and the variance of their mean."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import check_finite
from ..operators import Operator
from ..spectrum import Estimate
from .probes import interval_factor
from .vectors import check_range, inner, norms, product, room

KEPT = 8  # vectors that a sketch takes for each of its probes where it keeps its products
ROUNDS = 4  # attempts to make new directions orthogonal to old ones
SKEW = 64  # roundings by which new directions may lie along old ones
PARALLEL = 1e-10  # of 1 - cos², below which two directions are one


def has_room(A: Operator, num_products: int) -> bool:
    """Whether a sketch that keeps its products can be made with these: two make a probe, and it takes two probes."""
    return num_products >= 4 and KEPT * (num_products // 2) <= room(A)


@dataclass(frozen=True)
class Sketch:
    """Probes Ω, the basis Q of A Ω = Q R, H = QᵀAQ, and on request Z = AQ with C = ZᵀZ. Vectors in rows."""

    omega: Float[Tensor, "m n"]
    Q: Float[Tensor, "m n"]
    R: Float[Tensor, "m m"]
    H: Float[Tensor, "m m"]
    Z: Float[Tensor, "m n"] | None = None
    C: Float[Tensor, "m m"] | None = None

    @classmethod
    def empty(cls, A: Operator, *, keep_products: bool = False) -> Sketch:
        """A sketch without probes, to be grown."""
        rows, small = torch.zeros(0, A.size, dtype=A.dtype, device=A.device), torch.zeros(0, 0, dtype=torch.float64)
        return cls(rows, rows, small, small, *((rows, small) if keep_products else ()))

    def with_probes(self, A: Operator, probes: Float[Tensor, "b n"]) -> Sketch:
        """The sketch with more probes, at two products each; nothing is multiplied twice."""
        Y = product(A, probes)
        if not len(self.Q):
            check_range(Y)
        check_finite(float(norms(Y).sum()))
        new, above, below = _beside(self.Q, Y)
        R = torch.cat([torch.cat([self.R, torch.zeros(len(probes), len(self.Q), dtype=torch.float64)]),
                       torch.cat([above, below])], dim=1)  # fmt: skip
        Q, Znew = torch.cat([self.Q, new]), product(A, new)
        check_finite(float(norms(Znew).sum()))
        H, Z, gram = _bordered(self.H, inner(Q, Znew)), None, None
        if self.Z is not None and self.C is not None:
            Z = torch.cat([self.Z, Znew])
            gram = _bordered(self.C, inner(Z, Znew))
        return Sketch(torch.cat([self.omega, probes]), Q, R, H, Z, gram)

    def trace(self) -> LeaveOneOut:
        """tr A for every probe left out: XTrace. Epperly, Tropp and Webber (2024), with their normalisation."""
        W = inner(self.Q, self.omega)
        return self._trace_of((self.R * W).sum(0), self.R, self.H, W)

    def trace_of_square(self) -> LeaveOneOut:
        """tr A² for every probe left out, as XTrace has tr A: ‖A x‖² = ‖Q r - Z u‖² for x = ω - Q u."""
        assert self.C is not None  # of a sketch that keeps its products
        return self._trace_of(self.R.square().sum(0), self.H @ self.R, self.C, inner(self.Q, self.omega))

    def directions(self) -> Float[Tensor, "m m"]:
        """Unit vectors sᵢ in columns: Q(I - sᵢsᵢᵀ)Qᵀ projects on all A ωⱼ but A ωᵢ. They lie along R⁻ᵀ."""
        S = torch.linalg.inv(_invertible(self.R)).T
        return S / S.norm(dim=0)

    def _trace_of(self, constant: Tensor, linear: Tensor, quadratic: Tensor, W: Tensor) -> LeaveOneOut:
        """tr PᵢB + scaleᵢ · xᵢᵀBxᵢ, with xᵢ = (I - Pᵢ)ωᵢ and Pᵢ the projection on all A ωⱼ but A ωᵢ.

        B is known by xᵀBx = constant - 2 linearᵀu + uᵀ quadratic u for u = QᵀPᵢωᵢ. With ωⱼ left out too, the projection
        is Q(I - sᵢsᵢᵀ - eeᵀ)Qᵀ, with e along what sⱼ has beside sᵢ; entry (i, j) of a matrix belongs to that pair.
        """
        S, dimension = self.directions(), self.Q.shape[1] - len(self.Q)
        U = W - S * (S * W).sum(0)
        free, gradient = norms(self.omega).square().cpu() - U.square().sum(0), linear - quadratic @ U
        G, K = S.T @ S, S.T @ quadratic @ S
        inside, rest = quadratic.trace() - K.diagonal(), constant - ((linear + gradient) * U).sum(0)
        values = inside + (dimension + 1) / free * rest
        sine = (1 - G.square()).clamp(min=PARALLEL).sqrt()
        beside = lambda X: (X.T - G * X.diagonal()[:, None]) / sine  # eᵀxᵢ from sⱼᵀxᵢ
        b, slope = beside(S.T @ W), beside(S.T @ gradient)
        inner_e = (K.diagonal() - 2 * G * K + G.square() * K.diagonal()[:, None]) / sine.square()
        rests = rest[:, None] + 2 * b * slope + b.square() * inner_e
        pairs = inside[:, None] - inner_e + (dimension + 2) / (free[:, None] + b.square()) * rests
        return LeaveOneOut(values, torch.where(1 - G.square() > PARALLEL, values[:, None] - pairs, 0.0))


@dataclass(frozen=True)
class LeaveOneOut:
    """An estimate tᵢ for every probe left out of the basis, and what changes in it where ωⱼ is left out as well.

    Given all probes but ωᵢ, each tᵢ is unbiased. So the part of tᵢ that is independent of ωⱼ is uncorrelated with tⱼ,
    and Cov(tᵢ, tⱼ) = E DᵢⱼDⱼᵢ for Dᵢⱼ = tᵢ - tᵢ without ωⱼ.
    """

    values: Float[Tensor, " m"]
    changes: Float[Tensor, "m m"]

    def combined(self, own: float, other: LeaveOneOut, share: float) -> LeaveOneOut:
        """own · t + share · t' of two quantities of one sketch."""
        return LeaveOneOut(own * self.values + share * other.values, own * self.changes + share * other.changes)

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    @property
    def variance(self) -> float:
        """The variance of the mean, without bias: s²/m + Cov(tᵢ, tⱼ), where the covariance is cut off at zero.

        The scatter s² alone, which Epperly, Tropp and Webber (2024) take, leaves out what estimates that share probes
        have in common, and is too small by up to 2.6; a jackknife is too large where the spectrum decays, by up to 12.
        """
        m = len(self.values)
        common = self.changes * self.changes.T
        return float(self.values.var()) / m + max(0.0, float(common.sum() - common.trace()) / (m * (m - 1)))

    def estimate(self, num_products: int) -> Estimate:
        """The mean with its error, of which two cover 95 %."""
        m = len(self.values)
        error = interval_factor(self.values) * math.sqrt(self.variance) if m > 1 else None
        return Estimate(self.mean, error, num_products)


def _beside(
    Q: Float[Tensor, "m n"], Y: Float[Tensor, "b n"]
) -> tuple[Float[Tensor, "b n"], Float[Tensor, "m b"], Float[Tensor, "b b"]]:
    """What Y adds to Q, orthonormal, and its coefficients: Yᵀ = Qᵀ above + newᵀ below.

    Where Q has all of Y already, what it adds is rounding, and that points anywhere: along Q, too, until it is
    orthogonalised again at length one.
    """
    above, below = torch.zeros(len(Q), len(Y), dtype=torch.float64), torch.eye(len(Y), dtype=torch.float64)
    for _ in range(ROUNDS):
        for _ in range(2 if len(Q) else 0):
            C = Q @ Y.T
            Y, above = Y - C.T @ Q, above + C.double().cpu() @ below
        new, factor = torch.linalg.qr(Y.T)
        Y, below = new.T.contiguous(), factor.double().cpu() @ below
        if not len(Q) or float((Q @ Y.T).abs().max()) <= SKEW * torch.finfo(Y.dtype).eps:
            break
    return Y, above, below


def _bordered(old: Float[Tensor, "a a"], new: Float[Tensor, "m b"]) -> Float[Tensor, "m m"]:
    """The symmetric matrix whose first block and last columns these are."""
    corner = new[len(old) :]
    sides = torch.cat([new[: len(old)], (corner + corner.T) / 2])
    return torch.cat([torch.cat([old, new[: len(old)].T]), sides], dim=1)


def _invertible(R: Float[Tensor, "m m"]) -> Float[Tensor, "m m"]:
    """R with zero pivots made tiny: if A has rank below m, leaving out any direction outside its range is right."""
    tiny = torch.finfo(torch.float64).eps * (float(R.abs().max()) or 1.0)
    pivots = R.diagonal()
    return R + torch.diag(torch.where(pivots.abs() < tiny, tiny - pivots, 0.0))
