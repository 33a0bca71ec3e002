"""What is answered at once: help, the version and wrong input import nothing that computes."""

import json
import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from ritz.cli import app

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
    """All of them from one fresh process, in this order, so that what one imports would show in all that follow."""
    arguments = {name: words for name, (words, _) in CASES.items()}
    command = [sys.executable, "-c", CODE % HEAVY, json.dumps(arguments)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("case", CASES)
def test_the_answer_comes_without_pytorch(answers, case):
    code, text, heavy = answers[case]
    assert code == CASES[case][1] and text.strip() and not heavy


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete_the_commands(shell):
    result = CliRunner().invoke(app, [], prog_name="ritz", env={"_RITZ_COMPLETE": f"source_{shell}"})
    assert result.exit_code == 0 and "_RITZ_COMPLETE" in result.stdout
