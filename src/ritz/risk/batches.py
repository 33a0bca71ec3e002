"""Data in every form users have it, as batches of (inputs, targets) that are the same at every pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from ..errors import DataError
from .precision import untouched_randomness

Inputs = Tensor | dict[str, Tensor]
BATCH_SIZE = 512  # for data that comes unbatched: enough to fill a GPU, small enough for a laptop


@dataclass(frozen=True)
class Batch:
    """One batch: inputs as a tensor, or as a dict for `model(**inputs)`, and their targets."""

    inputs: Inputs
    targets: Tensor

    def to(self, device: torch.device, dtype: torch.dtype) -> Batch:
        """The batch on another device, floating-point inputs and targets in the given precision."""
        return Batch(_moved(self.inputs, device, dtype), _moved(self.targets, device, dtype))

    def rows(self, which: slice | Tensor) -> Batch:
        """Some examples of the batch: a slice, or the indices to take."""
        if isinstance(self.inputs, dict):
            return Batch({name: x[which] for name, x in self.inputs.items()}, self.targets[which])
        return Batch(self.inputs[which], self.targets[which])

    def first(self, count: int) -> Batch:
        """The first examples of the batch."""
        return self.rows(slice(count))

    def channels_last(self) -> Batch:
        """The batch with images stored channels-last; the same numbers in another order of memory."""
        move = lambda x: x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x
        if isinstance(self.inputs, dict):
            return Batch({name: move(x) for name, x in self.inputs.items()}, self.targets)
        return Batch(move(self.inputs), self.targets)

    def tensors(self) -> list[Tensor]:
        """Every tensor of the batch."""
        inputs = list(self.inputs.values()) if isinstance(self.inputs, dict) else [self.inputs]
        return [*inputs, self.targets]

    def names(self) -> tuple[str, ...]:
        """The names of the inputs; none for a single tensor."""
        return tuple(self.inputs) if isinstance(self.inputs, dict) else ()

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class Batches:
    """A data set that gives the same batches at every pass: held in memory where it fits, else read anew."""

    source: Callable[[], Iterator[Batch]]
    held: list[Batch] | None = None
    chunked: bool = False  # whether the batches are ours: the data came as whole tensors, and there are several

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.held) if self.held is not None else self.source()

    def channels_last(self) -> Batches:
        """The same data with images stored channels-last."""
        if self.held is not None:
            return replace(holding([batch.channels_last() for batch in self.held]), chunked=self.chunked)
        return replace(self, source=lambda: (batch.channels_last() for batch in self.source()))

    def to(self, device: torch.device, dtype: torch.dtype) -> Batches:
        """The same data on another device, floating-point numbers in another precision."""
        if self.held is not None:
            return replace(holding([batch.to(device, dtype) for batch in self.held]), chunked=self.chunked)
        return replace(self, source=lambda: (batch.to(device, dtype) for batch in self.source()))

    def joined(self, count: int) -> Batches:
        """The same data with `count` batches at a time made one, where they are held and of the same shape."""
        kinds = {(batch.names(), tuple(t.shape[1:] for t in batch.tensors())) for batch in self.held or ()}
        if self.held is None or count < 2 or len(kinds) > 1:
            return self
        return holding([joined(self.held[i : i + count]) for i in range(0, len(self.held), count)])


def of_one(inputs: Inputs) -> Inputs:
    """The inputs of a single example as a batch of one."""
    return {name: x[None] for name, x in inputs.items()} if isinstance(inputs, dict) else inputs[None]


def joined(batches: list[Batch]) -> Batch:
    """Several batches as one."""
    if len(batches) == 1:
        return batches[0]
    first = batches[0].inputs
    targets = torch.cat([batch.targets for batch in batches])
    if isinstance(first, dict):
        return Batch({name: torch.cat([b.inputs[name] for b in batches]) for name in first}, targets)  # type: ignore
    return Batch(torch.cat([batch.inputs for batch in batches]), targets)  # type: ignore[misc]


def holding(batches: list[Batch]) -> Batches:
    """Batches held in memory."""
    return Batches(lambda: iter(batches), batches)


def batches_from(data: Any, device: torch.device, dtype: torch.dtype, memory: float) -> Batches:
    """The batches of a user's data: (x, y) tensors, a Dataset, a DataLoader or any re-iterable of pairs.

    Two passes are compared, example by example, so that a loader which shuffles and drops, or augments, is
    refused. The first pass is kept on the device if it fits into `memory` bytes.
    """
    source = _source(data)
    generator = getattr(data, "generator", None)  # a loader's own, which shuffles
    with untouched_randomness(device, generator):  # once around both passes: augmentation must not repeat itself
        fixed = isinstance(source, (_Chunks, list, tuple))  # nothing is drawn anew at a pass over these
        kept, first = _first_pass(_passed(source, device, dtype), memory, compared=not fixed)
        if not fixed:
            second = [_fingerprint(batch) for batch in _passed(source, device, dtype)]
            _check_second_pass(first, second, held=kept is not None)
    chunked = isinstance(source, _Chunks) and len(first) > 1
    if kept is not None:
        return replace(holding(kept), chunked=chunked)
    return Batches(lambda: _quietly(_passed(source, device, dtype), device, generator), chunked=chunked)


def _passed(source: Iterable[Any], device: torch.device, dtype: torch.dtype) -> Iterator[Batch]:
    """One pass; it begins with the first batch and not with this call, for to begin moves a loader's random state."""
    for number, item in enumerate(source):
        batch = _batch(item, number).to(device, dtype)
        if len(batch):
            yield batch


def _quietly(batches: Iterator[Batch], device: torch.device, generator: torch.Generator | None) -> Iterator[Batch]:
    """The batches, read without moving the random state: every pass of a DataLoader draws a seed."""
    while True:
        with untouched_randomness(device, generator):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


@dataclass(frozen=True)
class _Chunks:
    """(x, y) tensors, cut into batches."""

    pair: tuple[Any, Tensor]

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        x, y = self.pair
        for start in range(0, len(y), BATCH_SIZE):
            rows = slice(start, start + BATCH_SIZE)
            yield ({n: v[rows] for n, v in x.items()} if isinstance(x, Mapping) else x[rows]), y[rows]


def _source(data: Any) -> Iterable[Any]:
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        data = data.tensors
    if isinstance(data, (tuple, list)) and len(data) == 2 and isinstance(data[1], Tensor):
        _check_pair(*data)
        return _Chunks((data[0], data[1]))
    if isinstance(data, Dataset) and hasattr(data, "__getitem__"):
        return DataLoader(data, batch_size=BATCH_SIZE)
    if not hasattr(data, "__iter__"):
        raise DataError(
            f"The data are of type {type(data).__name__}.",
            "A risk needs examples to average over.",
            "Pass (x, y) tensors, a Dataset, a DataLoader, or a list of (inputs, targets) batches.",
        )
    if isinstance(data, Iterator):
        raise DataError(
            f"The data are a {type(data).__name__}, which can be iterated only once.",
            "Every product with the curvature is a pass over the same data.",
            "Pass list(data) if it fits into memory.",
            "Pass the DataLoader itself instead of iter(loader).",
        )
    return data


def _check_pair(x: Any, y: Tensor) -> None:
    tensors = list(x.values()) if isinstance(x, Mapping) else [x]
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise DataError(
                f"The inputs hold a {type(tensor).__name__}.",
                "Inputs are one tensor, or a dict of tensors for model(**inputs).",
                "Convert arrays with torch.as_tensor; name several inputs: {'a': a, 'b': b}.",
            )
        if tensor.ndim == 0 or y.ndim == 0 or len(tensor) != len(y):
            raise DataError(
                f"Inputs of shape {tuple(tensor.shape)} came with targets of shape {tuple(y.shape)}.",
                "The first dimension of both counts the examples.",
                "Check that inputs and targets come from the same split, in the order (inputs, targets).",
            )


def _batch(item: Any, number: int) -> Batch:
    if not isinstance(item, (tuple, list)) or len(item) != 2 or not isinstance(item[1], Tensor):
        raise DataError(
            f"Batch {number} is a {type(item).__name__}"
            + (f" of {len(item)} entries." if isinstance(item, (tuple, list, Mapping)) else "."),
            "A batch is a pair (inputs, targets) of tensors; inputs may be a dict for model(**inputs).",
            "For a loader of dicts or triples: [(batch['inputs'], batch['labels']) for batch in loader].",
            "For arrays: (torch.as_tensor(x), torch.as_tensor(y)).",
        )
    inputs, targets = item
    inputs = dict(inputs) if isinstance(inputs, Mapping) else inputs
    _check_pair(inputs, targets)
    return Batch(inputs, targets)


def _moved(value: Any, device: torch.device, dtype: torch.dtype) -> Any:
    if isinstance(value, dict):
        return {name: _moved(tensor, device, dtype) for name, tensor in value.items()}
    if value.device != device and value.device.type != "cpu":
        raise DataError(
            f"The model is on {device}, the data on {value.device}.",
            "Only data in main memory are moved to the model's device, as loaders deliver them.",
            f"Move the data with .to({str(device)!r}), or the model with model.to({str(value.device)!r}).",
        )
    return (
        value.to(device, dtype, non_blocking=True) if value.is_floating_point() else value.to(device, non_blocking=True)
    )


def _first_pass(batches: Iterator[Batch], memory: float, *, compared: bool) -> tuple[list[Batch] | None, list[Tensor]]:
    """The batches, if they fit into memory, and a fingerprint of each, if they are to be compared."""
    kept: list[Batch] | None = []
    fingerprints: list[Tensor] = []
    used = 0
    for batch in batches:
        fingerprints.append(_fingerprint(batch) if compared else torch.zeros(0))
        used += sum(t.numel() * t.element_size() for t in batch.tensors())
        if kept is not None and used <= memory:
            kept.append(batch)
        else:
            kept = None
    if not fingerprints:
        raise DataError(
            "The data hold no example.",
            "An average over nothing has no curvature.",
            "Check the path, the split and any filter in front of the loader.",
        )
    return kept, fingerprints


def _check_second_pass(first: list[Tensor], second: list[Tensor], *, held: bool) -> None:
    before, after = torch.cat(first), torch.cat(second) if second else torch.empty(0, dtype=torch.float64)
    if len(before) != len(after):
        raise _other_data(f"{len(before)} examples, then {len(after)}")
    if not _same(before.sort().values, after.sort().values):
        raise _other_data(f"in {int((before.sort().values != after.sort().values).sum())} of {len(before)} examples")
    if not held and not ([len(b) for b in first] == [len(b) for b in second] and _same(before, after)):
        raise DataError(
            "A second pass gives the same examples in another order, and they do not fit into memory.",
            "They are read anew for every product, and what is kept of a batch belongs to that very batch.",
            "Turn shuffling off for the analysis: DataLoader(..., shuffle=False).",
            "Raise Risk(..., memory=...) above the size of the data.",
        )


def _same(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-9, atol=1e-12)


def _other_data(how: str) -> DataError:
    return DataError(
        f"A second pass over the data differs from the first: {how}.",
        "Every product must see the same matrix: shuffling with drop_last, random augmentation or a "
        "one-shot iterable give another one each time.",
        "Turn shuffling and augmentation off for the analysis.",
        "Pass a fixed sample: list(loader) or (x, y) tensors.",
    )


def _fingerprint(batch: Batch) -> Tensor:
    """One number per example, the same wherever in a batch the example stands; NaN and infinity count, too."""
    total = torch.zeros(len(batch), dtype=torch.float64)
    for index, tensor in enumerate(batch.tensors()):
        real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        rows = real.detach().reshape(len(batch), -1).to("cpu", torch.float64).nan_to_num(0.25, 1.25, -1.25)
        key = torch.arange(1, rows.shape[1] + 1, dtype=torch.float64).add(index).sqrt().frac() + 0.5
        total += (rows * key).sum(1)
    return total
