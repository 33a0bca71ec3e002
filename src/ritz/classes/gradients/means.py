"""Means of gradients by class and cross-class, each computed so that nothing cancels or underflows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ... import progress
from ...engine import Linearized
from ...risk import Risk
from ...risk.class_terms import ClassTerms, as_outputs
from ...risk.data_by_class import class_batches
from ..scatter import ratio
from .pullback import Pullback, forward

# class c, cross-class c', and its share of Σ_{i in c} w_{i,c,c'} g_{i,c,c'} / scale_{c,c'}
Column = tuple[int, int, Tensor]


def cross_class_means(risk: Risk, weights: Float[Tensor, "C C"]) -> Float[Tensor, "C C n"]:
    """g_{c,c'}: all columns but that of the largest weight, which is minus the others, as Σ_{c'} w_{c,c'} g_{c,c'} = 0.

    Its weight is the largest, so the rounding of the others is not magnified.
    """
    C, tops, positive = len(weights), weights.argmax(1).tolist(), (weights > 0).tolist()
    columns = [[k for k in range(C) if k != tops[c] and positive[c][k]] for c in range(C)]
    means = risk.theta.new_zeros(C, C, risk.size)
    for c, k, row in _columns(risk, columns, weights):
        means[c, k] += row
    means = risk.sum_over_ranks(means)
    for c, top in enumerate(tops):
        means[c, top] = -(ratio(weights[c], weights[c, top]).to(means) @ means[c])  # row `top` is still zero here
    return means


def class_means(means: Float[Tensor, "C C n"], weights: Float[Tensor, "C C"]) -> Float[Tensor, "C n"]:
    """g_c = Σ_{c'≠c} w_{c,c'} g_{c,c'} / w_c, or -(w_{c,c} / w_c) g_{c,c} where the sum would cancel."""
    others, own = off_diagonal(weights), weights.diagonal()
    total = others.sum(1)
    shares = ratio(others, total[:, None]).to(means)
    averaged = torch.stack([share @ rows for share, rows in zip(shares, means, strict=True)])
    return torch.where((own < total)[:, None], -ratio(own, total).to(means)[:, None] * diagonal(means), averaged)


def own_and_class_means(
    risk: Risk, weights: Float[Tensor, "C C"], *, only: int | None = None
) -> tuple[Float[Tensor, "m n"], Float[Tensor, "m n"]]:
    """g_{c,c} and g_c of all classes, or of one, without the cross-class means: one backward column for each example.

    Both are multiples of Σ w_{i,c,c} g_{i,c,c}, which is divided by the smaller of their weights.
    """
    own, others = weights.diagonal(), off_diagonal(weights).sum(1)
    smaller, labels = torch.minimum(own, others), range(len(weights)) if only is None else [only]
    usable = (smaller > 0).tolist()
    columns = [[c] if usable[c] and c in labels else [] for c in range(len(weights))]
    sums = risk.theta.new_zeros(len(labels), risk.size)
    for c, _, row in _columns(risk, columns, smaller[:, None].expand_as(weights), only=only):
        sums[labels.index(c)] += row
    sums, rows = risk.sum_over_ranks(sums), slice(None) if only is None else slice(only, only + 1)
    own_shares, class_shares = (ratio(smaller, weight)[rows].to(sums)[:, None] for weight in (own, others))
    return own_shares * sums, -class_shares * sums


def means_of_class(risk: Risk, label: int, columns: list[int], weights: Float[Tensor, "C C"]) -> Float[Tensor, "m n"]:
    """g_{c,c'} for some columns c', of positive weight, of one class."""
    means = risk.theta.new_zeros(len(columns), risk.size)
    requested = [columns if c == label else [] for c in range(len(weights))]
    for _, k, row in _columns(risk, requested, weights, only=label):
        means[columns.index(k)] += row
    return risk.sum_over_ranks(means)


def off_diagonal(matrix: Float[Tensor, "C C"]) -> Float[Tensor, "C C"]:
    """The matrix with a zero diagonal, for sums over c' ≠ c: subtracting w_{c,c} from the whole sum would cancel."""
    return matrix - torch.diag(matrix.diagonal())


def diagonal(means: Float[Tensor, "C C n"]) -> Float[Tensor, "C n"]:
    """g_{c,c}, as a view."""
    return means.diagonal(dim1=0, dim2=1).T


def _columns(
    risk: Risk, columns: Sequence[Sequence[int]], scale: Float[Tensor, "C C"], *, only: int | None = None
) -> Iterator[Column]:
    """Σ_{i in c} w_{i,c,c'} g_{i,c,c'} / scale_{c,c'} for the columns c' that are requested of each class c, in parts.

    The weights are divided by the scale before they meet a gradient, so that nothing underflows that matters.
    """
    pullback = Pullback(risk)
    with progress.bar("Class means", total=risk.num_examples if only is None else None) as bar:
        for batch in class_batches(risk, only=only):
            linearized, batch_terms = forward(risk, batch)
            for label in batch_terms.present() if only is None else [only]:
                yield from _columns_of_class(pullback, linearized, batch_terms, label, columns[label], scale[label])
            bar.advance(len(batch))


def _columns_of_class(
    pullback: Pullback,
    batch: Linearized,
    batch_terms: ClassTerms,
    label: int,
    columns: Sequence[int],
    scale: Float[Tensor, " C"],
) -> Iterator[Column]:
    if not columns:
        return
    U = torch.stack([_cotangent(batch_terms, label, column, scale[column]) for column in columns])
    numbers = iter(columns)
    for rows in pullback(batch, as_outputs(pullback.risk, U, batch.z)):
        yield from ((label, next(numbers), row) for row in rows)


def _cotangent(batch_terms: ClassTerms, label: int, column: int, scale: Float[Tensor, ""]) -> Float[Tensor, "t C"]:
    """w_{i,c,c'} (p - e_{c'}) / scale for the terms of one class, zero for the others."""
    weights = torch.where(batch_terms.members(label), batch_terms.weights[:, column], 0.0) / scale
    return weights[:, None] * batch_terms.errors(column)
