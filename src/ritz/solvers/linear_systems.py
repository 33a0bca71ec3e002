"""Linear systems (A + μ) x = b, with the residuals of fresh products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
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
    warn_user,
)
from ..operators import Operator
from .conjugate_gradients import System, conjugate_gradients, kept
from .definiteness import check_damping
from .eigen import SMALL
from .minres import minres
from .vectors import as_rows, check_range, check_vectors, norms, room

VECTORS, MINRES_VECTORS = 6, 11  # for each right-hand side, x and the product's own among them
STEPS = 1000  # for each right-hand side, unless given
SAFETY = 0.8  # of the tolerance: the recursion stops below it, to leave room for rounding in the fresh residual
ROUNDS = 8  # fresh residuals from which the search may start again


@runtime_checkable
class Invertible(Protocol):
    """An easily inverted approximation of A: an Operator, or the result of kfac, ekfac and the like."""

    @property
    def inverse(self) -> Callable[[float], Operator] | None:
        """λ ↦ (M + λ)⁻¹."""
        ...


@dataclass(frozen=True, repr=False, eq=False)
class Solution:
    """x with (A + μ) x ≈ b, and the residual ‖b - (A + μ) x‖ of every right-hand side from a fresh product.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.tensor([1.0, 2.0, 4.0])))
    >>> solution = ritz.solve(A, torch.tensor([1.0, 1.0, 1.0]), damping=1.0)
    >>> solution
    Solution(1 right-hand side, n = 3, 4 products, conjugate gradients)
         ‖x‖ =     0.633333  residual ...
    >>> solution.x.round(decimals=4), solution.converged
    (tensor([0.5000, 0.3333, 0.2000]), tensor([True]))
    """

    x: Float[Tensor, "n ..."]  # of the shape of b
    residuals: Float[Tensor, " r"]
    converged: Bool[Tensor, " r"]  # residual at most tolerance · ‖b‖
    num_products: int
    method: str  # "conjugate gradients", or "MINRES" where A + μ turned out not to be positive definite

    def __len__(self) -> int:
        return len(self.residuals)

    def __repr__(self) -> str:
        lengths = norms(self.x.reshape(len(self.x), -1).T).tolist()
        rows = zip(lengths, self.residuals.tolist(), self.converged.tolist(), strict=True)
        lines = [f"     ‖x‖ = {v:>12.6g}  residual {r:<10.2g}{'' if ok else '  not converged'}" for v, r, ok in rows]
        sides = f"{len(self)} right-hand side{'s' * (len(self) != 1)}"
        head = f"Solution({sides}, n = {len(self.x):,}, {self.num_products} products, {self.method})"
        return "\n".join([head, *(line.rstrip() for line in lines)])


def solve(
    A: Operator,
    b: Float[Tensor, "n ..."],
    *,
    damping: float = 0.0,
    preconditioner: Invertible | Callable[[Tensor], Tensor] | None = None,
    tolerance: float = 1e-5,
    start: Float[Tensor, "n ..."] | None = None,
    max_products: int | None = None,
) -> Solution:
    """x with ‖(A + μ) x - b‖ ≤ tolerance · ‖b‖, for a vector b (n,) or several in columns (n, r).

    The method is conjugate gradients, and MINRES from the moment a direction shows that A + μ is not positive definite.
    Guaranteed: every residual is that of a fresh product, and `converged` says whether it reached the tolerance. If
    rounding has led the recursion astray, as it does in float32, it restarts from the fresh residual as long as that
    halves it. If n ≤ 500 and n products were not enough, the matrix itself is formed and solved, with n more. A
    singular system is solved if it has a solution; if it has none, x leaves the least residual that rounding
    allows, ‖b‖ at most, and a ConvergenceWarning says so.

    All right-hand sides go in step, so that one pass over the data serves them: six vectors each, eleven with MINRES,
    and as many at a time as the operator's `room` allows. Hestenes and Stiefel (1952), Paige and Saunders (1975).

    Args:
        A: Symmetric operator.
        b: Right-hand sides, in the operator's precision and place.
        damping: μ.
        preconditioner: An approximation of A with an `inverse`: kfac(risk), ekfac(risk), an Operator. It is inverted
            with the same damping, and must be positive definite with it. A rough one takes fewer products with more:
            ekfac(risk).operator + √(μ λ₁), where ekfac(risk) itself often takes more than none. Or a function that maps
            residuals (n, r) to M⁻¹ times these.
        tolerance: Relative to ‖b‖.
        start: A first guess of the shape of b; zero unless given.
        max_products: When to give up on a right-hand side; 1000 unless given.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.arange(1.0, 301.0)))
    >>> b = torch.ones(300, 2)
    >>> x = ritz.solve(A, b, damping=10.0).x
    >>> bool(((A + 10.0) @ x - b).norm() < 1e-4 * b.norm())
    True
    """
    check_damping(damping)
    check_tolerance(tolerance)
    check_whole(max_products=max_products)
    check_positive(max_products=max_products)
    _check_sides(A, b, start)
    system = System(A + damping if damping else A, _inverse_of(A, preconditioner, damping))
    B, X = as_rows(b), torch.zeros_like(as_rows(b), memory_format=torch.contiguous_format)
    if start is not None:
        X.copy_(as_rows(start))
    search = _Search(system, tolerance, max_products or STEPS)
    most = int(min(len(B), max(1, room(A) / VECTORS)))
    with progress.bar("Solve", total=len(B)) as bar:
        for first in range(0, len(B), most):
            piece = slice(first, first + most)
            search.improve(X[piece], B[piece], started=start is not None)
            bar.advance(len(B[piece]), products=system.num_products)
    residuals, scale = torch.cat(search.residuals), norms(B)
    converged = residuals <= tolerance * scale
    x = X[0] if b.ndim == 1 else X.T
    solution = Solution(x, residuals.to(A.dtype), converged, system.num_products, search.method)
    _warn_of_residuals(solution, scale)
    return solution


@dataclass
class _Sides:
    """Right-hand sides that are solved in step: how far each is, and which of them are open."""

    X: Float[Tensor, "p n"]  # improved in place
    B: Float[Tensor, "p n"]
    goals: Float[Tensor, " p"]  # of the residuals
    lengths: Float[Tensor, " p"]  # of the residuals
    open: list[int]  # which rows are improved
    residuals: Float[Tensor, "q n"]  # of these, until they are taken

    @classmethod
    def of(cls, X: Tensor, B: Tensor, R: Tensor, tolerance: float) -> _Sides:
        """All that are not solved by the X given, with the residuals R."""
        goals, lengths = tolerance * norms(B), norms(R)
        check_finite(float(lengths.sum()))
        return cls(X, B, goals, lengths, kept([*range(len(B))], lengths > goals), R[lengths > goals])

    @property
    def aims(self) -> list[float]:
        """The residuals at which recursions stop: below the goals, but not below rounding."""
        least = torch.finfo(self.B.dtype).eps / 4 * norms(self.B)
        return torch.maximum(SAFETY * self.goals, least)[self.open].tolist()

    def take_residuals(self) -> Float[Tensor, "q n"]:
        """The residuals of the open ones, to be overwritten: nothing here holds them any more."""
        taken, self.residuals = self.residuals, self.residuals[:0, :0].clone()
        return taken

    def measured(self, R: Float[Tensor, "q n"]) -> Float[Tensor, " q"]:
        """Take these residuals of the open ones for theirs; what share they are of those before."""
        before, after = self.lengths[self.open], norms(R)
        check_finite(float(after.sum()))
        self.residuals, self.lengths[self.open] = R, after
        return after / before

    def close(self, closed: Bool[Tensor, " q"]) -> None:
        """Leave some of the open ones as they are."""
        self.open, self.residuals = kept(self.open, ~closed), self.residuals[~closed]


@dataclass
class _Search:
    """The state that all right-hand sides share: the system, and whether it is still taken for positive definite."""

    system: System
    tolerance: float
    max_steps: int
    definite: bool = True

    def __post_init__(self) -> None:
        self.residuals: list[Tensor] = []

    @property
    def method(self) -> str:
        return "conjugate gradients" if self.definite else "MINRES"

    def improve(self, X: Float[Tensor, "p n"], B: Float[Tensor, "p n"], *, started: bool) -> None:
        """Improve the rows X in place until fresh residuals are small, no longer halve, or the steps are spent."""
        X[norms(B) == 0] = 0.0
        first = self.system.num_products
        sides = _Sides.of(X, B, self._first(X, B, started), self.tolerance)
        for _ in range(ROUNDS):
            spent = -(-(self.system.num_products - first) // len(B))
            steps = self.max_steps - spent - 1  # and one for the fresh residuals
            if not sides.open or steps < 1:
                break
            if self._is_small(len(sides.open) * steps):
                self._round(sides, -(-X.shape[1] // len(sides.open)))
                self._decompose(sides)
                break
            shares = self._round(sides, steps)
            sides.close((sides.lengths <= sides.goals)[sides.open] | ~(shares <= 0.5))
        self.residuals.append(sides.lengths)

    def _first(self, X: Float[Tensor, "p n"], B: Float[Tensor, "p n"], started: bool) -> Float[Tensor, "p n"]:
        """The residuals to start from, in memory of their own."""
        return self._fresh(X, B) if started else B.clone(memory_format=torch.contiguous_format)

    def _is_small(self, num_products: int) -> bool:
        """Whether this many products cover n steps and then the n columns of a matrix that fits into memory."""
        A = self.system.A
        return A.size <= SMALL and num_products >= 2 * A.size and 3 * A.size <= room(A)

    def _round(self, sides: _Sides, steps: int) -> Float[Tensor, " q"]:
        """Steps of a recursion, and the fresh residuals after it; what share these are of those before."""
        self._steps(sides, steps)
        R = self._open_residuals(sides)
        if not self.definite:
            self._drop_rounding(sides, R)
        return sides.measured(R)

    def _steps(self, sides: _Sides, steps: int) -> None:
        """Conjugate gradients, or MINRES from where these have shown that A + μ is not positive definite."""
        if self.definite:
            first = self.system.num_products
            self.definite = conjugate_gradients(
                self.system, sides.X, sides.take_residuals(), sides.open, sides.aims, steps
            )
            if self.definite:
                return
            steps -= -(-(self.system.num_products - first) // len(sides.open))
            sides.residuals = self._open_residuals(sides)
            self._begin_anew(sides)
        R, aims = sides.take_residuals(), sides.aims
        most = int(min(len(R), max(1, room(self.system.A) / MINRES_VECTORS)))
        for piece in (slice(first, first + most) for first in range(0, len(R), most)):
            minres(self.system, sides.X, R[piece].clone(), sides.open[piece], aims[piece], max(1, steps))

    def _begin_anew(self, sides: _Sides) -> None:
        """Go back to zero where conjugate gradients gained nothing or diverged, as where there is no solution."""
        far = norms(sides.residuals) > 0.5 * norms(_some(sides.B, sides.open))
        for i in torch.nonzero(far)[:, 0].tolist():
            sides.X[sides.open[i]], sides.residuals[i] = 0.0, sides.B[sides.open[i]]

    def _drop_rounding(self, sides: _Sides, R: Float[Tensor, "q n"]) -> None:
        """Go back to zero where MINRES, which can only make residuals smaller, ends above ‖b‖: its x is rounding."""
        for i in torch.nonzero(norms(R) > norms(_some(sides.B, sides.open)))[:, 0].tolist():
            sides.X[sides.open[i]], R[i] = 0.0, sides.B[sides.open[i]]

    def _decompose(self, sides: _Sides) -> None:
        """Solve with the matrix itself what a recursion has not; not from its x, which may be far from any solution."""
        if bool((sides.lengths > sides.goals).any()):
            sides.X[sides.open] = self._exact(sides.B[sides.open])
            sides.measured(self._open_residuals(sides))

    def _open_residuals(self, sides: _Sides) -> Float[Tensor, "q n"]:
        return self._fresh(_some(sides.X, sides.open), _some(sides.B, sides.open))

    def _exact(self, B: Float[Tensor, "p n"]) -> Float[Tensor, "p n"]:
        """A⁺b for every row, from the whole matrix; eigenvalues of rounding size count as zero."""
        self.system.num_products += self.system.A.size
        matrix = self.system.A.dense().double()
        values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
        nonzero = values.abs() > len(values) * torch.finfo(B.dtype).eps * float(values.abs().max())
        inverse = torch.where(nonzero, 1 / values, 0.0)
        return ((B.double() @ vectors) * inverse @ vectors.T).to(B)

    def _fresh(self, X: Float[Tensor, "p n"], B: Float[Tensor, "p n"]) -> Float[Tensor, "p n"]:
        if not bool(X.isfinite().all()):
            raise NumericalError(
                f"x has entries beyond {torch.finfo(X.dtype).max:.2g}.",
                f"{X.dtype} has no such numbers: the matrix is tiny beside the right-hand side.",
                "Divide the right-hand side by a power of ten, and multiply x by it in float64.",
            )
        return B - self.system.product(X)


def _some(X: Float[Tensor, "p n"], rows: list[int]) -> Float[Tensor, "q n"]:
    """These rows, copied unless they are all of them."""
    return X if len(rows) == len(X) else X[rows]


def _inverse_of(
    A: Operator, preconditioner: Invertible | Callable[[Tensor], Tensor] | None, damping: float
) -> Callable[[Tensor], Tensor] | None:
    """The product with M⁻¹, for columns."""
    if preconditioner is None:
        return None
    if not isinstance(preconditioner, Invertible):
        return preconditioner
    known = preconditioner.inverse
    if known is None:
        raise ArgumentError(
            f"The preconditioner {preconditioner!r} has no known inverse.",
            "It approximates A, and every step multiplies by M⁻¹.",
            "Pass kfac(risk) or ekfac(risk), or an Operator that has an inverse.",
            "Where it is an inverse already, pass a function: preconditioner=lambda R: M @ R.",
        )
    inverse = known(damping)
    if (inverse.size, inverse.dtype, inverse.device) != (A.size, A.dtype, A.device):
        raise ArgumentError(
            f"The preconditioner is {inverse!r}, the operator {A!r}.",
            "Both must act on the same vectors.",
            "Build both from the same Risk.",
        )
    return lambda R: inverse @ R


def _check_sides(A: Operator, b: Tensor, start: Tensor | None) -> None:
    check_vectors(A, b=b)
    check_range(b, "The right-hand sides")
    if start is not None and ((start.shape, start.dtype, start.device) != (b.shape, b.dtype, b.device)):
        raise ArgumentError(
            f"A start of shape {tuple(start.shape)} in {start.dtype} on {start.device} was given for b of shape "
            f"{tuple(b.shape)} in {b.dtype} on {b.device}.",
            "It is the first guess of x, so it must be like b.",
            "Leave it out to start from zero.",
        )
    if start is not None:
        check_vectors(A, start=start)


def _warn_of_residuals(solution: Solution, scale: Float[Tensor, " r"]) -> None:
    if not bool(solution.converged.all()):
        relative = float((solution.residuals / scale.clamp(min=torch.finfo(torch.float64).tiny)).max())
        warn_user(
            f"{int((~solution.converged).sum())} of {len(solution)} right-hand sides did not reach the tolerance after "
            f"{solution.num_products} products; the largest residual is {relative:.2g} of ‖b‖.\n"
            f"  - Raise max_products, the damping or the tolerance; {solution.x.dtype} limits what can be reached, and "
            "a singular system may have no solution.",
            ConvergenceWarning,
        )
