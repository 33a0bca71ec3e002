"""Class structure of a layer's weight, which at a stationary point is a sum over class means of features and errors.

Papyan (2020), Sec. 7.13.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import check_positive
from ...layers.capture import Forward
from ...layers.linear import LinearLayer, check_own, check_ungrouped, columns
from ...risk import Risk
from ...risk.batches import Batch
from ...risk.class_terms import ClassTerms
from ...spectrum import Spectrum
from ..scatter import Scatter, ratio
from .passes import check_size, class_layers, class_passes

WeightPart = Literal["between_class", "within"]


@dataclass(frozen=True, repr=False, eq=False)
class WeightStructure:
    """W = -(1/η) Σᵢ (aᵢ/Σw) δᵢ φᵢᵀ = W_class + W_within: a layer's weight, where weight decay η balances the gradient.

    That holds at stationary points of R + (η/2)‖W‖² alone; `residual` measures how far θ is from one. δᵢ is the error
    for the true label (smoothed, where the loss smooths), and its class means are plain, not weighted with p as those
    of `ErrorStructure` are. Papyan (2020), Sec. 7.13.
    """

    layer: str
    weight_decay: float
    weight: Float[Tensor, "o d"]  # as it is
    class_weights: Float[Tensor, " C"]  # T n_c/N, for T positions
    error_means: Float[Tensor, "C o"]  # δ_c
    feature_means: Float[Tensor, "C d"]  # φ_c
    within: Float[Tensor, "o d"]  # W_within = -(1/η) Σᵢ (aᵢ/Σw) (δᵢ - δ_c)(φᵢ - φ_c)ᵀ

    def __repr__(self) -> str:
        shape, off = tuple(self.weight.shape), f"{self.residual:.2g} off"
        return f"WeightStructure(layer {self.layer}: {shape}, η = {self.weight_decay:g}, {off})"

    @property
    def between_class(self) -> Float[Tensor, "o d"]:
        """W_class = -(1/η) Σ_c T (n_c/N) δ_c φ_cᵀ, of rank C at most."""
        return -(self.class_weights[:, None] * self.error_means).T @ self.feature_means / self.weight_decay

    @property
    def global_part(self) -> Float[Tensor, "o d"]:
        """-(1/η) T δ_G φ_Gᵀ, the part of W_class that belongs to the global means.

        It is zero where the layer has a bias without decay that is stationary too: then the mean error is zero.
        """
        return -self.class_weights.sum() * torch.outer(self.global_error, self.global_feature) / self.weight_decay

    @property
    def global_error(self) -> Float[Tensor, " o"]:
        """δ_G, the mean of all errors."""
        return self.class_weights @ self.error_means / self.class_weights.sum()

    @property
    def global_feature(self) -> Float[Tensor, " d"]:
        """φ_G, the mean of all features."""
        return self.class_weights @ self.feature_means / self.class_weights.sum()

    @property
    def stationary(self) -> Float[Tensor, "o d"]:
        """-∇R/η = W_class + W_within, which W is at a stationary point."""
        return self.between_class + self.within

    @property
    def residual(self) -> float:
        """‖W + ∇R/η‖ / ‖W‖: zero at a stationary point, and about one far from it."""
        return float((self.weight - self.stationary).norm() / self.weight.norm().clamp(min=1e-300))

    def singular_values(self, part: WeightPart | None = None) -> Spectrum:
        """The min(o, d) singular values of W, or of one of the parts of its stationary form, zeros included."""
        return Spectrum.of_eigenvalues(torch.linalg.svdvals(getattr(self, part or "weight")))


def weights(risk: Risk, weight_decay: float) -> dict[str, WeightStructure]:
    """The class structure of the weight of every linear layer and convolution trained with weight decay η.

    Papyan (2020), Sec. 7.13.

    η is the `weight_decay` of `torch.optim.SGD`, the regulariser (η/2)‖W‖². The `residual` of each result tells
    whether θ is a stationary point, where alone the structure is that of W.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False)).double()
    >>> _ = torch.nn.init.zeros_(model[0].weight)
    >>> risk = Risk(model, torch.nn.CrossEntropyLoss(), (torch.eye(2).double(), torch.tensor([0, 1])))
    >>> weights(risk, weight_decay=0.1)["0"].between_class.tolist()  # what the gradient drives W to
    [[2.5, -2.5], [-2.5, 2.5]]
    """
    check_positive(weight_decay=weight_decay)
    purpose = "The class structure of weights"
    layers, linear, C = class_layers(risk, purpose)
    check_ungrouped(layers, linear, purpose)
    check_own(layers, linear, purpose)
    linear = [layer for layer in linear if layer.weight is not None]
    sizes = {layer: (C, layer.inputs + layer.outputs, layer.inputs) for layer in linear}
    check_size(risk, sizes, "Means and products of features and errors")
    sums = {layer: Scatter(C, (layer.outputs, layer.inputs), risk.device) for layer in linear}
    for batch, forward, own in class_passes(layers, linear, "Weights"):
        for _, errors in columns(risk, forward, _slopes(risk, batch, forward, own)[None]):
            for layer, scatter in sums.items():
                rows = layer.errors(forward, errors)[0], layer.features(forward)
                scatter.add(rows, own.masses, own.labels)
    return {layer.name: _structure(layer, risk, weight_decay, own.join_ranks(risk)) for layer, own in sums.items()}


def _slopes(risk: Risk, batch: Batch, forward: Forward, own: ClassTerms) -> Tensor:
    """∂ℓᵢ/∂z of every example without its weight: p - e_c, or p minus the smoothed label."""
    z = forward.z.detach()
    masses = (own.masses * risk.total_weight).reshape(-1, *[1] * (z.ndim - 1)).to(z)
    return ratio(risk.loss.gradient(z, batch.targets), masses)


def _structure(layer: LinearLayer, risk: Risk, weight_decay: float, scatter: Scatter) -> WeightStructure:
    names = dict(zip(risk.shapes, risk.unflatten(risk.theta), strict=True))
    weight = names[layer.weight or ""].flatten(1).double()
    errors, features = scatter.means
    within = -scatter.matrix / weight_decay
    return WeightStructure(layer.name, weight_decay, weight, scatter.weights, errors, features, within)
