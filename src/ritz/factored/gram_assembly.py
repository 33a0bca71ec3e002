"""The Gram matrix K = J̃ J̃ᵀ as it is assembled: block by block of examples, then checked against a product with G."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from .. import progress
from ..engine.linearized import ReverseMode, pushforward
from ..engine.pieces import quiet
from ..layers.capture import Layers
from ..layers.jacobian_rows import Rows, cotangents, row_bytes, rows_of
from ..risk import Risk
from ..risk.batches import Batch
from ..risk.class_terms import ClassTerms, terms
from ..risk.losses import Classification, complement_of_root


class Assembly(NamedTuple):
    """K with the terms of its rows, where they have labels, and how far it is from a product with G."""

    matrix: Tensor
    classes: ClassTerms | None
    error: float


def assembly(layers: Layers) -> Assembly:
    """K, block by block of examples, so many at a time that two blocks and what comes of them fit into memory."""
    risk, blocks = layers.risk, _blocks(layers)
    pieces: list[list[Tensor]] = []
    labelled: list[ClassTerms] = []
    with quiet(), progress.bar("Gram matrix", total=len(blocks) * (len(blocks) + 1) // 2) as bar:
        for i, block in enumerate(blocks):
            left = _rows(layers, block)
            pieces.append([])
            for j in range(i + 1):
                right = left if i == j else _rows(layers, blocks[j])
                with risk.numerics(risk.tangent_precision), torch.no_grad():
                    pieces[i].append(left.inner(right, risk.memory / 4))
                bar.advance()
            labelled += [terms(risk, left.outputs, block.targets)] if _has_labels(risk) else []
    K = _symmetric(pieces)
    return Assembly(K, _all_terms(labelled), _error(risk, K, blocks))


def _symmetric(pieces: list[list[Tensor]]) -> Float[Tensor, "m m"]:
    """The whole matrix from its lower blocks; they are given up one by one, for they are as large as the matrix."""
    ends = torch.tensor([0, *(len(row[0]) for row in pieces)]).cumsum(0).tolist()
    K = pieces[0][0].new_empty(ends[-1], ends[-1])
    for i, row in enumerate(pieces):
        for j in range(i + 1):
            rows, columns = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
            piece = (row[j] + row[j].T) / 2 if i == j else row[j]
            K[rows, columns], K[columns, rows] = piece, piece.T
        row.clear()
    return K


def _rows(layers: Layers, block: Batch) -> Rows:
    return rows_of(layers, block, lambda z: _directions_of_outputs(layers.risk, z, block.targets))


def _directions_of_outputs(risk: Risk, z: Tensor, targets: Tensor) -> Float[Tensor, "r N ..."]:
    """u with Σ u uᵀ = ∂²ℓ/∂z² / Σ w: the directions of every example, r for each of its terms, as cotangents of z."""
    return torch.cat(list(cotangents(risk.loss, z, _root(risk, z, targets))))


def _root(risk: Risk, z: Tensor, targets: Tensor) -> Float[Tensor, "t K r"]:
    """The loss's square root; that of labels from the same numbers as the parts of G, in the same basis."""
    if not _has_labels(risk):
        return risk.loss.square_root(z, targets) / risk.total_weight**0.5
    own = terms(risk, z, targets)
    return (own.weights.sqrt()[:, :, None] * complement_of_root(own.probabilities)).to(z.dtype)


def _has_labels(risk: Risk) -> bool:
    return isinstance(risk.loss, Classification) and not next(iter(risk.batches)).targets.is_floating_point()


def _all_terms(batches: list[ClassTerms]) -> ClassTerms | None:
    if not batches:
        return None
    return ClassTerms(
        *(torch.cat([getattr(t, name) for t in batches]) for name in ("labels", "masses", "probabilities"))
    )


def _blocks(layers: Layers) -> list[Batch]:
    """The data in blocks of as many examples as a third of the memory holds."""
    risk = layers.risk
    first = next(iter(risk.batches))
    with torch.no_grad():
        z = risk.outputs(risk.leaves(), first.first(1))
    size = max(
        1, int(risk.memory / 3 / row_bytes(layers, len(_directions_of_outputs(risk, z, first.first(1).targets))))
    )
    batches = risk.batches.joined(max(1, size // len(first)))
    return [batch.rows(slice(i, i + size)) for batch in batches for i in range(0, len(batch), size)]


def pullback(risk: Risk, Y: Float[Tensor, "m k"]) -> Float[Tensor, "n k"]:
    """J̃ᵀ Y by plain backward passes: the vectors of parameter space that belong to columns of K's."""
    X, start = Y.new_zeros(Y.shape[1], risk.size), 0
    for batch in risk.batches:
        with risk.numerics():
            linearized = ReverseMode(risk, batch, 1)
            U = _directions_of_outputs(risk, linearized.z, batch.targets)
            part = Y[start : start + len(U) * len(batch)].view(len(batch), len(U), -1)
            start += len(batch) * len(U)
            for x, u in zip(X.split(1), torch.einsum("nrk,rn...->kn...", part, U).split(1), strict=True):
                linearized.vjp(u, x)
    return X.T


def _error(risk: Risk, K: Float[Tensor, "m m"], blocks: list[Batch]) -> float:
    """How far xᵀx is from yᵀKy and xᵀGx from ‖Ky‖², for x = J̃ᵀy with a random y."""
    y = torch.randn(len(K), generator=torch.Generator().manual_seed(0), dtype=K.dtype).to(K.device)
    x, y, K = pullback(risk, y[:, None])[:, 0].double(), y.double(), K.double()  # float32 cannot hold their squares
    scale, Ky = x.norm().clamp(min=torch.finfo(x.dtype).tiny), K @ y
    Gx = _gauss_newton_product(risk, (x / scale).to(risk.dtype), blocks).double() * scale
    pairs = [(x @ x, y @ Ky), (x @ Gx, Ky @ Ky)]
    return max(float((a - b).abs() / b.abs()) if float(b) else float(a.abs()) for a, b in pairs)


def _gauss_newton_product(risk: Risk, x: Float[Tensor, " n"], blocks: list[Batch]) -> Float[Tensor, " n"]:
    """G x by the plainest path: one product does not pay for a choice among several."""
    total = torch.zeros_like(x)[None]
    for block in blocks:
        with risk.numerics():
            linearized = ReverseMode(risk, block, 1)
            middle = risk.loss.curvature(linearized.z, block.targets)
            linearized.vjp(middle(pushforward(linearized, x[None])[0])[None], total)
    return total[0] / risk.total_weight
