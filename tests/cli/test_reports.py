"""`ritz report` on the command line."""

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
