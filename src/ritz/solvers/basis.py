"""Vectors as the solvers keep them: in rows, so that each is contiguous and `A @ rows.T` hands the engine columns."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from .. import progress
from ..errors import ArgumentError, check_finite, check_whole
from ..operators import Operator
from ..spectrum import Eigenpairs

PIECE = 2**20  # coordinates turned to float64 at a time: 8 MB for each vector
COLUMNS = 64  # of a matrix multiplied at a time
ROWS = 16  # basis vectors allocated at a time: a large GPU basis grows as far as it is needed


def gaussian(A: Operator, count: int, generator: torch.Generator) -> Float[Tensor, "count n"]:
    """Independent normal rows in the operator's precision and place; a CPU generator serves every device."""
    rows = torch.randn(count, A.size, generator=generator, dtype=A.dtype, device=generator.device)
    return rows.to(A.device)


def product(A: Operator, rows: Float[Tensor, "p n"]) -> Float[Tensor, "p n"]:
    """(A Vᵀ)ᵀ for vectors in rows."""
    return (A @ rows.T).T.contiguous()


def norms(rows: Float[Tensor, "p n"]) -> Float[Tensor, " p"]:
    """The Euclidean norm of each row, in float64: neither 1e-30 nor 1e+30 is lost in float32 squares."""
    return torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64)


def inner(X: Float[Tensor, "a n"], Y: Float[Tensor, "b n"]) -> Float[Tensor, "a b"]:
    """X Yᵀ summed in float64, on the CPU."""
    pieces = zip(X.split(PIECE, dim=1), Y.split(PIECE, dim=1), strict=True)
    return torch.stack([x.double() @ y.double().T for x, y in pieces]).sum(0).cpu()


def rounding(A: Operator) -> float:
    """Relative size of a residual that is nothing but rounding.

    Not n · eps: for a million parameters in float32 that is 0.1, and real residuals of a bulk are smaller.
    """
    return min(max(A.size, 8), 64) * torch.finfo(A.dtype).eps


def source(generator: torch.Generator | None) -> torch.Generator:
    """The generator given, or a new one with seed 0."""
    if generator is None:
        return torch.Generator().manual_seed(0)
    if not isinstance(generator, torch.Generator):
        raise ArgumentError(
            f"generator={generator!r} was given.",
            "It is the source of all randomness and keeps its state between calls.",
            "Pass torch.Generator().manual_seed(0), or leave it out for seed 0.",
        )
    return generator


def matrix(A: Operator) -> Float[Tensor, "n n"]:
    """A itself, from n products: its columns as rows, which are the same."""
    D, eye = torch.empty(A.size, A.size, dtype=A.dtype, device=A.device), torch.eye(A.size, dtype=A.dtype)
    with progress.bar("Columns", total=A.size) as bar:
        for rows, unit in zip(D.split(COLUMNS), eye.to(A.device).split(COLUMNS), strict=True):
            rows.copy_(product(A, unit))
            bar.advance(len(rows))
    check_finite(float(D.abs().max()))
    return D


def ranking(values: Float[Tensor, " j"], which: str) -> Tensor:
    """Indices from the most to the least wanted; for "both", from either end in turn."""
    if which == "magnitude":
        return values.abs().argsort(descending=True, stable=True)
    order = values.argsort(descending=which != "smallest", stable=True)
    if which != "both":
        return order
    half = (len(order) + 1) // 2
    turns = torch.empty_like(order)
    turns[0::2], turns[1::2] = order[:half], order[half:].flip(0)
    return turns


def presented(values: Float[Tensor, " j"], which: str, k: int) -> Tensor:
    """Indices of the k wanted values in the order they are returned in."""
    order = ranking(values, which)[:k]
    return torch.cat([order[0::2], order[1::2]]) if which == "both" else order


def rayleigh_ritz(X: Float[Tensor, "k n"], AX: Float[Tensor, "k n"], which: str) -> tuple[Tensor, Tensor, Tensor]:
    """Ritz values, vectors (in rows) and true residuals of A on the span of orthonormal rows."""
    H = inner(X, AX)
    values, S = torch.linalg.eigh((H + H.T) / 2)
    order = presented(values, which, len(values))
    values, S = values[order].to(X.device), S[:, order].to(X.device)
    vectors = S.T.to(X) @ X
    return values, vectors, norms(S.T.to(AX) @ AX - values[:, None].to(AX) * vectors.to(AX))


def orthonormal(X: Float[Tensor, "k n"]) -> Float[Tensor, "k n"]:
    """Rows that are orthonormal but for rounding, made so to working precision: L⁻¹X with XXᵀ = LLᵀ."""
    L = torch.linalg.cholesky(inner(X, X))
    return torch.linalg.inv(L).to(X) @ X


def start_rows(A: Operator, start: Float[Tensor, "n ..."] | Eigenpairs) -> Float[Tensor, "s n"]:
    """A vector, columns or the vectors of Eigenpairs as unit rows."""
    given = start.vectors if isinstance(start, Eigenpairs) else start
    rows = (given[:, None] if given.ndim == 1 else given).detach().to(A.device, A.dtype).T
    usable = given.ndim <= 2 and rows.shape[1] == A.size and rows.shape[0] > 0
    if not usable or not bool((rows.isfinite().all(1) & (norms(rows) > 0)).all()):
        raise ArgumentError(
            f"A start of shape {tuple(given.shape)} was given for an operator of size {A.size}.",
            "It must be a vector (n,) or columns (n, s), finite and without a zero column.",
            "Leave it out for a random start.",
        )
    return rows / norms(rows)[:, None].to(rows)


def check_count(A: Operator, k: int) -> None:
    """Refuse more eigenpairs than there are, and none."""
    check_whole(k=k)
    if not 1 <= k <= A.size:
        raise ArgumentError(
            f"k={k} eigenpairs of an operator of size {A.size} were asked for.",
            "An n × n matrix has n of them.",
            f"Ask for 1 to {A.size}.",
        )


class Basis:
    """Orthonormal rows, in pieces of memory that are added as they are needed."""

    def __init__(self, A: Operator) -> None:
        self._empty = lambda: torch.empty(ROWS, A.size, dtype=A.dtype, device=A.device)
        self._pieces: list[Tensor] = []
        self.count = 0

    def append(self, row: Float[Tensor, " n"]) -> None:
        if self.count == ROWS * len(self._pieces):
            self._pieces.append(self._empty())
        self._pieces[self.count // ROWS][self.count % ROWS] = row
        self.count += 1

    def filled(self) -> list[Tensor]:
        """The pieces, cut to the rows in use."""
        cut = [piece[: max(0, self.count - ROWS * i)] for i, piece in enumerate(self._pieces)]
        return [piece for piece in cut if len(piece)]

    def last(self, num_rows: int) -> Float[Tensor, "b n"]:
        """The latest rows; one alone is not copied."""
        rows = [self._pieces[i // ROWS][i % ROWS] for i in range(self.count - num_rows, self.count)]
        return rows[0][None] if len(rows) == 1 else torch.stack(rows)

    def orthogonalised(self, W: Float[Tensor, "b n"], *, near: int | None = None) -> tuple[Tensor, Tensor]:
        """W without its components along the basis, and these; twice is enough (Parlett 1998, Sec. 6.9).

        Where all but the last `near` components are known to be rounding, these alone are removed first, and the one
        pass over all rows is the second: half the work, which for a large basis is as much as a product.
        """
        total = torch.zeros(len(W), self.count, dtype=torch.float64, device=W.device)
        if near is not None:
            rows = self.last(min(near, self.count))
            C = W @ rows.T
            W = torch.addmm(W, C, rows, alpha=-1)
            total[:, self.count - len(rows) :] += C
        for _ in range(1 if near is not None else 2):
            components = [W @ piece.T for piece in self.filled()]
            for C, piece in zip(components, self.filled(), strict=True):
                W = torch.addmm(W, C, piece, alpha=-1)
            total += torch.cat(components, dim=1)
        return W, total.cpu()

    def combined(self, S: Float[Tensor, "j k"]) -> Float[Tensor, "k n"]:
        """Sᵀ Q for the first j rows Q."""
        weights = S.to(self._pieces[0]).split(ROWS)
        pieces = [piece[: len(w)] for piece, w in zip(self.filled(), weights, strict=False)]
        return torch.stack([w.T @ piece for w, piece in zip(weights, pieces, strict=True)]).sum(0)

    def cut(self, count: int) -> None:
        """Keep the first rows alone."""
        self.count = count

    def rotate(self, S: Float[Tensor, "j k"]) -> None:
        """Replace the first j rows by Sᵀ Q in place, a piece of coordinates at a time; rows after them follow."""
        pending = [row.clone() for row in self.last(self.count - len(S))]
        full, self.count = self.filled(), len(S)
        S = S.to(full[0])
        for first in range(0, full[0].shape[1], PIECE):
            part = slice(first, first + PIECE)
            mixed = S.T @ torch.cat([piece[:, part] for piece in full])[: len(S)]
            for piece, new in zip(self._pieces, mixed.split(ROWS), strict=False):
                piece[: len(new), part] = new
        self.count = S.shape[1]
        for row in pending:
            self.append(row)
