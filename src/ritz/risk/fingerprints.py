"""Fingerprints of examples, by which two passes over the data are compared."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import DataError
from .batches import Batch


def fingerprint(batch: Batch) -> Tensor:
    """One number per example, the same wherever in a batch the example stands; NaN and infinity count, too."""
    total = torch.zeros(len(batch), dtype=torch.float64)
    for index, tensor in enumerate(batch.tensors()):
        real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        rows = real.detach().reshape(len(batch), -1).to("cpu", torch.float64).nan_to_num(0.25, 1.25, -1.25)
        key = torch.arange(1, rows.shape[1] + 1, dtype=torch.float64).add(index).sqrt().frac() + 0.5
        total += (rows * key).sum(1)
    return total


def check_second_pass(first: list[Tensor], second: list[Tensor], *, held: bool) -> None:
    """Refuse data whose second pass has other fingerprints; the order counts where batches are read anew."""
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
