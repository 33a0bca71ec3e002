"""Vectors as the solvers keep them: in rows, so that each is contiguous and `A @ rows.T` hands the engine columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ArgumentError, NumericalError, check_finite
from ..operators import Operator

PIECE = 2**24  # numbers of several rows turned to float64, or mixed, at a time: 128 MB
PIECES = 32  # into which several rows are cut at least, so that a copy of each is small beside them
INDEXED = 2**31  # entries of one matrix: more are beyond the 32-bit indices of some kernels
LENGTH = 2**14  # numbers whose products are summed in their own precision
SKEW = 0.01  # how far vectors of a file may be from orthonormal: far above rounding, far below what damage does
SMALLEST, LARGEST = 1e-60, 1e60  # between which float64 holds the fourth powers that errors are made of
NOISE = 0.1  # of an asymmetry, from which on products that are not linear explain it
ASYMMETRY = 0.01  # of products, by which uᵀAv and vᵀAu may differ: products in bfloat16 are symmetric to a third of it
NARROW = 2**10  # coordinates below which a piece is not worth its calls


def room(A: Operator) -> float:
    """The vectors that may be kept beside those of a product; infinitely many where no limit is known."""
    return math.inf if A.room is None else A.room() / (A.size * torch.finfo(A.dtype).bits / 8)


def as_rows(V: Float[Tensor, "n ..."]) -> Float[Tensor, "r n"]:
    """A vector (n,) or columns (n, r) as rows, where they lie."""
    return (V[:, None] if V.ndim == 1 else V).detach().T


def check_vectors(A: Operator, /, **vectors: Tensor) -> None:
    """Refuse vectors of a user's that are not finite, or not in the operator's precision and place."""
    for name, V in vectors.items():
        usable = V.ndim in (1, 2) and V.shape[0] == A.size and V.numel() > 0
        if not usable or (V.dtype, V.device) != (A.dtype, A.device):
            raise ArgumentError(
                f"{name} of shape {tuple(V.shape)} in {V.dtype} on {V.device} was given for {A!r}.",
                "It must be a vector (n,) or columns (n, r) with the operator's dtype and device.",
                f"Convert it: {name}.to(A.device, A.dtype).",
                "Transpose rows, and flatten tensors that have the shape of parameters.",
            )
        if not bool(V.isfinite().all()):
            seen = f"{name} has entries that are infinite or NaN."
            raise ArgumentError(
                seen, "The result would have them too.", "Find them with .isfinite(), and correct them first."
            )


def check_starts(A: Operator, /, **vectors: Tensor) -> None:
    """Refuse what `check_vectors` does, and columns without a direction."""
    check_vectors(A, **vectors)
    for name, V in vectors.items():
        if not all(0 < length < math.inf for length in norms(as_rows(V)).tolist()):
            raise ArgumentError(
                f"{name} has a column that is zero, or too long to be squared.",
                "It has no direction to start in.",
                "Draw it: torch.randn(A.size, generator=generator, dtype=A.dtype).",
            )


def check_range(numbers: Float[Tensor, "..."], what: str = "Products with the operator") -> None:
    """Refuse what is not finite, and what is too small or too large for the squares of its squares, but for zeros.

    Float32 has no such numbers: its squares are taken in float64.
    """
    largest = float(torch.linalg.vector_norm(numbers, math.inf)) if numbers.numel() else 0.0
    check_finite(largest)
    if largest and not SMALLEST <= largest <= LARGEST:
        raise NumericalError(
            f"{what} have entries of {largest:.3g} at most.",
            f"Errors come from their fourth powers, which float64 resolves only for entries from {SMALLEST:g} to "
            f"{LARGEST:g}.",
            f"Multiply by {1 / largest:.0e}, and divide the resulting eigenvalues by the same factor.",
        )


def check_symmetry(difference: float, scale: float, noise: Callable[[], float]) -> None:
    """Refuse an operator by |uᵀAv - vᵀAu| beside ‖Av‖ for unit vectors, or by ‖A - Aᵀ‖ beside ‖A‖.

    Not where products are not linear by as much, ‖A(u + v) - Au - Av‖: they are mere rounding, as of what is left of a
    matrix off all its parts. That takes products, and is only asked of an operator that looks asymmetric.
    """
    if difference > ASYMMETRY * scale and noise() <= NOISE * difference:
        raise ArgumentError(
            f"The operator is not symmetric: uᵀAv and vᵀAu differ by {difference / scale:.2g} of its products.",
            "Every algorithm here relies on real eigenvalues and orthogonal eigenvectors.",
            "Wrap its symmetric part, Operator(lambda V: (product(V) + transposed_product(V)) / 2, ...).",
            "If it should be symmetric, ritz.testing.check_operator(A) says what its products lack.",
        )


def spans(size: int, num_rows: int) -> Iterator[slice]:
    """Coordinates taken together: a copy of r rows takes r/32 vectors, 1/8 where that is more, and PIECE at most."""
    width = max(1, min(PIECE // num_rows, max(NARROW, size // min(PIECES, 8 * num_rows) + 1)))
    return (slice(first, min(first + width, size)) for first in range(0, size, width))


def product(A: Operator, rows: Float[Tensor, "p n"]) -> Float[Tensor, "p n"]:
    """(A Vᵀ)ᵀ for vectors in rows, as a copy of its own: a product may be its own argument, or be kept elsewhere."""
    return (A @ rows.T).T.clone(memory_format=torch.contiguous_format)


def norms(rows: Float[Tensor, "p n"]) -> Float[Tensor, " p"]:
    """The Euclidean norm of each row, in float64: neither 1e-30 nor 1e+30 is lost in float32 squares."""
    if rows.shape[1] <= NARROW and rows.numel() <= PIECE:  # a single span
        return _norms(rows)
    parts = [_norms(rows[:, span]) for span in spans(rows.shape[1], len(rows))]
    return parts[0] if len(parts) == 1 else _norms(torch.stack(parts, dim=1))


def _norms(rows: Float[Tensor, "p n"]) -> Float[Tensor, " p"]:
    return torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64)


def inner(X: Float[Tensor, "a n"], Y: Float[Tensor, "b n"]) -> Float[Tensor, "a b"]:
    """X Yᵀ summed in float64, on the CPU."""
    pieces = ((X[:, span], Y[:, span]) for span in spans(X.shape[1], 2 * (len(X) + len(Y))))
    return _sum([x.double() @ y.double().T for x, y in pieces]).cpu()


def dots(X: Float[Tensor, "p n"], Y: Float[Tensor, "p n"]) -> Float[Tensor, " p"]:
    """xᵢᵀyᵢ of each row, summed in float64 where the rows are."""
    pieces = ((X[:, span], Y[:, span]) for span in spans(X.shape[1], 2 * len(X)))
    return _sum([(x.double() * y.double()).sum(1) for x, y in pieces])


def _sum(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)


def mix(X: Float[Tensor, "k n"], S: Float[Tensor, "k k"]) -> None:
    """Replace the rows by Sᵀ X, a piece of coordinates at a time."""
    S = S.to(X)
    for span in spans(X.shape[1], len(X)):
        part = X[:, span] if X.numel() < INDEXED else X[:, span].contiguous()
        X[:, span] = S.T @ part


def orthonormalize(X: Float[Tensor, "k n"]) -> None:
    """Make rows that are orthonormal but for rounding so to working precision: L⁻¹X with XXᵀ = LLᵀ."""
    mix(X, torch.linalg.inv(torch.linalg.cholesky(inner(X, X))).T)


def components(W: Float[Tensor, "b n"], Q: Float[Tensor, "k n"]) -> Float[Tensor, "b k"]:
    """W Qᵀ, its pieces side by side, in float64 from there on: one long sum keeps a GPU waiting, and loses digits."""
    whole = Q.shape[1] // LENGTH * LENGTH
    if not whole:
        return W @ Q.T
    total = torch.zeros(len(W), len(Q), dtype=torch.float64, device=W.device)
    for some, rows in zip(total.split(_countable(Q), 1), Q.split(_countable(Q)), strict=True):
        some += W[:, whole:] @ rows[:, whole:].T
        some += torch.bmm(_pieces(W[:, :whole]), _pieces(rows[:, :whole]).mT).sum(0, dtype=torch.float64)
    return total.to(W)


def subtract(W: Float[Tensor, "b n"], C: Float[Tensor, "b k"], Q: Float[Tensor, "k n"]) -> None:
    """W -= C Q, in place."""
    whole = len(Q) <= _countable(Q)
    pieces = [(C, Q)] if whole else zip(C.split(_countable(Q), 1), Q.split(_countable(Q)), strict=True)
    for some, rows in pieces:
        W.addmm_(some, rows, alpha=-1) if len(W) > 1 else W[0].addmv_(rows.T, some[0], alpha=-1)


def _pieces(rows: Float[Tensor, "k n"]) -> Float[Tensor, "s k _"]:
    """Matrices of LENGTH columns each, where they lie."""
    return rows.unflatten(1, (-1, LENGTH)).transpose(0, 1)


def _countable(Q: Float[Tensor, "k n"]) -> int:
    """How many rows at a time have no more numbers than the kernels of a GPU can count."""
    return max(1, INDEXED // Q.shape[1])


def rounding(A: Operator) -> float:
    """Relative size of a residual that is nothing but rounding.

    Not n · eps: for a million parameters in float32 that is 0.1, and real residuals of a bulk are smaller.
    """
    return min(max(A.size, 8), 64) * torch.finfo(A.dtype).eps


def check_orthonormal(rows: Float[Tensor, "m n"]) -> None:
    """Raise ValueError where rows of a file, which should be, are not orthonormal; it does not look for rounding."""
    if len(rows):
        skew = float((inner(rows, rows) - torch.eye(len(rows), dtype=torch.float64)).abs().max())
        if not skew <= max(SKEW, 10 * torch.finfo(rows.dtype).eps):
            raise ValueError(f"its vectors are orthonormal to {skew:.1e} only")
