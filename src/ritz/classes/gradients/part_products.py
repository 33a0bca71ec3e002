"""Products with the parts of G that keep no means: J, then class averages in output space, then Jᵀ."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from ... import progress
from ...engine import Linearized
from ...engine.linearized import pushforward
from ...engine.pieces import quiet
from ...operators import Operator
from ...risk import Risk
from ...risk.class_terms import ClassTerms, as_outputs
from ..scatter import ratio
from .means import class_means
from .pullback import Pullback, forward

Along = Float[Tensor, "C C k"]  # g_{c,c'}ᵀ V


class PartProducts:
    """Products with G_class, G_cross, G_own and G_within that take N · C · k numbers of memory instead of C² · n.

    With t_{i,c'} = g_{i,c,c'}ᵀ v = pᵢᵀ Jᵢ v - (Jᵢ v)_{c'}, each part is Σ w_{i,c,c'} β_{i,c'} g_{i,c,c'}, where the
    coefficients β are class averages of t; and Σ_{c'} w_{i,c,c'} β_{c'} (pᵢ - e_{c'}) = -aᵢ (diag pᵢ - pᵢ pᵢᵀ) β / Σ w.
    """

    def __init__(self, risk: Risk, weights: Float[Tensor, "C C"]) -> None:
        self.risk, self.weights, self._pullback = risk, weights, Pullback(risk)
        self._eye = torch.eye(len(weights), dtype=torch.bool, device=weights.device)[..., None]

    def operator(self, part: str) -> Operator:
        """One of "between_class", "cross_class", "own_class" and "within"."""
        risk = self.risk
        coefficients = {
            "between_class": self._between_class,
            "cross_class": self._cross_class,
            "own_class": self._own_class,
            "within": None,
        }
        return Operator(
            partial(self._product, coefficients[part]),
            risk.size,
            risk.dtype,
            risk.device,
            room=risk.common_memory,
            semidefinite=True,
        )

    def _between_class(self, along: Along) -> Along:
        return self._class_average(along).expand_as(along).masked_fill(self._eye, 0.0)

    def _cross_class(self, along: Along) -> Along:
        return (along - self._class_average(along)).masked_fill(self._eye, 0.0)

    def _own_class(self, along: Along) -> Along:
        return along.masked_fill(~self._eye, 0.0)

    def _product(self, coefficients: Callable[[Along], Along] | None, V: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        """The product with a part, by its coefficients β: class averages of t, or for G_within what they leave of t."""
        if not V.shape[1]:
            return V.clone()
        rows = V.T.contiguous()
        along, slopes = self._averages(rows)
        beta = along if coefficients is None else coefficients(along)
        total = torch.zeros_like(rows)
        with progress.bar("Jᵀ U") as bar:
            for batch, slope in zip(self.risk.batches, slopes, strict=True):
                linearized, own = forward(self.risk, batch)
                mine = beta[own.labels].movedim(-1, 0)
                U = -_curvature(own, slope - mine if coefficients is None else mine)
                total += torch.cat(list(self._pullback(linearized, as_outputs(self.risk, U, linearized.z))))
                bar.advance()
        return self.risk.sum_over_ranks(total).T

    def _averages(self, rows: Float[Tensor, "k n"]) -> tuple[Along, list[Float[Tensor, "k t C"]]]:
        """The class averages g_{c,c'}ᵀ V, and t of every term."""
        along = self.weights.new_zeros(*self.weights.shape, len(rows))
        slopes = []
        with progress.bar("J V") as bar:
            for batch in self.risk.batches:
                linearized, own = forward(self.risk, batch)
                slopes.append(_slopes(own, self._pushforward(linearized, rows)))
                shares = ratio(own.weights, self.weights[own.labels])
                along.index_add_(0, own.labels, (shares * slopes[-1]).movedim(0, -1))
                bar.advance()
        return self.risk.sum_over_ranks(along), slopes

    def _class_average(self, along: Along) -> Float[Tensor, "C 1 k"]:
        """g_cᵀ V from g_{c,c'}ᵀ V."""
        return class_means(along, self.weights)[:, None]

    def _pushforward(self, batch: Linearized, rows: Float[Tensor, "k n"]) -> Float[Tensor, "k t C"]:
        """J V with a row for each term, in float64."""
        with self.risk.numerics(self.risk.tangent_precision), quiet():
            columns = torch.cat([pushforward(batch, row) for row in rows.split(1)])
        dim = self.risk.loss.class_dim % batch.z.ndim
        return columns.movedim(dim + 1, -1).reshape(len(rows), -1, batch.z.shape[dim]).double()


def _slopes(own: ClassTerms, Jv: Float[Tensor, "k t C"]) -> Float[Tensor, "k t C"]:
    """t_{c'} = Σ_k p_k (Jv)_k - (Jv)_{c'}; constants cancel, so the likeliest class's is taken out first."""
    shifted = _without_top(own, Jv)
    return (own.probabilities * shifted).sum(-1, keepdim=True) - shifted


def _curvature(own: ClassTerms, beta: Float[Tensor, "k t C"]) -> Float[Tensor, "k t C"]:
    """a (diag p - p pᵀ) β."""
    shifted = _without_top(own, beta)
    return own.weights * (shifted - (own.probabilities * shifted).sum(-1, keepdim=True))


def _without_top(own: ClassTerms, values: Float[Tensor, "k t C"]) -> Float[Tensor, "k t C"]:
    top = own.probabilities.argmax(-1, keepdim=True).expand(len(values), -1, 1)
    return values - values.gather(-1, top)
