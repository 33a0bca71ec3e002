"""One use of a layer: the features φ that went in, and the place in the graph where its errors δ come back.

The gradient of a linear layer's weight is Σₜ δₜ φₜᵀ over the positions t at which the layer was applied, so that
Gram matrices, Kronecker factors and class means of gradients follow from φ and δ without any gradient being formed.
Papyan (2020) writes h for features and H for their second moment; here H is the Hessian alone, so they are φ and Φ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.autograd.graph import GradientEdge

Kind = Literal["linear", "scale", "embedding"]
Layout = Callable[[Tensor], Tensor]  # a tensor of the shape of the layer's output -> (N, T, channels)


@dataclass(frozen=True)
class Use:
    """One application of a layer: the weight's gradient is a sum over T positions of features φ and errors δ.

    kind "linear" (convolutions, too): Σₜ δₜ φₜᵀ;  "scale" (normalisations): Σₜ δₜ φₜ, entry by entry;
    "embedding": Σₜ δₜ in row φₜ. The bias's gradient is Σₜ δₜ. Convolutions have one block for each of their groups.
    """

    kind: Kind
    weight: str | None  # names in θ; None if there is no such parameter, or it is not part of θ
    bias: str | None
    inputs: Tensor
    edge: GradientEdge  # the output as a place in the graph, unaffected by in-place changes of it
    shape: torch.Size  # of the output
    dtype: torch.dtype  # of the parameters, and so of φ and δ: under autocast they come in less precision
    layout: Layout
    unfolded: Layout
    groups: int = 1
    order: int = 0  # of the rows, as in `Watch.rows`

    @property
    def names(self) -> set[str]:
        """The parameters of θ that entered."""
        return {name for name in (self.weight, self.bias) if name is not None}

    @property
    def layer(self) -> str:
        """The name of the layer, after its weight: "features.0" for "features.0.weight"."""
        return (self.weight or self.bias or "").rpartition(".")[0]

    def features(self) -> Shaped[Tensor, "N T ..."]:
        """φ: (N, T, d) numbers, patches for a convolution; (N, T) indices for an embedding."""
        return self.unfolded(self.inputs)

    def by_position(self, errors: Float[Tensor, "r ..."]) -> Float[Tensor, "r N T o"]:
        """Errors of r cotangents, given in the shape of the output, position by position."""
        return torch.stack([self.layout(error) for error in errors])

    def gradients(self, errors: Float[Tensor, "N T o"]) -> dict[str, Tensor]:
        """The gradients of its parameters, added up over examples and positions."""
        gradients = {} if self.bias is None else {self.bias: errors.sum((0, 1))}
        if self.weight is not None:
            gradients[self.weight] = self._of_weight(errors)
        return gradients

    def _of_weight(self, errors: Tensor) -> Tensor:
        phi = self.features()
        if self.kind == "scale":
            return (errors * phi).sum((0, 1))
        if self.kind == "embedding":
            rows = errors.new_zeros(int(phi.max()) + 1, errors.shape[-1])
            return rows.index_add(0, phi.flatten(), errors.flatten(0, 1))
        groups = zip(errors.chunk(self.groups, -1), phi.chunk(self.groups, -1), strict=True)
        return torch.cat([torch.einsum("nto,ntd->od", delta, own) for delta, own in groups])
