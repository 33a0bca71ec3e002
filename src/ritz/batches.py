"""Data in every form users have it, as batches of (inputs, targets) that are the same at every pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from .errors import DataError

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

    def first(self, count: int) -> Batch:
        """The first examples of the batch."""
        if isinstance(self.inputs, dict):
            return Batch({name: x[:count] for name, x in self.inputs.items()}, self.targets[:count])
        return Batch(self.inputs[:count], self.targets[:count])

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

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class Batches:
    """A data set that gives the same batches at every pass: held in memory where it fits, else read anew."""

    source: Callable[[], Iterator[Batch]]
    held: list[Batch] | None = None

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.held) if self.held is not None else self.source()

    def channels_last(self) -> Batches:
        """The same data with images stored channels-last."""
        if self.held is not None:
            return holding([batch.channels_last() for batch in self.held])
        return Batches(lambda: (batch.channels_last() for batch in self.source()))


def holding(batches: list[Batch]) -> Batches:
    """Batches held in memory."""
    return Batches(lambda: iter(batches), batches)


def batches_from(data: Any, device: torch.device, dtype: torch.dtype, memory: float) -> Batches:
    """The batches of a user's data: (x, y) tensors, a Dataset, a DataLoader or any re-iterable of pairs.

    Two passes are compared, example by example, so that a loader which shuffles and drops, or augments, is
    refused. The first pass is kept on the device if it fits into `memory` bytes.
    """
    source = _source(data)
    passes = lambda: (_batch(item, number).to(device, dtype) for number, item in enumerate(source))
    kept, fingerprints = _first_pass(passes(), memory)
    if not isinstance(source, _Chunks):
        _check_second_pass(passes(), fingerprints)
    return Batches(passes) if kept is None else holding(kept)


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
            f"The data are a {type(data).__name__}.",
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
        if not isinstance(tensor, Tensor) or tensor.ndim == 0 or y.ndim == 0 or len(tensor) != len(y):
            shape = tuple(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
            raise DataError(
                f"Inputs of shape {shape} came with targets of shape {tuple(y.shape)}.",
                "The first dimension of both counts the examples.",
                "Check that inputs and targets come from the same split, in the order (inputs, targets).",
            )


def _batch(item: Any, number: int) -> Batch:
    if not isinstance(item, (tuple, list)) or len(item) != 2 or not isinstance(item[1], Tensor):
        raise DataError(
            f"Batch {number} is a {type(item).__name__}"
            + (f" of {len(item)} entries." if isinstance(item, (tuple, list, Mapping)) else "."),
            "A batch is a pair (inputs, targets) of tensors; inputs may be a dict for model(**inputs).",
            "Wrap the loader: [(batch['inputs'], batch['labels']) for batch in loader].",
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


def _first_pass(batches: Iterator[Batch], memory: float) -> tuple[list[Batch] | None, list[Tensor]]:
    kept: list[Batch] | None = []
    fingerprints: list[Tensor] = []
    used = 0
    for batch in batches:
        if len(batch) == 0:
            continue
        fingerprints.append(_fingerprint(batch))
        used += sum(t.numel() * t.element_size() for t in batch.tensors())
        kept = [*kept, batch] if kept is not None and used <= memory else None
    if not fingerprints:
        raise DataError(
            "The data hold no example.",
            "An average over nothing has no curvature.",
            "Check the path, the split and any filter in front of the loader.",
        )
    return kept, fingerprints


def _check_second_pass(batches: Iterator[Batch], first: list[Tensor]) -> None:
    second = [_fingerprint(batch) for batch in batches if len(batch)]
    before, after = torch.cat(first).sort().values, (torch.cat(second) if second else torch.empty(0)).sort().values
    if before.shape == after.shape and torch.allclose(before, after.to(before), rtol=1e-9, atol=1e-12):
        return
    raise DataError(
        f"A second pass over the data differs from the first ({len(before)} examples, then {len(after)})."
        if len(before) != len(after)
        else f"A second pass over the data differs from the first in {int((before != after).sum())} examples.",
        "Every product must see the same matrix: shuffling with drop_last, random augmentation or a "
        "one-shot iterable give another one each time.",
        "Turn shuffling and augmentation off for the analysis.",
        "Pass a fixed sample: list(loader) or (x, y) tensors.",
    )


def _fingerprint(batch: Batch) -> Tensor:
    """One number per example, the same wherever in a batch the example stands."""
    total = torch.zeros(len(batch), dtype=torch.float64)
    for index, tensor in enumerate(batch.tensors()):
        rows = tensor.detach().reshape(len(batch), -1).to("cpu", torch.float64)
        key = torch.arange(1, rows.shape[1] + 1, dtype=torch.float64).add(index).sqrt().frac() + 0.5
        total += (rows * key).sum(1)
    return total
