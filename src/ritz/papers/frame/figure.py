"""A figure of a paper: how it is computed, drawn and judged.

Figure(
    "author2026.fig1",
    "What it shows, in a line",
    presets={"paper": Config(), "laptop": Config(draws=20), "smoke": Config(draws=2, depth=2)},
    run=run,        # (config, context) -> Record or mapping: computes, never draws
    draw=draw,      # record -> matplotlib figure: draws, never computes
    claims=claims,  # record -> claims: judges by rules that can say no
)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ...lab.sweep import sweep
from ...lab.workers import Engine, InProcess, Task, name_of
from ...record import Claim, Picture, Record, Verdict


@dataclass(frozen=True)
class Context:
    """Where a figure is computed. None of it changes what is computed, so none of it is in the config."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    data_dir: Path | None = None  # None: where `lab.data` looks by itself
    folder: Path | None = None  # what an interrupted run needs to go on, such as checkpoints; None: it keeps nothing
    engine: Engine = field(default_factory=InProcess)

    def sweep(self, task: Task, configs: Iterable[Any], *, name: str | None = None) -> list[Record]:
        """One record for each config, on the engine of this run; what an interrupted run has computed is kept.

        The device and the data folder are bound to the task by the caller: `partial(point, device=context.device)`.
        """
        name = name or name_of(task)
        with nullcontext(self.folder) if self.folder is not None else TemporaryDirectory() as folder:
            return sweep(task, configs, Path(folder) / name, engine=self.engine, name=name)


@dataclass(frozen=True)
class Figure:
    """One numbered figure (or panel) of a paper.

    `presets` are frozen dataclasses of JSON values: "paper" (each value with its source), "laptop" (minutes on two
    cores), "smoke" (seconds). Figures with the same `computation` share `run` and `presets`: the record of one serves
    all, and each draws and judges its own.
    """

    id: str
    title: str
    presets: Mapping[str, Any]
    run: Callable[[Any, Context], Record | Mapping[str, Any]]
    draw: Callable[[Record], Picture]
    claims: Callable[[Record], Sequence[Claim]]
    computation: str = ""
    paper_cost: str = (
        ""  # why "paper" is not run as a matter of course, and what it takes; kept in other presets' records
    )

    @property
    def shared(self) -> str:
        """The name of the computation: its own id, unless it is shared."""
        return self.computation or self.id


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


def claim(
    statement: str,
    *,
    paper: str,
    where: str,
    rule: Rule | Each,
    measured: Any,
    expected: Any,
    error: float | None = None,
    why: str | Mapping[str, str] = "",
    name_against: bool = False,
) -> Claim:
    """What a paper says, judged: the verdict comes from `measured` by the rule, and from nothing else.

    `why` is a sentence for whatever is not "yes", or one for each verdict that needs one, such as {"no": "..."}. Where
    some of several numbers make a "partly" and not all, `name_against` says first which. `error` is the relative error
    of the measured number, unless given or meaningless.
    """
    verdict = rule(measured)
    told = why.get(verdict, "") if isinstance(why, Mapping) else why if verdict != "yes" else ""
    if name_against and verdict == "partly" and isinstance(rule, Each) and isinstance(measured, Mapping):
        against = rule.against(measured)
        told = f"Not so, or not wholly: {'; '.join(against)}. {told}" if len(against) < len(measured) else told
    error = _relative_error(measured, expected) if error is None else error
    return Claim(statement, paper, where, str(rule), expected, measured, error, verdict, told.strip())


def _relative_error(measured: Any, expected: Any) -> float | None:
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in (measured, expected)):
        return None
    return abs(measured - expected) / abs(expected) if expected else None


def _interval(ends: tuple[float, float]) -> str:
    low, high = ends
    if math.isinf(high):
        return f"≥ {low:g}"
    return f"≤ {high:g}" if math.isinf(low) else f"from {low:g} to {high:g}"
