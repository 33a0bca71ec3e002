"""Rules, and the statements that are judged by them."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ritz.papers.frame.statements import Rule, Statement, at_least, at_most, each, near, within
from ritz.record import Record

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


def test_several_numbers_agree_or_the_claim_holds_partly():
    rule = each(at_least(0.9, partly=0.5))
    assert rule({"mnist": 1.0, "cifar": 0.95}) == "yes"
    assert rule({"mnist": 1.0, "cifar": 0.1}) == "partly"
    assert rule([0.6, 0.7]) == "partly"
    assert rule([0.1, math.nan]) == "no" and rule({}) == "no"


def judge(statement, *, measured, **said):
    return Statement(statement, measured=lambda _: measured, **said).claim(Record("", "", {}, {}, {}))


def test_a_claim_carries_its_rule_its_error_and_the_sentence_for_its_verdict():
    said = {"paper": "Us 2000", "where": "eq (1)", "rule": at_most(0.1), "why": {"no": "it is not"}}
    bad = judge("small", measured=0.3, expected=0.1, **said)
    assert (bad.verdict, bad.why, bad.rule) == ("no", "it is not", "yes if ≤ 0.1, else no")
    assert bad.error == pytest.approx(2.0)
    good = judge("small", measured=0.05, expected="small", **said)
    assert (good.verdict, good.why, good.error) == ("yes", "", None)


def test_a_single_sentence_is_for_whatever_is_not_yes():
    said = {"paper": "Us 2000", "where": "", "rule": at_most(0.1, partly=0.2), "expected": 0, "why": "it is large"}
    assert [judge("", measured=m, **said).why for m in (0.05, 0.15, 0.3)] == ["", "it is large", "it is large"]


def test_those_that_are_against_a_claim_are_named_where_others_are_not():
    said = {"paper": "Us 2000", "where": "", "rule": each(at_most(0.1)), "expected": 0, "why": "it is large"}
    named = [
        judge("", measured=measured, name_against=True, **said).why
        for measured in ({"a, b": 0, "c": 0}, {"a, b": 1, "c": 0, "d": 2}, {"a, b": 1, "c": 1})
    ]
    assert named == ["", "Not so, or not wholly: a, b; d. it is large", "it is large"]
    mixed = said | {"rule": each(at_most(0.1, partly=0.5))}
    assert judge("", measured={"a": 0.3, "b": 1}, name_against=True, **mixed).why == "it is large"  # all are
    assert judge("", measured={"a": 0, "b": 1}, **said).why == "it is large"
    assert judge("", measured=[0, 1], name_against=True, **said).why == "it is large"  # they have no names
    assert judge("", measured={"a": 0, "b": 1}, name_against=True, **said | {"why": ""}).why.endswith("wholly: b.")


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
    assert (claim.why, claim.error) == ("width 3", 3.0)
