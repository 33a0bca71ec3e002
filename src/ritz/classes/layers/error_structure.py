"""Class structure of the errors that come back to a layer's outputs, in float64, for any balance of classes.

Papyan (2020), Sec. 7.7, with the corrections that make every sum exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ...factored.gram_parts import Part
from ...layers.linear import LinearLayer, columns
from ...operators import Operator
from ...risk import Risk
from ...risk.class_terms import as_outputs
from ...spectrum import Spectrum
from ..gradients.means import class_means, diagonal, off_diagonal
from ..scatter import Scatter, exact_spectrum, ratio, second_moment, whole
from .passes import check_size, class_layers, class_passes


@dataclass(frozen=True, repr=False, eq=False)
class ErrorStructure:
    """Δ = Σ w δδᵀ = Δ_class + Δ_cross + Δ_own + Δ_within: the errors that come back to a layer's outputs, by class.

    δ_{i,c,c'} is the error of example i of class c if its label were c', w_{i,c,c'} = aᵢ p_{i,c'} / Σ w its weight;
    the weights of a layer with T positions sum to T. What is too unlikely for float64 has weight and mean zero.
    Papyan (2020), Sec. 7.7, without the prefactor 1/(NC), centred at δ_c.
    """

    layer: str
    cross_weights: Float[Tensor, "C C"]  # w_{c,c'}
    cross_means: Float[Tensor, "C C o"]  # δ_{c,c'}, that of c' = c included
    scatter: Float[Tensor, "o o"]  # Δ_within

    def __repr__(self) -> str:
        return f"ErrorStructure(layer {self.layer}: C = {len(self.cross_weights)}, o = {len(self.scatter)})"

    @property
    def own_weights(self) -> Float[Tensor, " C"]:
        """w_{c,c}."""
        return self.cross_weights.diagonal()

    @property
    def own_means(self) -> Float[Tensor, "C o"]:
        """δ_{c,c}, the means of the errors for the true label, weighted with its probability."""
        return diagonal(self.cross_means)

    @property
    def class_weights(self) -> Float[Tensor, " C"]:
        """w_c = Σ_{c'≠c} w_{c,c'}."""
        return off_diagonal(self.cross_weights).sum(1)

    @property
    def class_means(self) -> Float[Tensor, "C o"]:
        """δ_c = Σ_{c'≠c} w_{c,c'} δ_{c,c'} / w_c, or the equal -(w_{c,c} / w_c) δ_{c,c}: whichever cancels less."""
        return class_means(self.cross_means, self.cross_weights)

    @property
    def global_mean(self) -> Float[Tensor, " o"]:
        """δ_G = Σ_c w_c δ_c / Σ_c w_c. Papyan (2020), Def. 1.7, weighted."""
        return ratio(self.class_weights @ self.class_means, self.class_weights.sum())

    @property
    def global_part(self) -> Operator:
        """(Σ_c w_c) δ_G δ_Gᵀ, the part of Δ_class that belongs to the global mean. Papyan (2020), Def. 1.9."""
        return second_moment(self.global_mean[None], self.class_weights.sum()[None])

    @property
    def class_covariance(self) -> Operator:
        """Δ_class without its global part: Σ_c w_c (δ_c - δ_G)(δ_c - δ_G)ᵀ, of rank C - 1 at most."""
        return second_moment(self.class_means - self.global_mean, self.class_weights)

    @property
    def between_class(self) -> Operator:
        """Δ_class = Σ_c w_c δ_c δ_cᵀ, of rank C at most."""
        return second_moment(self.class_means, self.class_weights)

    @property
    def cross_class(self) -> Operator:
        """Δ_cross = Σ_{c'≠c} w_{c,c'} (δ_{c,c'} - δ_c)(δ_{c,c'} - δ_c)ᵀ, of rank C(C - 2) at most."""
        deviations = self.cross_means - self.class_means[:, None]
        others = ~torch.eye(len(deviations), dtype=torch.bool, device=deviations.device)
        return second_moment(deviations[others], self.cross_weights[others])

    @property
    def own_class(self) -> Operator:
        """Δ_{c=c'} = Σ_c w_{c,c} δ_{c,c} δ_{c,c}ᵀ, in the range of Δ_class."""
        return second_moment(self.own_means, self.own_weights)

    @property
    def within(self) -> Operator:
        """Δ_within = Σ w_{i,c,c'} (δ_{i,c,c'} - δ_{c,c'})(δ_{i,c,c'} - δ_{c,c'})ᵀ."""
        return Operator.from_matrix(self.scatter)

    @property
    def second_moment(self) -> Operator:
        """Δ, the sum of the four parts."""
        return whole(self.scatter, self.between_class, self.cross_class, self.own_class)

    def spectrum(self, part: Part | None = None) -> Spectrum:
        """The exact spectrum of Δ, or of one of its parts, zeros included."""
        return exact_spectrum(getattr(self, part or "second_moment"))


def backpropagated_errors(risk: Risk) -> dict[str, ErrorStructure]:
    """The class structure of the errors at the outputs of every linear layer and convolution: C backward passes.

    Papyan (2020), Sec. 7.7.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False)).double()
    >>> _ = torch.nn.init.zeros_(model[0].weight)
    >>> risk = Risk(model, torch.nn.CrossEntropyLoss(), (torch.eye(2).double(), torch.tensor([0, 1])))
    >>> backpropagated_errors(risk)["0"].class_means.tolist()
    [[0.5, -0.5], [-0.5, 0.5]]
    """
    layers, linear, C = class_layers(risk, "The class structure of errors")
    check_size(risk, {layer: (C**2, layer.outputs, layer.outputs) for layer in linear}, "Means and moments of errors")
    sums = {layer: Scatter(C**2, (layer.outputs,), risk.device) for layer in linear}
    for _, forward, own in class_passes(layers, linear, "Errors"):
        cotangents = as_outputs(risk, torch.stack([own.errors(column) for column in range(C)]), forward.z)
        for part, errors in columns(risk, forward, cotangents):
            for layer, scatter in sums.items():
                for column, rows in zip(range(C)[part], layer.errors(forward, errors), strict=True):
                    scatter.add((rows,), own.weights[:, column], own.labels * C + column)
    return {layer.name: _structure(layer, C, scatter.join_ranks(risk)) for layer, scatter in sums.items()}


def _structure(layer: LinearLayer, C: int, scatter: Scatter) -> ErrorStructure:
    return ErrorStructure(layer.name, scatter.weights.view(C, C), scatter.means[0].view(C, C, -1), scatter.matrix)
