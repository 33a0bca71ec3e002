"""Fingerprints of examples, by which passes over the data are compared."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Int64
from torch import Tensor

from ..errors import DataError
from .batches import Batch
from .noise import mixed
from .sparse import dense_parts

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes


def fingerprint(batch: Batch) -> Int64[Tensor, " N"]:
    """One number for each example, the same wherever it stands: Σ bits · key modulo 2⁶⁴, exact on every device.

    The keys are odd, so that no change of a single entry is missed.
    """
    total = torch.zeros(len(batch), dtype=torch.int64, device=batch.targets.device)
    parts = (part for tensor in batch.tensors() for part in dense_parts(tensor))
    for index, tensor in enumerate(parts):
        rows = _bits(tensor, len(batch))
        keys = mixed(torch.arange(rows.shape[1], device=rows.device) + (index << 40)) | 1
        total += (rows * keys).sum(1)
    return total


def check_second_pass(first: list[Tensor], second: list[Tensor], *, held: bool) -> None:
    """Refuse data whose second pass has different fingerprints; their order matters where batches are read anew."""
    before, after = torch.cat(first), torch.cat(second) if second else first[0][:0]
    if len(before) != len(after):
        raise _other_data(f"{len(before)} examples, then {len(after)}")
    differ = before.sort().values != after.sort().values
    if bool(differ.any()):
        raise _other_data(f"in {int(differ.sum())} of {len(before)} examples")
    if not held and not ([len(b) for b in first] == [len(b) for b in second] and torch.equal(before, after)):
        raise DataError(
            "A second pass gives the same examples in another order, and they do not fit into memory.",
            "They are read anew for every product, and what ritz keeps of a batch fits only the same batch.",
            "Turn shuffling off for the analysis: DataLoader(..., shuffle=False).",
            "Raise Risk(..., memory=...) above the size of the data.",
        )


def unchanged(batches: Iterator[Batch], first: list[Tensor]) -> Iterator[Batch]:
    """The batches of a later pass; refuses one that differs from the first pass."""
    count = 0
    for count, batch in enumerate(batches, 1):
        if count > len(first) or not torch.equal(fingerprint(batch), first[count - 1]):
            raise _change_of_data(f"Batch {count - 1} is not what it was when the risk was built.")
        yield batch
    if count < len(first):
        raise _change_of_data(f"Batch {count} is missing: there were {len(first)} when the risk was built.")


def _bits(tensor: Tensor, count: int) -> Tensor:
    """A row of integers for each example; tensors without a row for each example belong to all of them."""
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    real = real.detach().contiguous()
    bits = real.view(_INTEGERS[real.element_size()]).long()
    return bits.reshape(count, -1) if tensor.ndim and len(tensor) == count else bits.reshape(1, -1)


def _change_of_data(seen: str) -> DataError:
    return DataError(
        seen,
        "The data do not fit into memory and are read anew for every product, which must see the same matrix.",
        "Leave the data as they are while the risk is in use, or build a new one.",
        "Raise Risk(..., memory=...) above the size of the data, which are then copied.",
    )


def _other_data(how: str) -> DataError:
    return DataError(
        f"A second pass over the data differs from the first: {how}.",
        "Every product must see the same matrix: shuffling with drop_last or with padding, random augmentation or a "
        "one-shot iterable give another one each time.",
        "Turn shuffling and augmentation off for the analysis.",
        "Pass a fixed sample: list(loader) or (x, y) tensors.",
    )
