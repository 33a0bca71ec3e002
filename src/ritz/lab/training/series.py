"""Curves of numbers noted along a training run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ...errors import ArgumentError


@dataclass(frozen=True)
class Series:
    """Values noted along a run, and the epochs after which they were noted.

    >>> Series(np.array([1, 2]), np.array([0.5, 0.25])).at([2, 3])
    array([0.25,  nan])
    """

    epochs: np.ndarray
    values: np.ndarray

    def at(self, epochs: Sequence[int]) -> np.ndarray:
        """One row for each of these epochs; NaN where nothing was noted, as after the end of a run."""
        own = {int(epoch): value for epoch, value in zip(self.epochs, self.values, strict=True)}
        rows = np.full((len(epochs), *self.values.shape[1:]), np.nan)
        for row, epoch in enumerate(epochs):
            rows[row] = own.get(epoch, np.nan)
        return rows


def numbers(name: str, value: Any) -> Tensor | np.ndarray:
    """A copy of what was measured. A tensor stays on its device, where nothing has to wait for it."""
    if isinstance(value, Tensor) and not value.is_complex():
        return value.detach().clone()
    try:
        array = np.array(None if isinstance(value, Tensor) else value)
    except (TypeError, ValueError):  # rows of different lengths, tensors of another device
        array = np.array(None)
    if array.dtype.kind not in "biuf":
        raise ArgumentError(
            f"{name!r} was to be noted as {value!r:.80}.",
            "Notes become curves, so each must be a real number or an array of them.",
            "Note a number, a tensor or a list of numbers.",
        )
    return array


def curve(notes: Mapping[int, Any]) -> Series:
    """Notes by epoch, as one curve."""
    values = [value.cpu().double().numpy() if isinstance(value, Tensor) else value for value in notes.values()]
    return Series(np.array(list(notes)), np.array(values, dtype=np.float64))
