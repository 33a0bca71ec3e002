"""`ritz list`, `run`, `draw` on a paper of our own: what they say, and what they refuse."""

import json
import sys

import pytest
import torch

from ritz.cli import papers
from ritz.errors import ArgumentError
from ritz.lab.workers import Processes, Ray
from ritz.record import Record
from tests.papers.paper_of_squares import called, ritz


def test_workers_are_made_from_their_words():
    cpu, gpu = torch.device("cpu"), torch.device("cuda:0")
    assert papers.workers_by_name("processes", 3, cpu) == Processes(3)
    assert papers.workers_by_name("ray", None, gpu) == Ray(gpus_per_task=1)
    with pytest.raises(ArgumentError, match="--processes 3"):
        papers.workers_by_name("ray", 3, cpu)


@pytest.mark.parametrize(
    "arguments, messages",
    [
        (["us2000.fig22"], ["no figure us2000.fig22", "Similar ids: us2000.fig2", "ritz list"]),
        (["nobody.*"], ["no figure nobody.*", "ritz list"]),
        (["us2000"], ["no figure us2000", "all figures of this paper: 'us2000.*'"]),
        (["us2000.fig2", "--preset", "desktop"], ["no preset desktop", "paper, laptop, smoke"]),
        (["us2000.fig3", "--preset", "laptop"], ["us2000.fig3 has no preset laptop"]),
        (["us2000.fig2", "--set", "scal=3"], ["no field scal", "Did you mean scale?", "sides=1,2,3,4"]),
        (["us2000.fig2", "--set", "scale"], ["sets nothing"]),
        (["us2000.fig2", "--set", "scale=big"], ["'big' is not float", "its default is 1.0"]),
        (["us2000.fig2", "--set", "sides=1,x"], ["'1,x' is not"]),
        (["us2000.fig2", "--set", "sides=3,-1"], ["--set sides=3,-1: that is negative", "its default is 1,2,3,4"]),
        (["us2000.fig2", "--device", "nowhere"], ["--device nowhere"]),
        (["us2000.fig2", "--data-dir", "absent"], ["--data-dir absent is not a folder"]),
        (["us2000.fig2", "--processes", "2"], ["--processes 2"]),
        (["us2000.fig2", "--out", "file/x"], ["cannot be written"]),
        ([], ["Missing argument"]),
    ],
)
def test_bad_input_ends_with_its_message_before_any_work(folder, arguments, messages):
    (folder / "file").touch()
    result = ritz("run", *arguments, code=2)
    for message in messages:
        assert message in result.stderr
    assert "Traceback" not in result.output and not (folder / "results").exists()
    assert "fakes.us2000.squares" not in sys.modules or not called()


@pytest.mark.parametrize("again", [1, 2])
def test_what_fails_with_values_of_ones_own_is_laid_to_them(folder, again):
    for _ in range(again):
        result = ritz("run", "us2000.fig2", "--preset", "smoke", "--set", "name=failing", code=2)
    assert "us2000.fig2 cannot be computed with --set name=failing: KeyError: 'no squares'" in result.stderr
    assert "values nearer to those of a preset" in result.stderr


def test_the_list_counts_and_says_what_is_there(folder):
    ritz("run", "us2000.fig10", "--preset", "smoke")
    lines = ritz("list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["id", "us2000.fig2", "us2000.fig3", "us2000.fig10"]
    assert lines[1].rstrip().endswith("-") and "paper, laptop, smoke" in lines[1]
    assert lines[3].rstrip().endswith("smoke")


def test_drawing_again_computes_nothing_and_judges_again(folder):
    ritz("run", "us2000.fig2", "--preset", "smoke")
    written = folder / "results/us2000.fig2/smoke"
    (written / "figure.png").unlink()
    header = json.loads((written / "record.json").read_text())
    header["claims"] = []
    (written / "record.json").write_text(json.dumps(header))
    result = ritz("draw", "us2000.*")
    assert "us2000.fig2 smoke: drawn again · 1 yes" in result.stdout
    assert called() == [1, 2] and (written / "figure.png").exists() and len(Record.load(written).claims) == 1


def test_one_damaged_record_does_not_keep_the_others_from_being_drawn(folder):
    ritz("run", "us2000.*", "--preset", "smoke")
    (folder / "results/us2000.fig2/smoke/record.json").write_text("{")
    result = ritz("draw", "us2000.*", code=1)
    assert "cannot be read" in result.stderr and "us2000.fig10 smoke: drawn again" in result.stdout


def test_a_record_whose_config_has_other_fields_is_not_drawn(folder):
    ritz("run", "us2000.fig2", "--preset", "smoke")
    written = folder / "results/us2000.fig2/smoke/record.json"
    header = json.loads(written.read_text())
    del header["config"]["scale"]
    written.write_text(json.dumps(header))
    assert "its config has other fields" in ritz("draw", "us2000.fig2", code=1).stderr


def test_what_has_no_record_cannot_be_drawn(folder):
    assert "no preset papre" in ritz("draw", "us2000.fig2", "--preset", "papre", code=2).stderr
    result = ritz("draw", "us2000.fig2", "--preset", "paper", code=2)
    assert "no record of preset paper" in result.stderr and "ritz run us2000.fig2 --preset paper" in result.stderr


@pytest.mark.parametrize("command", ["list", "run", "draw", "claims"])
def test_help_carries_an_example(command):
    assert f"ritz {command}" in ritz(command, "--help").stdout.split("Example", 1)[1]


def test_no_name_of_a_folder_steers_the_terminal(folder):
    ritz("run", "us2000.fig2", "--preset", "smoke")
    (folder / "results/us2000.fig2/smoke").rename(folder / "results/us2000.fig2/smoke+\x1b[31m\u202e")
    damaged = folder / "results/us2000.fig2/laptop+\x9b2J"
    damaged.mkdir()
    (damaged / "record.json").write_text("{")
    for words, code in ((["list"], 0), (["claims"], 0), (["draw", "us2000.fig2"], 1)):
        result = ritz(*words, code=code)
        assert "\\x1b[31m\\u202e" in result.output and not set("\x1b\x9b\u202e") & set(result.output), words
