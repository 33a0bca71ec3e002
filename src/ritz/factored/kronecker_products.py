"""Products with sums of Kronecker products Σ Δ ⊗ Φ on the matrix [W b] of a layer, wherever it is in θ."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..layers.linear import LinearLayer
from ..operators import Operator
from ..solvers import spectral_density
from ..spectrum import Spectrum

MatrixMap = Callable[[Tensor], Tensor]  # of k matrices [W b] at once, (o, d, k)
Pair = tuple[Tensor, Tensor, bool]  # Δ and Φ; or Δ and a thin R with Φ = R Rᵀ
DENSE = 2048  # parameters up to which a sum of Kronecker products is diagonalised: seconds on one core


@dataclass(frozen=True)
class Block:
    """The place of the matrix [W b] of a layer in a vector: its row-major weight and its bias, each anywhere."""

    weight: slice | None
    bias: slice | None
    outputs: int

    @classmethod
    def of(cls, layer: LinearLayer, shapes: dict[str, torch.Size]) -> Block:
        """The place of a layer among the named parameters."""
        places, first = {}, 0
        for name, shape in shapes.items():
            places[name] = slice(first, first + shape.numel())
            first += shape.numel()
        place = lambda name: None if name is None else places[name]
        return cls(place(layer.weight), place(layer.bias), layer.outputs)

    @property
    def places(self) -> list[slice]:
        """The places of weight and bias, as far as they exist."""
        return [place for place in (self.weight, self.bias) if place]

    @property
    def size(self) -> int:
        """The number of entries of [W b]."""
        return sum(place.stop - place.start for place in self.places)

    def matrices(self, V: Float[Tensor, "n k"]) -> Float[Tensor, "o d k"]:
        """[W b] of k vectors."""
        return torch.cat([V[place].reshape(self.outputs, -1, V.shape[1]) for place in self.places], 1)

    def add(self, total: Float[Tensor, "n k"], M: Float[Tensor, "o d k"]) -> None:
        """Add [W b] at their places."""
        columns = M.shape[1] - (self.bias is not None)
        if self.weight:
            total[self.weight] += M[:, :columns].reshape(-1, M.shape[2])
        if self.bias:
            total[self.bias] += M[:, columns:].reshape(-1, M.shape[2])


def block_diagonal(blocks: list[tuple[Block, MatrixMap]], outside: float = 0.0) -> Callable[[Tensor], Tensor]:
    """The product with a block-diagonal matrix; outside the blocks, it is a multiple of the identity."""
    return functools.partial(_block_product, blocks, outside)


def _block_product(
    blocks: list[tuple[Block, MatrixMap]], outside: float, V: Float[Tensor, "n k"]
) -> Float[Tensor, "n k"]:
    total = outside * V
    for block, _ in blocks:
        for place in block.places:
            total[place] = 0.0
    for block, product_with in blocks:
        block.add(total, product_with(block.matrices(V)))
    return total


class WithOperator(ABC):
    """An object that can be multiplied and inverted like its operator."""

    @property
    @abstractmethod
    def operator(self) -> Operator:
        """The matrix as an operator."""

    @property
    def inverse(self) -> Callable[[float], Operator] | None:
        """λ ↦ (A + λ)⁻¹, where that is known."""
        return self.operator.inverse

    def __matmul__(self, V: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        return self.operator @ V


def product(pairs: list[Pair], M: Float[Tensor, "p e k"]) -> Float[Tensor, "o d k"]:
    """Σ_c Δ_c M Φ_c for k matrices."""
    first = M.movedim(2, 0).contiguous()
    return functools.reduce(torch.add, (_one(*pair, first) for pair in pairs)).movedim(0, 2)


def _one(D: Tensor, Phi: Tensor, is_thin: bool, M: Float[Tensor, "k p e"]) -> Float[Tensor, "k o d"]:
    return sandwich(D, M @ Phi, Phi.T) if is_thin else sandwich(D, M, Phi)


def sandwich(D: Float[Tensor, "o p"], M: Float[Tensor, "k p e"], Phi: Float[Tensor, "e d"]) -> Float[Tensor, "k o d"]:
    """D M Φ, the cheaper product first. (For small layers einsum takes longer to find that out than to multiply.)"""
    (o, p), (e, d) = D.shape, Phi.shape
    return (D @ M) @ Phi if o * e * (p + d) <= p * d * (e + o) else D @ (M @ Phi)


def thin(D: Float[Tensor, "o o"], Phi: Float[Tensor, "d d"], _: bool) -> tuple[Tensor, Tensor, bool]:
    """A term with Φ as a thin factor R, where that multiplies faster: few examples of a class give Φ low rank."""
    values, vectors = torch.linalg.eigh(Phi)
    positive = values > len(Phi) * torch.finfo(Phi.dtype).eps * values[-1]
    rank, (o, d) = int(positive.sum()), (len(D), len(Phi))
    if rank * (2 * d + o) >= d * (d + o):
        return D, Phi, False
    return D, vectors[:, positive] * values[positive].sqrt(), True


def spectrum_of(A: Operator, options: dict[str, Any]) -> Spectrum:
    """The spectrum, exact if the matrix is small enough to be formed, else a quadrature."""
    return Spectrum.of_matrix(A.dense()) if A.size <= DENSE else spectral_density(A, **options)


def square(factors: Tensor) -> str:
    """The shape of square factors, in words."""
    return f"{factors.shape[1]}²"
