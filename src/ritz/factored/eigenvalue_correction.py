"""EKFAC: the eigenvectors of KFAC with the best eigenvalues for them, the second moments of gradients along them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..layers.linear import LinearLayer
from ..risk import Risk
from ..risk.memory import check_memory
from ..spectrum import Spectrum
from .eigenbases import KroneckerBasis
from .kronecker import Kronecker, KroneckerLayer, Layer, kronecker_layers, places, requested_samples
from .kronecker_products import MatrixMap
from .second_moments import errors_of, factored_layers, features_of, passes, width


@dataclass(frozen=True, repr=False, eq=False)
class EigenLayer(Layer):
    """One layer's block (U_Δ ⊗ U_Φ) diag(s) (U_Δ ⊗ U_Φ)ᵀ on [W b]."""

    basis: KroneckerBasis
    basis_bytes = 0.0  # the basis is there already

    def __repr__(self) -> str:
        o, d = self.basis.values.shape
        return f"EigenLayer({self.name}: {o}² ⊗ {d}², {self.size:,} eigenvalues)"

    def product(self, dtype: torch.dtype) -> MatrixMap:
        """The product with k matrices [W b], in the given precision."""
        return self.basis.product(dtype)

    def eigenbasis(self) -> KroneckerBasis:
        """The eigenvectors of the block."""
        return self.basis

    def spectrum(self, **_: Any) -> Spectrum:
        """All eigenvalues, exactly."""
        return Spectrum.of_eigenvalues(self.basis.values.flatten())


def ekfac(
    risk: Risk, *, joint: bool = True, num_samples: int | None = None, generator: torch.Generator | None = None
) -> Kronecker:
    """G^l ≈ (U_Δ ⊗ U_Φ) diag(s) (U_Δ ⊗ U_Φ)ᵀ for every layer l, with s = Σ w (U_Δᵀ M U_Φ)²: George et al. (2018).

    U are the eigenvectors of KFAC's factors, and M = Σₜ δₜ φₜᵀ is the gradient of a whole example, all its positions
    together, for each column of a square root of the loss's Hessian. So s is the diagonal of G^l in that basis: the
    trace is that of G^l, and no other choice of s, such as KFAC's, comes nearer to G^l in the Frobenius norm. `joint`,
    `num_samples` and `generator` as in `kfac`; other samples are drawn for s than for U. A second pass over the data
    costs as much as forming the gradient of every example for every column, or sample. `inverse(damping)` is exact.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False)).double()
    >>> _ = torch.nn.init.zeros_(model[0].weight)
    >>> x = torch.diag(torch.tensor([1.0, 2.0])).double()
    >>> risk = Risk(model, torch.nn.CrossEntropyLoss(), (x, torch.tensor([0, 1])))
    >>> K = ekfac(risk)
    >>> K.layers["0"], (K @ torch.tensor([1.0, 2.0, 0.0, 0.0]).double()).round(decimals=9).tolist()
    (EigenLayer(0: 2² ⊗ 2², 4 eigenvalues), [0.125, 1.0, -0.125, -1.0])
    """
    layers, linear = factored_layers(risk)
    _check_size(risk, linear)
    samples = requested_samples(num_samples, generator)
    factors = kronecker_layers(layers, linear, 1, joint, samples)
    own = {name: _eigen_layer(layer) for name, layer in factors.items()}
    samples, held = samples and samples.others(), 8.0 * sum(layer.positions * width(layer) for layer in linear)
    for batch, forward, _, _ in passes(layers, linear, 1, samples, held):
        turned = {layer.name: features_of(layer, forward) @ own[layer.name].basis.features for layer in linear}
        for errors in errors_of(risk, batch, forward, samples):
            for layer in linear:
                _add_squares(own[layer.name], turned[layer.name], layer.errors(forward, errors))
    for block in own.values():
        risk.sum_over_ranks(block.basis.values).div_(risk.total_weight)
    return Kronecker(own, risk, places(risk, linear))


def _eigen_layer(layer: KroneckerLayer) -> EigenLayer:
    """A layer with the eigenvectors of its factors, the same on all ranks, and eigenvalues still to be summed."""
    basis = KroneckerBasis.of(layer.errors[0], layer.features[0])
    return EigenLayer(layer.name, layer.place, layer.risk, replace(basis, values=torch.zeros_like(basis.values)))


def _add_squares(layer: EigenLayer, phi: Float[Tensor, "N T d"], delta: Float[Tensor, "r N T o"]) -> None:
    """Add (U_Δᵀ Σₜ δₜ φₜᵀ)² over all examples and columns, as many examples at a time as fit, given U_Φᵀ φ as φ."""
    values, delta = layer.basis.values, delta @ layer.basis.errors
    if phi.shape[1] == 1:  # the square of a product is that of its factors
        values.addmm_(delta[:, :, 0].square_().sum(0).T, phi[:, 0].square())
        return
    count = max(1, int(layer.risk.memory / 8 / (8 * values.numel())))
    for column in delta:
        for left, right in zip(column.split(count), phi.split(count), strict=True):
            values += (left.mT @ right).square_().sum(0)


def _check_size(risk: Risk, linear: list[LinearLayer]) -> None:
    """Refuse, before anything is allocated, what exceeds the memory: factors, eigenvectors and eigenvalues."""
    sizes = [(layer.outputs, width(layer)) for layer in linear]
    check_memory(sum(8.0 * (2 * (o**2 + d**2) + o * d) for o, d in sizes), risk.common_memory(), "EKFAC's factors")
