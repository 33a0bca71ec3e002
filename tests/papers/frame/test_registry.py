"""Which figures there are."""

import sys

import pytest

from ritz.papers.frame import registry
from tests.processes import run_alone

IMPORTED = """
import sys
papers = lambda: [name.split(".")[2] for name in sys.modules if name.startswith("ritz.papers.")]
assert not papers()
from ritz.cli import app

app(["run", "linear2026.fig1a", "--preset", "smoke", "--out", {out!r}], prog_name="ritz", standalone_mode=False)
assert set(papers()) == {{"frame", "linear2026"}} and len(papers()) < 30, papers()
"""


def test_ids_are_unique_and_those_of_their_figures(folder):
    module = folder.parent / "package/fakes/us2000/more.py"
    module.write_text("from .squares import FIGURES\n")
    with pytest.raises(ValueError, match="is not the one id"):
        registry.figures()


def test_figures_that_share_a_computation_must_agree_in_it(folder):
    module = folder.parent / "package/fakes/us2000/more.py"
    module.write_text(
        "from dataclasses import replace\nfrom . import squares\n"
        "odd = replace(squares.FIGURES['us2000.fig2'], id='us2000.fig4', presets={})\nFIGURES = {odd.id: odd}\n"
    )
    with pytest.raises(ValueError, match=r"share the computation 'us2000\.squares'"):
        registry.figures()


def test_the_papers_of_this_package_are_in_order():
    for name, figure in registry.figures().items():
        assert name == figure.id and {"smoke"} <= set(figure.presets)


def test_what_is_said_about_every_figure_can_be_read_without_a_record():
    for figure in registry.figures().values():
        rows = [(row.statement, row.paper, row.where, str(row.rule)) for row in figure.statements]
        assert rows and all(text.strip() for row in rows for text in row), figure.id
        assert len(set(rows)) == len(rows), figure.id


def test_an_id_is_of_the_folder_it_is_in(folder):
    (folder.parent / "package/fakes/they1999").mkdir()
    (folder.parent / "package/fakes/they1999/__init__.py").write_text("from ..us2000.squares import FIGURES\n")
    with pytest.raises(ValueError, match="is not the one id"):
        registry.figures()


@pytest.mark.parametrize(
    "pattern, papers",
    [
        ("they1999.fig1", ["they1999"]),
        ("us2000.*", ["us2000"]),
        ("us2000*", ["us2000"]),
        ("they*fig2", ["they1999"]),
        ("*.fig2", ["they1999", "us2000"]),
        ("?s2000.fig2", ["they1999", "us2000"]),  # may be of any
        ("us200", ["us2000"]),
        ("nobody", []),
    ],
)
def test_an_id_or_glob_imports_only_the_papers_that_it_may_name(folder, pattern, papers):
    (folder.parent / "package/fakes/they1999").mkdir()
    (folder.parent / "package/fakes/they1999/__init__.py").touch()
    registry.figures([pattern])
    assert [name for name in ("they1999", "us2000") if f"fakes.{name}" in sys.modules] == papers


def test_running_a_figure_imports_its_own_paper_alone(tmp_path):
    run_alone(IMPORTED.format(out=str(tmp_path)))
    assert list(tmp_path.rglob("figure.png"))


def test_relatives_are_of_its_own_paper_and_of_the_one_that_its_computation_is_named_after():
    (poster,) = registry.selection(["singh2024.relu"])
    assert "singh2026.fig1" in [figure.id for figure in registry.relatives(poster)]
    (alone,) = registry.selection(["linear2026.fig1a"])
    names = [figure.id for figure in registry.relatives(alone)]
    assert "linear2026.fig4" in names and alone.id not in names
    assert {name.partition(".")[0] for name in names} == {"linear2026"}
