"""What a paper says about a figure, as a table that can be read without running anything.

A row is a sentence, its place in the paper, the number that decides it and the rule that judges the number. In the
module of a figure, with `says` from the paper's module `paper`:

    def slopes(record):  # a number, or several by name; None leaves the statement out of this record
        return {name: slope(record.arrays[name]) for name in LINES}

    STATEMENTS = (
        says(
            "Eigenvalues scale in proportion to the input variance.", where="Sec. 3.1",
            measured=slopes, rule=each(within(0.95, 1.05)), expected=1.0,  # a rule can say no
            why="A line that is made of the covariance alone does not follow.",  # printed unless the verdict is yes
        ),
    )

A statement of our own has `paper=OURS` and is counted separately. `ritz claims author2026.fig5 --statements` prints the
table; `ritz run` and `ritz draw` judge records by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...record import OURS, Claim, Record, Verdict
from .readings import ByReading

__all__ = ["OURS", "Each", "Rule", "Statement", "at_least", "at_most", "each", "near", "within"]
SHOWN = 3  # how many numbers a reason lists
Reason = str | Mapping[str, str]  # why the verdict is not "yes", or a reason for each verdict


@dataclass(frozen=True)
class Rule:
    """A verdict on a measured number: yes inside one interval, partly inside a wider one, else no.

    An infinite end means no bound, but the wider interval has at least one bound, and NaN is in no interval: every rule
    can say no.
    """

    yes: tuple[float, float]
    partly: tuple[float, float]

    def __post_init__(self) -> None:
        (low, high), (lower, higher) = self.yes, self.partly
        if not (lower <= low <= high <= higher and (math.isfinite(lower) or math.isfinite(higher))):
            raise ValueError(f"{self} could not say no, or says yes where it does not even say partly")

    def __call__(self, measured: Any) -> Verdict:
        """The verdict, from the measured number alone."""
        value = float(measured)
        if self.yes[0] <= value <= self.yes[1]:
            return "yes"
        return "partly" if self.partly[0] <= value <= self.partly[1] else "no"

    def distance(self, measured: Any) -> float:
        """How far a number is from a yes; infinite for NaN."""
        value = float(measured)
        return math.inf if math.isnan(value) else max(self.yes[0] - value, value - self.yes[1], 0.0)

    def __str__(self) -> str:
        if self.partly == self.yes:
            return f"yes if {_interval(self.yes)}, else no"
        return f"yes if {_interval(self.yes)}, partly if {_interval(self.partly)}, else no"


@dataclass(frozen=True)
class Each:
    """A verdict on several numbers: yes if all are yes, no if none is yes and at least one is no, else partly.

    Without any numbers the verdict is no.
    """

    rule: Rule

    def __call__(self, measured: Mapping[str, Any] | Sequence[Any]) -> Verdict:
        """The verdict, from the measured numbers alone."""
        values = measured.values() if isinstance(measured, Mapping) else measured
        verdicts = {self.rule(value) for value in values}
        if len(verdicts) == 1:
            return verdicts.pop()
        return "partly" if "yes" in verdicts else "no"

    def against(self, measured: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
        """The numbers whose verdict is not yes, by name or position, the worst first."""
        items = measured.items() if isinstance(measured, Mapping) else ((f"{n}", v) for n, v in enumerate(measured, 1))
        against = {name: value for name, value in items if self.rule(value) != "yes"}
        return dict(sorted(against.items(), key=lambda item: -self.rule.distance(item[1])))

    def __str__(self) -> str:
        return f"each: {self.rule}; partly if some are yes"


def at_least(bound: float, *, partly: float | None = None) -> Rule:
    """Yes from `bound` up, partly from `partly` up."""
    return Rule((bound, math.inf), (bound if partly is None else partly, math.inf))


def at_most(bound: float, *, partly: float | None = None) -> Rule:
    """Yes up to `bound`, partly up to `partly`."""
    return Rule((-math.inf, bound), (-math.inf, bound if partly is None else partly))


def within(low: float, high: float, *, partly: tuple[float, float] | None = None) -> Rule:
    """Yes in the interval [low, high], partly in a wider one."""
    return Rule((low, high), partly or (low, high))


def near(expected: float, *, relative: float, partly: float | None = None) -> Rule:
    """Yes where |measured - expected| ≤ relative · |expected|, partly where that holds with `partly` for `relative`."""
    margin, wider = (abs(expected) * part for part in (relative, relative if partly is None else partly))
    return Rule((expected - margin, expected + margin), (expected - wider, expected + wider))


def each(rule: Rule) -> Each:
    """The rule for every one of several numbers, such as one per data set."""
    return Each(rule)


@dataclass(frozen=True)
class Statement:
    """One sentence about a figure, who says it and where, the number that decides it, and the rule that judges it.

    `paper` is the paper that says it, or OURS. `measured` reads the number, or several by name, from a record, and
    is None for a record that the statement does not apply to. Numbers `ByReading` are judged by the first reading and
    reported for the others. A verdict other than yes comes with the numbers that prevent a yes, and with `why`, which
    may be a function of the record. `error` is the relative error of the measured number unless given.
    """

    statement: str
    paper: str
    where: str
    measured: Callable[[Record], Any]
    rule: Rule | Each
    expected: Any
    why: Reason | Callable[[Record], Reason] = ""
    error: Callable[[Record], float | None] | None = None

    def claim(self, record: Record) -> Claim | None:
        """The statement judged on this record: the verdict depends on the rule and the measured number alone."""
        measured = self.measured(record)
        if measured is None:
            return None
        reading, *others = measured.items() if isinstance(measured, ByReading) else (("", measured),)
        name, measured = reading
        verdict = self.rule(measured)
        return Claim(
            self.statement,
            self.paper,
            self.where,
            str(self.rule),
            self.expected,
            measured,
            error=_relative_error(measured, self.expected) if self.error is None else self.error(record),
            verdict=verdict,
            why=self._reason(record, verdict, measured),
            reading=name,
            beside={words: {"measured": value, "verdict": self.rule(value)} for words, value in others},
        )

    def _reason(self, record: Record, verdict: Verdict, measured: Any) -> str:
        why = self.why(record) if callable(self.why) else self.why
        if verdict == "yes":
            return why.get("yes", "") if isinstance(why, Mapping) else ""
        reason = why.get(verdict, "") if isinstance(why, Mapping) else why
        return f"{_what_keeps_it_from_yes(self.rule, measured)} {reason}".strip()


def _what_keeps_it_from_yes(rule: Rule | Each, measured: Any) -> str:
    """The numbers that prevent a yes, at most three of them, and what a yes requires."""
    if isinstance(rule, Rule):
        return f"It is {_number(measured)}, and yes takes {_interval(rule.yes)}."
    against = rule.against(measured)
    if not against:
        return "Nothing was measured."
    named = isinstance(measured, Mapping)
    few = [f"{name} at {_number(value)}" if named else _number(value) for name, value in list(against.items())[:SHOWN]]
    more = " and others" if len(against) > SHOWN else ""
    count = f" for {len(against)} of {len(measured)}" if len(measured) > 1 else ""
    return f"Not yes{count}: {'; '.join(few)}{more}, where yes takes {_interval(rule.rule.yes)}."


def _number(value: Any) -> str:
    number = float(value)
    return "NaN" if math.isnan(number) else f"{number:.3g}"


def _relative_error(measured: Any, expected: Any) -> float | None:
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in (measured, expected)):
        return None
    return abs(measured - expected) / abs(expected) if expected else None


def _interval(ends: tuple[float, float]) -> str:
    low, high = ends
    if math.isinf(high):
        return f"≥ {low:g}"
    if low == high:
        return f"{low:g}"
    return f"≤ {high:g}" if math.isinf(low) else f"from {low:g} to {high:g}"
