"""Comparisons of the correlation coefficients in a record of two-layer networks, as the paper makes them.

Coefficients are arrays parametrisation × size × stage × layer × norm.
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
    """The coefficient of the layer that correlates better, for each size."""
    return np.asarray(record.arrays[key][NAMES.index(name), :, stage, :, norm]).max(-1)


def best_of_all(record: Record, name: Name, stage: int) -> np.ndarray:
    """The highest coefficient of all norms of both layers, for each size."""
    return np.asarray(record.arrays["norms"][NAMES.index(name), :, stage]).max((-2, -1))


def margins(record: Record, key: str, name: Name, norm: int, stage: int) -> np.ndarray:
    """By how much the better layer's coefficient for one norm beats those for the others, for each D > 1.

    At D = 1 the norms are the same.
    """
    own = best_layer(record, key, name, stage, norm)
    others = np.stack([best_layer(record, key, name, stage, other) for other in range(len(NORMS)) if other != norm])
    return np.asarray((own - others.max(0))[sizes(record) > 1])


def shares_most(key: str, names: Sequence[Name], norm: int) -> Callable[[Record], dict[str, float]]:
    """The share of D > 1 at which this norm has the highest coefficient of all norms after training."""

    def shares(record: Record) -> dict[str, float]:
        return {f"{name}, share of D > 1": _share(margins(record, key, name, norm, TRAINED)) for name in names}

    return shares


def _share(values: np.ndarray) -> float:
    """The share of positive numbers; NaN if one of them is NaN."""
    return float("nan") if np.isnan(values).any() else float((values > 0).mean())


def matrix_lead(record: Record, name: Name, stage: int, where: np.ndarray) -> float:
    """r(W₁) - r(W₂) for the spectral norm: the median over these sizes."""
    values = record.arrays["norms"][NAMES.index(name), :, stage, :, SPECTRAL]
    return float(np.median((values[:, 0] - values[:, 1])[where]))


def disagreement(record: Record) -> float:
    """The smaller of the largest leads of W₁ and of W₂: negative if one of them leads in every parametrisation."""
    leads = [matrix_lead(record, name, TRAINED, sizes(record) > 0) for name in NAMES]
    return float(min(max(leads), -min(leads)) if np.isfinite(leads).all() else np.nan)
