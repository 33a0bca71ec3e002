"""Block-diagonal matrices, given by the eigenvectors of their blocks and so easily inverted for any damping."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from ..operators import Operator, reciprocal
from .kronecker_products import Block, MatrixMap, block_diagonal, sandwich


@dataclass(frozen=True, eq=False)
class KroneckerBasis:
    """(U_Δ ⊗ U_Φ) diag(s) (U_Δ ⊗ U_Φ)ᵀ."""

    errors: Float[Tensor, "o o"]  # U_Δ
    features: Float[Tensor, "d d"]  # U_Φ
    values: Float[Tensor, "o d"]  # s

    @classmethod
    def of(cls, D: Float[Tensor, "o o"], Phi: Float[Tensor, "d d"]) -> KroneckerBasis:
        """The eigendecomposition of Δ ⊗ Φ."""
        (outer, left), (inner, right) = _eigen(D), _split_eigen(Phi)
        return cls(left, right, torch.outer(outer, inner))

    def product(self, dtype: torch.dtype) -> MatrixMap:
        """The product with k matrices, in the given precision."""
        return partial(_rotated_product, *(t.to(dtype) for t in (self.errors, self.features, self.values)))

    def inverse(self, damping: float) -> KroneckerBasis:
        """(A + λ)⁻¹ of the block A, in the same basis."""
        return replace(self, values=reciprocal(self.values, damping))


@dataclass(frozen=True, eq=False)
class DenseBasis:
    """Q diag(s) Qᵀ on the entries of [W b], row by row."""

    vectors: Float[Tensor, "p p"]
    values: Float[Tensor, " p"]

    @classmethod
    def of(cls, matrix: Float[Tensor, "p p"]) -> DenseBasis:
        """The eigendecomposition of a positive semi-definite matrix."""
        values, vectors = _eigen(matrix)
        return cls(vectors, values)

    def product(self, dtype: torch.dtype) -> MatrixMap:
        """The product with k matrices, in the given precision."""
        Q, s = self.vectors.to(dtype), self.values.to(dtype)[:, None]
        return partial(_dense_product, Q, s)

    def inverse(self, damping: float) -> DenseBasis:
        """(A + λ)⁻¹ of the block A, in the same basis."""
        return replace(self, values=reciprocal(self.values, damping))


def _rotated_product(left: Tensor, right: Tensor, values: Tensor, M: Float[Tensor, "o d k"]) -> Float[Tensor, "o d k"]:
    rotated = sandwich(left.T, M.movedim(2, 0).contiguous(), right).mul_(values)
    return sandwich(left, rotated, right.T).movedim(0, 2)


def _dense_product(Q: Tensor, s: Tensor, M: Float[Tensor, "o d k"]) -> Float[Tensor, "o d k"]:
    return (Q @ (s * (Q.T @ M.flatten(0, 1)))).view_as(M)


Basis = KroneckerBasis | DenseBasis


@dataclass(frozen=True, eq=False)
class EigenBlocks:
    """A block-diagonal matrix by the eigenvectors of its blocks; outside these, a multiple of the identity."""

    blocks: list[tuple[Block, Basis]]
    size: int
    dtype: torch.dtype
    device: torch.device
    outside: float = 0.0

    @property
    def operator(self) -> Operator:
        """The matrix as an operator."""
        product = block_diagonal([(place, basis.product(self.dtype)) for place, basis in self.blocks], self.outside)
        return Operator(product, self.size, self.dtype, self.device, inverse=self.inverse)

    def inverse(self, damping: float) -> Operator:
        """(A + λ)⁻¹, with the same eigenvectors."""
        blocks = [(place, basis.inverse(damping)) for place, basis in self.blocks]
        outside = self.outside
        if sum(place.size for place, _ in blocks) < self.size:
            outside = float(reciprocal(torch.tensor([outside], dtype=torch.float64), damping))
        return replace(self, blocks=blocks, outside=outside).operator


def _eigen(matrix: Float[Tensor, "m m"]) -> tuple[Float[Tensor, " m"], Float[Tensor, "m m"]]:
    """Eigenvalues and vectors of a positive semi-definite matrix; eigenvalues of rounding size are set to zero."""
    values, vectors = torch.linalg.eigh(matrix)
    smallest = len(matrix) * torch.finfo(matrix.dtype).eps * values[-1:]
    return torch.where(values > smallest, values, 0.0), vectors


def _split_eigen(Phi: Float[Tensor, "d d"]) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
    """`_eigen` of Φ, where a separate bias keeps an eigenvector of its own, even if eigenvalues coincide."""
    if len(Phi) == 1 or bool(Phi[-1, :-1].any()):
        return _eigen(Phi)
    values, vectors = _eigen(Phi[:-1, :-1])
    return torch.cat([values, Phi[-1, -1:]]), torch.block_diag(vectors, torch.ones_like(Phi[:1, :1]))
