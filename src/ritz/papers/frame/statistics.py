"""Numbers that say how one quantity follows another."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Real

LEAST = 3  # points of a rank correlation: two always have one of ±1


def spearman(x: Real[np.ndarray, " n"], y: Real[np.ndarray, " n"]) -> float:
    """Spearman's ρ over the points that have both; NaN for fewer than three, 0 where one of them does not vary.

    An infinite value has a rank, as any other that is not NaN.
    """
    both = ~(np.isnan(x) | np.isnan(y))
    x, y = x[both], y[both]
    if len(x) < LEAST:
        return float("nan")
    varies = (x != x[0]).any() and (y != y[0]).any()
    return float(np.corrcoef(_ranks(x), _ranks(y))[0, 1]) if varies else 0.0


def _ranks(values: Real[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """From 1 on; equal values share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: np.ndarray = (counts.cumsum() - (counts - 1) / 2)[places]
    return ranks


def median_spearman(x: Real[np.ndarray, " n"], rows: Real[np.ndarray, "draws n"]) -> float:
    """Spearman's ρ of x and a row, the median row."""
    return float(np.median([spearman(x, row) for row in rows]))
