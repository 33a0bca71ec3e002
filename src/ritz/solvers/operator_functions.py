"""Functions of an operator times vectors, f(A) v, by Lanczos with an error estimate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from .. import progress
from ..errors import (
    ConvergenceWarning,
    NumericalError,
    check_positive,
    check_tolerance,
    check_whole,
    warn_user,
)
from ..operators import Operator
from .lanczos_recursion import Recursion
from .tridiagonal import Tridiagonal
from .vectors import as_rows, check_vectors, norms, room

STRIDE = 10  # steps between two looks at the error
STEPS = 500  # unless given
VECTORS = 5  # for each v beside a basis: x, two of the recursion, and the product's own
SLOWEST, LEAST = 0.95, 0.1  # ratio of two changes beyond which their sum is not extrapolated; the share always left
WIDTH = 4  # steps that two changes are apart at least: Ritz values come in turns to the groups of a spectrum
JUMP = 64  # roundings of the largest eigenvalue within which a jump of f counts as at an eigenvalue
REACH = (1 / 16, 1 / 4, 1)  # of a residual, beyond an outermost Ritz value
SEEN = 0.5  # of the largest |f| of all Ritz values
HUGE = 1e150  # for an f that is infinite there
SAFETY = 4  # what the changes of one vector may mislead by


@dataclass(frozen=True, repr=False, eq=False)
class FunctionProduct:
    """x ≈ f(A) v, with an estimate of ‖x - f(A) v‖ for every v.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.tensor([1.0, 4.0, 9.0])).double())
    >>> result = ritz.solvers.function(A, torch.sqrt, torch.ones(3).double())
    >>> result
    FunctionProduct(1 vector, n = 3, 3 products)
         ‖x‖ =      3.74166  ± ...
    >>> result.x.round(decimals=6)
    tensor([1., 2., 3.], dtype=torch.float64)
    """

    x: Float[Tensor, "n ..."]  # of the shape of v
    errors: Float[Tensor, " r"]
    num_products: int

    def __len__(self) -> int:
        return len(self.errors)

    def __repr__(self) -> str:
        lengths = norms(self.x.reshape(len(self.x), -1).T).tolist()
        lines = [f"     ‖x‖ = {v:>12.6g}  ± {e:.2g}" for v, e in zip(lengths, self.errors.tolist(), strict=True)]
        vectors = f"{len(self)} vector{'s' * (len(self) != 1)}"
        return "\n".join([f"FunctionProduct({vectors}, n = {len(self.x):,}, {self.num_products} products)", *lines])


def function(
    A: Operator,
    f: Callable[[Tensor], Tensor],
    v: Float[Tensor, "n ..."],
    *,
    tolerance: float = 1e-4,
    max_steps: int | None = None,
) -> FunctionProduct:
    """f(A) v = Σᵢ f(λᵢ) uᵢuᵢᵀv for a vector v (n,) or several in columns (n, r): ‖v‖ Q f(T) e₁ of Lanczos from v.

    Steps are made until the error is at most tolerance · ‖x‖, or up to max_steps with a ConvergenceWarning. The error
    is an estimate: the change over the last fifth of the steps (at least four), extrapolated by its ratio to the change
    over the fifth before; up to eight steps there is no earlier change, and it is assumed to be large. What f does
    within a residual beyond the outermost Ritz values is added: exp(-λ) may be nothing at all others. If the Krylov
    space is exhausted, the error is rounding. A function with a kink or a jump between eigenvalues converges slowly. A
    jump at an eigenvalue is not seen until a Ritz value gets there. f must be finite between eigenvalues too.

    All v go in step, as many as the operator's `room` allows. The basis is kept where there is room for twice
    max_steps vectors, 500 unless given and n at most, and orthogonal; else five vectors are, and the recursion runs a
    second time to sum x, for twice the products. Druskin and Knizhnerman (1989).

    Args:
        f: Of a tensor of eigenvalues, element by element.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.arange(1.0, 301.0)).double())
    >>> x = ritz.solvers.function(A, lambda t: torch.exp(-t / 100), torch.ones(300).double()).x
    >>> torch.allclose(x, torch.exp(-torch.arange(1.0, 301.0).double() / 100), atol=1e-5)
    True
    """
    check_tolerance(tolerance)
    check_whole(max_steps=max_steps)
    check_positive(max_steps=max_steps)
    check_vectors(A, v=v)
    rows = as_rows(v)
    X, lengths = torch.zeros_like(rows, memory_format=torch.contiguous_format), norms(rows)
    errors, spent = torch.zeros_like(lengths), 0
    some = torch.nonzero(lengths)[:, 0]
    keep_basis = basis_for(A, len(some), max_steps) > 0
    run = _Run(A, f, keep_basis, min(max_steps or STEPS, A.size), tolerance)
    for chosen in some.split(len(some) if keep_basis else most_for(A, len(some))) if len(some) else ():
        X[chosen], errors[chosen], products = run.values(rows[chosen])
        spent += products
    x = X[0] if v.ndim == 1 else X.T
    _warn_of_errors(errors, norms(X), tolerance, spent)
    return FunctionProduct(x, errors.to(A.dtype), spent)


def basis_for(A: Operator, num_vectors: int, max_steps: int | None) -> int:
    """The vectors that each basis takes if there is room for all: twice its size, while it is lengthened."""
    vectors = 2 * min(max_steps or STEPS, A.size)
    return vectors if num_vectors * (vectors + VECTORS) <= room(A) else 0


def most_for(A: Operator, num_vectors: int) -> int:
    """How many vectors run together without a basis."""
    return int(min(num_vectors, max(1, room(A) / (VECTORS + 1))))


@dataclass(frozen=True)
class _Run:
    """The computation of f(A) v for several vectors at once."""

    A: Operator
    f: Callable[[Tensor], Tensor]
    keep_basis: bool
    max_steps: int
    tolerance: float

    def values(self, rows: Float[Tensor, "p n"]) -> tuple[Float[Tensor, "p n"], Float[Tensor, " p"], int]:
        """f(A) v for every row, the estimated error, and the products."""
        lengths = norms(rows)
        state = Recursion.from_starts(rows.clone(memory_format=torch.contiguous_format), keep_basis=self.keep_basis)
        while True:
            state.extend(self.A, min(state.count + STRIDE, self.max_steps))
            T = state.result()
            y, truncation, rounding = _coefficients(T, self.f, torch.finfo(rows.dtype).eps)
            settled = bool((truncation <= torch.maximum(self.tolerance * y.norm(dim=1) - rounding, rounding)).all())
            if settled or state.count >= self.max_steps or not bool(T.residual.any()):
                break
        products = state.count * len(rows)
        scaled, errors = (y * lengths[:, None].cpu()).to(rows), (truncation + rounding).to(lengths) * lengths
        _check_size(scaled)
        if T.basis is not None:
            return torch.bmm(T.basis, scaled[:, :, None])[:, :, 0], errors, products
        del state
        return self._sum(rows / lengths[:, None].to(rows), T, scaled), errors, products + (y.shape[1] - 1) * len(rows)

    def _sum(self, q: Float[Tensor, "p n"], T: Tridiagonal, y: Float[Tensor, "p m"]) -> Float[Tensor, "p n"]:
        """Σⱼ yⱼqⱼ, with the vectors of a second run of the recursion, by the coefficients of the first."""
        alpha, beta = T.diagonal.to(q), torch.cat([T.off_diagonal, T.residual[:, None]], dim=1).to(q)
        X, previous, m = y[:, :1] * q, torch.zeros_like(q), y.shape[1]
        with progress.bar("Lanczos, second run", total=m) as bar:
            bar.advance()
            for j in range(m - 1):
                w = previous.mul_(-beta[:, j - 1 : j] if j else 0.0).add_((self.A @ q.T).T)
                w.addcmul_(alpha[:, j : j + 1], q, value=-1)
                w.mul_(torch.where(beta[:, j : j + 1] > 0, 1 / beta[:, j : j + 1], 0.0))
                previous, q = q, w
                X.addcmul_(y[:, j + 1 : j + 2], q)
                bar.advance()
        return X


def _coefficients(
    T: Tridiagonal, f: Callable[[Tensor], Tensor], eps: float
) -> tuple[Float[Tensor, "p m"], Float[Tensor, " p"], Float[Tensor, " p"]]:
    """y = f(T) e₁, and the two parts of ‖x - f(A) v‖ / ‖v‖: what further steps may change, and rounding.

    The first is a geometric sum from two changes of y, and what f does beyond the outermost Ritz values.
    """
    m = T.num_steps
    y, rounding = _first_column(T, m, f, eps)
    truncation = torch.stack([_truncation(T, f, y, width) for width in {max(1, m // 5), max(WIDTH, m // 5)}]).amax(0)
    return y, torch.where(T.residual > 0, truncation + _beyond(T, f), 0.0), m**0.5 * rounding


def _beyond(T: Tridiagonal, f: Callable[[Tensor], Tensor]) -> Float[Tensor, " p"]:
    """How much x would change if v's part in the outermost Ritz vectors lay within a residual beyond their values.

    What exp(-λ) makes of eigenvalues far below the largest is not seen until a Ritz value gets there: until then, x is
    zero and stays so. What is linear is exact, so the second difference counts; where it is less than a share of the
    largest |f|, the changes of y tell of it.
    """
    theta, first, last = T.ends
    residuals, largest = T.residual[:, None] * last.abs(), f(theta).double().abs().amax(1)
    total = torch.zeros_like(largest)
    for end in (0, -1):
        x, r = theta[:, end], residuals[:, end]
        bends = [(f(x + by * r) - f(x) + f(x - by * r) - f(x)).double().abs() for by in REACH]
        bend = torch.stack(bends).nan_to_num(0.0, HUGE, HUGE).clamp(max=HUGE).amax(0)  # where f is undefined: none
        total += torch.where(bend > SEEN * largest, bend * first[:, end].abs(), 0.0)
    return total


def _truncation(
    T: Tridiagonal, f: Callable[[Tensor], Tensor], y: Float[Tensor, "p m"], width: int
) -> Float[Tensor, " p"]:
    """How much all further steps would change y, if the change kept falling as in the last steps."""
    before, earlier = (_first_column(T, T.num_steps - k * width, f, 0.0)[0] for k in (1, 2))
    last, former = (y - before).norm(dim=1), (before - earlier).norm(dim=1)
    ratio = torch.where(former > 0, last / former, torch.where(last > 0, 1.0, 0.0)).clamp(max=SLOWEST)
    ratio = ratio if T.num_steps > 2 * width else torch.full_like(ratio, SLOWEST)  # nothing to extrapolate from
    return SAFETY * last * torch.maximum(ratio / (1 - ratio), torch.tensor(LEAST).double())


def _first_column(
    T: Tridiagonal, num_steps: int, f: Callable[[Tensor], Tensor], eps: float
) -> tuple[Float[Tensor, "p m"], Float[Tensor, " p"]]:
    """f(T) e₁ after fewer steps, padded with zeros, and how much rounding may change it.

    Rounding enters relative to max|f| and through the argument of f, which may cross a jump at an eigenvalue.
    """
    y = torch.zeros_like(T.diagonal)
    if num_steps < 1:
        return y, y[:, 0]
    theta, S = T.after(num_steps).eigh()
    values = f(theta)
    if values.shape != theta.shape or not bool(values.isfinite().all()):
        raise NumericalError(
            f"f returned shape {tuple(values.shape)}, with {int((~values.isfinite()).sum())} values that are NaN or "
            f"infinite, at {tuple(theta.shape)} points from {float(theta.min()):.3g} to {float(theta.max()):.3g}.",
            "It is evaluated at Ritz values, which lie anywhere between the eigenvalues.",
            "Shift the operator: function(A + damping, f, v).",
            "Pass a function that is finite there, element by element, such as lambda t: t.clamp(min=0).sqrt().",
        )
    y[:, :num_steps] = torch.einsum("pjk,pk,pk->pj", S, values.double(), S[:, 0])
    largest, jitter = values.double().abs().amax(1, keepdim=True), eps * theta.abs().amax(1, keepdim=True)
    sides = lambda by: ((f(end) - values).double().abs().nan_to_num(0.0, 0.0, 0.0) for end in (theta + by, theta - by))
    change = lambda by: sum(sides(by))  # on either side: an even function has the same value on both
    jumps = torch.where(change(JUMP * jitter) > largest / 10, change(JUMP * jitter), change(4 * jitter))
    return y, eps * largest[:, 0] + (jumps * S[:, 0]).norm(dim=1)


def _check_size(coefficients: Float[Tensor, "p m"]) -> None:
    """Refuse a result that is too large for its precision."""
    if not bool(coefficients.isfinite().all()):
        dtype = coefficients.dtype
        raise NumericalError(
            f"f(A) v has entries beyond {torch.finfo(dtype).max:.2g}.",
            f"{dtype} has no such numbers.",
            "Divide f by a constant, and multiply x by it in float64: lambda t: torch.exp(t - 100).",
            "Compute in float64.",
        )


def _warn_of_errors(errors: Tensor, lengths: Tensor, tolerance: float, spent: int) -> None:
    missed = errors > tolerance * lengths
    if bool(missed.any()):
        relative = float((errors[missed] / lengths[missed]).max())
        warn_user(
            f"{int(missed.sum())} of {len(errors)} vectors did not reach the tolerance after {spent} products; "
            f"the largest error is estimated as {relative:.2g} of ‖x‖.\n  - Raise max_steps or the tolerance.",
            ConvergenceWarning,
        )
