"""Files of arrays with a header of JSON values; none of them holds a pickle."""

from __future__ import annotations

import math
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import torch

from ..errors import ArgumentError
from .files import check_writable, path_of, unreadable, write_whole
from .json_values import json_text, json_value, saveable

Array = TypeVar("Array")
_HEADER = "header"  # the entry of an array file that holds its JSON header
_RATIO, _MODEST = 100, 2**28  # how many times its own size a file may unpack to; the bytes that any file may
_LONGEST = 60_000  # bytes of a name; a zip file has 16 bits for them
_DAMAGED = (  # what numpy and zipfile raise at a file that is cut short, foreign, packed otherwise or full of nonsense
    *(OSError, ValueError, TypeError, AttributeError, EOFError, MemoryError, RuntimeError, SyntaxError),
    *(OverflowError, KeyError, NotImplementedError, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
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
    contents = {**numpy_arrays(arrays), _HEADER: np.array(json_text(header or {}))}
    return write_whole(path, lambda stream: write_npz(stream, contents))


def read_arrays(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the header of a file that `write_arrays` wrote; any other `.npz` has an empty header."""
    path = path_of(path)
    try:
        with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
            arrays = _members(archive, path.stat().st_size)
    except _DAMAGED as error:
        raise unreadable(path, error, "an .npz file of numbers, without pickled objects") from error
    header = json_value(str(arrays.pop(_HEADER, "{}")), path)
    if not isinstance(header, dict):
        raise unreadable(path, TypeError("its header is not a mapping"), "an .npz file that ritz wrote")
    return arrays, header


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, np.ndarray]:
    """All arrays of an archive, whose names and sizes are checked before anything is read."""
    entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
    unpacked = sum(entry.file_size for entry in archive.infolist())
    if len(entries) < len(archive.infolist()):
        raise ValueError("two of its arrays have one name")
    if unpacked > max(_MODEST, _RATIO * size):
        raise ValueError(f"its {size:,} bytes would become {unpacked:,}, which is more than {_RATIO} times as many")
    return {name: _member(archive, entry) for name, entry in entries.items()}


def _member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    """One array, whose header must announce as many bytes as follow it."""
    with archive.open(entry) as stream:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
        bytes_left, header = entry.file_size - stream.tell(), math.prod(shape) * dtype.itemsize
    if dtype.hasobject or version not in ((1, 0), (2, 0)) or bytes_left != header:
        raise ValueError(f"{entry.filename!r} holds {bytes_left:,} bytes where its header speaks of {header:,}")
    with archive.open(entry) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def write_npz(stream: BinaryIO, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an `.npz` file; `np.savez` would not take an array called `file`."""
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def under(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays whose names begin with a prefix, without it.

    >>> under("model/", {"model/weight": 1, "epoch": 2})
    {'weight': 1}
    """
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def numpy_arrays(arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Arrays and tensors as arrays that need no pickle."""
    return {name: _array(name, value) for name, value in arrays.items()}


def _numpy(name: str, tensor: torch.Tensor) -> np.ndarray:
    try:
        return tensor.numpy(force=True)
    except (TypeError, RuntimeError) as error:
        raise ArgumentError(
            f"The tensor {name!r} ({tensor.dtype}, {tensor.layout}, {tensor.device}) was to be saved.",
            "A file holds dense arrays of the types that numpy knows.",
            "Convert it: tensor.to_dense(), or tensor.float().",
        ) from error


def _array(name: str, value: Any) -> np.ndarray:
    if isinstance(value, torch.Tensor):
        value = _numpy(name, value.float() if value.dtype == torch.bfloat16 else value)
    array = np.asarray(value)
    if not isinstance(name, str) or not name or "\0" in name or len(name.encode("utf-8", "replace")) > _LONGEST:
        raise ArgumentError(
            f"An array called {name!r:.80} was to be saved.",
            "The name must be text without null characters, not empty, and no longer than a zip file allows.",
            "Give it another name, such as 'values'.",
        )
    saveable(name)
    if name == _HEADER or array.dtype.hasobject:
        raise ArgumentError(
            f"The array {name!r} of dtype {array.dtype} was to be saved.",
            f"Files hold plain numbers and text (nothing is pickled), and {_HEADER!r} is the name of their own header.",
            "Convert it to a numeric array, or give it another name.",
        )
    return array
