"""Batches from every form in which users have data.

(x, y) tensors, a Dataset, a DataLoader or any re-iterable of (inputs, targets); dicts with one entry of targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils.data import DataLoader, Dataset, TensorDataset

from ..errors import DataError, kind_of
from .batches import Batch, Batches, add_note, input_tensors, mapped
from .fingerprints import check_second_pass, fingerprint, unchanged
from .losses import is_label
from .randomness import untouched_randomness

IGNORED, FEW_TOKENS = -100, 8  # the ignored label; fewer equal labels and tokens may be coincidence
TARGETS = ("labels", "label", "targets", "target", "y")  # names that a dict may use for targets
BATCH_SIZE = 512  # for data that comes unbatched: enough to fill a GPU, small enough for a laptop


def batches_from(data: Any, device: torch.device, dtype: torch.dtype, memory: float) -> Batches:
    """The batches of a user's data: (x, y) tensors, a Dataset, a DataLoader or any re-iterable of pairs.

    Two passes are compared, example by example, so that a loader which shuffles and drops, or augments, is
    refused. The first pass is kept on the device if it fits into `memory` bytes, as a copy: what a user does to tensors
    afterwards does not reach it. Data that do not fit are read anew, and compared with the first pass, every time.
    """
    source = _source(data)
    generator = getattr(data, "generator", None)  # the loader's own generator, which shuffles
    with untouched_randomness(device, generator):  # around both passes, so that augmentation does not repeat
        fixed = isinstance(source, (_Chunks, list, tuple))  # a pass over these draws nothing at random
        kept, first = _first_pass(_one_pass(source, device, dtype, copy=True), memory, compared=not fixed)
        if not fixed:
            second = [fingerprint(batch) for batch in _one_pass(source, device, dtype)]
            check_second_pass(first, second, held=kept is not None)
    own = lambda: _one_pass(source, device, dtype, copy=not fixed)  # a reader may reuse the same memory
    anew = lambda: unchanged(_undisturbed(own(), device, generator), first)
    cut = source if isinstance(source, _Chunks) else None
    return Batches(
        anew,
        kept,
        ours=len(first) > 1 and (cut is not None or _is_plain(data)),
        whole=None if cut is None else lambda: batches_from([cut.pair], device, dtype, memory),
    )


def _one_pass(
    source: Iterable[Any], device: torch.device, dtype: torch.dtype, *, copy: bool = False
) -> Iterator[Batch]:
    """One pass, which begins with the first batch and not with this call: beginning moves a loader's random state."""
    count = 0
    for number, item in enumerate(_read(source)):
        batch = _batch(item, number)
        if len(batch):
            yield replace(batch, keys=torch.arange(count, count + len(batch))).to(device, dtype, copy=copy)
        count += len(batch)


def _read(source: Iterable[Any]) -> Iterator[Any]:
    """The batches of a pass; an error of the user's own code says at which batch it occurred."""
    number = 0
    try:
        for item in source:
            yield item
            number += 1
    except Exception as error:
        add_note(error, f"ritz was reading batch {number} of the data, counted from 0.")
        raise


def _undisturbed(batches: Iterator[Batch], device: torch.device, generator: torch.Generator | None) -> Iterator[Batch]:
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
            yield mapped(lambda v: v[rows], x), y[rows]  # noqa: B023


def _source(data: Any) -> Iterable[Any]:
    """The batches of a user's data, in whatever form they came; to be read again and again."""
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        data = data.tensors
    if isinstance(data, (tuple, list)) and len(data) == 2 and (source := _source_of_pair(data)) is not None:
        return source
    if isinstance(data, Mapping):
        return _source(_pair_of(data, "The data are"))
    if _is_plain(data):
        return DataLoader(data, batch_size=BATCH_SIZE)
    _check_iterable(data)
    return data


def _source_of_pair(data: tuple[Any, Any] | list[Any]) -> Iterable[Any] | None:
    """The batches of (x, y); None where the two are batches themselves."""
    inputs, targets = data
    if isinstance(targets, Tensor):
        inputs = _inputs(inputs)
        _check_pair(inputs, targets)
        _check_lengths(inputs, targets)
        return _Chunks((inputs, targets))
    if targets is None:
        return [(inputs, targets)]
    if isinstance(data, tuple) and isinstance(targets, Mapping):
        raise _no_pair("The data are", data)  # not two batches, as a list would be
    return None


def _check_iterable(data: Any) -> None:
    if not hasattr(data, "__iter__") or getattr(data, "ndim", 1) == 0:  # a tensor of one number is no series of batches
        raise DataError(
            f"The data are {kind_of(data)}.",
            "A risk needs examples to average over.",
            "Pass (x, y) tensors, a Dataset, a DataLoader, or a list of (inputs, targets) batches.",
            "For an object that holds them, such as a graph: [((data.x, data.edge_index), data.y)].",
        )
    if isinstance(data, Iterator):
        raise DataError(
            f"The data are a {type(data).__name__}, which can be iterated only once.",
            "Every product with the curvature is a pass over the same data.",
            "Pass list(data) if it fits into memory.",
            "Pass the DataLoader itself instead of iter(loader).",
        )


def _is_plain(data: Any) -> bool:
    """Whether the data are single examples that are not batched: a Dataset, or a list of what one holds."""
    if isinstance(data, (list, tuple)):
        return len(data) > 0 and all(map(_is_example, data))
    return isinstance(data, Dataset) and hasattr(data, "__getitem__")


def _is_example(item: Any) -> bool:
    """Whether something is a single example: inputs and one number for a target, as a pair or in a dict."""
    if isinstance(item, Mapping):
        targets = [item[name] for name in TARGETS if name in item]
    else:
        targets = [item[1]] if isinstance(item, (list, tuple)) and len(item) == 2 else []
    return len(targets) == 1 and (isinstance(targets[0], Number) or getattr(targets[0], "ndim", None) == 0)


def _check_pair(x: Any, y: Tensor) -> None:
    for tensor in input_tensors(x):
        if not isinstance(tensor, Tensor):
            raise DataError(
                f"The inputs hold {kind_of(tensor)}.",
                "Inputs are one tensor, a dict of tensors for model(**inputs), or a tuple of them for model(*inputs).",
                "Convert arrays with torch.as_tensor; name several inputs: {'a': a, 'b': b}.",
                "Leave out what the model does not need, such as None or texts.",
                "For nested inputs, a Module around the model: def forward(self, a): return self.model({'a': a}).",
            )
        if tensor.layout == torch.sparse_coo or (tensor.is_nested and tensor.layout == torch.strided):
            raise _without_rows(tensor)
        if y.ndim == 0:
            raise _single("The data are")


def _check_lengths(x: Any, y: Tensor) -> None:
    """Refuse data to be cut into batches in which some tensor does not have a row for each example."""
    for tensor in input_tensors(x):
        if tensor.ndim == 0 or len(tensor) != len(y):
            raise _misfit(tensor, y)
        if tensor.layout != torch.strided:
            raise _without_rows(tensor)


def _inputs(x: Any) -> Any:
    """Inputs in the form used here: a dict, a tuple, with its names if it has some, or (supposedly) a tensor."""
    if isinstance(x, PackedSequence) and x.sorted_indices is None:  # packed in order: what was None says so in numbers
        order = torch.arange(int(x.batch_sizes[0]), device=x.data.device)
        return PackedSequence(x.data, x.batch_sizes, order, order)
    if isinstance(x, Mapping):
        return dict(x)
    return tuple(x) if isinstance(x, (tuple, list)) and not hasattr(x, "_fields") else x


def _without_rows(tensor: Tensor) -> DataError:
    kind, way = ("nested", "to_padded_tensor(0.0)") if tensor.is_nested else ("sparse", "to_dense()")
    return DataError(
        f"The inputs hold a {kind} tensor ({tensor.layout}).",
        "Batches are compared, cut and joined by their rows, which cannot be taken from such a tensor.",
        f"Convert it: x.{way}.",
        "Where it is too large, pass its indices and values, and build it in the forward pass.",
    )


def _single(what: str) -> DataError:
    return DataError(
        f"{what} a single example, whose target is one number.",
        "The first dimension of inputs and targets counts the examples of a batch.",
        "Let a loader make batches of them: DataLoader(dataset, batch_size=64).",
        "Pass the Dataset itself, or the examples as a list: list(loader).",
        "For a single example: (x[None], y[None]).",
    )


def _misfit(x: Tensor, y: Tensor) -> DataError:
    return DataError(
        f"Inputs of shape {tuple(x.shape)} came with targets of shape {tuple(y.shape)}.",
        "The first dimension of both counts the examples.",
        "Check that inputs and targets come from the same split, in the order (inputs, targets).",
        "Pass inputs that are not counted by examples, such as the edges of a graph, in a batch: [(inputs, targets)].",
    )


def _batch(item: Any, number: int) -> Batch:
    if _is_example(item):
        raise _single(f"Batch {number} is")
    item = _pair_of(item, f"Batch {number} is") if isinstance(item, Mapping) else item
    if not isinstance(item, (tuple, list)) or len(item) != 2 or not isinstance(item[1], Tensor):
        raise _no_pair(f"Batch {number} is", item)
    inputs, targets = item
    inputs = _inputs(inputs)
    _check_pair(inputs, targets)
    return Batch(inputs, targets)


def _no_pair(what: str, item: Any) -> DataError:
    """The refusal of what is no pair of inputs and a tensor of targets, with what to do about its kind."""
    return DataError(
        f"{what} {kind_of(item)}{_entries(item)}.",
        "A batch is a pair (inputs, targets) of tensors; inputs may be a dict for model(**inputs), or a tuple.",
        *_ways_to_a_pair(item),
    )


def _ways_to_a_pair(item: Any) -> list[str]:
    """How something else becomes a pair: two entries, more of them, or an object."""
    arrays = "For arrays: (torch.as_tensor(x), torch.as_tensor(y))."
    no_targets = "For a loss without targets, pass placeholders that it ignores: (x, torch.zeros(len(x)))."
    if isinstance(item, np.ndarray):
        return [arrays]
    if not isinstance(item, (tuple, list)):
        return [
            "For (x, y) as a whole, pass exactly these two; several inputs are a tuple or a dict: ((a, b), y).",
            "For batches that are objects, such as graphs: [((b.x, b.edge_index), b.y) for b in loader].",
            arrays,
        ]
    if len(item) == 2 and isinstance(item[1], Mapping):
        names = ", ".join(f"targets[{name!r}]" for name in item[1])
        return [
            f"Join them as columns, and let the loss take these apart: torch.stack([{names}], -1).",
            "Wrap a model of several outputs in a Module that joins these, too: torch.cat(outputs, -1).",
        ]
    if len(item) == 2:
        parts = "For targets of several parts, one tensor that the loss takes apart: (x, torch.stack((a, b), -1))."
        return [no_targets, parts, arrays]
    return [
        "For two inputs: [((a, b), y) for a, b, y in loader], with DataLoader(dataset, 64) as a Dataset's loader; "
        "((a, b), y) where they are tensors.",
        "For targets and weights, one tensor that the loss takes apart: (x, torch.stack((y, weight), -1)).",
        no_targets,
    ]


def _entries(item: Any) -> str:
    """The number of entries of a batch, if it has entries, and the type of the second one where there are two."""
    if not isinstance(item, (tuple, list)):
        return ""
    if len(item) == 2:
        return f" whose targets are {kind_of(item[1])}"
    return " of one entry" if len(item) == 1 else f" of {len(item)} entries"


def _pair_of(entries: Mapping[str, Any], what: str) -> tuple[dict[str, Any], Any]:
    """A dict of inputs and targets as a pair: the entry that is named like targets, and all others by name."""
    names = [name for name in TARGETS if name in entries]
    if len(names) != 1 or len(entries) < 2 or not isinstance(entries[names[0]], Tensor):
        raise DataError(
            f"{what} {kind_of(entries)} with the entries {', '.join(map(str, entries))}.",
            f"Exactly one must be a tensor of targets, called {', '.join(TARGETS)}; the others are inputs by name.",
            f"Say which it is: {_example_of_pairs(list(entries))}.",
        )
    inputs = {name: value for name, value in entries.items() if name != names[0]}
    _check_shift(inputs, entries[names[0]], what)
    return inputs, entries[names[0]]


def _example_of_pairs(names: list[Any]) -> str:
    """An example of how to make pairs from such dicts, taking the last entry for the targets, as it often is."""
    *inputs, targets = names if len(names) > 1 else ["x", "outcome"]
    return f"[({{{', '.join(f'{n!r}: batch[{n!r}]' for n in inputs)}}}, batch[{targets!r}]) for batch in loader]"


def _check_shift(inputs: Mapping[str, Any], labels: Tensor, what: str) -> None:
    """Refuse labels that transformers would shift inside a causal model; the loss here does not shift them."""
    tokens = inputs.get("input_ids")
    if not isinstance(tokens, Tensor) or tokens.shape != labels.shape or "decoder_input_ids" in inputs:
        return
    counted = ~is_label(labels, IGNORED)
    if int(counted.sum()) >= FEW_TOKENS and bool((tokens.to(labels.device) == labels)[counted].all()):
        raise DataError(
            f"{what} a {type(inputs).__name__} whose labels are its input_ids, token by token.",
            "A causal model would be asked for the token that it sees: transformers shifts labels inside the model, "
            "and the loss here takes them as they are.",
            'Shift them: batch["labels"] = torch.nn.functional.pad(batch["labels"][:, 1:], (0, 1), value=-100).',
            "Where tokens are to be repeated on purpose, give pairs: [({'input_ids': ids}, labels)].",
        )


def _first_pass(batches: Iterator[Batch], memory: float, *, compared: bool) -> tuple[list[Batch] | None, list[Tensor]]:
    """The batches if they fit into memory, and their fingerprints if they are to be compared."""
    kept: list[Batch] | None = []
    fingerprints: list[Tensor] = []
    used = 0
    for batch in batches:
        used += sum(t.numel() * t.element_size() for t in batch.tensors())
        if kept is not None and used > memory:  # from now on they are read anew, and compared every time
            fingerprints, kept = [fingerprint(b) for b in kept] if not compared else fingerprints, None
        if kept is not None:
            kept.append(batch)
        fingerprints.append(fingerprint(batch) if compared or kept is None else batch.keys[:0])
    if not fingerprints:
        raise DataError(
            "The data hold no example.",
            "Without examples there is no average loss, and no curvature.",
            "Check the path, the split and any filter in front of the loader.",
        )
    return kept, fingerprints
