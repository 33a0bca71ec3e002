"""Block Lanczos with thick restarts for many matrices in step: the largest eigenvalues of each.

Spaces are kept as rows, B × m × n. Each is orthogonalised in full, and the small matrix T = QHQᵀ is kept whole, so that
neither a restart nor an invariant space needs a special case. This is not the search of `ritz.solvers`, which stops,
locks and restarts as a single operator requires: here all matrices make the same steps, as many as the slowest needs,
in one stack of spaces.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

BETWEEN_CHECKS = 8  # blocks by which the spaces grow before their eigenvalues are looked at
BASIS = 40  # vectors of a space that is restarted, beside those of the next check
MAX_PRODUCTS = 1000  # for each column of a block

Product = Callable[[Float[Tensor, "p B n"]], Float[Tensor, "p B n"]]


def capacity(k: int) -> int:
    """The vectors held for each matrix."""
    return BASIS + 2 * k * BETWEEN_CHECKS


class _Spaces:
    """The Krylov spaces so far: Q, whose last block of k rows is not yet multiplied, and T on the other rows."""

    def __init__(self, like: Float[Tensor, "B n"], k: int, generator: torch.Generator) -> None:
        self.k, self.generator = k, generator
        self.rows = like.new_empty(len(like), capacity(k) + k, like.shape[1])
        self.T = like.new_zeros(len(like), 0, 0)
        self.used = 0
        self._append(_basis(_normal(like, k, generator)))

    @property
    def Q(self) -> Float[Tensor, "B m n"]:
        return self.rows[:, : self.used]

    def grow(self, product: Product) -> None:
        """Multiply the last block, and append the new directions."""
        W = product(self.Q[:, -self.k :].transpose(0, 1)).transpose(0, 1)
        C = self.Q @ W.mT
        self.T = _bordered(self.T, C)
        W, self.outside = _orthonormal(W, C, self.Q, self.generator)
        self._append(W)

    def ritz(self) -> tuple[Float[Tensor, "B j"], Float[Tensor, "B j j"], Float[Tensor, "B k"]]:
        """The eigenvalues of T, ascending, its eigenvectors, and the residuals of the k largest."""
        values, S = torch.linalg.eigh(self.T)
        return values, S, (self.outside @ S[:, -self.k :, -self.k :]).norm(dim=1)

    def restart(self, values: Tensor, S: Tensor) -> None:
        """Keep the best vectors and the last block."""
        keep = 2 * self.k
        best, last = self.vectors(S, keep), self.Q[:, -self.k :].clone()
        self.T, self.used = torch.diag_embed(values[:, -keep:]), 0
        self._append(best)
        self._append(last)

    def vectors(self, S: Tensor, count: int) -> Float[Tensor, "B count n"]:
        """The Ritz vectors of the largest values, ascending."""
        return S[..., -count:].mT @ self.Q[:, : -self.k]

    def _append(self, block: Tensor) -> None:
        self.rows[:, self.used : self.used + block.shape[1]] = block
        self.used += block.shape[1]


def largest(
    product: Product, like: Float[Tensor, "B n"], k: int, *, tolerance: float, generator: torch.Generator
) -> tuple[Float[Tensor, "B k"], Float[Tensor, "B k n"], Float[Tensor, "B 1"], int]:
    """The k largest eigenvalues of each matrix, largest first, with vectors, the largest |λ| met, and the products."""
    spaces, count = _Spaces(like, k, generator), 0
    while True:
        for _ in range(BETWEEN_CHECKS):
            spaces.grow(product)
            count += k
        values, S, errors = spaces.ritz()
        scale = values.abs().amax(1, keepdim=True)
        settled = bool((errors <= tolerance / 2 * scale).all())
        if settled or count >= MAX_PRODUCTS * k:
            return values[:, -k:].flip(1), spaces.vectors(S, k).flip(1), scale, count
        if spaces.used + BETWEEN_CHECKS * k > min(capacity(k) + k, like.shape[1]):
            spaces.restart(values, S)


def _bordered(T: Float[Tensor, "B j j"], C: Float[Tensor, "B m k"]) -> Float[Tensor, "B m m"]:
    """T bordered by the columns C and the rows Cᵀ."""
    j, m = T.shape[-1], C.shape[-2]
    grown = T.new_zeros(len(T), m, m)
    grown[:, :j, :j] = T
    grown[:, :, j:] = C
    grown[:, j:, :j] = C[:, :j].mT
    grown[:, j:, j:] = (C[:, j:] + C[:, j:].mT) / 2
    return grown


def _orthonormal(
    W: Float[Tensor, "B k n"], C: Float[Tensor, "B m k"], Q: Float[Tensor, "B m n"], generator: torch.Generator
) -> tuple[Float[Tensor, "B k n"], Float[Tensor, "B k k"]]:
    """Orthonormal rows V that span what W adds to Q, and VWᵀ; where it adds nothing, random rows. C is QWᵀ."""
    size = W.norm(dim=-1, keepdim=True)
    new = W - C.mT @ Q
    new = new - (new @ Q.mT) @ Q
    spent = new.norm(dim=-1, keepdim=True) <= 32 * torch.finfo(W.dtype).eps * size
    rounds = 0 if W.shape[1] == 1 else 1
    if bool(spent.any()):  # the space is invariant
        new, rounds = torch.where(spent, _normal(W[:, 0], W.shape[1], generator), new), 3
    V = _basis(new)
    for _ in range(rounds):  # for dependent rows, QR returns arbitrary ones, which have to be orthogonalised again
        V = _basis(V - (V @ Q.mT) @ Q)
    return V, V @ W.mT


def _basis(rows: Float[Tensor, "B k n"]) -> Float[Tensor, "B k n"]:
    """Orthonormal rows that span these; a single row takes no QR, which a GPU does matrix by matrix."""
    if rows.shape[1] == 1:
        return rows / rows.norm(dim=-1, keepdim=True)
    return torch.linalg.qr(rows.mT).Q.mT


def _normal(like: Float[Tensor, "B n"], count: int, generator: torch.Generator) -> Float[Tensor, "B count n"]:
    B, n = like.shape
    return torch.randn(B, count, n, generator=generator, dtype=torch.float64, device=generator.device).to(like)
