"""Verdicts on the curves: where ritz is on or below all others, and where it is not."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from scipy.stats import mannwhitneyu

from .work import Row

FEWEST = 16  # products from which the rule holds
EQUAL = 1.05  # ratio of errors that nobody would call different
CHANCE = 0.01  # of a difference as large between two samples of one distribution


@dataclass(frozen=True)
class Comparison:
    """ritz beside a contestant at one of its points: the ratio of the median errors, and whether chance explains it."""

    products: float
    ratio: float
    worse: bool


def comparisons(ours: Row, theirs: Row, error: str, floor: float) -> list[Comparison]:
    """At every number of products of theirs that ritz has points around, or has nothing left to lower at."""
    results = []
    for products, point in sorted({point.products: point for point in theirs.points}.items()):
        own = _interpolated(ours, products, error, floor)
        if own is not None and products >= FEWEST:
            results.append(_comparison(own, [max(value, floor) for value in point.errors[error]], products))
    return results


def _interpolated(row: Row, products: float, error: str, floor: float) -> list[float] | None:
    """Each seed's error at so many products, linear in the logarithms between its points; None beyond them."""
    points = sorted(row.points, key=lambda point: point.products)
    values = [[max(value, floor) for value in point.errors[error]] for point in points]
    if products >= points[-1].products:
        done = products == points[-1].products or statistics.median(values[-1]) <= floor
        return values[-1] if done else None
    after = next(index for index, point in enumerate(points) if point.products > products)
    if after == 0:
        return None
    a, b = points[after - 1].products, points[after].products
    share = math.log(products / a) / math.log(b / a)
    return [x ** (1 - share) * y**share for x, y in zip(values[after - 1], values[after], strict=True)]


def _comparison(ours: list[float], theirs: list[float], products: float) -> Comparison:
    ratio = statistics.median(ours) / statistics.median(theirs)
    worse = ratio > EQUAL and mannwhitneyu(ours, theirs, alternative="greater").pvalue < CHANCE
    return Comparison(products, ratio, bool(worse))


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
