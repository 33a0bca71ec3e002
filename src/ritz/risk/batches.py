"""A data set as batches of (inputs, targets) that are the same at every pass."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from jaxtyping import Int64
from torch import Tensor

from ..errors import ArgumentError, DataError, RitzError
from ..foreign_errors import is_out_of_memory
from .memory import forget_unused
from .precision import in_precision

Inputs = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
Result = TypeVar("Result")


@dataclass(frozen=True, repr=False)
class Batch:
    """One batch: inputs as a tensor, as a dict for `model(**inputs)` or a tuple of several, and their targets.

    The key of an example is its index in the data of this rank, whatever batch it comes in; temporary batches have no
    keys.
    """

    inputs: Inputs
    targets: Tensor
    keys: Int64[Tensor, " N"] = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    def __repr__(self) -> str:
        return f"Batch({self.name})"

    def to(self, device: torch.device, dtype: torch.dtype, *, copy: bool = False) -> Batch:
        """The batch on another device, real and complex inputs and targets in the given precision.

        A `copy` shares no memory with this one, even where nothing is to be converted.
        """
        return Batch(
            mapped(lambda x: _moved(x, device, dtype, copy), self.inputs),
            _moved(self.targets, device, dtype, copy),
            self.keys.to(device, non_blocking=True),
        )

    def rows(self, which: slice | Tensor) -> Batch:
        """Some examples of the batch: a slice, or the indices to take."""
        return Batch(mapped(lambda x: x[which], self.inputs), self.targets[which], self.keys[which])

    def cpu(self) -> Batch:
        """The batch in main memory."""
        return Batch(mapped(Tensor.cpu, self.inputs), self.targets.cpu(), self.keys.cpu())

    def first(self, count: int) -> Batch:
        """The first examples of the batch."""
        return self if count >= len(self) else self.rows(slice(count))

    def countable(self) -> bool:
        """Whether every tensor has a row for each example that can be taken, unlike the edges of a graph."""
        return all(t.ndim > 0 and not t.is_nested and len(t) == len(self) for t in self.tensors())

    def channels_last(self) -> Batch:
        """The batch with images stored channels-last; the same numbers in another order of memory."""
        move = lambda x: x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x
        return replace(self, inputs=mapped(move, self.inputs))

    @property
    def name(self) -> str:
        """Which examples these are, in words for a note."""
        if not len(self.keys):
            return f"{len(self)} examples"
        return f"a batch of {len(self)}: examples {int(self.keys.min())} to {int(self.keys.max())} of the data"

    def contiguous(self) -> Batch:
        """The batch with inputs in PyTorch's usual order of memory."""
        return replace(self, inputs=mapped(Tensor.contiguous, self.inputs))

    def tensors(self) -> list[Tensor]:
        """Every tensor of the batch."""
        return [*input_tensors(self.inputs), self.targets]

    def kind(self) -> tuple[Any, ...]:
        """Names and shapes of the tensors except the number of examples: batches of the same kind can be joined."""
        names = tuple(self.inputs) if isinstance(self.inputs, dict) else ()
        return names, tuple(t.shape[1:] for t in self.tensors())

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True, repr=False)
class Batches:
    """A data set that gives the same batches at every pass: held in memory if it fits, else read anew each time."""

    source: Callable[[], Iterator[Batch]]
    held: list[Batch] | None = None
    ours: bool = False  # whether ritz itself cut the data, which came without batches
    whole: Callable[[], Batches] | None = None  # the same data uncut, where they fit
    separable: bool = True  # whether each term depends on its own example alone
    joinable: bool = True  # and also where examples of several batches are put into one

    def __reduce__(self) -> Any:
        if self.held is None:
            raise DataError(
                "The data of the risk do not lie in memory; they are read anew for every product.",
                "A copy, or another process, could not read them from here.",
                "Raise Risk(..., memory=...) above the size of the data.",
                "Build the risk where it is needed: send a function that returns it.",
            )
        return _held_again, (self.held, self.ours, self.separable, self.joinable)

    def __repr__(self) -> str:
        return f"Batches({'read anew for every pass' if self.held is None else f'{len(self.held)} held'})"

    def __deepcopy__(self, memo: Any) -> Batches:
        return self  # never changed

    @staticmethod
    def of(batches: list[Batch]) -> Batches:
        """Batches held in memory."""
        return Batches(lambda: iter(batches), batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.held) if self.held is not None else self.source()

    def channels_last(self) -> Batches:
        """The same data with images stored channels-last."""
        return self._mapped(Batch.channels_last)

    def contiguous(self) -> Batches:
        """The same data in PyTorch's usual order of memory."""
        return self._mapped(Batch.contiguous)

    def to(self, device: torch.device, dtype: torch.dtype) -> Batches:
        """The same data on another device, floating-point numbers in another precision."""
        return self._mapped(lambda batch: (batch if batch.targets.device == device else batch.cpu()).to(device, dtype))

    def held_bytes(self) -> int:
        """The memory of the batches that are held."""
        return sum(tensor.nbytes for batch in self.held or () for tensor in batch.tensors())

    def regrouped(self, size: int) -> Batches:
        """The same data with about `size` examples at a time: batches joined, or cut where they are larger."""
        joined = self.joined(size // max(1, len(next(iter(self)))))
        cut = lambda batches: (b.rows(slice(i, i + size)) for b in batches for i in range(0, len(b), size))
        if joined.held is not None:
            return self._holding(list(cut(joined.held)))
        return replace(self, source=lambda: cut(self.source()))

    def joined(self, count: int) -> Batches:
        """The same data with `count` batches at a time made one, where they are held, of one kind and independent."""
        if self.held is None or count < 2 or not self.alike():
            return self
        return self._holding([joined(self.held[i : i + count]) for i in range(0, len(self.held), count)])

    def alike(self) -> bool:
        """Whether the batches held may be joined."""
        return self.joinable and len({batch.kind() for batch in self.held or ()}) == 1

    def first(self, count: int) -> Batches:
        """The first examples alone, held in memory."""
        if count < 1:
            raise ArgumentError(
                f"{count} examples were requested.", "An average needs at least one.", "Ask for a positive number."
            )
        return self._holding(list(_first(self, count)))

    def _mapped(self, change: Callable[[Batch], Batch]) -> Batches:
        if self.held is not None:
            return self._holding([change(batch) for batch in self.held])
        return replace(self, source=lambda: map(change, self.source()), whole=None)

    def _holding(self, batches: list[Batch]) -> Batches:
        return replace(self, source=lambda: iter(batches), held=batches, whole=None)


def _held_again(held: list[Batch], ours: bool, separable: bool, joinable: bool) -> Batches:
    return replace(Batches.of(held), ours=ours, separable=separable, joinable=joinable)


def in_pieces(work: Callable[[Batch], Result], batch: Batch, *, divisible: bool) -> list[Result]:
    """The results of the work on a batch, or on its halves, quarters and so on where memory does not suffice."""
    waiting, results = [batch], list[Result]()
    while waiting:
        piece = waiting.pop()
        try:
            results.append(work(piece))
            continue
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or not divisible or len(piece) < 2:
                raise
        forget_unused(piece.targets.device)  # outside of the handler, whose traceback holds the memory
        half = len(piece) // 2
        waiting += [piece.rows(slice(half, None)), piece.rows(slice(half))]
    return results


@contextlib.contextmanager
def naming_batch(what: str, batch: Batch) -> Iterator[None]:
    """Add to an error of the user's own code on which examples it occurred; its type stays what it is."""
    try:
        yield
    except RitzError:
        raise
    except Exception as error:
        add_note(error, f"ritz was evaluating {what} {batch.name}.")
        raise


def add_note(error: Exception, note: str) -> None:
    """Add a note, unless ritz has already added one: the innermost says most."""
    if not any(line.startswith("ritz was ") for line in getattr(error, "__notes__", ())):
        error.add_note(note)


def of_one(inputs: Inputs) -> Inputs:
    """The inputs of a single example as a batch of one."""
    return mapped(lambda x: x[None], inputs)


def mapped(change: Callable[[Tensor], Tensor], inputs: Inputs) -> Inputs:
    """The inputs with a function applied to every tensor."""
    if isinstance(inputs, dict):
        return {name: change(x) for name, x in inputs.items()}
    if hasattr(inputs, "_fields"):  # a named tuple, as packed sequences are
        return type(inputs)(*map(change, inputs))
    return tuple(map(change, inputs)) if isinstance(inputs, tuple) else change(inputs)


def input_tensors(inputs: Inputs) -> list[Tensor]:
    """Every tensor of the inputs."""
    if isinstance(inputs, dict):
        return list(inputs.values())
    return list(inputs) if isinstance(inputs, tuple) else [inputs]


def joined(batches: list[Batch]) -> Batch:
    """Several batches as one."""
    if len(batches) == 1:
        return batches[0]
    targets, keys = (torch.cat([getattr(batch, name) for batch in batches]) for name in ("targets", "keys"))
    columns = zip(*(input_tensors(batch.inputs) for batch in batches), strict=True)
    together = iter([torch.cat(column) for column in columns])
    return Batch(mapped(lambda _: next(together), batches[0].inputs), targets, keys)


def _moved(value: Tensor, device: torch.device, dtype: torch.dtype, copy: bool) -> Tensor:
    if value.device != device and value.device.type != "cpu":
        raise DataError(
            f"The model is on {device}, the data on {value.device}.",
            "Only data in main memory are moved to the model's device, as loaders deliver them.",
            f"Move the data with .to({str(device)!r}), or the model with model.to({str(value.device)!r}).",
        )
    return value.detach().to(device, in_precision(value, dtype), non_blocking=True, copy=copy)


def _first(batches: Iterable[Batch], count: int) -> Iterator[Batch]:
    for batch in batches:
        if count <= 0:
            return
        if count < len(batch) and not batch.countable():
            raise _not_countable(batch, count)
        yield batch.first(count)
        count -= len(batch)


def _not_countable(batch: Batch, count: int) -> DataError:
    return DataError(
        f"{count} of the {len(batch)} examples of a batch were requested, whose inputs have a different number of "
        "rows.",
        "It is not known which rows belong to which example, as in a batch of graphs.",
        "Ask for the number of examples in the first batch, or in the first few together.",
        "Pass a batch for every example.",
    )
