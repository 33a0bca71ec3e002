"""Whether the examples of a batch are independent of each other, so that batches may be cut, joined or sorted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, combinations, cycle, islice
from itertools import count as count_from

import torch
from torch import Tensor

from ..errors import DataError
from ..foreign_errors import is_out_of_memory
from .batches import Batch, Batches, joined
from .losses import Loss
from .memory import forget_unused

NetworkFunction = Callable[[Sequence[Tensor], Batch], Tensor]  # f(θ, x) for parameters as a list
SLACK = 100.0  # kernels of another batch size may round this many times differently
STEP = 0.1  # how far θ is moved, relative: far enough to make outputs non-zero that are zero at the user's θ
LOOK_AHEAD = 4  # how many batches are read for it where they are read anew
EDGE = 32  # how many rows of each batch are tried together


@dataclass(frozen=True)
class Separability:
    """Tests of independence, at the parameters of a risk and at moved ones, where no zero output hides a dependence."""

    outputs: NetworkFunction
    leaves: list[Tensor]
    loss: Loss

    def batches_with_findings(self, batches: Batches) -> Batches:
        """The same data, marked with what is known of their examples; uncut if they may not be cut."""
        several = _several(batches)
        first, other = _first_and_another(several)
        separable = all(batch.countable() for batch in several) and (len(first) < 2 or self.independent(first))
        joinable = separable and (other is None or self._joinable(first, other))
        if separable and not joinable:  # the others may be larger, or of examples that meet
            separable = all(self.independent(batch) for batch in _others(several, first))
        if not batches.ours:
            return replace(batches, separable=separable, joinable=joinable)
        if separable and joinable:
            return batches
        if batches.whole is None:
            raise _no_batches()
        return replace(batches.whole(), separable=False, joinable=False)

    def independent(self, batch: Batch, parts: Sequence[Tensor] = ()) -> bool:
        """Whether outputs and terms of every example are the same without any other.

        Groups of examples are evaluated separately, in another order, such that for any two examples some group has one
        without the other; `parts` are further groups. This is done at moved parameters, where no zero output hides a
        dependence, or at the user's own if those overflow.
        """
        moved = [jittered(leaf, STEP * _scale(leaf)) for leaf in self.leaves]
        at_moved = self._splits(moved, batch, parts)
        return bool(self._splits(self.leaves, batch, parts) if at_moved is None else at_moved)

    def _joinable(self, first: Batch, other: Batch) -> bool:
        """Whether rows of two batches give the same together as apart, tried on as many rows as memory holds."""
        edge = EDGE
        while edge:
            try:
                return self.independent(*_edges(first, other, edge))
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
            forget_unused(first.targets.device)  # outside of the handler, whose traceback holds what filled the memory
            edge = min(edge, max(len(first), len(other))) // 2
        return False

    def _splits(self, leaves: list[Tensor], batch: Batch, parts: Sequence[Tensor]) -> bool | None:
        """Whether a batch gives the same in parts; None if these parameters do not tell."""
        try:
            whole = self._evaluated(leaves, batch)
        except Exception as error:  # a user's model that refuses other parameters
            if is_out_of_memory(error):
                raise
            return None
        if not bool(torch.isfinite(whole.z).all()):
            return None
        try:
            groups = chain(parts, _groups(batch))
            return all(whole.agrees(self.outputs(leaves, batch.rows(rows)), rows) for rows in groups)
        except Exception as error:  # whatever a user's model raises on other batches than the user's
            if is_out_of_memory(error):
                raise
            return False

    def _evaluated(self, leaves: list[Tensor], batch: Batch) -> _Evaluated:
        z = self.outputs(leaves, batch)
        eps = max(torch.finfo(t.dtype).eps for t in (z, *leaves))
        rough = self.outputs([jittered(leaf, eps * leaf.abs()) for leaf in leaves], batch)
        rough_z, y = jittered(z, eps * z.abs()), batch.targets
        pairs = ((values(z, y), values(rough_z, y)) for values in (self.loss.terms, self.loss.weights))
        (terms, weights), allowances = zip(*((t, _allowance(t, r, eps)) for t, r in pairs), strict=True)
        return _Evaluated(self.loss, batch, z, terms, weights, (_allowance(z, rough, eps), *allowances))


@dataclass(frozen=True)
class _Evaluated:
    """A whole batch, evaluated, and how far rounding may move outputs, terms and weights in other evaluations."""

    loss: Loss
    batch: Batch
    z: Tensor
    terms: Tensor
    weights: Tensor
    allowances: tuple[float, ...]

    def agrees(self, z: Tensor, rows: Tensor) -> bool:
        """Whether the outputs of some rows alone, and their terms from the same outputs, are those of the whole."""
        count, targets = len(self.batch), self.batch.targets[rows]
        own, terms, weights = (_of_rows(t, rows, count) for t in (self.z, self.terms, self.weights))
        if not _near(z, own, self.allowances[0]):
            return False
        alone = self.loss.terms(own, targets), self.loss.weights(own, targets)
        return all(map(_near, alone, (terms, weights), self.allowances[1:]))


def _groups(batch: Batch) -> Iterator[Tensor]:
    """Groups of about half of the examples, such that for any two examples some group has the first without the second.

    An example is in the groups of its code, and codes are different subsets of the same size, none of which holds
    another (Sperner 1928): 8 groups for 64 examples. All groups have the same size, some examples twice, for a GPU
    chooses its kernels for every size anew; the order of a group is the other way round.
    """
    codes = _codes(len(batch))
    members = [[i for i, code in enumerate(codes) if group in code] for group in range(max(map(max, codes)) + 1)]
    size = max(map(len, members))
    for group in members:
        yield torch.tensor(list(islice(cycle(reversed(group)), size)), device=batch.targets.device)


def _codes(count: int) -> list[tuple[int, ...]]:
    """`count` subsets of equal size of as few things as possible, spread evenly over all such subsets."""
    things = next(m for m in count_from(2) if math.comb(m, m // 2) >= count)
    total = math.comb(things, things // 2)
    chosen = {i * total // count for i in range(count)}
    return [code for i, code in enumerate(combinations(range(things), things // 2)) if i in chosen]


def _of_rows(values: Tensor, rows: Tensor, count: int) -> Tensor:
    """The values that belong to some of `count` examples, each of which has equally many, in order."""
    return values.unflatten(0, (count, -1))[rows].flatten(0, 1)


def _near(a: Tensor, b: Tensor, allowance: float) -> bool:
    """Whether values are equal but for rounding; missing ones (NaN) are equal to missing ones."""
    if a.shape != b.shape:
        return False
    difference = (a - b).abs_()
    if float(difference.max()) <= allowance:  # as nearly always: no value is missing
        return True
    same = (a == b) | (a.isnan() & b.isnan())
    return float(difference.masked_fill_(same, 0.0).max()) <= allowance


def _allowance(values: Tensor, rough: Tensor, eps: float) -> float:
    """How far rounding may differ at another batch size: SLACK times the effect of a last digit in every parameter."""
    scale, drift = (float(t.abs().nan_to_num(0.0, 0.0).max()) for t in (values, rough - values))
    return min(SLACK * (eps * scale + drift), eps**0.5 * scale)


def jittered(tensor: Tensor, size: Tensor | float) -> Tensor:
    """A tensor moved by random numbers of the given size, the same on every device: 65521 of them, over and over."""
    noise = _noise(tensor.device)[: max(tensor.numel(), 1)].to(tensor)
    copies = -(-tensor.numel() // len(noise))
    return tensor + size * noise.repeat(copies)[: tensor.numel()].view_as(tensor)


@lru_cache(maxsize=4)
def _noise(device: torch.device) -> Tensor:
    return torch.randn(65521, generator=torch.Generator().manual_seed(0)).to(device)


def _scale(leaf: Tensor) -> float:
    """The root mean square of a parameter; for one that is zero, what an initialisation would give it."""
    return float(leaf.double().square().mean().sqrt()) or max(leaf[0].numel() if leaf.ndim > 1 else 1, 1) ** -0.5


def _several(batches: Batches) -> list[Batch]:
    """All batches if they are in memory; the first few where they are read anew."""
    at_hand = batches.held is not None or batches.whole is not None
    return list(batches) if at_hand else list(islice(batches, LOOK_AHEAD))


def _first_and_another(several: list[Batch]) -> tuple[Batch, Batch | None]:
    """The first batch with several examples, if any, and the last other one of the same shape."""
    first = next((batch for batch in several if len(batch) > 1), several[0])
    others = (batch for batch in reversed(several) if batch is not first and batch.kind() == first.kind())
    return first, next(others, None)


def _others(several: list[Batch], first: Batch) -> list[Batch]:
    """The largest batch and the last one, unless they are the first or have a single example."""
    chosen = {id(batch): batch for batch in (max(several, key=len), several[-1])}
    return [batch for batch in chosen.values() if batch is not first and len(batch) > 1]


def _edges(first: Batch, other: Batch, count: int) -> tuple[Batch, Sequence[Tensor]]:
    """The end of one batch joined with the beginning of another, and the rows of each in it."""
    end, beginning = first.rows(slice(-count, None)), other.rows(slice(count))
    both = joined([end, beginning])
    return both, torch.arange(len(both), device=both.targets.device).split([len(end), len(beginning)])


def _no_batches() -> DataError:
    return DataError(
        "The terms of an example depend on the other examples of its batch, and the data came without batches.",
        "The risk would depend on how ritz cuts them.",
        "Pass the batches themselves: a list of (inputs, targets) or a DataLoader.",
        "Replace layers that look across the batch, such as batch norm without running statistics.",
    )
