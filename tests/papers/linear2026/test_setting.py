"""When training is measured."""

import numpy as np
import pytest

from ritz.errors import ArgumentError
from ritz.papers.frame.results import order
from ritz.papers.linear2026 import setting
from tests.papers.linear2026.problems import paper_figures


def test_pauses_are_spread_from_the_first_epoch_to_the_last():
    assert setting.logarithmic(1000, 1) == [1000]
    assert setting.logarithmic(1000, 4) == [1, 10, 100, 1000]
    assert setting.logarithmic(3, 9) == [1, 2, 3]
    assert setting.late(1000, 1) == [1000]
    assert setting.late(1000, 6) == [1, 10, 100, 400, 700, 1000]
    assert setting.late(5, 3) == [1, 5] and setting.late(2, 2) == [1, 2]
    assert len(setting.late(10_000, 40)) >= 38 and sum(epoch > 1000 for epoch in setting.late(10_000, 40)) == 20


@pytest.mark.parametrize("name", ["fig1c", "fig4"])
def test_a_training_without_pauses_is_refused_before_it_starts(name, tmp_path):
    with pytest.raises(ArgumentError, match="nothing to measure"):
        order(paper_figures()[f"linear2026.{name}"], "smoke", ["num_pauses=0"], tmp_path)


def test_the_distance_to_the_minimum_is_that_of_networks_that_did_not_diverge():
    loss, rest, rate = np.array([1.2, np.nan, 1.1]), np.ones(3), np.array([1e-3, 1e-9, 1e-4])
    words = setting.distance_to_minimum(loss, rest, rate)
    assert "0.2 of the least" in words and "0.001" in words and "1 of 3 networks diverged" in words
    assert setting.distance_to_minimum(loss * np.nan, rest, rate) == "All networks diverged."
