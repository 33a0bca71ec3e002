"""An orthonormal basis of the space that a search has explored."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..operators import Operator
from .vectors import PIECE

ROWS = 16  # vectors allocated at a time: a large GPU basis grows as far as it is needed


class Basis:
    """Orthonormal rows, in pieces of memory that are added as they are needed."""

    def __init__(self, A: Operator) -> None:
        self._empty = lambda: torch.empty(ROWS, A.size, dtype=A.dtype, device=A.device)
        self._memory: list[Tensor] = []
        self.count = 0

    def append(self, row: Float[Tensor, " n"]) -> None:
        if self.count == ROWS * len(self._memory):
            self._memory.append(self._empty())
        self._memory[self.count // ROWS][self.count % ROWS] = row
        self.count += 1

    def pieces(self) -> list[Tensor]:
        """The pieces, cut to the rows in use."""
        cut = [piece[: max(0, self.count - ROWS * i)] for i, piece in enumerate(self._memory)]
        return [piece for piece in cut if len(piece)]

    def last(self, num_rows: int) -> Float[Tensor, "b n"]:
        """The latest rows; one alone is not copied."""
        rows = [self._memory[i // ROWS][i % ROWS] for i in range(self.count - num_rows, self.count)]
        return rows[0][None] if len(rows) == 1 else torch.stack(rows)

    def remainder(self, W: Float[Tensor, "b n"], *, near: int | None = None) -> tuple[Tensor, Tensor]:
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
            components = [W @ piece.T for piece in self.pieces()]
            for C, piece in zip(components, self.pieces(), strict=True):
                W = torch.addmm(W, C, piece, alpha=-1)
            total += torch.cat(components, dim=1)
        return W, total.cpu()

    def combination(self, S: Float[Tensor, "j k"]) -> Float[Tensor, "k n"]:
        """Sᵀ Q for the first j rows Q."""
        weights = S.to(self._memory[0]).split(ROWS)
        pieces = [piece[: len(w)] for piece, w in zip(self.pieces(), weights, strict=False)]
        return torch.stack([w.T @ piece for w, piece in zip(weights, pieces, strict=True)]).sum(0)

    def cut(self, count: int) -> None:
        """Keep the first rows alone."""
        self.count = count

    def rotate(self, S: Float[Tensor, "j k"]) -> None:
        """Replace the first j rows by Sᵀ Q in place, a piece of coordinates at a time; rows after them follow."""
        pending = [row.clone() for row in self.last(self.count - len(S))]
        full, self.count = self.pieces(), len(S)
        S = S.to(full[0])
        for first in range(0, full[0].shape[1], PIECE):
            part = slice(first, first + PIECE)
            mixed = S.T @ torch.cat([piece[:, part] for piece in full])[: len(S)]
            for piece, new in zip(self._memory, mixed.split(ROWS), strict=False):
                piece[: len(new), part] = new
        self.count = S.shape[1]
        for row in pending:
            self.append(row)
