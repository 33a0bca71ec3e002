"""The diagonal of an operator, with the error of every entry."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from .. import progress
from ..errors import ArgumentError, check_finite, check_whole
from ..operators import Operator
from .probes import BLOCK, signs, source, student_factor, unit_products
from .sketches import PARALLEL, Sketch, has_room
from .vectors import room, spans

PAIRS = 8  # partners of a probe whose covariance is computed: the sum over all entries needs no more


@dataclass(frozen=True, repr=False, eq=False)
class Diagonal:
    """The entries A[i, i] with the standard error of each, two of which cover 95 %.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.tensor([1.0, 2.0, 9.0])))
    >>> ritz.diagonal(A)
    Diagonal(n = 3, 3 products: from 1 to 9, sum 12, off by 0 in all)
    >>> ritz.diagonal(A).values
    tensor([1., 2., 9.])
    """

    values: Float[Tensor, " n"]
    standard_errors: Float[Tensor, " n"]
    num_products: int

    @property
    def total_error(self) -> float:
        """The standard error of the whole diagonal: the norm of the vector of all errors."""
        return float(torch.linalg.vector_norm(self.standard_errors, dtype=torch.float64))

    def __repr__(self) -> str:
        low, high, total = (float(t) for t in (self.values.min(), self.values.max(), self.values.double().sum()))
        return (
            f"Diagonal(n = {len(self.values):,}, {self.num_products} products: from {low:.4g} to {high:.4g}, "
            f"sum {total:.4g}, off by {self.total_error:.2g} in all)"
        )


def diagonal(A: Operator, *, num_products: int = 100, generator: torch.Generator | None = None) -> Diagonal:
    """diag A by XDiag: exact on a random subspace, stochastic on the rest, averaged over which probe is left out.

    As many products as n give it exactly. Where there is no room for eight vectors a probe, of which there are half as
    many as products, it is the mean of z ⊙ A z over random signs z, which keeps two vectors and takes five. Both are
    unbiased. Bekas, Kokiopoulou and Saad (2007); Epperly, Tropp and Webber (2024), whose error neglects the covariance
    of estimates that share probes.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.arange(1.0, 301.0)))
    >>> ritz.diagonal(A, num_products=300).values[:3]
    tensor([1., 2., 3.])
    """
    check_whole(num_products=num_products)
    generator = source(generator)
    if num_products >= A.size:
        return _exact(A)
    if num_products < 2:
        raise ArgumentError(
            f"num_products={num_products} was given.",
            "Estimating the error takes at least two probes.",
            "Allow 2 or more.",
        )
    if has_room(A, num_products):
        probes = signs(A, num_products // 2, generator)
        return _of_sketch(Sketch.empty(A, keep_products=True).with_probes(A, probes))
    return _of_signs(A, num_products, generator)


def _exact(A: Operator) -> Diagonal:
    values = torch.empty(A.size, dtype=A.dtype, device=A.device)
    for which, columns in unit_products(A):
        values[which] = columns.gather(1, which[:, None])[:, 0]
    check_finite(float(values.double().sum()))
    return Diagonal(values, torch.zeros_like(values), A.size)


def _of_signs(A: Operator, count: int, generator: torch.Generator) -> Diagonal:
    """Mean and scatter of z ⊙ A z, updated entry by entry. Welford (1962)."""
    mean = torch.zeros(A.size, dtype=A.dtype, device=A.device)
    squares, made, unit = torch.zeros_like(mean), 0, 0.0
    most = int(min(BLOCK, max(1, (room(A) - 2) / 4)))
    with progress.bar("Diagonal", total=count) as bar:
        while made < count:
            Z = signs(A, min(most, count - made), generator)
            Z.mul_((A @ Z.T).T)
            unit = unit or float(Z.abs().max()) or 1.0  # squares of entries may overflow in float32
            for sample in Z.div_(unit):
                made += 1
                change = sample.sub_(mean)
                mean.add_(change, alpha=1 / made)
                squares.addcmul_(change, change, value=(made - 1) / made)
            bar.advance(len(Z))
    check_finite(float(squares.double().sum()))
    errors = squares.div_((count - 1) * count).sqrt_().mul_(student_factor(count) * unit)
    return Diagonal(mean.mul_(unit), errors, count)


def _of_sketch(sketch: Sketch) -> Diagonal:
    """diag(QZᵀ) + Q sᵢ ⊙ (γᵢ ωᵢ - Z sᵢ) for every probe left out, with γᵢ = sᵢᵀrᵢ: its mean and scatter.

    What is left of A beside the projection on all A ωⱼ but A ωᵢ maps ωᵢ to γᵢ Q sᵢ.
    """
    m, mean = len(sketch.omega), torch.empty_like(sketch.Q[0])
    errors, own, common = torch.empty_like(mean), 0.0, 0.0
    for span, pieces in _pieces(sketch):
        samples = pieces.samples()
        mean[span] = (pieces.inside + samples.mean(0)).to(mean)
        variance = samples.var(0) / m
        errors[span] = variance.sqrt().to(mean)  # its square may overflow in float32
        own, common = own + float(variance.sum()), common + pieces.shared()
    check_finite(own + float(mean.double().sum()))
    factor = student_factor(m) * math.sqrt(1 + max(0.0, common) / own) if own else 0.0
    return Diagonal(mean, errors.mul_(factor), 2 * m)


@dataclass(frozen=True)
class _Piece:
    """Some coordinates of the ingredients of the estimates, in float64, with a row for each probe."""

    omega: Float[Tensor, "m w"]
    a: Float[Tensor, "m w"]  # Q sᵢ
    c: Float[Tensor, "m w"]  # Z sᵢ
    inside: Float[Tensor, " w"]  # diag(QZᵀ)
    gamma: Float[Tensor, "m 1"]
    cosines: Float[Tensor, "m m"]

    def samples(self) -> Float[Tensor, "m w"]:
        return self.a * (self.gamma * self.omega - self.c)

    def shared(self) -> float:
        """The sum over these entries of Cov(tᵢ, tⱼ) = E DᵢⱼDⱼᵢ, from some pairs, as `LeaveOneOut` has it."""
        m = len(self.a)
        shifts = range(1, m) if m - 1 <= PAIRS else [1 + k * (m - 1) // PAIRS for k in range(PAIRS)]
        return sum(float(self._with(self._rolled(shift), shift).sum()) for shift in shifts) / (m * len(shifts))

    def _rolled(self, shift: int) -> _Piece:
        """The piece with the row of probe i + shift in the place of that of probe i."""
        rows = {name: getattr(self, name).roll(-shift, 0) for name in ("omega", "a", "c", "gamma")}
        return replace(self, **rows)

    def _with(self, other: _Piece, shift: int) -> Float[Tensor, " m"]:
        """DᵢⱼDⱼᵢ summed over these entries, for every i and j = i + shift."""
        cosine = self.cosines.roll(-shift, 1).diagonal()
        square = 1 - cosine.square()  # of the sine
        sums = (self._change(other, cosine[:, None]) * other._change(self, cosine[:, None])).sum(1)
        return torch.where(square > PARALLEL, sums / square.clamp(min=PARALLEL).square(), 0.0)

    def _change(self, other: _Piece, cosine: Float[Tensor, "m 1"]) -> Float[Tensor, "m w"]:
        """sin² times the change in tᵢ when ωⱼ is left out as well, for e, what sⱼ has beside sᵢ.

        That change is Qe ⊙ Ze + ωᵢ ⊙ Qe γᵢ cos/sin.
        """
        Qe, Ze = (theirs.addcmul(own, -cosine) for own, theirs in ((self.a, other.a), (self.c, other.c)))
        return Ze.addcmul_(self.omega, self.gamma * cosine).mul_(Qe)


def _pieces(sketch: Sketch) -> Iterator[tuple[slice, _Piece]]:
    assert sketch.Z is not None  # of a sketch that keeps its products
    S = sketch.directions()
    gamma, cosines, device = (S * sketch.R).sum(0)[:, None], S.T @ S, sketch.Q.device
    S, gamma, cosines = S.to(device), gamma.to(device), cosines.to(device)
    for span in spans(sketch.Q.shape[1], 12 * len(S)):
        omega, Q, Z = (rows[:, span].double() for rows in (sketch.omega, sketch.Q, sketch.Z))
        yield span, _Piece(omega, S.T @ Q, S.T @ Z, (Q * Z).sum(0), gamma, cosines)
