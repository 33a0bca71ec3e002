"""Kronecker-factored curvature: KFAC with its class-distinct refinement CFAC, block by block of θ.

For a linear layer the Gauss-Newton block is Σ w (δδᵀ) ⊗ (φφᵀ) over examples and output directions, with φ what enters
the layer and δ the error that comes back. KFAC replaces the mean of products by the product of the means; CFAC does so
class by class. Weights are flat in row-major order, so errors come first: Δ ⊗ Φ, where papers that stack columns
write Φ ⊗ Δ. Papyan (2020) writes H for Φ; here that letter is the Hessian's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..layers.linear import LinearLayer
from ..operators import Operator
from ..risk import Risk
from ..risk.class_terms import cross_weights
from ..risk.data_by_class import check_one_label
from ..solvers import spectral_density
from ..spectrum import Spectrum
from .kronecker_products import DENSE, Block, Pair, block_diagonal, square, thin
from .second_moments import SecondMoments, check_size, errors_of, factored_layers, features_of, passes, width


@dataclass(frozen=True, repr=False, eq=False)
class KroneckerLayer:
    """One layer's block Σ_c π_c Δ_c ⊗ Φ_c on [W b]: one term for KFAC, one for each class for CFAC.

    The last row and column of Φ belong to the bias, if θ has it.
    """

    name: str
    weights: Float[Tensor, " g"]  # π_c; one for KFAC
    errors: Float[Tensor, "g o o"]  # Δ_c
    features: Float[Tensor, "g d d"]  # Φ_c
    place: Block
    dtype: torch.dtype

    def __repr__(self) -> str:
        return f"KroneckerLayer({self.name}: {len(self.weights)} × ({square(self.errors)} ⊗ {square(self.features)}))"

    @property
    def factors(self) -> list[tuple[Float[Tensor, "o o"], Float[Tensor, "d d"]]]:
        """The pairs (Δ_c, Φ_c)."""
        return list(zip(self.errors, self.features, strict=True))

    @property
    def size(self) -> int:
        """o · d, the number of the layer's parameters in θ."""
        return self.errors.shape[1] * self.features.shape[1]

    def __matmul__(self, V: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        return self.operator @ V

    @property
    def operator(self) -> Operator:
        """The block over the layer's own parameters, as `gauss_newton(risk.restricted_to(layer))` is."""
        product = block_diagonal([(self.place, self.pairs(self.dtype))])
        return Operator(product, self.size, self.dtype, self.errors.device)

    def pairs(self, dtype: torch.dtype) -> list[Pair]:
        """π_c Δ_c and Φ_c of the classes that have examples, in the given precision."""
        scaled = self.weights[:, None, None] * self.errors
        return [
            (D.to(dtype), Phi.to(dtype), False)
            for weight, D, Phi in zip(self.weights.tolist(), scaled, self.features, strict=True)
            if weight > 0
        ]

    def spectrum(self, **options: Any) -> Spectrum:
        """All eigenvalues: the products of the factors' for KFAC.

        Those of a sum over classes are exact up to 2,048 parameters; beyond, the spectrum is a Lanczos quadrature with
        the options of `spectral_density`, and has a `resolution`.
        """
        if len(self.weights) == 1:
            outer, inner = (torch.linalg.eigvalsh(factor[0]).clamp(min=0) for factor in (self.errors, self.features))
            return Spectrum.of_eigenvalues(torch.outer(outer, inner).flatten() * self.weights)
        exact = replace(self, dtype=torch.float64)
        if self.size <= DENSE:
            return Spectrum.of_matrix(exact.operator.dense())
        product = block_diagonal([(self.place, [thin(*pair) for pair in exact.pairs(torch.float64)])])
        return spectral_density(Operator(product, self.size, torch.float64, self.errors.device), **options)


@dataclass(frozen=True, repr=False, eq=False)
class Kronecker:
    """A block-diagonal approximation of the Gauss-Newton matrix over θ: one sum of Kronecker products for each layer.

    Parameters on which no output depends have a block of zeros.
    """

    layers: dict[str, KroneckerLayer]
    risk: Risk = field(repr=False)
    _places: dict[str, Block] = field(repr=False)

    def __repr__(self) -> str:
        return f"Kronecker(n = {self.risk.size:,}: {', '.join(self.layers)})"

    def __matmul__(self, V: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        return self.operator @ V

    @property
    def operator(self) -> Operator:
        """The matrix as an operator over θ."""
        risk = self.risk
        product = block_diagonal([(self._places[name], layer.pairs(risk.dtype)) for name, layer in self.layers.items()])
        return Operator(product, risk.size, risk.dtype, risk.device)

    def spectrum(self, **options: Any) -> Spectrum:
        """The eigenvalues of all blocks together, each block as `KroneckerLayer.spectrum` has it."""
        return _union([layer.spectrum(**options) for layer in self.layers.values()], self.risk.size)


def kfac(risk: Risk, *, joint: bool = True) -> Kronecker:
    """G^l ≈ Δ^l ⊗ Φ^l for every layer l, with Φ = Σᵢ ωᵢ φᵢφᵢᵀ and Δ = Σ w δδᵀ: Martens and Grosse (2015).

    δ are the errors of a square root of the loss's Hessian, so that Δ is exact for any convex loss and no labels are
    drawn. Where a layer is applied at several positions of an example (convolutions, tokens, several uses), Φ is the
    mean and Δ the sum over all of them ("expand", Eschenhagen et al. 2023): products between different positions are
    left out, so that the largest eigenvalue of a convolution's G comes out too small, by up to the number of positions.
    Examples count in Φ with the weight that they have in the loss. Papyan (2020), eq. (7.4) and Def. 7.1, without the
    prefactor of Δ.

    Args:
        joint: Take weight and bias as one matrix [W b], with a feature that is always one. False sets the blocks
            between weight and bias to zero.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False)).double()
    >>> _ = torch.nn.init.zeros_(model[0].weight)
    >>> risk = Risk(model, torch.nn.CrossEntropyLoss(), (torch.eye(2).double(), torch.tensor([0, 1])))
    >>> kfac(risk), (kfac(risk) @ torch.tensor([1.0, 2.0, 0.0, 0.0]).double()).tolist()
    (Kronecker(n = 4: 0), [0.125, 0.25, -0.125, -0.25])
    """
    return _layerwise(risk, 1, joint=joint)


def cfac(risk: Risk, *, joint: bool = True) -> Kronecker:
    """G^l ≈ Σ_c π_c Δ_c^l ⊗ Φ_c^l, factors for each class c apart, with π_c = n_c/N: class-distinct KFAC.

    Φ_c is the mean of φφᵀ over the examples of class c, Δ_c that of Σ_{c'} p_{c'} δδᵀ, so that Σ_c π_c Δ_c = Δ. With
    one example per class, and one position, it is G^l itself (for weight and bias jointly). Class weights of the loss
    are part of π_c. Positions and `joint` as in `kfac`. Papyan (2020), Def. 7.2, with n_c/N and without 1/(NC).

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False)).double()
    >>> _ = torch.nn.init.zeros_(model[0].weight)
    >>> risk = Risk(model, torch.nn.CrossEntropyLoss(), (torch.eye(2).double(), torch.tensor([0, 1])))
    >>> cfac(risk).layers["0"], (cfac(risk) @ torch.tensor([1.0, 2.0, 0.0, 0.0]).double()).tolist()
    (KroneckerLayer(0: 2 × (2² ⊗ 2²)), [0.125, 0.25, -0.125, -0.25])
    """
    return _layerwise(risk, class_count(risk), joint=joint)


def _layerwise(risk: Risk, groups: int, *, joint: bool) -> Kronecker:
    layers, linear = factored_layers(risk)
    sums = {layer.name: SecondMoments(risk, groups, layer.outputs, width(layer)) for layer in linear}
    check_size(risk, sums.values())
    for batch, forward, masses, labels in passes(layers, linear, groups):
        for layer in linear:
            sums[layer.name].add_features(features_of(layer, forward), masses, labels)
        for errors in errors_of(risk, batch, forward):
            for layer in linear:
                sums[layer.name].add_errors(layer.errors(forward, errors), labels)
    blocks = {layer.name: _kronecker_layer(risk, layer, sums[layer.name], joint) for layer in linear}
    return Kronecker(blocks, risk, {layer.name: Block.of(layer, risk.shapes) for layer in linear})


def _kronecker_layer(risk: Risk, layer: LinearLayer, sums: SecondMoments, joint: bool) -> KroneckerLayer:
    weights, errors, features = sums.means(risk)
    if not joint and layer.weight is not None and layer.bias is not None:
        features[:, -1, :-1] = features[:, :-1, -1] = 0.0
    own = {name: shape for name, shape in risk.shapes.items() if name in (layer.weight, layer.bias)}
    return KroneckerLayer(layer.name, weights, errors, features, Block.of(layer, own), risk.dtype)


def class_count(risk: Risk) -> int:
    """C, once it is sure that every example has one class."""
    count = len(cross_weights(risk))
    why = "Factors by class need the one class of an example, with all that a layer sees of it."
    check_one_label(risk, why, "Use kfac(risk), which needs no classes.")
    return count


def _union(spectra: list[Spectrum], size: int) -> Spectrum:
    """The spectrum of a block-diagonal matrix of this size, zero where no block is."""
    missing = size - sum(spectrum.size for spectrum in spectra)
    if missing:
        spectra = [*spectra, Spectrum.of_eigenvalues(torch.zeros(1), torch.tensor([missing]))]
    probes = max(spectrum.num_probes for spectrum in spectra)
    nodes = [spectrum.nodes.expand(probes, -1) for spectrum in spectra]
    weights = [spectrum.weights.expand(probes, -1) * (spectrum.size / size) for spectrum in spectra]
    resolutions = [spectrum.resolution for spectrum in spectra if spectrum.resolution is not None]
    return Spectrum(torch.cat(nodes, 1), torch.cat(weights, 1), size, max(resolutions, default=None))
