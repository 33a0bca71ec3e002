"""Assembly of the Gram matrix K = J̃ J̃ᵀ: block by block of examples, then checked against a product with G."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .. import progress
from ..engine.linearized import ReverseMode, pushforward
from ..engine.pieces import quiet
from ..layers.capture import Layers
from ..layers.jacobian_rows import Rows, computed_bytes, cotangents, held_bytes, rows_of
from ..risk import Risk
from ..risk.batches import Batch
from ..risk.class_terms import ClassTerms, terms
from ..risk.losses import Classification, complement_of_root
from ..solvers.resumption import Resumption
from .gram_blocks import Assembly, Extent, FinishedBlocks, read_assembly, written_assembly

MOST = 100  # times the error that a matrix had when it was written: the most it may have when read
PIECES = 8  # blocks of rows, or more where memory is short: 36 of 64 squares are computed
LEAST_ROWS = 512  # of a block, below which its products are too small to be fast, unless they are kept in a file


def assembly(layers: Layers, file: Resumption | None = None) -> Assembly:
    """K, block by block of examples, of which the upper half is the lower one's mirror image.

    With a file, those blocks that are done are kept there.
    """
    risk, groups = layers.risk, _groups(layers, least=1 if file is not None else LEAST_ROWS)
    blocks = [block for group in groups for block in group]
    extents = [] if file is None or file.arrays is None else [_extent(risk, block) for block in blocks]
    if file is not None and file.is_over:
        return file.read(partial(_read, risk, blocks, extents))
    finished = FinishedBlocks.of([len(block) for block in blocks], extents, risk, file)
    _fill(layers, groups, finished, None if file is None else partial(file.keep, finished.written))
    K = finished.symmetric()
    result = Assembly(K, finished.terms(), _error(risk, K, blocks))
    if file is not None:
        file.keep(partial(written_assembly, result), over=True)
    return result


def _read(
    risk: Risk, blocks: list[Batch], extents: list[Extent], arrays: Mapping[str, Tensor], header: Mapping[str, Any]
) -> Assembly:
    """The matrix from a file, which must agree with a product with G as well as when it was written."""
    result = read_assembly(extents, risk, arrays, header)
    error, eps = _error(risk, result.matrix, blocks), torch.finfo(result.matrix.dtype).eps
    if not (error <= MOST * (result.error + eps) and result.error <= MOST * (error + eps)):
        raise ValueError(f"its matrix and a product with G differ by {error:.1e}, and not by {result.error:.1e}")
    return result


def _extent(risk: Risk, block: Batch) -> Extent:
    """The extent of a block of examples, all of which are alike."""
    first = block.first(1)
    with risk.numerics(), torch.no_grad():
        z = risk.outputs(risk.leaves(), first)
        own = terms(risk, z, first.targets) if _has_labels(risk) else None
        return Extent(len(block), len(_directions_of_outputs(risk, z, first.targets)), own)


def _fill(layers: Layers, groups: list[list[Batch]], finished: FinishedBlocks, keep: Callable[[], None] | None) -> None:
    """Compute all blocks of K that are missing; rows are held for two groups of examples at a time."""
    risk, start, held = layers.risk, 0, list[LazyRows]()
    for group in groups:
        held.append(LazyRows(layers, group, start))
        start += len(group)
    with quiet(), progress.bar("Gram matrix", total=start * (start + 1) // 2) as bar:
        bar.advance(len(finished.pieces))
        for left, right in [(left, right) for k, left in enumerate(held) for right in held[: k + 1]]:
            for i, j in finished.missing(left.numbers, right.numbers):
                if keep is not None:
                    keep()
                finished.note_terms(i, partial(left.terms, i))
                with risk.numerics(risk.tangent_precision), torch.no_grad():
                    finished.pieces[i, j] = left[i].inner(right[j], risk.memory / 4)
                bar.advance()
            right.drop()


class LazyRows:
    """The rows of a group of blocks, each computed when it is first requested."""

    def __init__(self, layers: Layers, blocks: list[Batch], start: int) -> None:
        self.layers, self.blocks, self.numbers = layers, blocks, range(start, start + len(blocks))
        self._rows: dict[int, Rows] = {}

    def __getitem__(self, number: int) -> Rows:
        if number not in self._rows:
            self._rows[number] = _rows(self.layers, self.blocks[number - self.numbers.start])
        return self._rows[number]

    def terms(self, number: int) -> ClassTerms | None:
        """The labelled terms of a block; None where its targets are no labels."""
        risk, block = self.layers.risk, self.blocks[number - self.numbers.start]
        return terms(risk, self[number].outputs, block.targets) if _has_labels(risk) else None

    def drop(self) -> None:
        """Free the rows."""
        self._rows.clear()


def _rows(layers: Layers, block: Batch) -> Rows:
    return rows_of(layers, block, lambda z: _directions_of_outputs(layers.risk, z, block.targets))


def _directions_of_outputs(risk: Risk, z: Tensor, targets: Tensor) -> Float[Tensor, "r N ..."]:
    """u with Σ u uᵀ = ∂²ℓ/∂z² / Σ w: the directions of every example, r for each of its terms, as cotangents of z."""
    return torch.cat(list(cotangents(risk.loss, z, _root(risk, z, targets))))


def _root(risk: Risk, z: Tensor, targets: Tensor) -> Float[Tensor, "t K r"]:
    """The loss's square root; for labels, from the same numbers and in the same basis as the parts of G."""
    if not _has_labels(risk):
        return risk.loss.square_root(z, targets) / risk.total_weight**0.5
    own = terms(risk, z, targets)
    return (own.weights.sqrt()[:, :, None] * complement_of_root(own.probabilities)).to(z.dtype)


def _has_labels(risk: Risk) -> bool:
    return isinstance(risk.loss, Classification) and not next(iter(risk.batches)).targets.is_floating_point()


def _groups(layers: Layers, least: int) -> list[list[Batch]]:
    """The data in blocks of an eighth, unless they have few rows or many bytes, and in groups whose rows are held."""
    risk, directions = layers.risk, _num_directions(layers)
    held, groups, count = _that_fit(risk.memory / 3, held_bytes(layers, directions)), list[list[Batch]](), 0
    size = max(math.ceil(risk.num_examples / PIECES), math.ceil(least / directions))
    size = min(size, held, _that_fit(risk.memory / 4, computed_bytes(layers, directions)))
    for block in _cut(risk, size):
        if not groups or count + len(block) > held:
            groups.append([])
            count = 0
        groups[-1].append(block)
        count += len(block)
    return groups


def _num_directions(layers: Layers) -> int:
    """The rows of K that belong to one example."""
    risk, first = layers.risk, next(iter(layers.risk.batches)).first(1)
    with torch.no_grad():
        z = risk.outputs(risk.leaves(), first)
    return len(_directions_of_outputs(risk, z, first.targets))


def _that_fit(memory: float, each: float) -> int:
    """How many examples fit into memory, one at least."""
    return max(1, int(memory / each))


def _cut(risk: Risk, size: int) -> list[Batch]:
    """The data in blocks of at most `size` examples."""
    batches = risk.batches.joined(max(1, size // len(next(iter(risk.batches)))))
    return [batch.rows(slice(i, i + size)) for batch in batches for i in range(0, len(batch), size)]


def pullback(risk: Risk, Y: Float[Tensor, "m k"], blocks: Iterable[Batch] | None = None) -> Float[Tensor, "n k"]:
    """J̃ᵀ Y by plain backward passes: the vectors of parameter space that belong to columns Y of K's space."""
    X, start = Y.new_zeros(Y.shape[1], risk.size), 0
    for batch in risk.batches if blocks is None else blocks:
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
    x = pullback(risk, y[:, None], blocks)[:, 0]
    x, y, K = x.double(), y.double(), K.double()  # float32 cannot hold their squares
    scale, Ky = x.norm().clamp(min=torch.finfo(x.dtype).tiny), K @ y
    Gx = _gauss_newton_product(risk, (x / scale).to(risk.dtype), blocks).double() * scale
    pairs = [(x @ x, y @ Ky), (x @ Gx, Ky @ Ky)]
    return max(float((a - b).abs() / b.abs()) if float(b) else float(a.abs()) for a, b in pairs)


def _gauss_newton_product(risk: Risk, x: Float[Tensor, " n"], blocks: list[Batch]) -> Float[Tensor, " n"]:
    """G x by the plainest path: a trial of several does not pay for one product."""
    total = torch.zeros_like(x)[None]
    for block in blocks:
        with risk.numerics():
            linearized = ReverseMode(risk, block, 1)
            middle = risk.loss.curvature(linearized.z, block.targets)
            linearized.vjp(middle(pushforward(linearized, x[None])[0])[None], total)
    return total[0] / risk.total_weight
