"""The figure that the documentation adds to a paper is one: it is found, computed, judged and drawn."""

import re

from tests.papers.paper_of_squares import folder, ritz
from tests.source import ROOT

__all__ = ["folder"]  # a fixture


def test_the_figure_of_the_how_to_is_found_computed_judged_and_drawn(folder):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/how-to/figure.md").read_text(), re.DOTALL)
    paper = folder.parent / "package" / "fakes" / "author2026"
    paper.mkdir()
    (paper / "__init__.py").touch()
    (paper / "edge.py").write_text(code)
    assert "author2026.fig5" in ritz("list").output
    assert "1 partly" in ritz("run", "author2026.fig5", "--preset", "smoke").output
    assert "near 2" in ritz("claims", "author2026.fig5").output
    assert (folder / "results" / "author2026.fig5" / "smoke" / "figure.png").stat().st_size > 1000
    ritz("draw", "author2026.fig5")
