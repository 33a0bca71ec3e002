"""Arrays in one file with a header of JSON values; none is a pickle."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from ..errors import ArgumentError
from .files import check_writable, path_of, unreadable, write_whole
from .json_values import json_text, json_value

_HEADER = "header"  # the entry of an array file that holds its JSON header
_DAMAGED = (  # what numpy and zipfile raise at a file that is cut short, foreign, packed otherwise or full of nonsense
    *(OSError, ValueError, TypeError, AttributeError, EOFError, MemoryError, RuntimeError, SyntaxError),
    *(OverflowError, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)


def write_arrays(path: str | Path, arrays: Mapping[str, Any], header: Mapping[str, Any] | None = None) -> Path:
    """Write arrays (or tensors) and a header of JSON values as one `.npz` file; returns its path.

    Tensors in bfloat16, which numpy does not know, become float32, without rounding.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     arrays, header = read_arrays(write_arrays(f"{folder}/x.npz", {"x": torch.arange(3)}, {"size": 7}))
    >>> arrays["x"].tolist(), header
    ([0, 1, 2], {'size': 7})
    """
    path = path_of(path)
    check_writable(path.parent)
    return write_npz(path, {**numpy_arrays(arrays), _HEADER: np.array(json_text(header or {}))})


def read_arrays(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the header of a file that `write_arrays` wrote; any other `.npz` has an empty header."""
    path = path_of(path)
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except _DAMAGED as error:
        raise unreadable(path, error, "an .npz file of numbers, without pickled objects") from error
    header = json_value(str(arrays.pop(_HEADER, "{}")), path)
    if not isinstance(header, dict):
        raise unreadable(path, TypeError("its header is no mapping"), "an .npz file that ritz wrote")
    return arrays, header


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    """Write an `.npz` file; `np.savez` would not take an array called `file`."""

    def write(stream: BinaryIO) -> None:
        with zipfile.ZipFile(stream, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, array, allow_pickle=False)

    return write_whole(path, write)


def numpy_arrays(arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Arrays and tensors as arrays that need no pickle."""
    return {name: _array(name, value) for name, value in arrays.items()}


def _array(name: str, value: Any) -> np.ndarray:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    array = np.asarray(value)
    if name == _HEADER or array.dtype.hasobject:
        raise ArgumentError(
            f"The array {name!r} of dtype {array.dtype} was to be saved.",
            f"Files hold plain numbers and text (nothing is pickled), and {_HEADER!r} is the name of their own header.",
            "Convert it to a numeric array, or give it another name.",
        )
    return array
