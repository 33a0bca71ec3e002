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
class _Search:
    """The state that all right-hand sides share: the system, and whether it is still taken for positive definite."""

    system: System
    tolerance: float
    max_steps: int
    definite: bool = True

    def __post_init__(self) -> None:
        self.residuals: list[Tensor] = []
        self._left = torch.empty(0, 0)  # residuals on their way to `_steps`: as an argument, the caller would hold them

    @property
    def method(self) -> str:
        return "conjugate gradients" if self.definite else "MINRES"

    def improve(self, X: Float[Tensor, "p n"], B: Float[Tensor, "p n"], *, started: bool) -> None:
        """Improve the rows X in place until fresh residuals are small, no longer halve, or the steps are spent."""
        goals, num_before = self.tolerance * norms(B), self.system.num_products
        aims = torch.maximum(SAFETY * goals, torch.finfo(B.dtype).eps / 4 * norms(B))  # less is rounding
        X[norms(B) == 0] = 0.0
        R = self._fresh(X, B) if started else B.clone(memory_format=torch.contiguous_format)
        lengths = norms(R)
        check_finite(float(lengths.sum()))
        rows, R = [*range(len(B))], R[lengths > goals]
        rows = kept(rows, lengths > goals)
        for _ in range(ROUNDS):
            left = self.max_steps - -(-(self.system.num_products - num_before) // len(B)) - 1
            if not rows or left < 1:
                break
            small, self._left = self._is_small(len(rows) * left), R
            del R
            self._steps(X, B, rows, aims[rows].tolist(), -(-X.shape[1] // len(rows)) if small else left)
            R = self._fresh(_some(X, rows), _some(B, rows))
            self._drop_rounding(X, B, R, rows)
            before, lengths[rows] = lengths[rows], norms(R)
            check_finite(float(lengths.sum()))
            if small and bool((lengths > goals).any()):
                X[rows] = self._exact(B[rows])  # not from the current x, which may be far away if there is no solution
                lengths[rows] = norms(self._fresh(_some(X, rows), _some(B, rows)))
                break
            going = (lengths[rows] > goals[rows]) & (lengths[rows] <= 0.5 * before)
            rows, R = kept(rows, going), R[going]
        self.residuals.append(lengths)

    def _is_small(self, num_products: int) -> bool:
        """Whether this many products cover n steps and then the n columns of a matrix that fits into memory."""
        A = self.system.A
        return A.size <= SMALL and num_products >= 2 * A.size and 3 * A.size <= room(A)

    def _steps(self, X: Tensor, B: Tensor, rows: list[int], goals: list[float], steps: int) -> None:
        """Conjugate gradients, or MINRES from where these have shown that A + μ is not positive definite."""
        if self.definite:
            num_before = self.system.num_products
            self.definite = conjugate_gradients(self.system, X, self._first_residuals(), rows, goals, steps)
            if self.definite:
                return
            steps -= -(-(self.system.num_products - num_before) // len(rows))
            R = self._fresh(_some(X, rows), _some(B, rows))
            for row, length, first in zip(rows, norms(R).tolist(), norms(B[rows]).tolist(), strict=True):
                if length > 0.5 * first:  # no gain, or divergence, as where there is no solution
                    X[row], R[rows.index(row)] = 0.0, B[row]
            self._left = R
            del R
        R = self._first_residuals()
        most = int(min(len(rows), max(1, room(self.system.A) / MINRES_VECTORS)))
        for piece in (slice(first, first + most) for first in range(0, len(rows), most)):
            minres(self.system, X, R[piece].clone(), rows[piece], goals[piece], max(1, steps))

    def _drop_rounding(self, X: Tensor, B: Tensor, R: Float[Tensor, "q n"], rows: list[int]) -> None:
        """Go back to zero where MINRES, which can only make residuals smaller, ends above ‖b‖: its x is rounding."""
        if self.definite:
            return
        for i in torch.nonzero(norms(R) > norms(_some(B, rows)))[:, 0].tolist():
            X[rows[i]], R[i] = 0.0, B[rows[i]]

    def _exact(self, B: Float[Tensor, "p n"]) -> Float[Tensor, "p n"]:
        """A⁺b for every row, from the whole matrix; eigenvalues of rounding size count as zero."""
        self.system.num_products += self.system.A.size
        matrix = self.system.A.dense().double()
        values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
        nonzero = values.abs() > len(values) * torch.finfo(B.dtype).eps * float(values.abs().max())
        inverse = torch.where(nonzero, 1 / values, 0.0)
        return ((B.double() @ vectors) * inverse @ vectors.T).to(B)

    def _first_residuals(self) -> Float[Tensor, "q n"]:
        """The residuals to start from, which the caller may overwrite."""
        left, self._left = self._left, torch.empty(0, 0)
        return left

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
