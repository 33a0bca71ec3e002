"""Every figure and claim of the papers, re-run: one package per paper, one module per topic, each with its FIGURES."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from ...errors import ArgumentError
from .figure import Figure


@cache
def figures(package: str = "ritz.papers") -> dict[str, Figure]:
    """All figures by their id, in the order in which one would count them; imported now and not before."""
    found = dict[str, Figure]()
    for module in _modules(import_module(package)):
        for name, figure in getattr(module, "FIGURES", {}).items():
            if name != figure.id or name in found:
                raise ValueError(f"{module.__name__}.FIGURES: {name!r} is not the one id of figure {figure.id!r}")
            found[name] = figure
    _check_shared(found)
    return dict(sorted(found.items(), key=lambda item: counted(item[0])))


def matching(patterns: list[str], known: dict[str, Figure]) -> list[Figure]:
    """The figures that any of the ids or globs names, each once; one that names none is refused with near names."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            near_names = get_close_matches(pattern, known, n=3, cutoff=0.5)
            raise ArgumentError(
                f"There is no figure {pattern}.",
                "A figure's id is that of the paper and its number in it; globs such as 'linear2026.*' name several.",
                *([f"Near it: {', '.join(near_names)}"] if near_names else []),
                "See them all: ritz list",
            )
    return [figure for name, figure in known.items() if any(fnmatchcase(name, pattern) for pattern in patterns)]


def counted(name: str) -> list[tuple[int, str]]:
    """A key that sorts names as one counts: fig2 before fig10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    """The packages of the papers inside, and their modules."""
    for paper in iter_modules(package.__path__, f"{package.__name__}."):
        if paper.ispkg:
            inside = import_module(paper.name)
            yield inside
            for topic in iter_modules(inside.__path__, f"{paper.name}."):
                yield import_module(topic.name)


def _check_shared(found: dict[str, Figure]) -> None:
    """Figures of one computation run the same function at the same presets: else a record would stand for another."""
    first = dict[str, Figure]()
    for figure in found.values():
        other = first.setdefault(figure.shared, figure)
        if (figure.run, figure.presets) != (other.run, other.presets):
            raise ValueError(f"{figure.id} and {other.id} share the computation {figure.shared!r} and differ in it")
