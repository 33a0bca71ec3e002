"""Fixtures: a paper of our own, and pictures that are not rendered."""

import pytest

from tests.papers.paper_of_squares import folder

__all__ = ["folder", "rendered", "unrendered"]


@pytest.fixture
def rendered():
    """Whole pictures, for the tests of this folder that look at them."""


@pytest.fixture(autouse=True)
def unrendered(request, monkeypatch):
    """Pictures are composed, and an empty one is written in their place: to render them takes longer than the rest."""
    if "rendered" not in request.fixturenames:
        from matplotlib.figure import Figure

        from ritz.plot.figures import ShownFigure

        empty = lambda _, *where, **how: Figure(figsize=(0.1, 0.1)).savefig(*where, **how)
        monkeypatch.setattr(ShownFigure, "savefig", empty)
