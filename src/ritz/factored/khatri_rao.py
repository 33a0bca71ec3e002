"""Khatri-Rao-factored curvature: KFAC or CFAC over all layers at once, including blocks between layers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..operators import Operator
from ..risk import Risk
from ..risk.memory import check_memory
from ..spectrum import Spectrum
from .eigenbases import DenseBasis, EigenBlocks
from .kronecker import class_count
from .kronecker_products import DENSE, Block, WithOperator, product, spectrum_of, square
from .second_moments import SecondMoments, check_size, errors_of, factored_layers, features_of, passes, width


@dataclass(frozen=True, repr=False, eq=False)
class KhatriRao(WithOperator):
    """Σ_c π_c Δ_c ⊙ Φ_c over all layers at once: the block of layers l and m is Σ_c π_c Δ_c^{lm} ⊗ Φ_c^{lm}.

    Δ_c and Φ_c are second moments of errors and features joined over the layers, so that blocks off the diagonal are
    approximated, too. It is positive semi-definite, being a principal submatrix of Σ_c π_c Δ_c ⊗ Φ_c.
    """

    layers: tuple[str, ...]
    weights: Float[Tensor, " g"]  # π_c; one for KFAC
    errors: Float[Tensor, "g O O"]
    features: Float[Tensor, "g D D"]
    risk: Risk = field(repr=False)
    _places: list[tuple[Block, slice, slice]] = field(repr=False)  # places in θ, errors, features

    def __repr__(self) -> str:
        shape = f"{len(self.weights)} × ({square(self.errors)} ⊙ {square(self.features)})"
        return f"KhatriRao(n = {self.risk.size:,}, layers {', '.join(self.layers)}: {shape})"

    @property
    def operator(self) -> Operator:
        """The matrix as an operator over θ; its inverse is known up to 2,048 parameters, by a dense matrix."""
        inverse = self._inverse if self.risk.size <= DENSE else None
        return replace(self._operator(self.risk.dtype), inverse=inverse)

    def spectrum(self, **options: Any) -> Spectrum:
        """Exact up to 2,048 parameters; beyond, a quadrature with the options of `spectral_density`."""
        return spectrum_of(self._operator(torch.float64), options)

    def _inverse(self, damping: float) -> Operator:
        size, risk = self.risk.size, self.risk
        check_memory(8.0 * size**2, risk.memory, "The eigenvectors of the Khatri-Rao product")
        basis = DenseBasis.of(self._operator(torch.float64).dense())
        return EigenBlocks([(Block(slice(0, size), None, 1), basis)], size, risk.dtype, risk.device).inverse(damping)

    def _operator(self, dtype: torch.dtype) -> Operator:
        scaled, features = (self.weights[:, None, None] * self.errors).to(dtype), self.features.to(dtype)
        matmat = partial(_block_products, self._places, scaled, features)
        return Operator(matmat, self.risk.size, dtype, self.risk.device)


def _block_products(
    places: list[tuple[Block, slice, slice]], scaled: Tensor, features: Tensor, V: Float[Tensor, "n k"]
) -> Float[Tensor, "n k"]:
    total, matrices = torch.zeros_like(V), [block.matrices(V) for block, _, _ in places]
    for block, outputs, inputs in places:
        for M, (_, others, sources) in zip(matrices, places, strict=True):
            pairs = zip(scaled[:, outputs, others], features[:, sources, inputs], strict=True)
            block.add(total, product([(D, Phi, False) for D, Phi in pairs], M))
    return total


def khatri_rao_kfac(risk: Risk) -> KhatriRao:
    """G ≈ Δ ⊙ Φ for all layers at once: block (l, m) is Δ^{lm} ⊗ Φ^{lm}. Papyan (2020), Def. 7.1, eq. (7.5), (7.8).

    Positions of different layers do not correspond to each other, so they are reduced before the product: φ is the
    mean over an example's positions, δ the sum. At one position, the diagonal blocks are those of `kfac`.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False)).double()
    >>> _ = torch.nn.init.zeros_(model[0].weight)
    >>> risk = Risk(model, torch.nn.CrossEntropyLoss(), (torch.eye(2).double(), torch.tensor([0, 1])))
    >>> khatri_rao_kfac(risk)
    KhatriRao(n = 4, layers 0: 1 × (2² ⊙ 2²))
    """
    return _across(risk, 1)


def khatri_rao_cfac(risk: Risk) -> KhatriRao:
    """G ≈ Σ_c π_c Δ_c ⊙ Φ_c for all layers at once. Papyan (2020), Def. 7.2, with n_c/N and without 1/(NC).

    With one example per class, and one position in every layer, it is G itself. Positions as in `khatri_rao_kfac`.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False)).double()
    >>> _ = torch.nn.init.zeros_(model[0].weight)
    >>> risk = Risk(model, torch.nn.CrossEntropyLoss(), (torch.eye(2).double(), torch.tensor([0, 1])))
    >>> khatri_rao_cfac(risk)
    KhatriRao(n = 4, layers 0: 2 × (2² ⊙ 2²))
    """
    return _across(risk, class_count(risk))


def _across(risk: Risk, groups: int) -> KhatriRao:
    layers, linear = factored_layers(risk)
    widths, outputs = [width(layer) for layer in linear], [layer.outputs for layer in linear]
    sums = SecondMoments(risk, groups, sum(outputs), sum(widths))
    check_size(risk, [sums])
    for batch, forward, masses, labels in passes(layers, linear, groups):
        phi = torch.cat([features_of(layer, forward).mean(1, keepdim=True) for layer in linear], -1)
        sums.add_features(phi, masses, labels)
        for errors in errors_of(risk, batch, forward):
            delta = [layer.errors(forward, errors).sum(2, keepdim=True) for layer in linear]
            sums.add_errors(torch.cat(delta, -1), labels)
    blocks = [Block.of(layer, risk.shapes) for layer in linear]
    places = list(zip(blocks, _slices(outputs), _slices(widths), strict=True))
    return KhatriRao(tuple(layer.name for layer in linear), *sums.means(risk), risk, places)


def _slices(lengths: list[int]) -> list[slice]:
    ends = list(accumulate(lengths))
    return [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]
