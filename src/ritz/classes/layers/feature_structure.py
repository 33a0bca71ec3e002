"""Class structure of the features that enter a layer, in float64, for any balance of classes.

Papyan (2020), Sec. 7.4, with the corrections that make every sum exact; there features are h with second moment H,
here φ with Φ, for H is the Hessian.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from ...layers.linear import LinearLayer
from ...operators import Operator, low_rank
from ...risk import Risk
from ...spectrum import Spectrum
from ..scatter import Scatter, exact_spectrum, second_moment, whole
from .passes import check_size, class_layers, class_passes

FeaturePart = Literal["between_class", "within"]


@dataclass(frozen=True, repr=False, eq=False)
class FeatureStructure:
    """Φ = Σᵢ ωᵢ φᵢφᵢᵀ = Φ_class + Φ_within: the second moment of the features φ that enter a layer, by class.

    The weights ωᵢ = aᵢ / Σ a are 1/N unless classes have weights; those of a class sum to n_c/N. A class without
    examples has weight and mean zero. Papyan (2020), Sec. 7.4; n_c/N instead of 1/C.
    """

    layer: str
    weights: Float[Tensor, " C"]  # of the classes: n_c/N
    class_means: Float[Tensor, "C d"]  # φ_c
    scatter: Float[Tensor, "d d"]  # Φ_within

    def __repr__(self) -> str:
        return f"FeatureStructure(layer {self.layer}: C = {len(self.weights)}, d = {len(self.scatter)})"

    @property
    def global_mean(self) -> Float[Tensor, " d"]:
        """φ_G = Σ_c (n_c/N) φ_c. Papyan (2020), Def. 1.7."""
        return self.weights @ self.class_means

    @property
    def global_part(self) -> Operator:
        """φ_G φ_Gᵀ, the part of Φ_class that belongs to the global mean. Papyan (2020), Def. 1.9."""
        return low_rank(self.global_mean[:, None])

    @property
    def class_covariance(self) -> Operator:
        """Φ_class - φ_G φ_Gᵀ = Σ_c (n_c/N) (φ_c - φ_G)(φ_c - φ_G)ᵀ, of rank C - 1 at most."""
        return second_moment(self.class_means - self.global_mean, self.weights)

    @property
    def between_class(self) -> Operator:
        """Φ_class = Σ_c (n_c/N) φ_c φ_cᵀ, of rank C at most."""
        return second_moment(self.class_means, self.weights)

    @property
    def within(self) -> Operator:
        """Φ_within = Σᵢ ωᵢ (φᵢ - φ_c)(φᵢ - φ_c)ᵀ."""
        return Operator.from_matrix(self.scatter)

    @property
    def second_moment(self) -> Operator:
        """Φ = Φ_class + Φ_within."""
        return whole(self.scatter, self.between_class)

    def spectrum(self, part: FeaturePart | None = None) -> Spectrum:
        """The exact spectrum of Φ, or of one of its parts, zeros included."""
        return exact_spectrum(getattr(self, part or "second_moment"))


def features(risk: Risk) -> dict[str, FeatureStructure]:
    """The class structure of the features that enter every linear layer and convolution of θ: one forward pass.

    Papyan (2020), Sec. 7.4.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False)).double()
    >>> _ = torch.nn.init.zeros_(model[0].weight)
    >>> risk = Risk(model, torch.nn.CrossEntropyLoss(), (torch.eye(2).double(), torch.tensor([0, 1])))
    >>> features(risk)["0"].class_means.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    layers, linear, C = class_layers(risk, "The class structure of features")
    check_size(
        risk, {layer: (C, layer.inputs, layer.inputs) for layer in linear}, "Means and second moments of features"
    )
    sums = {layer: Scatter(C, (layer.inputs,), risk.device) for layer in linear}
    for _, forward, own in class_passes(layers, linear, "Features"):
        for layer, scatter in sums.items():
            scatter.add((layer.features(forward),), own.masses, own.labels)
    return {layer.name: _structure(layer, scatter.join_ranks(risk)) for layer, scatter in sums.items()}


def _structure(layer: LinearLayer, scatter: Scatter) -> FeatureStructure:
    total = scatter.weights.sum()
    return FeatureStructure(layer.name, scatter.weights / total, scatter.means[0], scatter.matrix / total)
