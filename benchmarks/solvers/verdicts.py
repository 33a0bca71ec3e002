"""Where ritz is on or below the other curves, and where it is not."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from scipy.stats import mannwhitneyu

from .work import Point, Row

FEWEST = 16  # products from which the rule holds
CHANCE = 0.01  # of a difference as large between two samples of one distribution


@dataclass(frozen=True)
class Comparison:
    """ritz beside a contestant at one of its points: the ratio of the median errors, and whether chance explains it."""

    products: float
    ratio: float
    worse: bool


def comparisons(ours: Row, theirs: Row, error: str, floor: float) -> list[Comparison]:
    """At every point of theirs, with the most products of ours that do not exceed theirs."""
    results = []
    for point in sorted(theirs.points, key=lambda point: point.products):
        before = [own for own in ours.points if own.products <= point.products]
        if before and point.products >= FEWEST:
            results.append(_comparison(max(before, key=lambda own: own.products), point, error, floor))
    return results


def _comparison(ours: Point, theirs: Point, error: str, floor: float) -> Comparison:
    a, b = ([max(value, floor) for value in point.errors[error]] for point in (ours, theirs))
    ratio = statistics.median(a) / statistics.median(b)
    worse = ratio > 1 and mannwhitneyu(a, b, alternative="greater").pvalue < CHANCE
    return Comparison(theirs.products, ratio, bool(worse))


def summary(results: list[Comparison]) -> str:
    """The mean ratio, and where ritz is worse."""
    if not results:
        return ""
    mean = math.exp(statistics.fmean(math.log(each.ratio) for each in results))
    worse = [each for each in results if each.worse]
    text = f"{mean:.2g}"
    if worse:
        where = ", ".join(f"{each.products:.0f}" for each in worse)
        text = f"**{text}**; worse at {where} (up to {max(each.ratio for each in worse):.2g})"
    return text
