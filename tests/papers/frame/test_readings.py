"""Readings: which values of a field there are, and which one leads; and the sources beside the fields."""

import ast
from dataclasses import dataclass

import pytest

from ritz.papers.frame.figure import Figure
from ritz.papers.frame.readings import Reading, words_of
from ritz.papers.frame.sources import sources
from tests.source import SOURCE, syntax

READINGS = (
    Reading("data_of", "own", "own data", "App. D, either way"),
    Reading("data_of", "shared", "one data set", "App. D, either way"),
)


@dataclass(frozen=True)
class Config:
    data_of: tuple[str, ...] = ("own", "shared")
    width: int = 3  # "of width 3"


@dataclass(frozen=True)
class Outer:
    training: Config = Config()
    depth: int = 2  # open: two is the least


def figure(preset, readings=READINGS, **more):
    return Figure("us2000.fig1", "", {"paper": preset}, lambda *_: {}, lambda _: None, (), readings=readings, **more)


def test_a_preset_leads_with_the_first_reading_and_may_leave_others_out():
    assert figure(Config()).readings == READINGS and figure(Config(("own",)))
    assert words_of(READINGS, "data_of", "shared") == "one data set"


@pytest.mark.parametrize("values", [("shared", "own"), ("shared",), ("own", "else"), ()])
def test_a_preset_that_leads_with_another_or_has_one_without_a_source_is_refused(values):
    with pytest.raises(ValueError, match="the first leads"):
        figure(Config(values))


def test_a_field_of_a_config_inside_a_config_has_readings_and_sources():
    inner = tuple(Reading(f"training.{one.field}", one.value, one.words, one.source) for one in READINGS)
    assert figure(Outer(), inner)
    with pytest.raises(ValueError):
        figure(Outer(Config(("shared",))), inner)
    config = {"training": {"data_of": ["own"], "width": 3}, "depth": 5}
    rows = {row.field: row for row in sources(figure(Outer(), inner, printed={"depth": '"deep"; as it is'}), config)}
    assert rows["training.data_of"].printed == "open" and rows["training.data_of"].ours == "own"
    assert (rows["training.width"].printed, rows["training.width"].why) == ('"of width 3"', "")
    assert (rows["depth"].printed, rows["depth"].ours) == ('"deep"', "5")
    assert rows["depth"].why == "as it is; 2 at preset paper"


def test_every_field_stands_on_the_line_of_its_comment_which_is_where_sources_are_read():
    classes = [
        c for path in (SOURCE / "papers").rglob("*.py") for c in ast.walk(syntax(path)) if isinstance(c, ast.ClassDef)
    ]
    fields = [entry for one in classes for entry in one.body if isinstance(entry, ast.AnnAssign)]
    assert len(fields) > 100
    assert not [ast.unparse(entry) for entry in fields if entry.end_lineno > entry.lineno]
