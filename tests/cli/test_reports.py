"""`ritz report` and `ritz compare` on the command line."""

import json
import re
import shlex
import unicodedata
from pathlib import Path

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


def test_links_to_folders_of_records_are_followed_and_lead_nowhere_twice(folders, tmp_path):
    linked = tmp_path / "linked"
    linked.mkdir()
    for name in ("H", "G"):
        (linked / name).symlink_to(folders / name, target_is_directory=True)
    (linked / "again").symlink_to(linked, target_is_directory=True)
    result = ritz("report", linked, "-o", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "page.html").read_text().count("<article") == 1


def test_a_place_without_records_is_refused(tmp_path):
    result = ritz("report", tmp_path / "nothing")
    assert result.exit_code == 2 and "holds no record" in result.output and "ritz demo" in result.output


def test_two_records_are_held_against_each_other(folders, tmp_path):
    result = ritz("compare", folders / "H", folders / "G", "-o", tmp_path / "compare.html")
    assert result.exit_code == 0, result.output
    assert "trace" in result.stdout and "W₁ = " in result.stdout
    text = (tmp_path / "compare.html").read_text()
    assert "Noise is the error of the computation alone" in result.stdout and "Noise is the error" in text
    assert "What changed" in text and "Spectra on common axes" in text and HOSTILE not in text


def test_a_layer_and_the_spectrum_of_another_tool_are_named_too(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("theirs.npz", nodes=np.array([[0.1, 2.0]]), weights=np.array([[3.0, 1.0]]), size=83)
    result = ritz("compare", "all/H:head", "theirs.npz", "all/H/record.json")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("W₁ = ") == 2 and "error unknown" in result.stdout
    assert "<title>all/H:head, theirs.npz and all/H/record.json" in Path("compare.html").read_text()


@pytest.mark.parametrize("nodes", [[[2.0]], [[1.0], [3.0]], [2.0, 2.0]])
def test_a_spectrum_of_another_tool_may_have_one_node(folders, tmp_path, monkeypatch, nodes):
    monkeypatch.chdir(tmp_path)
    np.savez("theirs.npz", nodes=nodes, weights=np.ones_like(nodes), size=83)
    result = ritz("compare", "all/H", "theirs.npz")
    assert result.exit_code == 0 and "W₁ = " in result.stdout, result.output


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes": np.zeros((1, 0)), "weights": np.zeros((1, 0))},
        {"nodes": np.ones((1, 1, 2)), "weights": np.ones((1, 1, 2))},
        {"nodes": np.array([["a", "b"]])},
        {"nodes": np.array([[1j, 2.0]])},
        {"weights": np.ones(3)},
        {"size": 2.5},
        {"size": [83, 83]},
        {"size": np.nan},
        {"size": "83"},
    ],
)
def test_arrays_that_are_no_spectrum_are_refused(folders, tmp_path, monkeypatch, wrong):
    monkeypatch.chdir(tmp_path)
    np.savez("theirs.npz", **{"nodes": [[0.1, 2.0]], "weights": [[3.0, 1.0]], "size": 83, **wrong})
    result = ritz("compare", "all/H", "theirs.npz")
    assert result.exit_code == 2 and "numpy.savez(path, nodes=nodes" in result.output, result.output


@pytest.mark.parametrize("wrong", [{"nodes": [[np.nan, 2.0]]}, {"weights": [[-1.0, 2.0]]}, {"weights": [[0.0, 0.0]]}])
def test_numbers_that_no_spectrum_has_are_refused_with_the_name_of_their_file(folders, tmp_path, monkeypatch, wrong):
    monkeypatch.chdir(tmp_path)
    np.savez("theirs.npz", **{"nodes": [[0.1, 2.0]], "weights": [[3.0, 1.0]], "size": 83, **wrong})
    result = ritz("compare", "all/H", "theirs.npz")
    assert result.exit_code == 2 and result.output.startswith("theirs.npz holds"), result.output


@pytest.mark.parametrize(
    "places, words",
    [
        (["all/H"], "two or more"),
        (["all/H", "all/H"], "name of its own"),
        (["all/H", "all/classes"], "record of another kind"),
        (["all/H", "all/H:tail"], "no layer 'tail'"),
        (["all/H", "nothing"], "nothing holds no record"),
        (["all/H", "other.npz"], "numpy.savez"),
    ],
)
def test_what_cannot_be_compared_is_refused(folders, tmp_path, monkeypatch, places, words):
    monkeypatch.chdir(tmp_path)
    np.savez("other.npz", values=np.ones(3))
    result = ritz("compare", *places)
    assert result.exit_code == 2 and words in result.output, result.output


def test_layers_that_were_not_measured_can_be_compared_after_the_command_that_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.py").write_text(
        "import torch\n\ndef risk():\n    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))\n"
        "    return model, torch.nn.CrossEntropyLoss(), (torch.eye(2), torch.arange(2))\n"
    )
    assert ritz("spectrum", "tiny.py:risk", "-k", 1, "--steps", 3, "--probes", 2).exit_code == 0
    refusal = ritz("compare", "out/tiny-risk", "out/tiny-risk:0")
    command = re.search("ritz (spectrum .*)", refusal.output.replace("\n", " "))
    assert refusal.exit_code == 2 and command is not None, refusal.output
    assert ritz(*shlex.split(command[1])).exit_code == 0
    assert ritz("compare", "out/tiny-risk", "out/tiny-risk:0").exit_code == 0


STEERING = "\x1b]0;mine\x07\x1b[31m\x9b2J\u202e\r"  # a title, red, an empty screen, text from right to left


def steers(text):
    return any(unicodedata.category(letter) in ("Cc", "Cf") for letter in text if letter not in "\n\t")


def test_no_text_of_a_hostile_record_steers_the_terminal(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    header = json.loads((folders / "H/record.json").read_text())
    header["id"] += STEERING
    header["provenance"] = dict.fromkeys(header["provenance"], STEERING)
    config = header["config"]
    header["config"] = {name: value + STEERING if isinstance(value, str) else value for name, value in config.items()}
    (folders / "H/record.json").write_text(json.dumps(header))
    for words in (("compare", folders / "H", folders / "G"), ("report", folders / "H")):
        result = ritz(*words)
        assert result.exit_code == 0 and not steers(result.output), result.output


def test_no_name_of_a_hostile_file_steers_the_terminal(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("theirs.npz", **{"nodes" + STEERING: np.ones((1, 2)), "weights": np.ones((1, 2)), "size": 2})
    (folders / STEERING).mkdir()
    (folders / STEERING / "record.json").write_text("{")
    for words in (("compare", "theirs.npz", folders / "H"), ("report", folders / STEERING), ("report", folders)):
        result = ritz(*words)
        assert result.exit_code == 2 and "\\x1b" in result.output and not steers(result.output), result.output


@pytest.mark.parametrize("part, name", [("scalars", "trace"), ("scalars", "layers"), ("config", "operator")])
def test_a_record_that_lacks_a_number_is_refused_with_its_name(folders, tmp_path, monkeypatch, part, name):
    monkeypatch.chdir(tmp_path)
    header = json.loads((folders / "H/record.json").read_text())
    del header[part][name]
    (folders / "H/record.json").write_text(json.dumps(header))
    for words in (("compare", folders / "H", folders / "G"), ("report", folders / "H")):
        result = ritz(*words)
        words = (f"has no '{name}'", f"{name} was requested from the record")
        assert result.exit_code == 2 and any(one in result.output for one in words), result.output
