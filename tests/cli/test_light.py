"""What is answered at once: help, the version and wrong input import nothing that computes."""

import json
import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from ritz.cli import app
from ritz.cli.completions import PRESETS
from ritz.papers.frame.registry import figures

COMMANDS = sorted(get_command(app).commands)
CASES = {
    "the names of the commands": (["--help"], 0),
    "the version": (["--version"], 0),
    "a wrong command": (["spectra"], 2),
    "a wrong option": (["--loud"], 2),
    **{f"the help of {command}": ([command, "--help"], 0) for command in COMMANDS},
    **{f"a wrong option of {command}": ([command, "--loud"], 2) for command in COMMANDS},
    "a wrong value": (["spectrum", "train.py:risk", "--operator", "hesian"], 2),
    "a number out of range": (["spectrum", "train.py:risk", "--steps", "0"], 2),
    "a missing argument": (["run"], 2),
}
CODE = """
import contextlib, io, json, sys
from ritz.cli import app

answers = {}
for name, arguments in json.loads(sys.argv[1]).items():
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            app(arguments, prog_name="ritz")
        except SystemExit as end:
            answers[name] = end.code, out.getvalue(), [m for m in sys.modules if m in %r]
print(json.dumps(answers))
"""
HEAVY = ["torch", "numpy", "scipy", "matplotlib", "rich", "jaxtyping"]


@pytest.fixture(scope="module")
def answers():
    """The answers of one fresh process, in this order, so that what one imports would show in all that follow."""
    arguments = {name: words for name, (words, _) in CASES.items()}
    command = [sys.executable, "-c", CODE % HEAVY, json.dumps(arguments)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("case", CASES)
def test_the_answer_comes_without_pytorch(answers, case):
    code, text, heavy = answers[case]
    assert code == CASES[case][1] and text.strip() and not heavy


def test_what_a_command_does_is_said_to_the_end(answers):
    assert "..." not in answers["the names of the commands"][1].replace("[ARGS]...", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete_the_commands(shell):
    result = CliRunner().invoke(app, [], prog_name="ritz", env={"_RITZ_COMPLETE": f"source_{shell}"})
    assert result.exit_code == 0 and "_RITZ_COMPLETE" in result.stdout


@pytest.fixture
def line(tmp_path, monkeypatch):
    """What a shell is offered for the last word of a line, in a folder with the records of three figures."""
    configs = {"a2026.fig1": {"seed": 0}, "a2026.fig2": {"seed": 0, "training": {"networks": 20}}, "b2026.fig1": {}}
    for name, config in configs.items():
        header = tmp_path / "results" / name / "laptop" / "record.json"
        header.parent.mkdir(parents=True)
        header.write_text(json.dumps({"config": config}))
    (tmp_path / "results" / "b2026.fig1" / "laptop" / "record.json").write_text("{")  # half written: no message
    monkeypatch.chdir(tmp_path)
    return offers


def offers(*words):
    variables = {"_RITZ_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    result = CliRunner().invoke(app, [], prog_name="ritz", env=variables)
    assert result.exit_code == 0 and not result.stderr
    return result.stdout.split()


@pytest.mark.parametrize("command", ["run", "draw", "claims", "pages"])
def test_a_shell_completes_the_ids_of_figures(line, command):
    assert line("ritz", command, "a2026.f") == ["a2026.fig1", "a2026.fig2"]
    assert line("ritz", command, "a2026.fig1", "a2026.f") == ["a2026.fig2"]  # not twice


def test_a_shell_completes_presets_and_fields_of_the_figure(line):
    assert line("ritz", "run", "a2026.fig1", "--preset", "la") == ["laptop"]
    assert line("ritz", "draw", "a2026.fig1", "--preset", "") == ["paper", "laptop", "smoke"]
    assert line("ritz", "run", "a2026.fig2", "--set", "") == ["seed=", "training.networks="]
    assert line("ritz", "run", "a2026.fig2", "--set", "tr") == ["training.networks="]
    assert line("ritz", "run", "a2026.*", "--set", "se") == ["seed="]
    assert line("ritz", "run", "b2026.fig1", "--set", "") == []


def test_words_that_are_no_ids_complete_to_nothing(line):
    assert [line("ritz", "run", word) for word in ("/", "**", "[", "../")] == [[], [], [], []]


def test_every_preset_that_is_offered_is_one_of_every_figure():
    assert all(set(PRESETS) <= set(figure.presets) for figure in figures().values())
