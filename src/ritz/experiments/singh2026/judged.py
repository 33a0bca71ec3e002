"""How claims of several figures are judged: exact formulas by one rule, and a word on whatever they do not hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...record import Claim
from ..figure import Each, Rule, at_most, claim
from . import PAPER

EXACT = at_most(1e-9, partly=1e-6)  # float64: anything more is no closed form
DISAGREE = {
    "no": "The closed form and the measured spectrum disagree.",
    "partly": "The closed form and the measured spectrum agree to some digits only, or not for all networks.",
}


def judged(
    statement: str,
    where: str,
    rule: Rule | Each,
    measured: Any,
    expected: Any,
    why: str | Mapping[str, str],
    *,
    paper: str = PAPER,
) -> Claim:
    """A claim that says why where the verdict is "no" or "partly": a sentence for each, or one that is true of both."""
    told = dict.fromkeys(("no", "partly"), why) if isinstance(why, str) else why
    return claim(statement, paper=paper, where=where, rule=rule, measured=measured, expected=expected, why=told)
