"""An orthonormal basis of the space that a search has explored."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..operators import Operator
from .vectors import components, inner, spans, subtract

ROWS = 16  # vectors allocated at a time: a large GPU basis grows as far as it is needed


class Basis:
    """At most `capacity` orthonormal rows, in pieces of memory that are allocated as needed.

    The first piece holds the first k rows and nothing else, so that these outlive the others without a copy.
    """

    def __init__(self, A: Operator, k: int, capacity: int) -> None:
        self._empty = lambda rows: torch.empty(rows, A.size, dtype=A.dtype, device=A.device)
        self._memory: list[Tensor] = []
        self._k, self._capacity = k, capacity
        self.count = 0

    @classmethod
    def holding(cls, A: Operator, rows: Float[Tensor, "k n"], capacity: int) -> Basis:
        """A basis of these rows, in their own memory."""
        basis = cls(A, len(rows), capacity)
        basis._memory, basis.count = [rows], len(rows)
        return basis

    @property
    def allocated(self) -> int:
        """The number of rows allocated so far."""
        return sum(map(len, self._memory))

    def append(self, row: Float[Tensor, " n"]) -> None:
        if self.count == self.allocated:
            self._memory.append(self._empty(min(ROWS, self._capacity - self.count) if self._memory else self._k))
        self.count += 1
        self._rows(self.count - 1, self.count)[0][0] = row

    def rows(self) -> Float[Tensor, "count n"]:
        """All rows, as a copy."""
        return torch.cat([self._memory[0][:0], *self._rows(0, self.count)])

    def first(self) -> Float[Tensor, "k n"]:
        """The first k rows, in their own memory."""
        return self._memory[0]

    def last(self, num_rows: int) -> Float[Tensor, "b n"]:
        """The latest rows, copied only where they lie in two pieces."""
        pieces = self._rows(self.count - num_rows, self.count)
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces or [self._memory[0][:0]])

    def orthogonalize(
        self, W: Float[Tensor, "b n"], *, near: int | None = None, since: int = 0, fully: bool = True
    ) -> Float[Tensor, "b count"]:
        """Remove from W its components along the rows from `since` on, or if not `fully`, the near ones; return them.

        Twice is enough (Parlett 1998, Sec. 6.9). Where all but the last `near` components are known to be rounding,
        these alone are removed first, and the one pass over all rows is the second: half the work, which for a large
        basis is as much as a product.
        """
        total = torch.zeros(len(W), self.count, dtype=torch.float64, device=W.device)
        firsts = (since if near is None else max(0, self.count - near), since)
        for first in firsts if fully else firsts[:1]:
            pieces = self._rows(first, self.count)
            along = [components(W, piece) for piece in pieces]
            for C, piece in zip(along, pieces, strict=True):
                subtract(W, C, piece)
            total[:, first:] += torch.cat([total[:, :0].to(W), *along], dim=1)
        return total[:, since:].cpu()

    def cut(self, count: int) -> None:
        """Keep the first rows alone."""
        self.count = count

    def release(self, num_rows: float) -> list[Float[Tensor, "_ n"]]:
        """Free all memory except that of the first k rows and of this many others, which are returned."""
        rest, self.count = self._rows(self._k, self.count), min(self.count, self._k)
        del self._memory[1:]
        counts = torch.tensor([len(piece) for piece in rest]).cumsum(0)
        return [piece for piece, count in zip(rest, counts.tolist(), strict=True) if count <= num_rows]

    def inner(self, W: Float[Tensor, "b n"]) -> Float[Tensor, "count b"]:
        """Q Wᵀ summed in float64, on the CPU."""
        return torch.cat([inner(piece, W) for piece in self._rows(0, self.count)])

    def combination(self, s: Float[Tensor, " j"]) -> Float[Tensor, "1 n"]:
        """sᵀ Q of the first j rows."""
        pieces = self._rows(0, len(s))
        total = torch.zeros_like(pieces[0][:1])
        for c, piece in zip(s.to(total).split([len(piece) for piece in pieces]), pieces, strict=True):
            subtract(total, -c[None], piece)
        return total

    def rotate(self, S: Float[Tensor, "j k"]) -> None:
        """Replace the first j rows by Sᵀ Q in place, some coordinates at a time; the rows after them move up."""
        old, new = self._rows(0, len(S)), self._rows(0, S.shape[1])
        S = S.to(old[0])
        for span in spans(old[0].shape[1], sum(S.shape)):
            mixed = (S.T @ torch.cat([piece[:, span] for piece in old])).split([len(piece) for piece in new])
            for piece, rows in zip(new, mixed, strict=True):
                piece[:, span] = rows
        pending = range(len(S), self.count)
        self.count = S.shape[1]
        for i in pending:
            self.append(self._rows(i, i + 1)[0][0])

    def _rows(self, first: int, end: int) -> list[Tensor]:
        """These rows as views, piece by piece."""
        views, offset = [], 0
        for piece in self._memory:
            views.append(piece[max(0, first - offset) : max(0, end - offset)])
            offset += len(piece)
        return [view for view in views if len(view)]
