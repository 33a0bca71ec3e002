"""Rank correlations: how one quantity follows another."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Real

LEAST = 3  # points for a rank correlation: with two it is always ±1


def spearman(x: Real[np.ndarray, " n"], y: Real[np.ndarray, " n"]) -> float:
    """Spearman's ρ over the points where neither is NaN; NaN for fewer than three, 0 where one does not vary.

    Infinite values have a rank like any other.
    """
    both = ~(np.isnan(x) | np.isnan(y))
    x, y = x[both], y[both]
    if len(x) < LEAST:
        return float("nan")
    varies = (x != x[0]).any() and (y != y[0]).any()
    return float(np.corrcoef(_ranks(x), _ranks(y))[0, 1]) if varies else 0.0


def _ranks(values: Real[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The ranks, from 1 up; equal values share their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: np.ndarray = (counts.cumsum() - (counts - 1) / 2)[places]
    return ranks


def median_spearman(x: Real[np.ndarray, " n"], rows: Real[np.ndarray, "draws n"]) -> float:
    """Spearman's ρ of x and each row: the median over the rows."""
    return float(np.median([spearman(x, row) for row in rows]))
