"""Lanczos recursions of several start vectors in step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from .. import progress
from ..errors import ArgumentError, check_finite, check_whole
from ..operators import Operator
from .probes import gaussian
from .tridiagonal import Tridiagonal
from .vectors import as_rows, check_range, check_starts, check_symmetry, dots, norms, product, rounding

VECTORS = 4  # for each probe, its product's argument and result among them
STRIDES = 17, 19  # of the coordinates that are summed to marks: primes, unlike the widths of layers
MARKS = sum(STRIDES)  # sums of each vector, by which the Ritz vectors of several probes are compared
PATIENCE = 16  # steps between checks whether all probes have stopped: each makes a GPU wait


def lanczos(A: Operator, starts: Float[Tensor, "n ..."], num_steps: int, *, keep_basis: bool = False) -> Tridiagonal:
    """Tridiagonalise A on the Krylov space of each start vector, one (n,) or columns (n, p): A Q = Q T + β r eₘᵀ.

    The p recursions run in step, so one pass over the data serves them all; they end early where every space has
    become invariant. With the basis, Q is orthogonal to rounding: Papyan (2020), Alg. 1, SlowLanczos. Without
    it, three vectors a probe are kept and eigenvalues may appear in T several times, which leaves the weights of
    the quadrature right: Alg. 2, FastLanczos. Papyan (2019), Alg. 1 and Alg. 2 are the same.

    Args:
        A: Symmetric operator.
        starts: One start vector or several in columns, of any length but zero.
        num_steps: m, the steps of each recursion.
        keep_basis: Whether Q is kept, m vectors for each start, and orthogonal to rounding.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.tensor([1.0, 2.0, 3.0, 9.0])))
    >>> T = ritz.lanczos(A, torch.ones(4), 2)
    >>> T.integral(torch.square).round(decimals=2)  # Σᵢ λᵢ²/4, exact, for it has degree 2 < 2m
    tensor([23.7500], dtype=torch.float64)
    """
    _check_steps(A, num_steps, keep_basis)
    check_starts(A, starts=starts)
    rows = as_rows(starts).clone(memory_format=torch.contiguous_format)
    return recursion(A, rows, num_steps, keep_basis=keep_basis)


def recursion(
    A: Operator,
    rows: Float[Tensor, "p n"],
    num_steps: int,
    *,
    keep_basis: bool,
    outside: Float[Tensor, "k n"] | None = None,
) -> Tridiagonal:
    """`lanczos` without argument checks, which overwrites the rows and stays orthogonal to those `outside`."""
    state = Recursion.from_starts(rows, keep_basis=keep_basis, outside=outside)
    state.extend(A, num_steps)
    return state.result()


def in_step(num_probes: int, spare: float) -> int:
    """How many recursions run together if there is room for this many vectors besides the product's: at least one."""
    return int(min(num_probes, max(1, spare / VECTORS)))


@dataclass(eq=False)
class Recursion:
    """The whole state of p recursions: two vectors a probe, or all of them, and their coefficients."""

    previous: Float[Tensor, "p n"]
    current: Float[Tensor, "p n"]
    alpha: Float[Tensor, "m p"]  # on the device, in float64
    beta: Float[Tensor, "m p"]
    scale: Float[Tensor, " p"]  # largest ‖A q‖
    basis: Float[Tensor, "p m n"] | None
    outside: Float[Tensor, "k n"] | None  # orthonormal; the recursion stays orthogonal to it
    marks: Float[Tensor, "m p d"] | None = None  # of its vectors; None for starts that are nobody's probes
    count: int = 0

    @classmethod
    def from_starts(cls, rows: Float[Tensor, "p n"], *, keep_basis: bool, outside: Tensor | None = None) -> Recursion:
        """Recursions before their first step, which use the memory of the given rows."""
        _leave(rows, outside)
        rows /= norms(rows)[:, None].to(rows)
        alpha = torch.zeros(0, len(rows), dtype=torch.float64, device=rows.device)
        basis = rows.new_zeros(len(rows), 0, rows.shape[1]) if keep_basis else None
        scale = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
        return cls(torch.zeros_like(rows), rows, alpha, alpha, scale, basis, outside)

    @classmethod
    def of_probes(
        cls,
        A: Operator,
        count: int,
        num_steps: int,
        generator: torch.Generator,
        outside: Float[Tensor, "k n"] | None,
        spare: float,
    ) -> Recursion:
        """Recursions from normal probes that will make this many steps.

        A space that is exhausted is given a basis where there is room, for its last steps are right only in an
        orthogonal one; without, an eigenvalue may stand there several times, with the right weight in all.
        """
        exhausted = num_steps >= A.size - (0 if outside is None else len(outside))
        keep_basis = exhausted and count * (num_steps + VECTORS) <= spare
        run = cls.from_starts(gaussian(A, count, generator), keep_basis=keep_basis, outside=outside)
        run.marks = run.alpha.new_zeros(0, count, MARKS)
        return run

    def extend(self, A: Operator, num_steps: int, keep: Callable[[], None] | None = None) -> None:
        """Go on until this many steps are made or every space is invariant; `keep` is called before each step."""
        self._make_place(num_steps)
        with progress.bar("Lanczos", total=num_steps) as bar:
            bar.advance(self.count)
            while self.count < num_steps and not self.over():
                if keep is not None:
                    keep()
                self.step(A)
                bar.advance(products=self.count * len(self.current))

    def _make_place(self, num_steps: int) -> None:
        """Lengthen the arrays that have a row for each step."""
        more = num_steps - len(self.alpha)
        if more <= 0:
            return
        zeros = self.alpha.new_zeros(more, len(self.current))
        self.alpha, self.beta = torch.cat([self.alpha, zeros]), torch.cat([self.beta, zeros])
        if self.marks is not None:
            self.marks = torch.nn.functional.pad(self.marks, (0, 0, 0, 0, 0, more))
        if self.basis is not None:
            p, _, n = self.basis.shape
            longer = self.basis.new_zeros(p, num_steps, n)
            longer[:, : self.count] = self.basis[:, : self.count]
            self.basis = longer

    def step(self, A: Operator) -> None:
        """One product for every probe. A probe whose space is invariant has q = 0 from then on."""
        j, q, w = self.count, self.current, self.previous  # w is computed in the memory of the vector it replaces
        if self.basis is not None:
            self.basis[:, j] = q
        if self.marks is not None:
            self.marks[j] = _marks(q)
        Aq = (A @ q.T).T  # not in place: a product may be its own argument
        if not j and self.outside is None:  # beside known eigenvalues, all others may be next to nothing
            check_range(Aq)
        self.scale = torch.maximum(self.scale, norms(Aq))
        if j == 1:
            self._check_symmetry(A, Aq)
        w.mul_(-self.beta[j - 1, :, None].to(w)).add_(Aq)
        del Aq
        self.alpha[j] = torch.linalg.vecdot(q, w).double()  # its sum is pairwise: a plain one lets noise in
        w.addcmul_(self.alpha[j, :, None].to(w), q, value=-1)
        _leave(w, self.outside)  # here, not in A: the recursion itself would amplify what rounding lets in
        if self.basis is not None:
            _leave_own(w, self.basis[:, : j + 1])
        length = norms(w)
        self.beta[j] = torch.where(length > rounding(A) * self.scale, length, 0.0)
        w.mul_(torch.where(self.beta[j] > 0, 1 / length, 0.0)[:, None].to(w))
        self.previous, self.current, self.count = q, w, j + 1

    def _check_symmetry(self, A: Operator, Aq: Float[Tensor, "p n"]) -> None:
        """Refuse an operator with q₁ᵀAq₂ far from q₂ᵀAq₁ = β₁, which would lead to values far from any eigenvalue."""
        differences = (dots(self.previous, Aq) - self.beta[0]).abs()
        apart = lambda: product(A, self.previous + self.current) - product(A, self.previous) - Aq
        check_symmetry(float(differences.max()), float(self.scale.max()), lambda: float(norms(apart()).max()))

    @property
    def num_probes(self) -> int:
        """p, the recursions in step."""
        return len(self.current)

    @property
    def num_steps(self) -> int:
        """The number of steps made."""
        return self.count

    @property
    def num_bytes(self) -> int:
        """The bytes of its vectors."""
        return sum(rows.nbytes for rows in (self.previous, self.current, self.basis) if rows is not None)

    def parts(self, most: int) -> list[Recursion]:
        """The recursions in several parts with at most this many probes each, which share the memory of this one."""
        if self.num_probes <= most:
            return [self]
        return [
            replace(
                self,
                previous=self.previous[span],
                current=self.current[span],
                alpha=self.alpha[:, span],
                beta=self.beta[:, span],
                scale=self.scale[span],
                marks=None if self.marks is None else self.marks[:, span],
                basis=None if self.basis is None else self.basis[span],
            )
            for span in (slice(first, first + most) for first in range(0, self.num_probes, most))
        ]

    def is_on(self, device: torch.device) -> bool:
        """Whether its vectors are on this device."""
        return self.current.device.type == device.type  # "cuda" and "cuda:0" are one place

    def to(self, device: torch.device) -> None:
        """Move its vectors; the coefficients and what it is orthogonal to stay where they are used."""
        self.previous, self.current = self.previous.to(device), self.current.to(device)
        self.basis = None if self.basis is None else self.basis.to(device)

    def over(self) -> bool:
        """Whether every space is invariant; checked only now and then where checking makes the device wait."""
        if not self.count or (self.current.is_cuda and self.count % PATIENCE):
            return False
        check_finite(float(self.scale.sum()))
        return not bool(self.beta[self.count - 1].any())

    def result(self) -> Tridiagonal:
        """The decompositions so far, read from the device once."""
        alpha, beta = self.alpha[: self.count].T.cpu(), self.beta[: self.count].T.cpu()
        check_finite(float(alpha.sum() + beta.sum()))
        live = torch.cat([torch.ones_like(beta[:, :1]), beta[:, :-1]], dim=1) > 0
        basis = None if self.basis is None else self.basis[:, : self.count].transpose(1, 2)
        marks = None if self.marks is None else self.marks[: self.count].transpose(0, 1).cpu()
        return Tridiagonal(torch.where(live, alpha, alpha[:, :1]), beta[:, :-1], beta[:, -1], basis, marks)


def _marks(rows: Float[Tensor, "p n"]) -> Float[Tensor, "p d"]:
    """The sums of every 17th coordinate, and of every 19th: few vectors have the same direction in both."""
    return torch.cat([_sums(rows, stride) for stride in STRIDES], dim=1)


def _sums(rows: Float[Tensor, "p n"], stride: int) -> Float[Tensor, "p d"]:
    whole = rows.shape[1] // stride * stride
    sums = rows[:, :whole].unflatten(1, (-1, stride)).sum(1).double()
    sums[:, : rows.shape[1] - whole] += rows[:, whole:]
    return sums


def _leave(rows: Float[Tensor, "p n"], outside: Float[Tensor, "k n"] | None) -> None:
    """Remove from the rows their components along orthonormal ones, to rounding."""
    if outside is not None:
        for _ in range(2):
            rows.addmm_(rows @ outside.T, outside, alpha=-1)


def _leave_own(w: Float[Tensor, "p n"], Q: Float[Tensor, "p j n"]) -> None:
    """Remove from w its components along each probe's basis; twice is enough (Parlett 1998, Sec. 6.9)."""
    for _ in range(2):
        components = torch.bmm(Q, w[:, :, None])
        w[:, None].baddbmm_(components.transpose(1, 2), Q, alpha=-1)


def _check_steps(A: Operator, num_steps: int, keep_basis: bool) -> None:
    check_whole(num_steps=num_steps)
    most = A.size if keep_basis else None
    if num_steps < 1 or (most is not None and num_steps > most):
        raise ArgumentError(
            f"num_steps={num_steps} Lanczos steps were requested for an operator of size {A.size}.",
            "It needs at least one step, and no more than n vectors can be orthogonal to each other.",
            f"Ask for 1 to {A.size}.",
        )
