"""How one quantity follows another."""

import math

import numpy as np
import pytest

from ritz.papers.frame.statistics import median_spearman, spearman


def test_rank_correlation_leaves_out_nan_and_is_nan_where_too_little_is_left():
    from scipy.stats import spearmanr  # here, for it takes a second

    x = np.arange(5.0)
    assert spearman(x, np.array([1.0, np.nan, 7, 8, 90])) == pytest.approx(1)
    assert spearman(x, -(x**3)) == pytest.approx(-1)
    assert math.isnan(spearman(x, np.array([1, 2, np.nan, np.nan, np.nan])))
    assert spearman(x, 0 * x) == spearman(x, x * 0 + np.inf) == 0.0
    assert spearman(x, np.array([2.0, 1, 3, 4, 5])) == pytest.approx(0.9)
    assert spearman(x, np.array([1, 2, 3, np.inf, np.inf])) > 0.95
    draws = np.random.default_rng(0).integers(0, 6, (20, 2, 9)).astype(float)  # with many ties
    assert [spearman(*pair) for pair in draws] == pytest.approx([spearmanr(*pair).statistic for pair in draws])
    assert median_spearman(x, np.stack([x, -x, x])) == pytest.approx(1)
