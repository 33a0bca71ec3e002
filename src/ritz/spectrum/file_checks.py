"""Refusals of files that hold something else or are damaged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from ..errors import FileError, RitzError, first_line
from ..record.files import NONSENSE


def check_kind(path: str | Path, header: dict, kind: str) -> None:
    """Refuse a file that holds arrays of another kind."""
    if header.get("kind") != kind:
        raise FileError(
            f"{path} holds {header.get('kind', 'something else')}, not {kind}.",
            "Its arrays mean something else.",
            f"Load a file that {kind}.save wrote.",
        )


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Take any failure to use the contents of a file for damage to the file, and say so."""
    try:
        yield
    except (*NONSENSE, RitzError) as error:
        what = error.seen if isinstance(error, RitzError) else f"{type(error).__name__} {first_line(error)}"
        raise FileError(
            f"{path} is damaged: {what}",
            "Nothing was read from it, and the file is unchanged.",
            "Compute it again, or load a copy.",
        ) from error


def check_count(**counts: object) -> None:
    """Raise ValueError where a count in a file is not a whole number of at least zero."""
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**63:
            raise ValueError(f"{name} is {count!r:.80}")


def check_numbers(shape: tuple[int, ...], dtype: torch.dtype | None = None, /, **tensors: Tensor) -> None:
    """Raise ValueError where tensors of a file have another shape or type (any precision unless given), or NaN."""
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or tensor.dtype != (dtype or tensor.dtype) or tuple(tensor.shape) != shape:
            raise ValueError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}, not of shape {shape}")
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} holds NaN or infinity")
