"""`ritz report` and `ritz compare` on the command line."""

import numpy as np
import pytest
from typer.testing import CliRunner

from ritz.cli import app
from tests.report.conftest import HOSTILE, records

__all__ = ["records"]  # a fixture


def ritz(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def folders(records, tmp_path):
    for record, name in zip(records, ("H", "G", "E", "classes"), strict=True):
        record.save(tmp_path / "all" / name)
    return tmp_path / "all"


def test_a_folder_stands_for_all_records_in_it(folders, tmp_path):
    result = ritz("report", folders, "-o", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    text = (tmp_path / "page.html").read_text()
    assert text.count("<article") == 1 and "Where the lines come from" in text and HOSTILE not in text


def test_records_are_named_by_their_folder_or_file(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ritz("report", "all/H", "all/G/record.json", "all/H").exit_code == 0
    assert (tmp_path / "report.html").read_text().count("<article") == 1


def test_a_place_without_records_is_refused(tmp_path):
    result = ritz("report", tmp_path / "nothing")
    assert result.exit_code == 2 and "holds no record" in result.output and "ritz demo" in result.output


def test_two_records_are_held_against_each_other(folders, tmp_path):
    result = ritz("compare", folders / "H", folders / "G", "-o", tmp_path / "compare.html")
    assert result.exit_code == 0, result.output
    assert "trace" in result.stdout and "W₁ = " in result.stdout
    text = (tmp_path / "compare.html").read_text()
    assert "What changed" in text and "Spectra on common axes" in text and HOSTILE not in text


def test_a_layer_and_the_spectrum_of_another_tool_are_named_too(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("theirs.npz", nodes=np.array([[0.1, 2.0]]), weights=np.array([[3.0, 1.0]]), size=83)
    result = ritz("compare", "all/H:head", "theirs.npz", "all/H/record.json")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("W₁ = ") == 2 and "error unknown" in result.stdout


@pytest.mark.parametrize(
    "places, words",
    [
        (["all/H"], "two or more"),
        (["all/H", "all/H"], "name of its own"),
        (["all/H", "all/classes"], "record of another kind"),
        (["all/H", "all/H:tail"], "no layer 'tail'"),
        (["all/H", "nothing"], "cannot be read"),
        (["all/H", "other.npz"], "numpy.savez"),
    ],
)
def test_what_cannot_be_compared_is_refused(folders, tmp_path, monkeypatch, places, words):
    monkeypatch.chdir(tmp_path)
    np.savez("other.npz", values=np.ones(3))
    result = ritz("compare", *places)
    assert result.exit_code == 2 and words in result.output, result.output
