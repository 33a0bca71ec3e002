"""The correlation coefficients that a record of two-layer networks holds, as the paper compares them.

They are arrays of parametrisation × size × stage × layer × norm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...record import Record
from .trained_networks import NAMES, NORMS, SPECTRAL, TRAINED, Name


def sizes(record: Record) -> np.ndarray:
    """D, the numbers of inputs and outputs."""
    return np.array(record.config["sizes"])


def best_layer(record: Record, key: str, name: Name, stage: int, norm: int) -> np.ndarray:
    """The coefficient of the layer that correlates most, for each size."""
    return np.asarray(record.arrays[key][NAMES.index(name), :, stage, :, norm]).max(-1)


def best_of_all(record: Record, name: Name, stage: int) -> np.ndarray:
    """The highest coefficient of all norms of both layers, for each size."""
    return np.asarray(record.arrays["norms"][NAMES.index(name), :, stage]).max((-2, -1))


def margin(record: Record, key: str, name: Name, norm: int, stage: int = TRAINED) -> float:
    """By how much the best layer's coefficient for one norm beats those for the others: the median over D > 1."""
    own = best_layer(record, key, name, stage, norm)
    others = np.stack([best_layer(record, key, name, stage, other) for other in range(len(NORMS)) if other != norm])
    return float(np.median((own - others.max(0))[sizes(record) > 1]))  # at D = 1 the norms are one


def margins(key: str, names: Sequence[Name], norm: int) -> Callable[[Record], dict[str, float]]:
    """The same in each of these parametrisations."""
    return lambda record: {f"{name}, median over D > 1": margin(record, key, name, norm) for name in names}


def lead(record: Record, name: Name, stage: int, where: np.ndarray) -> float:
    """r(W₁) - r(W₂) for the spectral norm: the median over those sizes."""
    values = record.arrays["norms"][NAMES.index(name), :, stage, :, SPECTRAL]
    return float(np.median((values[:, 0] - values[:, 1])[where]))


def disagreement(record: Record) -> float:
    """How far W₁ leads where it leads most, or W₂ where that does, the smaller of both: < 0 if one leads everywhere."""
    leads = [lead(record, name, TRAINED, sizes(record) > 0) for name in NAMES]
    return float(min(max(leads), -min(leads)) if np.isfinite(leads).all() else np.nan)
