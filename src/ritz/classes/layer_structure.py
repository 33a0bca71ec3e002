"""Class structure of what layers see and send back: features, errors, and the weights that are made of both.

Everything is by layer, for linear layers and convolutions, in float64, for any balance of classes: Papyan (2020),
Sec. 7, with the corrections that make every sum exact. Where a layer is applied at several positions of an example
(pixels, tokens, several uses), each position is a row of its own with the class of its example, as in `kfac`:
features are averaged over positions and errors summed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import check_positive
from ..layers.capture import Layers, Pass, layers
from ..layers.linear import Affine, affine_layers, check_own, check_ungrouped, columns, pieces
from ..operators import Operator, low_rank
from ..risk.batches import Batch
from ..risk.class_terms import Terms, as_outputs, cross_weights, terms
from ..risk.data_by_class import check_one_label
from ..risk.memory import check_memory
from ..risk.risk import Risk
from ..spectrum import Spectrum
from .means import class_means, diagonal, off_diagonal
from .moments import Moments, ratio

FeaturePart = Literal["between_class", "within"]
ErrorPart = Literal["between_class", "cross_class", "own_class", "within"]


@dataclass(frozen=True, repr=False, eq=False)
class FeatureStructure:
    """H = Σᵢ ωᵢ hᵢhᵢᵀ = H_class + H_within: the second moment of the features h that enter a layer, by class.

    The weights ωᵢ = aᵢ / Σ a are 1/N unless classes have weights; those of a class sum to n_c/N. A class without
    examples has weight and mean zero. Papyan (2020), Sec. 7.4; n_c/N instead of 1/C.
    """

    layer: str
    weights: Float[Tensor, " C"]  # of the classes: n_c/N
    class_means: Float[Tensor, "C d"]  # h_c
    scatter: Float[Tensor, "d d"]  # H_within

    def __repr__(self) -> str:
        return f"FeatureStructure({self.layer}: C = {len(self.weights)}, d = {len(self.scatter)})"

    @property
    def global_mean(self) -> Float[Tensor, " d"]:
        """h_G = Σ_c (n_c/N) h_c. Papyan (2020), Def. 1.7."""
        return self.weights @ self.class_means

    @property
    def global_part(self) -> Operator:
        """h_G h_Gᵀ, the part of H_class that belongs to the global mean. Papyan (2020), Def. 1.9."""
        return low_rank(self.global_mean[:, None])

    @property
    def class_covariance(self) -> Operator:
        """H_class - h_G h_Gᵀ = Σ_c (n_c/N) (h_c - h_G)(h_c - h_G)ᵀ, of rank C - 1 at most."""
        return _second_moment(self.class_means - self.global_mean, self.weights)

    @property
    def between_class(self) -> Operator:
        """H_class = Σ_c (n_c/N) h_c h_cᵀ, of rank C at most."""
        return _second_moment(self.class_means, self.weights)

    @property
    def within(self) -> Operator:
        """H_within = Σᵢ ωᵢ (hᵢ - h_c)(hᵢ - h_c)ᵀ."""
        return Operator.from_matrix(self.scatter)

    @property
    def second_moment(self) -> Operator:
        """H = H_class + H_within."""
        return _sum(self.scatter, self.between_class)

    def spectrum(self, part: FeaturePart | None = None) -> Spectrum:
        """The exact spectrum of H, or of one of its parts, zeros included."""
        return exact_spectrum(getattr(self, part or "second_moment"))


@dataclass(frozen=True, repr=False, eq=False)
class ErrorStructure:
    """Δ = Σ w δδᵀ = Δ_class + Δ_cross + Δ_own + Δ_within: the errors that come back to a layer's outputs, by class.

    δ_{i,c,c'} is the error of example i of class c as if its label were c', w_{i,c,c'} = aᵢ p_{i,c'} / Σ w its weight;
    the weights of a layer with T positions sum to T. What is too unlikely for float64 has weight and mean zero.
    Papyan (2020), Sec. 7.7, without the prefactor 1/(NC), centred at δ_c.
    """

    layer: str
    cross_weights: Float[Tensor, "C C"]  # w_{c,c'}
    cross_means: Float[Tensor, "C C o"]  # δ_{c,c'}, that of c' = c included
    scatter: Float[Tensor, "o o"]  # Δ_within

    def __repr__(self) -> str:
        return f"ErrorStructure({self.layer}: C = {len(self.cross_weights)}, o = {len(self.scatter)})"

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
        """δ_c = Σ_{c'≠c} w_{c,c'} δ_{c,c'} / w_c, or -(w_{c,c} / w_c) δ_{c,c}, which is the same: what cancels less."""
        return class_means(self.cross_means, self.cross_weights)

    @property
    def global_mean(self) -> Float[Tensor, " o"]:
        """δ_G = Σ_c w_c δ_c / Σ_c w_c. Papyan (2020), Def. 1.7, weighted."""
        return ratio(self.class_weights @ self.class_means, self.class_weights.sum())

    @property
    def global_part(self) -> Operator:
        """(Σ_c w_c) δ_G δ_Gᵀ, the part of Δ_class that belongs to the global mean. Papyan (2020), Def. 1.9."""
        return _second_moment(self.global_mean[None], self.class_weights.sum()[None])

    @property
    def class_covariance(self) -> Operator:
        """Δ_class without its global part: Σ_c w_c (δ_c - δ_G)(δ_c - δ_G)ᵀ, of rank C - 1 at most."""
        return _second_moment(self.class_means - self.global_mean, self.class_weights)

    @property
    def between_class(self) -> Operator:
        """Δ_class = Σ_c w_c δ_c δ_cᵀ, of rank C at most."""
        return _second_moment(self.class_means, self.class_weights)

    @property
    def cross_class(self) -> Operator:
        """Δ_cross = Σ_{c'≠c} w_{c,c'} (δ_{c,c'} - δ_c)(δ_{c,c'} - δ_c)ᵀ, of rank C(C - 2) at most."""
        deviations = self.cross_means - self.class_means[:, None]
        others = ~torch.eye(len(deviations), dtype=torch.bool, device=deviations.device)
        return _second_moment(deviations[others], self.cross_weights[others])

    @property
    def own_class(self) -> Operator:
        """Δ_{c=c'} = Σ_c w_{c,c} δ_{c,c} δ_{c,c}ᵀ, in the range of Δ_class."""
        return _second_moment(self.own_means, self.own_weights)

    @property
    def within(self) -> Operator:
        """Δ_within = Σ w_{i,c,c'} (δ_{i,c,c'} - δ_{c,c'})(δ_{i,c,c'} - δ_{c,c'})ᵀ."""
        return Operator.from_matrix(self.scatter)

    @property
    def second_moment(self) -> Operator:
        """Δ, the sum of the four parts."""
        return _sum(self.scatter, self.between_class, self.cross_class, self.own_class)

    def spectrum(self, part: ErrorPart | None = None) -> Spectrum:
        """The exact spectrum of Δ, or of one of its parts, zeros included."""
        return exact_spectrum(getattr(self, part or "second_moment"))


@dataclass(frozen=True, repr=False, eq=False)
class WeightStructure:
    """W = -(1/η) Σᵢ (aᵢ/Σw) δᵢ hᵢᵀ = W_class + W_within: a layer's weight, where weight decay η balances the gradient.

    That holds at stationary points of R + (η/2)‖W‖² alone; `residual` measures how far θ is from one. δᵢ is the error
    for the true label (smoothed, where the loss smooths), and its class means are plain, not weighted with p as those
    of `ErrorStructure` are. Papyan (2020), Sec. 7.13.
    """

    layer: str
    decay: float
    weight: Float[Tensor, "o d"]  # as it is
    class_weights: Float[Tensor, " C"]  # T n_c/N, for T positions
    error_means: Float[Tensor, "C o"]  # δ_c
    feature_means: Float[Tensor, "C d"]  # h_c
    within: Float[Tensor, "o d"]  # W_within = -(1/η) Σᵢ (aᵢ/Σw) (δᵢ - δ_c)(hᵢ - h_c)ᵀ

    def __repr__(self) -> str:
        return f"WeightStructure({self.layer}: {tuple(self.weight.shape)}, η = {self.decay:g}, {self.residual:.2g} off)"

    @property
    def between_class(self) -> Float[Tensor, "o d"]:
        """W_class = -(1/η) Σ_c T (n_c/N) δ_c h_cᵀ, of rank C at most."""
        return -(self.class_weights[:, None] * self.error_means).T @ self.feature_means / self.decay

    @property
    def global_part(self) -> Float[Tensor, "o d"]:
        """-(1/η) T δ_G h_Gᵀ, the part of W_class that belongs to the global means.

        It is zero where a bias without decay is stationary, too, for that makes the mean error zero.
        """
        return -self.class_weights.sum() * torch.outer(self.global_error, self.global_feature) / self.decay

    @property
    def global_error(self) -> Float[Tensor, " o"]:
        """δ_G, the mean of all errors."""
        return self.class_weights @ self.error_means / self.class_weights.sum()

    @property
    def global_feature(self) -> Float[Tensor, " d"]:
        """h_G, the mean of all features."""
        return self.class_weights @ self.feature_means / self.class_weights.sum()

    @property
    def stationary(self) -> Float[Tensor, "o d"]:
        """-∇R/η = W_class + W_within, which W is at a stationary point."""
        return self.between_class + self.within

    @property
    def residual(self) -> float:
        """‖W + ∇R/η‖ / ‖W‖: zero at a stationary point, and about one far from it."""
        return float((self.weight - self.stationary).norm() / self.weight.norm().clamp(min=1e-300))

    def singular_values(self, part: FeaturePart | None = None) -> Spectrum:
        """The min(o, d) singular values of W, or of one of the parts of its stationary form, zeros included."""
        return Spectrum.of_eigenvalues(torch.linalg.svdvals(getattr(self, part or "weight")))


# Measured -----------------------------------------------------------------------------------------------------------


def features(risk: Risk) -> dict[str, FeatureStructure]:
    """The class structure of the features that enter every linear layer and convolution of θ: one forward pass."""
    known, chosen, C = _begun(risk, "The class structure of features")
    _check_size(
        risk, {layer: (C, layer.inputs, layer.inputs) for layer in chosen}, "Means and second moments of features"
    )
    sums = {layer: Moments(C, (layer.inputs,), risk.device) for layer in chosen}
    for _, passed, found in _passes(known, chosen, "Features"):
        for layer, moments in sums.items():
            moments.add((layer.features(passed),), found.masses, found.labels)
    return {layer.name: _features(layer, moments.reduced(risk)) for layer, moments in sums.items()}


def _features(layer: Affine, found: Moments) -> FeatureStructure:
    total = found.weights.sum()
    return FeatureStructure(layer.name, found.weights / total, found.means[0], found.scatter / total)


def backpropagated_errors(risk: Risk) -> dict[str, ErrorStructure]:
    """The class structure of the errors at every linear layer's and convolution's outputs: C backward passes."""
    known, chosen, C = _begun(risk, "The class structure of errors")
    _check_size(risk, {layer: (C**2, layer.outputs, layer.outputs) for layer in chosen}, "Means and moments of errors")
    sums = {layer: Moments(C**2, (layer.outputs,), risk.device) for layer in chosen}
    for _, passed, found in _passes(known, chosen, "Errors"):
        cotangents = as_outputs(risk, torch.stack([found.errors(column) for column in range(C)]), passed.z)
        for part, errors in columns(risk, passed, cotangents):
            for layer, moments in sums.items():
                for column, rows in zip(range(C)[part], layer.errors(passed, errors), strict=True):
                    moments.add((rows,), found.weights[:, column], found.labels * C + column)
    return {layer.name: _errors(layer, C, moments.reduced(risk)) for layer, moments in sums.items()}


def _errors(layer: Affine, C: int, found: Moments) -> ErrorStructure:
    return ErrorStructure(layer.name, found.weights.view(C, C), found.means[0].view(C, C, -1), found.scatter)


def weights(risk: Risk, decay: float) -> dict[str, WeightStructure]:
    """The class structure of the weight of every linear layer and convolution trained with weight decay η.

    η is the `weight_decay` of `torch.optim.SGD`, the regulariser (η/2)‖W‖². The `residual` of each result tells
    whether θ is a stationary point, where alone the structure is that of W.
    """
    check_positive(decay=decay)
    purpose = "The class structure of weights"
    known, chosen, C = _begun(risk, purpose)
    check_ungrouped(chosen, purpose)
    check_own(known, chosen, purpose)
    chosen = [layer for layer in chosen if layer.weight is not None]
    sizes = {layer: (C, layer.inputs + layer.outputs, layer.inputs) for layer in chosen}
    _check_size(risk, sizes, "Means and products of features and errors")
    sums = {layer: Moments(C, (layer.outputs, layer.inputs), risk.device) for layer in chosen}
    for batch, passed, found in _passes(known, chosen, "Weights"):
        for _, errors in columns(risk, passed, _slopes(risk, batch, passed, found)[None]):
            for layer, moments in sums.items():
                rows = layer.errors(passed, errors)[0], layer.features(passed)
                moments.add(rows, found.masses, found.labels)
    return {layer.name: _weights(risk, layer, decay, moments.reduced(risk)) for layer, moments in sums.items()}


def _slopes(risk: Risk, batch: Batch, passed: Pass, found: Terms) -> Tensor:
    """∂ℓᵢ/∂z of every example without its weight: p - e_c, or p minus the smoothed label."""
    z = passed.z.detach()
    masses = (found.masses * risk.total_weight).reshape(-1, *[1] * (z.ndim - 1)).to(z)
    return ratio(risk.loss.gradient(z, batch.targets), masses)


def _weights(risk: Risk, layer: Affine, decay: float, found: Moments) -> WeightStructure:
    names = dict(zip(risk.shapes, risk.unflatten(risk.theta), strict=True))
    weight = names[layer.weight or ""].flatten(1).double()
    errors, features = found.means
    return WeightStructure(layer.name, decay, weight, found.weights, errors, features, -found.scatter / decay)


def _begun(risk: Risk, purpose: str) -> tuple[Layers, list[Affine], int]:
    """The layers to look at, and the number of classes, once it is sure that there are some of both."""
    C = len(cross_weights(risk))
    why = f"{purpose} sorts examples, with all that a layer sees of them, by their one class."
    check_one_label(risk, why, "Use class_decomposition(risk), which sorts the terms of the loss.")
    known = layers(risk)
    return known, list(affine_layers(known, purpose).values()), C


def _passes(known: Layers, chosen: list[Affine], label: str) -> Iterator[tuple[Batch, Pass, Terms]]:
    for batch, passed in pieces(known, chosen, label):
        yield batch, passed, terms(known.risk, passed.z, batch.targets)


def _check_size(risk: Risk, sizes: dict[Affine, tuple[int, int, int]], what: str) -> None:
    """Groups, the width of their means, and the rows of a scatter of that width."""
    check_memory(sum(8.0 * width * (groups + rows) for groups, width, rows in sizes.values()), risk.memory, what)


# Algebra ------------------------------------------------------------------------------------------------------------


def exact_spectrum(A: Operator) -> Spectrum:
    """All eigenvalues: of the small Gram matrix and zeros where A = U Uᵀ is known, else of the matrix."""
    if A.factor is None or A.factor.shape[1] >= A.size:
        return Spectrum.of_matrix(A.dense())
    values = torch.linalg.svdvals(A.factor).square()
    zeros = values.new_zeros(1)
    counts = torch.cat([torch.ones_like(values), zeros + A.size - len(values)])
    return Spectrum.of_eigenvalues(torch.cat([values, zeros]), counts)


def _second_moment(rows: Float[Tensor, "r D"], weights: Float[Tensor, " r"]) -> Operator:
    """Σ w x xᵀ over rows x."""
    return low_rank((rows * weights.sqrt()[:, None]).T.contiguous())


def _sum(scatter: Float[Tensor, "D D"], *parts: Operator) -> Operator:
    total = scatter.clone()
    for part in parts:
        if part.factor is not None:
            total.addmm_(part.factor, part.factor.T)
    return Operator.from_matrix(total)
