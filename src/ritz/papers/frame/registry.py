"""The registry of figures, by ids such as linear2026.fig1c: the paper's folder, and the figure in it.

To add a figure to a paper, put into any module of its folder

    STATEMENTS = (says("What it says.", where="Fig. 5", measured=slope, rule=near(2, relative=0.1), expected=2.0),)
    PRESETS = {"paper": Config(), "laptop": Config(draws=20), "smoke": Config(draws=2)}
    FIGURES = {"author2026.fig5": Figure("author2026.fig5", "What it shows", PRESETS, run, draw, STATEMENTS)}

and `ritz list` finds it, `ritz run author2026.fig5` computes it. A new folder beside the others is a new paper. The
module `figure` says what Config, run and draw are, `statements` what a statement is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from ...errors import ArgumentError
from .figure import Figure

PACKAGE = "ritz.papers"  # its folders are the papers
_FRAME = "frame"  # the one folder that is not a paper


def figures(patterns: Sequence[str] = ("*",)) -> dict[str, Figure]:
    """The figures of every paper that the ids or globs may refer to, in counting order; only these papers are imported.

    All figures of such a paper are returned; `selection` picks those that match.
    """
    papers = [paper for paper in _papers(PACKAGE) if any(_may_name(pattern, paper) for pattern in patterns)]
    by_id = dict[str, Figure]()
    for paper in papers:
        by_id |= _figures_of(f"{PACKAGE}.{paper}")
    _check_shared(by_id)
    return dict(sorted(by_id.items(), key=lambda item: counting_order(item[0])))


def selection(patterns: Sequence[str]) -> list[Figure]:
    """The figures that match any of the ids or globs; a pattern that matches none is refused, with near names."""
    candidates = figures(patterns)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in candidates):
            every = figures()
            is_paper = any(name.startswith(f"{pattern}.") for name in every)
            near_names = [] if is_paper else get_close_matches(pattern, every, n=3, cutoff=0.5)
            raise ArgumentError(
                f"There is no figure {pattern}.",
                "An id is a paper and the number of a figure in it, such as linear2026.fig1a; globs such as "
                "'linear2026.*' name several.",
                *([f"For all figures of this paper: '{pattern}.*'"] if is_paper else []),
                *([f"Similar ids: {', '.join(near_names)}"] if near_names else []),
                "See them all: ritz list",
            )
    return [figure for name, figure in candidates.items() if any(fnmatchcase(name, pattern) for pattern in patterns)]


def relatives(figure: Figure) -> list[Figure]:
    """The other figures of its own paper and of the paper that its computation is named after."""
    return [other for other in figures([figure.id, figure.shared]).values() if other.id != figure.id]


def first_sentence(paper: str) -> str:
    """The first line of a paper's docstring: its title."""
    return (import_module(f"{PACKAGE}.{paper}").__doc__ or paper).partition("\n")[0]


def counting_order(name: str) -> list[tuple[int, str]]:
    """A key that sorts names as one counts: fig2 before fig10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _may_name(pattern: str, paper: str) -> bool:
    """Whether an id of this paper can match the pattern, judging by what precedes its first * ? or [."""
    start = re.split(r"[*?\[]", pattern)[0]
    return paper == start.partition(".")[0] if "." in start else paper.startswith(start)


@cache
def _papers(package: str) -> list[str]:
    folders = (entry.name for entry in iter_modules(import_module(package).__path__) if entry.ispkg)
    return [folder for folder in folders if folder != _FRAME]


@cache
def _figures_of(paper: str) -> dict[str, Figure]:
    by_id = dict[str, Figure]()
    for module in _modules(import_module(paper)):
        for name, figure in getattr(module, "FIGURES", {}).items():
            if name != figure.id or name in by_id or not name.startswith(paper.rpartition(".")[2] + "."):
                raise ValueError(f"{module.__name__}.FIGURES: {name!r} is not the one id of figure {figure.id!r}")
            by_id[name] = figure
    return by_id


def _modules(paper: ModuleType) -> Iterator[ModuleType]:
    """The package of a paper and all modules in it."""
    yield paper
    for topic in iter_modules(paper.__path__, f"{paper.__name__}."):
        yield import_module(topic.name)


def _check_shared(by_id: dict[str, Figure]) -> None:
    """Refuse figures that share a computation but differ in `run` or `presets`: a record could not serve both."""
    first = dict[str, Figure]()
    for figure in by_id.values():
        other = first.setdefault(figure.shared, figure)
        if (figure.run, figure.presets) != (other.run, other.presets):
            raise ValueError(f"{figure.id} and {other.id} share the computation {figure.shared!r} and differ in it")
