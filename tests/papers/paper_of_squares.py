"""A paper of our own, on which the frame of the papers is tested, and the command that runs it."""

import sys

import pytest
from typer.testing import CliRunner

from ritz.cli import app
from ritz.papers.frame import registry

PAPER = '''
"""A paper about squares."""
from dataclasses import dataclass
from functools import partial
from pathlib import Path
import traceback

import torch

from ritz import plot
from ritz.papers.frame.statements import Statement, at_least, near
from ritz.papers.frame.figure import Figure

CALLS = []
STACKS = []
STOP = Path("stop")


@dataclass(frozen=True)
class Config:
    sides: tuple[int, ...] = (1, 2, 3, 4)  # open: any
    scale: float = 1.0  # "the side is one"
    name: str = "squares"


def area(config, scale):
    CALLS.append(config["side"])
    if config["side"] == 3 and STOP.exists():
        raise KeyboardInterrupt
    return {"area": scale * config["side"] ** 2}


def run(config, context):
    STACKS.append([frame.filename for frame in traceback.extract_stack()])
    records = context.sweep(partial(area, scale=config.scale), [{"side": s} for s in config.sides])
    if config.name == "failing":
        raise KeyError("no squares")
    (context.folder / "kept").mkdir(exist_ok=True)
    return {"areas": torch.tensor([r.scalars["area"] for r in records]), "device": str(context.device)}


def draw(record):
    assert not Path("no-picture").exists(), "no picture"
    figure, (ax,) = plot.panels()
    ax.plot(record.arrays["areas"])
    return figure


def growth(record):
    assert not Path("no-verdict").exists(), "no verdict"
    return float(record.arrays["areas"][-1] / record.arrays["areas"][0])


GROWS = (
    Statement("areas grow", "Us 2000", "Fig. 2", growth, at_least(4, partly=2), 16.0, {"no": "The areas do not grow."}),
)
FIRST = (
    Statement(
        "the first is 1", "Us 2000", "Fig. 10", lambda r: float(r.arrays["areas"][0]), near(1, relative=0.1), 1
    ),
)
PRESETS = {"paper": Config(sides=(1, 2, 3, 4, 5, 6)), "laptop": Config(), "smoke": Config(sides=(1, 2))}
FIGURES = {
    "us2000.fig10": Figure("us2000.fig10", "The first square", PRESETS, run, draw, FIRST, computation="us2000.squares"),
    "us2000.fig2": Figure("us2000.fig2", "Squares grow", PRESETS, run, draw, GROWS, computation="us2000.squares"),
    "us2000.fig3": Figure("us2000.fig3", "Alone", {"smoke": Config(sides=(3,))}, run, draw, ()),
}
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder and a package `fakes` with one paper, of which nothing stays in this process."""
    package = tmp_path / "package" / "fakes"
    (package / "us2000").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "us2000" / "__init__.py").touch()
    (package / "us2000" / "squares.py").write_text(PAPER)
    monkeypatch.syspath_prepend(tmp_path / "package")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(registry, "PACKAGE", "fakes")
    yield tmp_path / "work"
    registry._papers.cache_clear()
    registry._figures_of.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] == "fakes"]:
        del sys.modules[name]


def ritz(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result


def called():
    return sys.modules["fakes.us2000.squares"].CALLS


def cached(folder):
    return list((folder / "results/.cache").rglob("record.json"))
