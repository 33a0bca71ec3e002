"""Rules, and the statements that are judged by them."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ritz.papers.frame.readings import ByReading
from ritz.papers.frame.statements import OURS, Rule, Statement, at_least, at_most, each, near, within
from ritz.record import Record
from tests.papers.both_ways import missing_verdicts

RULES = [
    (at_least(0.9, partly=0.5), {1.0: "yes", 0.9: "yes", 0.7: "partly", 0.4: "no", -math.inf: "no"}),
    (at_most(0.05, partly=0.2), {0.0: "yes", 0.1: "partly", 0.3: "no", math.inf: "no"}),
    (at_least(0.9), {0.9: "yes", 0.89: "no"}),
    (within(1, 2, partly=(0, 3)), {1.5: "yes", 0.5: "partly", 3.5: "no", -0.5: "no"}),
    (near(-2, relative=0.1, partly=0.5), {-2.1: "yes", -1.5: "partly", 2.0: "no", -4.0: "no"}),
]


@pytest.mark.parametrize("rule, verdicts", RULES)
def test_rules_judge_by_their_thresholds(rule, verdicts):
    assert {value: rule(value) for value in verdicts} == verdicts
    assert rule(torch.tensor(next(iter(verdicts)), dtype=torch.float64)) == "yes"


@settings(suppress_health_check=[HealthCheck.too_slow])  # of the machine, not of what is drawn
@given(*[st.floats(allow_nan=False)] * 4)
def test_every_rule_that_can_be_written_says_no_to_something_and_to_nan(a, b, c, d):
    try:
        rule = Rule((a, b), (c, d))
    except ValueError:
        return
    assert rule(math.nan) == "no" and "no" in {rule(-math.inf), rule(math.inf)}


@pytest.mark.parametrize(
    "ends", [((0, 1), (-math.inf, math.inf)), ((0, 1), (0.5, 2)), ((1, 0), (0, 1)), ((math.nan, 1), (0, 2))]
)
def test_a_rule_that_could_not_say_no_cannot_be_written(ends):
    with pytest.raises(ValueError):
        Rule(*ends)


def test_several_numbers_agree_or_the_claim_holds_partly_or_not_at_all():
    rule = each(at_least(0.9, partly=0.5))
    assert rule({"mnist": 1.0, "cifar": 0.95}) == "yes"
    assert rule({"mnist": 1.0, "cifar": 0.1}) == rule([1.0, 0.6]) == "partly"
    assert rule([0.6, 0.7]) == "partly"  # as each of them is by itself
    assert rule([0.6, 0.1]) == rule([0.1, math.nan]) == rule({}) == "no"  # nothing is yes


def judge(statement, *, measured, **said):
    return Statement(statement, measured=lambda _: measured, **said).claim(Record("", "", {}, {}, {}))


def test_a_claim_carries_its_rule_its_error_and_the_sentence_for_its_verdict():
    said = {"paper": "Us 2000", "where": "eq (1)", "rule": at_most(0.1), "why": {"no": "So it is."}}
    bad = judge("small", measured=0.3, expected=0.1, **said)
    assert (bad.verdict, bad.rule) == ("no", "yes if ≤ 0.1, else no")
    assert bad.why == "It is 0.3, and yes takes ≤ 0.1. So it is."
    assert bad.error == pytest.approx(2.0)
    good = judge("small", measured=0.05, expected="small", **said)
    assert (good.verdict, good.why, good.error) == ("yes", "", None)


def test_a_single_sentence_is_for_whatever_is_not_yes():
    said = {"paper": "Us 2000", "where": "", "rule": at_most(0.1, partly=0.2), "expected": 0, "why": "It is large."}
    whys = [judge("", measured=m, **said).why for m in (0.05, 0.15, 0.3)]
    assert whys[0] == "" and all(why.endswith("It is large.") for why in whys[1:])


def test_what_is_not_yes_names_the_numbers_that_keep_it_from_yes_the_worst_first():
    said = {"paper": "Us 2000", "where": "", "rule": each(at_most(0.1, partly=0.5)), "expected": 0}
    few = judge("", measured={"a": 0.3, "b": 0.0, "c": 2.0}, **said)
    assert few.why == "Not yes for 2 of 3: c at 2; a at 0.3, where yes takes ≤ 0.1."
    many = judge("", measured=[0.2, math.nan, 3.0, 4.0, 0.0], **said)
    assert many.why == "Not yes for 4 of 5: NaN; 4; 3 and others, where yes takes ≤ 0.1."
    assert "0.25" in judge("", measured=0.25, **said | {"rule": at_most(0.1, partly=0.5)}).why
    assert judge("", measured={}, **said).why == "Nothing was measured."


def test_the_first_reading_is_judged_and_the_others_stand_beside_it():
    said = {"paper": "Us 2000", "where": "", "rule": each(at_least(0.9, partly=0.5)), "expected": 1.0}
    measured = ByReading({"own data": {"a": 0.95}, "shared data": {"a": 0.2}, "half": {"a": 0.6}})
    claim = judge("", measured=measured, **said)
    assert (claim.verdict, claim.reading, claim.measured) == ("yes", "own data", {"a": 0.95})
    assert {words: one["verdict"] for words, one in claim.beside.items()} == {"shared data": "no", "half": "partly"}
    assert claim.beside["shared data"]["measured"] == {"a": 0.2}
    turned = judge("", measured=ByReading(reversed(measured.items())), **said)
    assert (turned.verdict, turned.reading) == ("partly", "half") and "0.6" in turned.why


def test_a_statement_of_no_paper_is_ours():
    said = {"where": "", "rule": at_most(0.1), "expected": 0, "measured": 0.0}
    assert judge("", paper=OURS, **said).ours and not judge("", paper="linear2026", **said).ours


def test_a_statement_leaves_out_a_record_that_does_not_have_what_it_is_about():
    said = {"paper": "Us 2000", "where": "", "rule": at_most(0.1), "expected": 0}
    assert judge("", measured=None, **said) is None
    assert judge("", measured=0.0, **said) is not None


def test_a_reason_and_an_error_may_be_of_the_record():
    record = Record("", "", {"width": 3}, {}, {})
    said = {"paper": "Us 2000", "where": "", "rule": at_most(0.1), "expected": 1.0, "measured": lambda _: 2.0}
    claim = Statement(
        "", **said, why=lambda r: f"width {r.config['width']}", error=lambda r: float(r.config["width"])
    ).claim(record)
    assert claim.why.endswith("width 3") and claim.error == 3.0


def test_a_statement_that_no_record_makes_a_no_is_named():
    said = {"paper": "Us 2000", "where": "", "rule": at_most(0.1), "expected": 0}
    figure = SimpleNamespace(statements=[Statement("small", measured=lambda r: r.config["x"], **said)])
    records = [Record("", "", {"x": x}, {}, {}) for x in (0.0, 0.2)]
    assert missing_verdicts(figure, records) == []
    assert missing_verdicts(figure, records[:1]) == [("small", "no")]
