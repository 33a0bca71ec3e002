"""Kronecker-factored curvature: KFAC, its class-distinct refinement CFAC, and both across layers.

For a linear layer the Gauss-Newton block is Σ w (δδᵀ) ⊗ (hhᵀ) over examples and output directions, with h what enters
the layer and δ the error that comes back. KFAC replaces the mean of products by the product of the means; CFAC does so
class by class. Weights are flat in row-major order, so errors come first: Δ ⊗ H, where papers that stack columns
write H ⊗ Δ.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..layers.linear import Affine
from ..operators import Operator
from ..risk.class_terms import cross_weights
from ..risk.data_by_class import check_one_label
from ..risk.risk import Risk
from ..solvers import spectral_density
from ..spectrum import Spectrum
from .moments import Factors, check_size, errors_of, features_of, linear_layers, passes, width

Terms = list[tuple[Tensor, Tensor, bool]]  # Δ and H; or, where it is thin, F with H = F Fᵀ
DENSE = 2048  # parameters up to which a sum of Kronecker products is diagonalised: seconds on one core


@dataclass(frozen=True)
class Block:
    """Where the matrix [W b] of a layer lies in a vector: row-major weight and bias, wherever each of them is."""

    weight: slice | None
    bias: slice | None
    outputs: int

    @classmethod
    def of(cls, layer: Affine, shapes: dict[str, torch.Size]) -> Block:
        """The place of a layer among the named parameters."""
        places, first = {}, 0
        for name, shape in shapes.items():
            places[name] = slice(first, first + shape.numel())
            first += shape.numel()
        place = lambda name: None if name is None else places[name]
        return cls(place(layer.weight), place(layer.bias), layer.outputs)

    def taken(self, V: Float[Tensor, "n k"]) -> Float[Tensor, "o d k"]:
        """[W b] of k vectors."""
        parts = [V[place].reshape(self.outputs, -1, V.shape[1]) for place in (self.weight, self.bias) if place]
        return torch.cat(parts, 1)

    def add(self, total: Float[Tensor, "n k"], M: Float[Tensor, "o d k"]) -> None:
        """Add [W b] to where they belong."""
        columns = M.shape[1] - (self.bias is not None)
        if self.weight:
            total[self.weight] += M[:, :columns].reshape(-1, M.shape[2])
        if self.bias:
            total[self.bias] += M[:, columns:].reshape(-1, M.shape[2])


@dataclass(frozen=True, repr=False, eq=False)
class KroneckerLayer:
    """One layer's block Σ_c π_c Δ_c ⊗ H_c on [W b]: one term for KFAC, one for each class for CFAC.

    The last row and column of H belong to the bias, if θ has it.
    """

    name: str
    weights: Float[Tensor, " g"]  # π_c; one for KFAC
    errors: Float[Tensor, "g o o"]  # Δ_c
    features: Float[Tensor, "g d d"]  # H_c
    place: Block
    dtype: torch.dtype

    def __repr__(self) -> str:
        return f"KroneckerLayer({self.name}: {len(self.weights)} × ({_square(self.errors)} ⊗ {_square(self.features)}))"

    @property
    def factors(self) -> list[tuple[Float[Tensor, "o o"], Float[Tensor, "d d"]]]:
        """The pairs (Δ_c, H_c)."""
        return list(zip(self.errors, self.features, strict=True))

    @property
    def size(self) -> int:
        """o · d, the number of the layer's parameters in θ."""
        return self.errors.shape[1] * self.features.shape[1]

    @property
    def operator(self) -> Operator:
        """The block over the layer's own parameters, as `gauss_newton(risk.restricted_to(layer))` is."""
        product = _product([(self.place, self.terms(self.dtype))])
        return Operator(product, self.size, self.dtype, self.errors.device)

    def terms(self, dtype: torch.dtype) -> Terms:
        """π_c Δ_c and H_c of the classes that have examples, in the given precision."""
        scaled = self.weights[:, None, None] * self.errors
        return [
            (D.to(dtype), H.to(dtype), False)
            for weight, D, H in zip(self.weights.tolist(), scaled, self.features, strict=True)
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
        product = _product([(self.place, [_thinned(*term) for term in exact.terms(torch.float64)])])
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

    @property
    def operator(self) -> Operator:
        """The matrix as an operator over θ."""
        risk = self.risk
        product = _product([(self._places[name], layer.terms(risk.dtype)) for name, layer in self.layers.items()])
        return Operator(product, risk.size, risk.dtype, risk.device)

    def spectrum(self, **options: Any) -> Spectrum:
        """The eigenvalues of all blocks together, each block as `KroneckerLayer.spectrum` has it."""
        found = [layer.spectrum(**options) for layer in self.layers.values()]
        return _union(found, self.risk.size)


@dataclass(frozen=True, repr=False, eq=False)
class KhatriRao:
    """Σ_c π_c Δ_c ⊙ H_c over all layers at once: the block of layers l and m is Σ_c π_c Δ_c^{lm} ⊗ H_c^{lm}.

    Δ_c and H_c are second moments of errors and features joined over the layers, so that blocks off the diagonal are
    approximated, too. Positive semi-definite, as a section of Δ_c ⊗ H_c.
    """

    layers: tuple[str, ...]
    weights: Float[Tensor, " g"]  # π_c; one for KFAC
    errors: Float[Tensor, "g O O"]
    features: Float[Tensor, "g D D"]
    risk: Risk = field(repr=False)
    _places: list[tuple[Block, slice, slice]] = field(repr=False)  # in θ, in errors, in features

    def __repr__(self) -> str:
        shape = f"{len(self.weights)} × ({_square(self.errors)} ⊙ {_square(self.features)})"
        return f"KhatriRao(n = {self.risk.size:,}: {shape} of {', '.join(self.layers)})"

    @property
    def operator(self) -> Operator:
        """The matrix as an operator over θ."""
        return self._operator(self.risk.dtype)

    def spectrum(self, **options: Any) -> Spectrum:
        """Exact up to 2,048 parameters; beyond, a quadrature with the options of `spectral_density`."""
        return _spectrum(self._operator(torch.float64), options)

    def _operator(self, dtype: torch.dtype) -> Operator:
        scaled, features = (self.weights[:, None, None] * self.errors).to(dtype), self.features.to(dtype)

        def product(V: Tensor) -> Tensor:
            total, taken = torch.zeros_like(V), [block.taken(V) for block, _, _ in self._places]
            for block, outputs, inputs in self._places:
                for M, (_, others, sources) in zip(taken, self._places, strict=True):
                    pairs = zip(scaled[:, outputs, others], features[:, sources, inputs], strict=True)
                    block.add(total, _multiplied([(D, H, False) for D, H in pairs], M))
            return total

        return Operator(product, self.risk.size, dtype, self.risk.device)


def _product(blocks: list[tuple[Block, Terms]]) -> Callable[[Tensor], Tensor]:
    """The product with a block-diagonal matrix."""

    def product(V: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        total = torch.zeros_like(V)
        for block, terms in blocks:
            block.add(total, _multiplied(terms, block.taken(V)))
        return total

    return product


def _multiplied(terms: Terms, M: Float[Tensor, "p e k"]) -> Float[Tensor, "o d k"]:
    """Σ_c Δ_c M H_c for k matrices."""
    return functools.reduce(torch.add, (_one(*term, M) for term in terms))


def _one(D: Tensor, H: Tensor, thin: bool, M: Float[Tensor, "p e k"]) -> Float[Tensor, "o d k"]:
    if not thin:
        return torch.einsum("op,pek,ed->odk", D, M, H)
    return torch.einsum("op,prk,dr->odk", D, torch.einsum("pek,er->prk", M, H), H)


def _thinned(D: Float[Tensor, "o o"], H: Float[Tensor, "d d"], _: bool) -> tuple[Tensor, Tensor, bool]:
    """The same term with F of few columns, where that multiplies faster: a class has few examples and H low rank."""
    values, vectors = torch.linalg.eigh(H)
    known = values > len(H) * torch.finfo(H.dtype).eps * values[-1]
    rank, (o, d) = int(known.sum()), (len(D), len(H))
    if rank * (2 * d + o) >= d * (d + o):
        return D, H, False
    return D, vectors[:, known] * values[known].sqrt(), True


# Built from a risk --------------------------------------------------------------------------------------------------


def kfac(risk: Risk, *, joint: bool = True) -> Kronecker:
    """G^l ≈ Δ^l ⊗ H^l for every layer l, with H = Σᵢ ωᵢ hᵢhᵢᵀ and Δ = Σ w δδᵀ: Martens and Grosse (2015).

    δ are the errors of a square root of the loss's Hessian, so that Δ is exact for any convex loss and no labels are
    drawn. Where a layer is applied at several positions of an example (convolutions, tokens, several uses), H is the
    mean and Δ the sum over all of them ("expand", Eschenhagen et al. 2023): products between different positions are
    left out, so that the largest eigenvalue of a convolution's G comes out too small, by up to the number of
    positions. Examples count in H with the weight that they have in the loss. Papyan (2020), Def. 7.1, without the
    prefactor of Δ.

    Args:
        joint: Take weight and bias as one matrix [W b], with a feature that is always one. False sets the blocks
            between weight and bias to zero.
    """
    return _layerwise(risk, 1, joint=joint)


def cfac(risk: Risk, *, joint: bool = True) -> Kronecker:
    """G^l ≈ Σ_c π_c Δ_c^l ⊗ H_c^l, factors for each class c apart, with π_c = n_c/N: class-distinct KFAC.

    H_c is the mean of hhᵀ over the examples of class c, Δ_c that of Σ_{c'} p_{c'} δδᵀ, so that Σ_c π_c Δ_c = Δ. With
    one example per class, and one position, it is G^l itself (for weight and bias jointly). Class weights of the loss
    are part of π_c. Positions and `joint` as in `kfac`. Papyan (2020), Def. 7.2, with n_c/N and without 1/(NC).
    """
    return _layerwise(risk, _class_count(risk), joint=joint)


def khatri_rao_kfac(risk: Risk) -> KhatriRao:
    """G ≈ Δ ⊙ H for all layers at once: block (l, m) is Δ^{lm} ⊗ H^{lm}. Papyan (2020), Def. 7.1.

    Positions of different layers do not correspond to each other, so they are reduced before the product: h is the
    mean over an example's positions, δ the sum. At one position, the diagonal blocks are those of `kfac`.
    """
    return _across(risk, 1)


def khatri_rao_cfac(risk: Risk) -> KhatriRao:
    """G ≈ Σ_c π_c Δ_c ⊙ H_c for all layers at once. Papyan (2020), Def. 7.2, with n_c/N and without 1/(NC).

    With one example per class, and one position in every layer, it is G itself. Positions as in `khatri_rao_kfac`.
    """
    return _across(risk, _class_count(risk))


def _layerwise(risk: Risk, groups: int, *, joint: bool) -> Kronecker:
    known, chosen = linear_layers(risk)
    sums = {layer.name: Factors(risk, groups, layer.outputs, width(layer)) for layer in chosen}
    check_size(risk, sums.values())
    for batch, passed, masses, labels in passes(known, chosen, groups):
        for layer in chosen:
            sums[layer.name].add_features(features_of(layer, passed), masses, labels)
        for errors in errors_of(risk, batch, passed):
            for layer in chosen:
                sums[layer.name].add_errors(layer.errors(passed, errors), labels)
    found = {layer.name: _kronecker_layer(risk, layer, sums[layer.name], joint) for layer in chosen}
    return Kronecker(found, risk, {layer.name: Block.of(layer, risk.shapes) for layer in chosen})


def _kronecker_layer(risk: Risk, layer: Affine, sums: Factors, joint: bool) -> KroneckerLayer:
    weights, errors, features = sums.means(risk)
    if not joint and layer.weight is not None and layer.bias is not None:
        features[:, -1, :-1] = features[:, :-1, -1] = 0.0
    own = {name: shape for name, shape in risk.shapes.items() if name in (layer.weight, layer.bias)}
    return KroneckerLayer(layer.name, weights, errors, features, Block.of(layer, own), risk.dtype)


def _across(risk: Risk, groups: int) -> KhatriRao:
    known, chosen = linear_layers(risk)
    widths, outputs = [width(layer) for layer in chosen], [layer.outputs for layer in chosen]
    sums = Factors(risk, groups, sum(outputs), sum(widths))
    check_size(risk, [sums])
    for batch, passed, masses, labels in passes(known, chosen, groups):
        h = torch.cat([features_of(layer, passed).mean(1, keepdim=True) for layer in chosen], -1)
        sums.add_features(h, masses, labels)
        for errors in errors_of(risk, batch, passed):
            delta = [layer.errors(passed, errors).sum(2, keepdim=True) for layer in chosen]
            sums.add_errors(torch.cat(delta, -1), labels)
    blocks = [Block.of(layer, risk.shapes) for layer in chosen]
    places = list(zip(blocks, _slices(outputs), _slices(widths), strict=True))
    return KhatriRao(tuple(layer.name for layer in chosen), *sums.means(risk), risk, places)


def _class_count(risk: Risk) -> int:
    count = len(cross_weights(risk))
    why = "Factors by class need the one class of an example, with all that a layer sees of it."
    check_one_label(risk, why, "Use kfac(risk), which needs no classes.")
    return count


# Spectra ------------------------------------------------------------------------------------------------------------


def _spectrum(A: Operator, options: dict[str, Any]) -> Spectrum:
    return Spectrum.of_matrix(A.dense()) if A.size <= DENSE else spectral_density(A, **options)


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


def _slices(lengths: list[int]) -> list[slice]:
    ends = list(accumulate(lengths))
    return [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]


def _square(factors: Tensor) -> str:
    return f"{factors.shape[1]}²"
