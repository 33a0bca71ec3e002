"""A few calls of every public function, with arguments that fit and that do not; `tests.fuzz` makes more."""

from tests.fuzz.__main__ import fuzzed


def test_every_public_call_ends_in_a_right_result_or_a_refusal():
    counts = fuzzed(calls=660, start=0)
    assert not counts["faults"]
    assert counts["functions"] > 300
    assert counts["refused"] < 0.7 * counts["calls"]
