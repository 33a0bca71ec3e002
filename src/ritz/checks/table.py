"""The table of `ritz verify`: one row for each result, with its largest errors over all draws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import chain

from torch import Generator

from .. import progress
from .check import Check, Deviation, deviation

PAPERS = (
    "singh2026",
    "singh2026_attention",
    "linear2026",
    "linear2026_aligned",
    "papyan2020",
    "papyan2020_classes",
    "papyan2020_algorithms",
)
DRAWS = 40  # fresh inputs per result; with the degenerate cases about half a minute on one core


@dataclass(frozen=True)
class Row:
    """One line of the table: the largest errors of one result over all its draws."""

    result: str
    paper: str
    equation: str
    draws: int
    values: float
    vectors: float | None
    passed: bool
    worst: str  # the input with the largest error: the number of a draw or the name of a special case


def all_checks() -> tuple[Check, ...]:
    """Every result that can be verified, in the order of the papers."""
    return tuple(chain.from_iterable(import_module(f"{__package__}.{paper}").CHECKS for paper in PAPERS))


def rows(selected: Iterable[Check] | None = None, *, draws: int = DRAWS, generator: Generator) -> Iterator[Row]:
    """Verify one result after the other, with a progress bar."""
    checks = all_checks() if selected is None else tuple(selected)
    with progress.bar("Verifying", total=len(checks)) as bar:
        for check in checks:
            yield _row(check, draws, generator)
            bar.advance(result=check.result)


def _row(check: Check, draws: int, generator: Generator) -> Row:
    count = draws if check.most_draws is None else min(draws, check.most_draws)
    fresh = {f"draw {i + 1}": check.draw(generator) for i in range(count)}
    deviations = {name: deviation(check, inputs) for name, inputs in {**fresh, **check.degenerate(generator)}.items()}
    worst = max(deviations, key=lambda name: (not deviations[name].small, _size(deviations[name])))
    vectors = [error.vectors for error in deviations.values() if error.vectors is not None]
    return Row(
        check.result,
        check.paper,
        check.equation,
        len(deviations),
        max(error.values for error in deviations.values()),
        max(vectors, default=None),
        all(error.small for error in deviations.values()),
        worst,
    )


def _size(deviation: Deviation) -> float:
    return max(deviation.values, deviation.vectors or 0.0)
