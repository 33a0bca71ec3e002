"""A kind of work: the call of each library that does it, and the result that a run leaves behind."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .matrices import Matrix
from .views import Counted

PRODUCTS = (16, 20, 24, 26, 28, 32, 40, 48, 64, 96, 128, 192, 256)


@dataclass(frozen=True)
class Contestant:
    """How a library does it."""

    run: Callable[[Counted, Any, int], Any]  # of the matrix, a setting and a seed
    settings: Sequence[float] = PRODUCTS  # products, or tolerances, from few products to many
    missing: int = 0  # products that it leaves out, but that the work needs


@dataclass(frozen=True)
class Work:
    """What is computed, by whom, and how far it is from the truth."""

    name: str
    errors: Callable[[Matrix, Any], dict[str, float]]  # by the name of the error; smaller is better
    contestants: dict[str, Contestant]
    floors: dict[str, float]  # errors below are equal: float32 products cannot tell
    labels: dict[str, str] = field(default_factory=dict)  # of the errors, in pictures


@dataclass(frozen=True)
class Point:
    """One setting: the products it took, in the median, and the errors of all seeds."""

    products: float
    errors: dict[str, list[float]]


@dataclass(frozen=True)
class Row:
    """A curve: one contestant at one kind of work on one matrix."""

    problem: str  # its name on the command line
    title: str
    work: str
    contestant: str
    points: list[Point]
    failure: str = ""
    commit: str = "unknown"

    def curve(self, error: str) -> list[tuple[float, float, float, float]]:
        """Products and the median, lowest and highest error."""
        points = sorted(self.points, key=lambda point: point.products)
        return [
            (p.products, statistics.median(p.errors[error]), min(p.errors[error]), max(p.errors[error])) for p in points
        ]


def measured(problem: str, matrix: Matrix, work: Work, name: str, seeds: int, most: int, commit: str) -> Row:
    """The curve of one contestant up to so many products; its failure, where it raises."""
    contestant, points, failure = work.contestants[name], [], ""
    try:
        for setting in contestant.settings:
            if setting <= most:
                points.append(_point(matrix, work, contestant, setting, seeds))
    except Exception as error:
        failure = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return Row(problem, matrix.title, work.name, name, points, failure, commit)


def _point(matrix: Matrix, work: Work, contestant: Contestant, setting: Any, seeds: int) -> Point:
    products, errors = [], []
    for seed in range(seeds):
        torch.manual_seed(seed)  # where a library draws from the global generator
        counted = Counted(matrix)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it has not converged is what the errors show
            result = contestant.run(counted, setting, seed)
        products.append(counted.count + contestant.missing)
        errors.append(work.errors(matrix, result))
    return Point(statistics.median(products), {e: [float(f"{each[e]:.4g}") for each in errors] for e in errors[0]})
