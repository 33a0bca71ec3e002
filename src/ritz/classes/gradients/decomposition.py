"""Class and cross-class structure of the gradients: the parts of the Gauss-Newton matrix and their means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...errors import ArgumentError
from ...operators import Operator, gauss_newton, low_rank
from ...risk import Risk
from ...risk.class_terms import cross_weights_and_count
from ...solvers.vectors import norms, rounding
from .means import class_means, cross_class_means, diagonal, means_of_class, off_diagonal, own_and_class_means
from .part_products import PartProducts
from .term_gradients import TermGradients, squared_distances

PARTS = ("between_class", "cross_class", "own_class")


@dataclass(frozen=True, repr=False, eq=False)
class ClassDecomposition:
    """G = G_class + G_cross + G_own + G_within: the Gauss-Newton matrix of a classifier by class and cross-class.

    With g_{i,c,c'} = Jᵢᵀ(pᵢ - e_{c'}) the gradient of term i of class c as if its label were c', and weights w_{i,c,c'}
    = aᵢ p_{i,c'} / Σ w (aᵢ = 1 without class weights), G = Σ w_{i,c,c'} g_{i,c,c'} g_{i,c,c'}ᵀ. Its parts are the
    second moments of the class means g_c (over c' ≠ c), of the cross-class means g_{c,c'} (c' ≠ c) around them, of the
    means g_{c,c}, and of what is left around all of these. Any balance of classes; a class without terms has weight
    zero, and a mean of weight zero is zero. Papyan (2020), Sec. 6, eq. (6.1), (6.2), (6.3), (6.4), centred at g_c;
    Papyan (2019), eq. (3), (4), (5).

    Means that exceed the memory of the risk are None. The operators then multiply through J and Jᵀ, at the price of
    about three gradients a column, and their `factor` is not known.

    >>> data = torch.eye(2).double(), torch.tensor([0, 1])
    >>> risk = Risk(torch.nn.Sequential(torch.nn.Linear(2, 2)).double(), torch.nn.CrossEntropyLoss(), data)
    >>> class_decomposition(risk)
    ClassDecomposition(C = 2, n = 6, means held)
    """

    risk: Risk
    num_weighted: int  # terms that are not ignored and whose class has positive weight
    cross_weights: Float[Tensor, "C C"]  # w_{c,c'}, in float64: they may be 1e-60
    class_means: Float[Tensor, "C n"] | None  # g_c
    own_means: Float[Tensor, "C n"] | None  # g_{c,c}
    cross_means: Float[Tensor, "C C n"] | None  # g_{c,c'}, that of c' = c included

    def __repr__(self) -> str:
        held = "means held" if self.cross_means is not None else "means too large to hold"
        return f"ClassDecomposition(C = {self.num_classes}, n = {self.risk.size:,}, {held})"

    @property
    def labels(self) -> Int[Tensor, " N"]:
        """The class of every target, as the risk has them; `ignore_index` for none."""
        return self.risk.labels

    @property
    def num_classes(self) -> int:
        """C, the width of the model's output."""
        return len(self.cross_weights)

    @property
    def own_weights(self) -> Float[Tensor, " C"]:
        """w_{c,c}."""
        return self.cross_weights.diagonal()

    @property
    def class_weights(self) -> Float[Tensor, " C"]:
        """w_c = Σ_{c'≠c} w_{c,c'}: how unsure the network is of a class; w_c + w_{c,c} is its share of the data."""
        return off_diagonal(self.cross_weights).sum(1)

    @cached_property
    def between_class(self) -> Operator:
        """G_class = Σ_c w_c g_c g_cᵀ, of rank C at most."""
        if self.class_means is None:
            return self._products.operator("between_class")
        return low_rank(_weighted(self.class_means, self.class_weights).T)

    @cached_property
    def own_class(self) -> Operator:
        """G_own = Σ_c w_{c,c} g_{c,c} g_{c,c}ᵀ, on the span of the class means: g_{c,c} = -(w_c / w_{c,c}) g_c."""
        if self.own_means is None:
            return self._products.operator("own_class")
        return low_rank(_weighted(self.own_means, self.own_weights).T)

    @cached_property
    def cross_class(self) -> Operator:
        """G_cross = Σ_{c'≠c} w_{c,c'} (g_{c,c'} - g_c)(g_{c,c'} - g_c)ᵀ, of rank C(C - 2) at most."""
        if self.cross_means is None or self.class_means is None:
            return self._products.operator("cross_class")
        C, n = self.class_means.shape
        rows = self.cross_means.new_empty(C, C - 1, n)  # the largest of all tensors here: filled in place
        for c, target in enumerate(rows):
            others = [k for k in range(C) if k != c]
            torch.sub(self.cross_means[c, others], self.class_means[c], out=target)
            target *= self.cross_weights[c, others].sqrt().to(target)[:, None]
        return low_rank(rows.view(C * (C - 1), n).T)

    @cached_property
    def within(self) -> Operator:
        """G_within = G - G_class - G_cross - G_own: the spread of the gradients around their cross-class means.

        A difference, whose rounding is that of G: in float32 a G_within of 1e-3 G has three digits.
        """
        if self.cross_means is None:
            return self._products.operator("within")
        return gauss_newton(self.risk) - self.between_class - self.cross_class - self.own_class

    @cached_property
    def ranks(self) -> dict[str, int]:
        """The numerical rank of each low-rank part, and of their sum ("together": C(C - 1) at most).

        Singular values of the factor count where they exceed min(n, 64) · eps times the largest.
        """
        factors = {name: self._factor(name) for name in PARTS}
        factors["together"] = torch.cat(list(factors.values()), 1)
        return {name: _rank(factor, rounding(self.between_class)) for name, factor in factors.items()}

    @cached_property
    def traces(self) -> dict[str, Float[Tensor, " C"]]:
        """The trace of each part, exactly, by class; without held means at the price of computing each of them once."""
        traces = {name: torch.zeros_like(self.class_weights) for name in PARTS}
        for c in self._present():
            own, centre = self._own_and_class_mean(c)
            traces["between_class"][c] = self.class_weights[c] * _square(centre)
            traces["own_class"][c] = self.own_weights[c] * _square(own)
            for columns, means in self._class_means_of(c):
                weights = off_diagonal(self.cross_weights)[c, columns]
                traces["cross_class"][c] += (weights * norms(means - centre).square()).sum()
        return traces

    @cached_property
    def within_traces(self) -> Float[Tensor, " C"]:
        """tr G_within by class: Σ_{i in c, c'} w_{i,c,c'} ‖g_{i,c,c'} - g_{c,c'}‖², exactly.

        The C gradients of every single term are formed once, a few at a time, and compared with their means, so that
        nothing cancels. N · C · n numbers pass through memory: 16 s for VGG11 on 1,360 images on an H200.
        """
        total, gradients = torch.zeros_like(self.class_weights), TermGradients(self.risk)
        for c in self._present():
            for columns, means in self._class_means_of(c):
                total[c] += squared_distances(gradients, c, columns, means)
        return self.risk.sum_over_ranks(total)

    @cached_property
    def _products(self) -> PartProducts:
        return PartProducts(self.risk, self.cross_weights)

    @cached_property
    def _memory(self) -> float:
        return self.risk.common_memory()

    def _present(self) -> list[int]:
        return (self.cross_weights.sum(1) > 0).nonzero()[:, 0].tolist()

    def _factor(self, name: str) -> Float[Tensor, "n r"]:
        factor = getattr(self, name).factor
        if factor is None:
            raise ArgumentError(
                f"The cross-class means of {self.num_classes} classes were not kept: they exceed the risk's memory.",
                "Their rank is computed from them.",
                f"Raise Risk(..., memory=...) to {_bytes_needed(self.risk, self.num_classes**2):.3g} bytes.",
                "Restrict the risk to some layers: risk.restricted_to(...).",
            )
        return factor

    def _class_means_of(self, c: int) -> Iterator[tuple[list[int], Float[Tensor, "m n"]]]:
        """The means g_{c,c'} of one class, a few columns at a time where they are not held."""
        columns = (self.cross_weights[c] > 0).nonzero()[:, 0].tolist()
        if self.cross_means is not None:
            yield columns, self.cross_means[c, columns]
            return
        width = max(1, int(self._memory // _bytes_needed(self.risk, 1)))
        for first in range(0, len(columns), width):
            part = columns[first : first + width]
            yield part, means_of_class(self.risk, c, part, self.cross_weights)

    def _own_and_class_mean(self, c: int) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        if self.own_means is not None and self.class_means is not None:
            return self.own_means[c], self.class_means[c]
        own, centres = own_and_class_means(self.risk, self.cross_weights, only=c)
        return own[0], centres[0]


def class_decomposition(risk: Risk) -> ClassDecomposition:
    """G of a classifier, split into the parts due to its class means, its cross-class means and the rest.

    One forward pass for the weights, and one more with C - 1 backward columns for each example: those of its own
    class. About 2C/3 gradients in all.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False)).double()
    >>> _ = torch.nn.init.zeros_(model[0].weight)
    >>> risk = Risk(model, torch.nn.CrossEntropyLoss(), (torch.eye(2).double(), torch.tensor([0, 1])))
    >>> classes = class_decomposition(risk)
    >>> classes
    ClassDecomposition(C = 2, n = 4, means held)
    >>> classes.ranks
    {'between_class': 2, 'cross_class': 0, 'own_class': 2, 'together': 2}
    """
    (weights, count), memory = cross_weights_and_count(risk), risk.common_memory()
    if _bytes_needed(risk, weights.numel()) <= memory:
        means = cross_class_means(risk, weights)
        return ClassDecomposition(risk, count, weights, class_means(means, weights), diagonal(means), means)
    if _bytes_needed(risk, 2 * len(weights)) <= memory:
        own, centres = own_and_class_means(risk, weights)
        return ClassDecomposition(risk, count, weights, centres, own, None)
    return ClassDecomposition(risk, count, weights, None, None, None)


def _bytes_needed(risk: Risk, count: int) -> float:
    """Bytes for this many means and as many columns of a factor."""
    return 2.0 * count * risk.size * risk.theta.element_size()


def _weighted(rows: Float[Tensor, "C n"], weights: Float[Tensor, " C"]) -> Float[Tensor, "C n"]:
    return rows * weights.sqrt().to(rows)[:, None]


def _square(vector: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    return norms(vector[None])[0].square()


def _rank(factor: Float[Tensor, "n r"], tolerance: float) -> int:
    """How many singular values exceed rounding; from the R of a QR decomposition, which preserves them."""
    values = torch.linalg.svdvals(torch.linalg.qr(factor, mode="r").R)
    return int((values > tolerance * values[0]).sum())
