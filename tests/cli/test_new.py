"""`ritz new`: the file it writes runs as it is, and says no where it would harm."""

import sys

import pytest
from typer.testing import CliRunner

from ritz.cli import app
from ritz.record import Record

FAST = ["--probes", "1", "--steps", "4", "-k", "1"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder, of which nothing is left in this process afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("mine", None)


def ritz(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result


def test_the_command_that_is_printed_runs(folder):
    printed = ritz("new", "mine.py").stdout.strip().partition("ritz spectrum ")[2]
    assert printed == "mine.py:risk" and "ritz spectrum mine.py:risk" in (folder / "mine.py").read_text()
    ritz("spectrum", printed, *FAST)
    assert Record.load("out/mine-risk").scalars["loss"] < 0.1  # a trained network
    ritz("spectrum", printed, *FAST, "--dtype", "float64", "--examples", "100")
    assert Record.load("out/mine-risk-first-100-float64").config["dtype"] == "float64"


@pytest.mark.parametrize("name", ["ritz.py", "torch.py", "numpy.py", "random.py"])
def test_a_file_does_not_take_the_place_of_a_module(folder, name):
    assert "installed module" in ritz("new", name, code=2).stderr and not (folder / name).exists()


def test_a_file_that_is_there_stays(folder):
    (folder / "mine.py").write_text("mine")
    assert "already exists" in ritz("new", "mine.py", code=2).stderr
    assert (folder / "mine.py").read_text() == "mine"


@pytest.mark.parametrize("name", ["my-model.py", "model", "2.py", "a b.py", "dir"])
def test_a_name_that_python_cannot_import_is_refused(folder, name):
    assert "is not a name for a Python file" in ritz("new", name, code=2).stderr
    assert not list(folder.iterdir())


def test_a_missing_file_leads_to_the_command(folder):
    assert "ritz new mine.py" in ritz("spectrum", "absent.py:risk", code=2).stderr
    assert "ritz new mine.py" in ritz("spectrum", "absent.py", code=2).stderr
