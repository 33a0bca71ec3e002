"""Kronecker-factored curvature: KFAC with its class-distinct refinement CFAC, block by block of θ.

For a linear layer the Gauss-Newton block is Σ w (δδᵀ) ⊗ (φφᵀ) over examples and output directions, with φ what enters
the layer and δ the error that comes back. KFAC replaces the mean of products by the product of the means; CFAC does so
class by class. Weights are flattened in row-major order, so that errors come first: Δ ⊗ Φ, where papers that stack
columns write Φ ⊗ Δ. Papyan (2020) writes H for Φ; here H is the Hessian.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..engine.curvatures import Samples
from ..layers.capture import Layers
from ..layers.linear import LinearLayer
from ..operators import Operator
from ..risk import Risk
from ..risk.class_terms import cross_weights
from ..risk.data_by_class import check_one_label
from ..risk.memory import check_memory
from ..solvers import spectral_density
from ..spectrum import Spectrum
from .eigenbases import Basis, DenseBasis, EigenBlocks, KroneckerBasis
from .kronecker_products import DENSE, Block, MatrixMap, Pair, WithOperator, block_diagonal, product, square, thin
from .second_moments import SecondMoments, check_size, errors_of, factored_layers, features_of, passes, width


@dataclass(frozen=True, repr=False, eq=False)
class Layer(WithOperator):
    """One layer's block of a matrix over θ, on [W b]."""

    name: str
    place: Block  # among the layer's own parameters
    risk: Risk

    @property
    def size(self) -> int:
        """o · d, the number of the layer's parameters in θ."""
        return self.place.size

    @property
    def operator(self) -> Operator:
        """The block over the layer's own parameters, as `gauss_newton(risk.restricted_to(layer))` is."""
        return blocks_operator([(self.place, self)], self.risk, self.size)

    @abstractmethod
    def product(self, dtype: torch.dtype) -> MatrixMap:
        """The product with k matrices [W b], in the given precision."""

    @property
    @abstractmethod
    def basis_bytes(self) -> float | None:
        """Bytes that `eigenbasis` still has to allocate; None if there is no eigenbasis."""

    @abstractmethod
    def eigenbasis(self) -> Basis:
        """The eigenvectors of the block."""

    @abstractmethod
    def spectrum(self, **options: Any) -> Spectrum:
        """All eigenvalues, or a quadrature of them."""


def blocks_operator(layers: Sequence[tuple[Block, Layer]], risk: Risk, size: int) -> Operator:
    """Layers as one block-diagonal operator; zero outside their blocks."""
    maps = block_diagonal([(place, layer.product(risk.dtype)) for place, layer in layers])
    return Operator(maps, size, risk.dtype, risk.device, inverse=_inverse(layers, risk, size))


def _inverse(layers: Sequence[tuple[Block, Layer]], risk: Risk, size: int) -> Callable[[float], Operator] | None:
    """The inverse by the eigenvectors of every block, computed when it is first used; None if a block has none."""
    sizes = [layer.basis_bytes for _, layer in layers]
    return None if None in sizes else partial(_damped_inverse, layers, risk, size)


def _damped_inverse(layers: Sequence[tuple[Block, Layer]], risk: Risk, size: int, damping: float) -> Operator:
    needed = sum(layer.basis_bytes or 0.0 for _, layer in layers)
    check_memory(needed, risk.memory, "The eigenvectors of the Kronecker factors")
    blocks = [(place, layer.eigenbasis()) for place, layer in layers]
    return EigenBlocks(blocks, size, risk.dtype, risk.device).inverse(damping)


@dataclass(frozen=True, repr=False, eq=False)
class KroneckerLayer(Layer):
    """One layer's block Σ_c π_c Δ_c ⊗ Φ_c on [W b]: one term for KFAC, one for each class for CFAC.

    The last row and column of Φ belong to the bias, if θ has it.
    """

    weights: Float[Tensor, " g"]  # π_c; one for KFAC
    errors: Float[Tensor, "g o o"]  # Δ_c
    features: Float[Tensor, "g d d"]  # Φ_c

    def __repr__(self) -> str:
        return f"KroneckerLayer({self.name}: {len(self.weights)} × ({square(self.errors)} ⊗ {square(self.features)}))"

    @property
    def factors(self) -> list[tuple[Float[Tensor, "o o"], Float[Tensor, "d d"]]]:
        """The pairs (Δ_c, Φ_c)."""
        return list(zip(self.errors, self.features, strict=True))

    def product(self, dtype: torch.dtype) -> MatrixMap:
        """The product with k matrices, in the given precision."""
        return partial(product, self.pairs(dtype))

    def pairs(self, dtype: torch.dtype) -> list[Pair]:
        """π_c Δ_c and Φ_c for all classes with examples, in the given precision."""
        scaled = self.weights[:, None, None] * self.errors
        return [
            (D.to(dtype), Phi.to(dtype), False)
            for weight, D, Phi in zip(self.weights.tolist(), scaled, self.features, strict=True)
            if weight > 0
        ]

    @property
    def basis_bytes(self) -> float | None:
        """Bytes that `eigenbasis` still has to allocate; None for a sum over classes too large to be diagonalised."""
        if "_basis" in self.__dict__:
            return 0.0
        o, d = self.errors.shape[1], self.features.shape[1]
        if int((self.weights > 0).sum()) > 1:
            return 8.0 * self.size**2 if self.size <= DENSE else None
        return 8.0 * (o**2 + d**2 + o * d)

    def eigenbasis(self) -> Basis:
        """The eigenvectors of the block: those of Δ and Φ where there is one term, else those of the dense block."""
        return self._basis

    @cached_property
    def _basis(self) -> Basis:
        pairs = self.pairs(torch.float64)
        if len(pairs) == 1:
            return KroneckerBasis.of(*pairs[0][:2])
        return DenseBasis.of(self._dense(pairs))

    def spectrum(self, **options: Any) -> Spectrum:
        """All eigenvalues: the products of the factors' for KFAC.

        Those of a sum over classes are exact up to 2,048 parameters; beyond, the spectrum is a Lanczos quadrature with
        the options of `spectral_density`, and has a `resolution`.
        """
        if len(self.weights) == 1:
            outer, inner = (torch.linalg.eigvalsh(factor[0]).clamp(min=0) for factor in (self.errors, self.features))
            return Spectrum.of_eigenvalues(torch.outer(outer, inner).flatten() * self.weights)
        pairs = self.pairs(torch.float64)
        if self.size <= DENSE:
            return Spectrum.of_matrix(self._dense(pairs))
        slim = [thin(*pair) for pair in pairs]
        matmat = block_diagonal([(self.place, partial(product, slim))])
        return spectral_density(Operator(matmat, self.size, torch.float64, self.errors.device), **options)

    def _dense(self, pairs: list[Pair]) -> Float[Tensor, "p p"]:
        """The block as a matrix, on the entries of [W b] row by row."""
        unit = torch.eye(self.size, dtype=torch.float64, device=self.errors.device)
        return product(pairs, unit.view(self.errors.shape[1], -1, self.size)).flatten(0, 1)


@dataclass(frozen=True, repr=False, eq=False)
class Kronecker(WithOperator):
    """A block of Kronecker products for every layer, zero between layers.

    `layers` has the block of each by name; `operator` multiplies with all of them, and is zero on parameters that no
    output depends on.
    """

    layers: Mapping[str, Layer]
    risk: Risk = field(repr=False)
    _places: dict[str, Block] = field(repr=False)

    def __repr__(self) -> str:
        return f"Kronecker(n = {self.risk.size:,}, layers {', '.join(self.layers)})"

    @property
    def operator(self) -> Operator:
        """The matrix as an operator over θ."""
        layers = [(self._places[name], layer) for name, layer in self.layers.items()]
        return blocks_operator(layers, self.risk, self.risk.size)

    def spectrum(self, **options: Any) -> Spectrum:
        """The eigenvalues of all blocks together, each block as `KroneckerLayer.spectrum` has it."""
        return _union([layer.spectrum(**options) for layer in self.layers.values()], self.risk.size)


def kfac(
    risk: Risk, *, joint: bool = True, num_samples: int | None = None, generator: torch.Generator | None = None
) -> Kronecker:
    """G^l ≈ Δ^l ⊗ Φ^l for every layer l, with Φ = Σᵢ ωᵢ φᵢφᵢᵀ and Δ = Σ w δδᵀ: Martens and Grosse (2015).

    δ are the errors of a square root of the loss's Hessian, so that Δ is exact for any convex loss and no labels are
    drawn. Where a layer is applied at several positions of an example (convolutions, tokens, several uses), Φ is the
    mean and Δ the sum over all of them ("expand", Eschenhagen et al. 2023): products between different positions are
    left out, so that the largest eigenvalue of a convolution's G comes out too small, by up to the number of positions.
    Examples count in Φ with the weight that they have in the loss. Papyan (2020), eq. (7.4) and Def. 7.1, without the
    prefactor of Δ. `inverse(damping)` is exact, by the eigenvectors of Δ and Φ.

    It takes a backward pass over the data for each output of an example: for every class of every token or pixel. With
    many of them, take samples: one pass each, for all tokens or pixels at once. A last linear layer takes none: its Δ
    is the mean Hessian of the loss.

    Args:
        joint: Take weight and bias as one matrix [W b], with a feature that is always one. False sets the blocks
            between weight and bias to zero.
        num_samples: Estimate Δ from as many random errors of every term, for cross-entropy those of labels drawn from
            the network's own probabilities, as `monte_carlo_fisher` does. Δ is right on average, and its error falls
            with the root of examples times samples. None: exact.
        generator: Source of their seed; without it, a new generator with seed 0.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False)).double()
    >>> _ = torch.nn.init.zeros_(model[0].weight)
    >>> risk = Risk(model, torch.nn.CrossEntropyLoss(), (torch.eye(2).double(), torch.tensor([0, 1])))
    >>> K, v = kfac(risk), torch.tensor([1.0, 2.0, 0.0, 0.0]).double()
    >>> K, (K @ v).round(decimals=9).tolist(), (K.inverse(0.25) @ v).round(decimals=9).tolist()
    (Kronecker(n = 4, layers 0), [0.125, 0.25, -0.125, -0.25], [3.0, 6.0, 1.0, 2.0])
    """
    return _layerwise(risk, 1, joint, requested_samples(num_samples, generator))


def cfac(
    risk: Risk, *, joint: bool = True, num_samples: int | None = None, generator: torch.Generator | None = None
) -> Kronecker:
    """G^l ≈ Σ_c π_c Δ_c^l ⊗ Φ_c^l, factors for each class c apart, with π_c = n_c/N: class-distinct KFAC.

    Φ_c is the mean of φφᵀ over the examples of class c, Δ_c that of Σ_{c'} p_{c'} δδᵀ, so that Σ_c π_c Δ_c = Δ. With
    one example per class, and one position, it is G^l itself (for weight and bias jointly). Class weights of the loss
    are part of π_c. Positions, `joint`, `num_samples` and `generator` as in `kfac`. Papyan (2020), Def. 7.2, with n_c/N
    and without 1/(NC). `inverse(damping)` is exact where every layer has at most 2,048 parameters; beyond, a sum of
    Kronecker products has no inverse that is cheap, and `inverse` is None.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False)).double()
    >>> _ = torch.nn.init.zeros_(model[0].weight)
    >>> risk = Risk(model, torch.nn.CrossEntropyLoss(), (torch.eye(2).double(), torch.tensor([0, 1])))
    >>> K, v = cfac(risk), torch.tensor([1.0, 2.0, 0.0, 0.0]).double()
    >>> K.layers["0"], (K @ v).round(decimals=9).tolist()
    (KroneckerLayer(0: 2 × (2² ⊗ 2²)), [0.125, 0.25, -0.125, -0.25])
    """
    return _layerwise(risk, class_count(risk), joint, requested_samples(num_samples, generator))


def _layerwise(risk: Risk, groups: int, joint: bool, samples: Samples | None) -> Kronecker:
    layers, linear = factored_layers(risk)
    return Kronecker(kronecker_layers(layers, linear, groups, joint, samples), risk, places(risk, linear))


def requested_samples(num_samples: int | None, generator: torch.Generator | None) -> Samples | None:
    """The samples to take; None where all of the loss's Hessian is."""
    return None if num_samples is None else Samples.drawn(num_samples, generator)


def places(risk: Risk, linear: list[LinearLayer]) -> dict[str, Block]:
    """The places of the layers in θ."""
    return {layer.name: Block.of(layer, risk.shapes) for layer in linear}


def kronecker_layers(
    layers: Layers, linear: list[LinearLayer], groups: int, joint: bool, samples: Samples | None
) -> dict[str, KroneckerLayer]:
    """The factors of every layer, for each group of examples."""
    risk = layers.risk
    sums = {layer.name: SecondMoments(risk, groups, layer.outputs, width(layer)) for layer in linear}
    check_size(risk, sums.values())
    for batch, forward, masses, labels in passes(layers, linear, groups, samples):
        for layer in linear:
            sums[layer.name].add_features(features_of(layer, forward), masses, labels)
        last = [layer for layer in linear if layer.returns_terms(forward, risk.loss.class_dim)]
        for layer in last:
            sums[layer.name].add_hessians(risk.loss, forward.z.detach(), batch.targets, labels)
        others = [layer for layer in linear if layer not in last]
        for errors in errors_of(risk, batch, forward, samples) if others else ():
            for layer in others:
                sums[layer.name].add_errors(layer.errors(forward, errors), labels)
    return {layer.name: _kronecker_layer(risk, layer, sums[layer.name], joint) for layer in linear}


def _kronecker_layer(risk: Risk, layer: LinearLayer, sums: SecondMoments, joint: bool) -> KroneckerLayer:
    weights, errors, features = sums.means(risk)
    if not joint and layer.weight is not None and layer.bias is not None:
        features[:, -1, :-1] = features[:, :-1, -1] = 0.0
    own = {name: shape for name, shape in risk.shapes.items() if name in (layer.weight, layer.bias)}
    return KroneckerLayer(layer.name, Block.of(layer, own), risk, weights, errors, features)


def class_count(risk: Risk) -> int:
    """C, checking that every example has one class."""
    count = len(cross_weights(risk))
    why = "Factors by class sort examples, with all that a layer sees of them, by class, so each needs exactly one."
    check_one_label(risk, why, "Use kfac(risk), which needs no classes.")
    return count


def _union(spectra: list[Spectrum], size: int) -> Spectrum:
    """The spectrum of a block-diagonal matrix of this size, with zeros outside the blocks."""
    missing = size - sum(spectrum.size for spectrum in spectra)
    if missing:
        spectra = [*spectra, Spectrum.of_eigenvalues(torch.zeros(1).double(), torch.tensor([missing]))]
    num_atoms = [_num_atoms(spectrum) for spectrum in spectra]
    joined = partial(_joined, num_atoms, max(spectrum.num_probes for spectrum in spectra))
    resolutions = [spectrum.resolution for spectrum in spectra if spectrum.resolution is not None]
    return Spectrum(
        joined([spectrum.nodes for spectrum in spectra]),
        joined([spectrum.weights * (spectrum.size / size) for spectrum in spectra]),
        size,
        max(resolutions, default=None),
        sum(num_atoms),
        joined([spectrum.ends for spectrum in spectra]),
        max(spectrum.precision for spectrum in spectra),
    )


def _num_atoms(spectrum: Spectrum) -> int:
    """How many of its nodes are eigenvalues, which stand first: all of an exact spectrum."""
    return spectrum.nodes.shape[1] if spectrum.is_exact else spectrum.num_atoms


def _joined(num_atoms: Sequence[int], num_probes: int, arrays: Sequence[Tensor]) -> Tensor:
    """Arrays of several spectra as one: a row for each probe, the atoms of all spectra before all other nodes."""
    rows = [array.expand(*array.shape[:-2], num_probes, -1) for array in arrays]
    atoms = [row[..., :count] for row, count in zip(rows, num_atoms, strict=True)]
    others = [row[..., count:] for row, count in zip(rows, num_atoms, strict=True)]
    return torch.cat([*atoms, *others], dim=-1)
