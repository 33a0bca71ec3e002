"""Checks of the arrays and facts in a file, made before any of them is used.

A file states which arrays it has, of what type and shape, and how many of their numbers are not finite: its contents
must agree. The reader states what they must be for its computation. A file that was changed by accident does not even
open: its archive has a checksum of every array, and every name twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor


def layout_of(arrays: Mapping[str, np.ndarray]) -> dict[str, list[Any]]:
    """The layout of arrays: the type and shape of each, and how many of its numbers are NaN or infinite."""
    return {name: [array.dtype.str, list(array.shape), _num_not_finite(array)] for name, array in arrays.items()}


def _num_not_finite(array: np.ndarray) -> int:
    return int(array.size - np.isfinite(array).sum()) if array.dtype.kind in "fc" else 0


def check_layout(arrays: Mapping[str, np.ndarray], layout: Any) -> None:
    """Refuse arrays that differ from the layout stated in their file."""
    own = layout_of(arrays)
    if own == layout:
        return
    if not isinstance(layout, dict):
        raise ValueError("it does not say which arrays it has")
    name = min(name for name in {*own, *layout} if own.get(name) != layout.get(name))
    raise ValueError(f"{name} is {_words(own.get(name))}, and was {_words(layout.get(name))}")


def _words(entry: Any) -> str:
    if entry is None:
        return "not there"
    kind, shape, count = entry if isinstance(entry, list) and len(entry) == 3 else (entry, "?", 0)
    return f"{kind} {shape}" + (f" with {count} numbers that are not finite" if count else "")


def check_arrays(
    arrays: Mapping[str, Tensor | np.ndarray], expected: Mapping[str, Tensor | np.ndarray], *, finite: bool = True
) -> None:
    """Refuse missing or additional arrays, arrays of another shape or type than expected, and NaN."""
    if missing := sorted(expected.keys() ^ arrays.keys()):
        raise ValueError(f"there is {'no' if missing[0] in expected else 'an array'} {missing[0]}")
    for name, like in expected.items():
        array, kind = _as_array(arrays[name]), like if isinstance(like, np.ndarray) else numpy_like(like)
        if array.shape != kind.shape or array.dtype != kind.dtype:
            raise ValueError(f"{name} is {array.dtype} {array.shape}, not {kind.dtype} {kind.shape}")
        if finite and _num_not_finite(array):
            raise ValueError(f"{name} holds NaN or infinity")


def _as_array(values: Tensor | np.ndarray) -> np.ndarray:
    return values.numpy() if isinstance(values, Tensor) else values


def like(dtype: torch.dtype, *shape: int) -> Tensor:
    """A tensor of this type and shape for `check_arrays`, without values of its own."""
    return torch.empty((), dtype=dtype).expand(shape)


def numpy_like(tensor: Tensor) -> np.ndarray:
    """An array of the type and shape that a tensor has in a file, without its values."""
    kind = torch.float32 if tensor.dtype == torch.bfloat16 else tensor.dtype
    return np.broadcast_to(torch.empty((), dtype=kind).numpy(), tuple(tensor.shape))


def check_facts(facts: Mapping[str, Any], **allowed: range | type) -> None:
    """Refuse facts of the wrong kind: expected are whole numbers of a range, numbers of at least 0, or True and False.

    >>> check_facts({"count": 3, "scale": 0.5, "over": False}, count=range(4), scale=float, over=bool)
    >>> check_facts({"count": 4}, count=range(4))
    Traceback (most recent call last):
    ValueError: count is 4
    """
    for name, kind in allowed.items():
        if name not in facts:
            raise ValueError(f"there is no {name}")
        if not _is_one(facts[name], kind):
            raise ValueError(f"{name} is {facts[name]!r:.80}")


def _is_one(fact: Any, kind: range | type) -> bool:
    if isinstance(kind, range):
        return type(fact) is int and fact in kind
    return type(fact) is kind and (not isinstance(fact, float) or 0 <= fact < math.inf)
