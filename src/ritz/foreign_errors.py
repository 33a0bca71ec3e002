"""Errors of PyTorch or Python inside public functions, turned into our own, which name the cause and a remedy."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from typing import Any

from .errors import ArgumentError, NumericalError, OutOfMemoryError, RitzError, first_line

NO_MEMORY = (
    "can't allocate memory",  # PyTorch in main memory
    "annot allocate memory",  # the system, where PyTorch maps a file
    "out of memory",  # on a GPU
    "_ALLOC_FAILED",  # cuBLAS and cuDNN
    "Storage size calculation overflowed",
    "multiplication overflow",  # of the number of entries
)
NO_KERNEL = re.compile(r"not implemented for '(Half|BFloat16)'")
PIECE = re.compile(r"allocate (\d+) bytes|allocate ([\d.]+ [KMGT]iB)")  # in main memory, on a GPU


def refusal(name: str, given: Mapping[str, Any], error: BaseException) -> RitzError | None:
    """The refusal in place of an error that a call of this function raised; None if it is not ours to explain."""
    import torch

    if isinstance(error, OverflowError):
        return _too_large(name, error) if _is_ours(error) else None
    if isinstance(error, torch.linalg.LinAlgError):
        return NumericalError(
            f"{name} could not decompose a matrix: {first_line(error)}",
            "Its entries are too large, too small or too far apart for the arithmetic.",
            "Scale the input, or compute in float64.",
        )
    if isinstance(error, NotImplementedError):
        return _without_kernel(name, error)
    if is_out_of_memory(error):
        return None if isinstance(error, RitzError) else _out_of_memory(name, given, error)
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is that of an allocator, on a GPU or in main memory: of Python, or a RuntimeError of PyTorch."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in NO_MEMORY)
    )


def _is_ours(error: BaseException) -> bool:
    """Whether ritz raised the error, or made the call that did; what a user's own function raises is the user's."""
    (*_, (frame, _)) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals.get("__name__", "").startswith("ritz.")


def _too_large(name: str, error: BaseException) -> NumericalError:
    return NumericalError(
        f"{name} met a number too large for a float: {first_line(error)}",
        "Its input is too large to be squared, multiplied or counted.",
        "Scale the input down.",
    )


def _without_kernel(name: str, error: BaseException) -> ArgumentError | None:
    if "meta tensor" in str(error):
        way_out = "Make the tensor on a device that computes, such as cpu."
        return ArgumentError("A tensor on the device meta was given.", "It has a shape but no values.", way_out)
    if NO_KERNEL.search(str(error)) and _is_ours(error):
        seen, why = f"{name} was given half precision.", f"PyTorch says: {first_line(error)}."
        return ArgumentError(seen, why, "Pass it as .float() or .double().")
    return None


def _out_of_memory(name: str, given: Mapping[str, Any], error: BaseException) -> OutOfMemoryError:
    """The refusal with the size of the allocation that failed, and the integer arguments it may depend on."""
    piece = PIECE.search(str(error))
    in_bytes, size = piece.groups() if piece else (None, None)
    size = f"{int(in_bytes) / 2**30:,.1f} GiB" if in_bytes else size
    numbers = ", ".join(f"{key}={value}" for key, value in given.items() if type(value) is int)
    return OutOfMemoryError(
        f"{name} ran out of memory" + (f": it asked for {size} in one piece." if size else f": {first_line(error)}"),
        f"It was called with {numbers}." if numbers else "What it was asked to compute does not fit.",
        "Ask for less, or use a machine with more memory.",
    )
