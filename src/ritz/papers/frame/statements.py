"""What a paper says about a figure, as a table that can be read without running anything.

A row is a sentence, where it stands, the number that decides it and the rule by which it does. In the module of a
figure, with `says` from the paper's module `paper`:

    def slopes(record):  # a number, or several by name; None leaves the statement out of this record
        return {name: slope(record.arrays[name]) for name in LINES}

    STATEMENTS = (
        says(
            "Eigenvalues scale in proportion to the input variance.", where="Sec. 3.1",
            measured=slopes, rule=each(within(0.95, 1.05)), expected=1.0,  # a rule can say no
            why="A line that is made of the covariance alone does not follow.",  # said unless the verdict is yes
        ),
    )

`ritz claims author2026.fig5 --statements` prints the table; `ritz run` and `ritz draw` judge a record by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...record import Claim, Record, Verdict

Reason = str | Mapping[str, str]  # what to say where the verdict is not "yes", or for each verdict that needs a word


@dataclass(frozen=True)
class Rule:
    """A verdict on a measured number: yes inside one interval, partly inside a wider one, else no.

    An infinite end is open; one end of the wider interval at least is not, and NaN is in no interval: every rule can
    say no.
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

    def __str__(self) -> str:
        if self.partly == self.yes:
            return f"yes if {_interval(self.yes)}, else no"
        return f"yes if {_interval(self.yes)}, partly if {_interval(self.partly)}, else no"


@dataclass(frozen=True)
class Each:
    """A verdict on several numbers: yes or no where all say so, partly where they differ; no where there are none."""

    rule: Rule

    def __call__(self, measured: Mapping[str, Any] | Sequence[Any]) -> Verdict:
        """The verdict, from the measured numbers alone."""
        values = measured.values() if isinstance(measured, Mapping) else measured
        verdicts = {self.rule(value) for value in values}
        return verdicts.pop() if len(verdicts) == 1 else "partly" if verdicts else "no"

    def against(self, measured: Mapping[str, Any]) -> list[str]:
        """The names of those that do not say yes."""
        return [name for name, value in measured.items() if self.rule(value) != "yes"]

    def __str__(self) -> str:
        return f"each: {self.rule}; partly if they differ"


def at_least(bound: float, *, partly: float | None = None) -> Rule:
    """Yes from `bound` on, partly from `partly` on."""
    return Rule((bound, math.inf), (bound if partly is None else partly, math.inf))


def at_most(bound: float, *, partly: float | None = None) -> Rule:
    """Yes up to `bound`, partly up to `partly`."""
    return Rule((-math.inf, bound), (-math.inf, bound if partly is None else partly))


def within(low: float, high: float, *, partly: tuple[float, float] | None = None) -> Rule:
    """Yes in the interval [low, high], partly in a wider one."""
    return Rule((low, high), partly or (low, high))


def near(expected: float, *, relative: float, partly: float | None = None) -> Rule:
    """Yes where |measured - expected| ≤ relative · |expected|, partly where the larger `partly` does for it."""
    margin, wider = (abs(expected) * part for part in (relative, relative if partly is None else partly))
    return Rule((expected - margin, expected + margin), (expected - wider, expected + wider))


def each(rule: Rule) -> Each:
    """The rule for every one of several numbers, such as one per data set."""
    return Each(rule)


@dataclass(frozen=True)
class Statement:
    """One sentence about a figure, where it stands, the number that decides it, and the rule by which it does.

    `measured` reads the number, or several by name, off a record; None leaves the statement out of that record, which
    does not have what it is about. `why` may need the record, to say what is true of it. Where some of several numbers
    make a "partly" and not all, `name_against` says first which. `error` is the relative error of the measured number
    unless it is given.
    """

    statement: str
    paper: str
    where: str
    measured: Callable[[Record], Any]
    rule: Rule | Each
    expected: Any
    why: Reason | Callable[[Record], Reason] = ""
    error: Callable[[Record], float | None] | None = None
    name_against: bool = False

    def claim(self, record: Record) -> Claim | None:
        """The statement judged on this record, by the rule from the measured number and from nothing else."""
        measured = self.measured(record)
        if measured is None:
            return None
        verdict = self.rule(measured)
        error = _relative_error(measured, self.expected) if self.error is None else self.error(record)
        reason = self._reason(record, verdict, measured)
        return Claim(
            self.statement, self.paper, self.where, str(self.rule), self.expected, measured, error, verdict, reason
        )

    def _reason(self, record: Record, verdict: Verdict, measured: Any) -> str:
        why = self.why(record) if callable(self.why) else self.why
        reason = why.get(verdict, "") if isinstance(why, Mapping) else why if verdict != "yes" else ""
        if self.name_against and verdict == "partly" and isinstance(self.rule, Each) and isinstance(measured, Mapping):
            against = self.rule.against(measured)
            if len(against) < len(measured):
                reason = f"Not so, or not wholly: {'; '.join(against)}. {reason}"
        return reason.strip()


def _relative_error(measured: Any, expected: Any) -> float | None:
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in (measured, expected)):
        return None
    return abs(measured - expected) / abs(expected) if expected else None


def _interval(ends: tuple[float, float]) -> str:
    low, high = ends
    if math.isinf(high):
        return f"≥ {low:g}"
    return f"≤ {high:g}" if math.isinf(low) else f"from {low:g} to {high:g}"
