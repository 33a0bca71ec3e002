"""When training is measured."""

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
