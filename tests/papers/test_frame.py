"""The frame of the experiments, on a paper of our own: what is run, kept, shared, drawn, judged, and refused."""

import json
import math
import sys
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ritz import plot
from ritz.cli import app
from ritz.cli import papers as commands
from ritz.errors import ArgumentError
from ritz.lab.workers import Processes, Ray
from ritz.papers.frame import registry as experiments
from ritz.papers.frame.claims import Rule, at_least, at_most, claim, each, near, within
from ritz.papers.frame.figure import Context
from ritz.papers.frame.overrides import differences, overridden
from ritz.papers.frame.pictures import banded, legend_above, legend_below, titled
from ritz.papers.frame.statistics import median_spearman, spearman
from ritz.record import Record, plain

PAPER = '''
"""A paper about squares."""
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from ritz import plot
from ritz.papers.frame.claims import at_least, claim, near
from ritz.papers.frame.figure import Figure

CALLS = []
STOP = Path("stop")


@dataclass(frozen=True)
class Config:
    sides: tuple[int, ...] = (1, 2, 3, 4)
    scale: float = 1.0
    name: str = "squares"


def area(config, scale):
    CALLS.append(config["side"])
    if config["side"] == 3 and STOP.exists():
        raise KeyboardInterrupt
    return {"area": scale * config["side"] ** 2}


def run(config, context):
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


def grows(record):
    ratio = float(record.arrays["areas"][-1] / record.arrays["areas"][0])
    why = {"no": "The areas do not grow."}
    rule = at_least(4, partly=2)
    return [claim("areas grow", paper="Us 2000", where="Fig. 2", rule=rule, measured=ratio, expected=16.0, why=why)]


def first(record):
    value = float(record.arrays["areas"][0])
    rule = near(1, relative=0.1)
    return [claim("the first is 1", paper="Us 2000", where="Fig. 10", rule=rule, measured=value, expected=1)]


PRESETS = {"paper": Config(sides=(1, 2, 3, 4, 5, 6)), "laptop": Config(), "smoke": Config(sides=(1, 2))}
FIGURES = {
    "us2000.fig10": Figure("us2000.fig10", "The first square", PRESETS, run, draw, first, computation="us2000.squares"),
    "us2000.fig2": Figure("us2000.fig2", "Squares grow", PRESETS, run, draw, grows, computation="us2000.squares"),
    "us2000.fig3": Figure("us2000.fig3", "Alone", {"smoke": Config(sides=(3,))}, run, draw, lambda record: []),
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
    monkeypatch.setattr(commands, "PACKAGE", "fakes")
    yield tmp_path / "work"
    experiments.figures.cache_clear()
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


# Running --------------------------------------------------------------------------------------------------------------


def test_a_run_leaves_numbers_claims_and_a_picture(folder):
    result = ritz("run", "us2000.fig2")
    written = folder / "results/us2000.fig2/laptop"
    assert sorted(p.name for p in written.iterdir()) == ["arrays.npz", "figure.png", "record.json"]
    assert (written / "figure.png").read_bytes().startswith(b"\x89PNG")
    record = Record.load(written)
    assert (record.id, record.preset) == ("us2000.fig2", "laptop")
    assert record.config == {"sides": [1, 2, 3, 4], "scale": 1.0, "name": "squares"}
    assert record.arrays["areas"].tolist() == [1, 4, 9, 16]
    assert record.provenance["seconds"] > 0 and "resumed" not in record.provenance
    (judged,) = record.claims
    assert (judged.verdict, judged.measured, judged.rule) == ("yes", 16, "yes if ≥ 4, partly if ≥ 2, else no")
    assert "us2000.fig2 laptop: computed in" in result.stdout and "1 yes" in result.stdout


def test_what_is_there_is_not_computed_again_unless_forced(folder):
    ritz("run", "us2000.fig2", "--preset", "smoke")
    assert "is there already" in ritz("run", "us2000.fig2", "--preset", "smoke").stdout
    assert called() == [1, 2]
    ritz("run", "us2000.fig2", "--preset", "smoke", "--force")
    assert called() == [1, 2, 1, 2]


@pytest.mark.filterwarnings("default")
def test_a_damaged_record_is_computed_again_and_that_is_said(folder):
    ritz("run", "us2000.fig2", "--preset", "smoke")
    path = folder / "results/us2000.fig2/smoke/arrays.npz"
    path.write_bytes(path.read_bytes()[:-9])
    assert "computed again" in ritz("run", "us2000.fig2", "--preset", "smoke").stderr
    assert Record.load(path.parent).arrays["areas"].tolist() == [1, 4]


@pytest.mark.filterwarnings("default")
def test_a_preset_that_has_changed_since_is_computed_again(folder):
    ritz("run", "us2000.fig2", "--preset", "smoke")
    path = folder / "results/us2000.fig2/smoke/record.json"
    path.write_text(path.read_text().replace('"scale": 1.0', '"scale": 7.0'))
    assert "another config" in ritz("run", "us2000.fig2", "--preset", "smoke").stderr
    assert Record.load(path.parent).config["scale"] == 1.0


def test_figures_of_one_computation_compute_once_and_draw_and_judge_each_its_own(folder):
    result = ritz("run", "us2000.fig2", "us2000.fig10", "--preset", "smoke")
    assert called() == [1, 2] and "us2000.fig10 smoke: computed with us2000.fig2" in result.stdout
    one, other = (Record.load(folder / f"results/us2000.{name}/smoke") for name in ("fig2", "fig10"))
    assert one.arrays["areas"].tolist() == other.arrays["areas"].tolist()
    assert other.id == "us2000.fig10" and other.claims[0].statement == "the first is 1"
    assert other.provenance["date"] == one.provenance["date"]


def test_another_config_does_not_lend_its_numbers(folder):
    ritz("run", "us2000.fig2", "--preset", "smoke")
    ritz("run", "us2000.fig10", "--preset", "smoke", "--set", "scale=3")
    assert called() == [1, 2, 1, 2]


def test_what_differs_from_its_preset_goes_beside_it(folder):
    ritz("run", "us2000.fig2", "--preset", "smoke")
    ritz("run", "us2000.fig2", "--preset", "smoke", "--set", "scale=2.5", "--set", "sides=2,3,5")
    beside, preset = sorted((folder / "results/us2000.fig2").iterdir(), key=lambda p: -len(p.name))
    assert preset.name == "smoke" and beside.name.startswith("smoke+")
    assert Record.load(beside).arrays["areas"].tolist() == [10, 22.5, 62.5]
    assert Record.load(preset).config["scale"] == 1.0
    ritz("run", "us2000.fig2", "--preset", "smoke", "--set", "scale=1")  # the preset itself
    assert len(list((folder / "results/us2000.fig2").iterdir())) == 2


def test_an_interrupted_run_goes_on_where_it_was_and_its_cache_goes(folder):
    (folder / "stop").touch()
    CliRunner().invoke(app, ["run", "us2000.fig2"])
    assert called() == [1, 2, 3] and len(cached(folder)) == 2
    assert not (folder / "results/us2000.fig2").exists()
    assert (folder / "results/.cache/.gitignore").read_text() == "*\n"
    (folder / "stop").unlink()
    ritz("run", "us2000.fig10")  # of the same computation
    assert called() == [1, 2, 3, 3, 4]
    record = Record.load(folder / "results/us2000.fig10/laptop")
    assert record.provenance["resumed"] is True and record.arrays["areas"].tolist() == [1, 4, 9, 16]
    assert [path.name for path in (folder / "results/.cache").iterdir()] == [".gitignore"]


def test_force_forgets_what_an_interrupted_run_has_left(folder):
    (folder / "stop").touch()
    CliRunner().invoke(app, ["run", "us2000.fig2"])
    (folder / "stop").unlink()
    ritz("run", "us2000.fig2", "--force")
    assert called() == [1, 2, 3, 1, 2, 3, 4]


def test_a_fault_in_the_picture_costs_no_computation(folder):
    (folder / "no-picture").touch()
    result = ritz("run", "us2000.fig2", code=1)
    assert "no picture" in result.stderr and "--debug" in result.stderr
    assert Record.load(folder / "results/us2000.fig2/laptop").arrays["areas"].tolist() == [1, 4, 9, 16]
    (folder / "no-picture").unlink()
    ritz("run", "us2000.fig2")
    assert called() == [1, 2, 3, 4] and (folder / "results/us2000.fig2/laptop/figure.png").exists()


def test_globs_run_several_and_one_that_fails_does_not_stop_the_others(folder):
    result = ritz("run", "us2000.*", "--preset", "smoke", "--set", "sides=2", "--set", "name=failing", code=1)
    assert "3 of 3 figures failed" in result.stderr and "KeyError: 'no squares'" in result.stderr
    (folder / "no-picture").touch()
    ritz("run", "us2000.fig3", "--preset", "smoke", code=1)
    (folder / "no-picture").unlink()
    assert "us2000.fig3 smoke: computed in" in ritz("run", "us2000.*", "--preset", "smoke").stdout


def test_device_and_data_folder_reach_the_run_and_not_the_config(folder):
    ritz("run", "us2000.fig2", "--preset", "smoke", "--device", "cpu", "--data-dir", ".")
    record = Record.load(folder / "results/us2000.fig2/smoke")
    assert record.scalars["device"] == "cpu" and "device" not in record.config


def test_workers_are_made_from_their_words():
    cpu, gpu = torch.device("cpu"), torch.device("cuda:0")
    assert commands._workers("processes", 3, cpu) == Processes(3)
    assert commands._workers("ray", None, gpu) == Ray(gpus_per_task=1)
    with pytest.raises(ArgumentError, match="--processes 3"):
        commands._workers("ray", 3, cpu)


@pytest.mark.parametrize(
    "arguments, messages",
    [
        (["us2000.fig22"], ["no figure us2000.fig22", "Near it: us2000.fig2", "ritz list"]),
        (["nobody.*"], ["no figure nobody.*", "ritz list"]),
        (["us2000.fig2", "--preset", "desktop"], ["no preset desktop", "paper, laptop, smoke"]),
        (["us2000.fig3", "--preset", "laptop"], ["us2000.fig3 has no preset laptop"]),
        (["us2000.fig2", "--set", "scal=3"], ["no field scal", "Did you mean scale?", "sides=1,2,3,4"]),
        (["us2000.fig2", "--set", "scale"], ["sets nothing"]),
        (["us2000.fig2", "--set", "scale=big"], ["'big' is not float", "1.0 by default"]),
        (["us2000.fig2", "--set", "sides=1,x"], ["'1,x' is not"]),
        (["us2000.fig2", "--device", "nowhere"], ["--device nowhere"]),
        (["us2000.fig2", "--data-dir", "absent"], ["--data-dir absent is no folder"]),
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


# Listing, drawing, claims ---------------------------------------------------------------------------------------------


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


def test_a_run_killed_between_its_claims_and_its_picture_is_finished(folder):
    (folder / "no-picture").touch()
    ritz("run", "us2000.fig2", code=1)
    assert len(Record.load(folder / "results/us2000.fig2/laptop").claims) == 1
    (folder / "no-picture").unlink()
    ritz("run", "us2000.fig2")
    assert (folder / "results/us2000.fig2/laptop/figure.png").exists()


def test_what_has_no_record_cannot_be_drawn(folder):
    assert "no preset papre" in ritz("draw", "us2000.fig2", "--preset", "papre", code=2).stderr
    result = ritz("draw", "us2000.fig2", "--preset", "paper", code=2)
    assert "no record of preset paper" in result.stderr and "ritz run us2000.fig2 --preset paper" in result.stderr


def test_the_ledger_has_every_claim_with_its_verdict_and_why(folder):
    ritz("run", "us2000.*", "--preset", "smoke")
    ritz("run", "us2000.fig2", "--preset", "smoke", "--set", "sides=2,1")
    result = ritz("claims")
    for part in ("areas grow", "Us 2000", "Fig. 2", "yes if ≥ 4", "The areas do not", "3 claims · 2 yes · 1 no"):
        assert part in result.stdout
    assert "the first is 1" not in ritz("claims", "us2000.fig2").stdout


def test_the_ledger_as_markdown_names_the_picture_the_command_and_the_time(folder):
    ritz("run", "us2000.fig2", "--preset", "smoke")
    heading, _, row = ritz("claims", "--markdown").stdout.splitlines()
    assert heading.count("|") == row.count("|") == 8
    for part in (
        "(results/us2000.fig2/smoke/figure.png)",
        "`ritz run us2000.fig2 --preset smoke`",
        "CPU thread",
        "yes",
    ):
        assert part in row


def test_a_command_in_the_ledger_names_what_differs_from_the_preset(folder):
    ritz("run", "us2000.fig2", "--preset", "smoke", "--set", "sides=2,4", "--set", "scale=3")
    assert "--preset smoke --set sides=2,4 --set scale=3.0`" in ritz("claims", "--markdown").stdout


def test_the_time_of_a_run_that_was_resumed_is_marked(folder):
    (folder / "stop").touch()
    CliRunner().invoke(app, ["run", "us2000.fig2"])
    (folder / "stop").unlink()
    assert "computed in more than" in ritz("run", "us2000.fig2").stdout
    assert "| more than " in ritz("claims", "--markdown").stdout


def test_the_brief_ledger_has_a_row_for_each_figure_that_counts_its_claims(folder):
    ritz("run", "us2000.*", "--preset", "smoke")
    heading, _, *rows = ritz("claims", "--brief").stdout.splitlines()
    assert len(rows) == 2 and heading.count("|") == rows[0].count("|") == 9
    assert all(row.endswith("| 1 yes |") for row in rows)


def test_one_damaged_record_does_not_hide_the_others(folder):
    ritz("run", "us2000.*", "--preset", "smoke")
    (folder / "results/us2000.fig2/smoke/record.json").write_text("{")
    result = ritz("claims")
    assert "Note:" in result.stderr and "cannot be read" in result.stderr and "1 claims · 1 yes" in result.stdout


def test_without_records_the_ledger_says_how_to_get_some(folder):
    assert "ritz run" in ritz("claims", code=2).stderr
    assert "ritz run" in ritz("claims", "--markdown", code=2).stderr
    assert "Near it: us2000.fig2" in ritz("claims", "us2000.fig22", code=2).stderr


@pytest.mark.parametrize("command", ["list", "run", "draw", "claims"])
def test_help_carries_an_example(command):
    assert f"ritz {command}" in ritz(command, "--help").stdout.split("Example", 1)[1]


# The registry ---------------------------------------------------------------------------------------------------------


def test_ids_are_unique_and_those_of_their_figures(folder):
    module = folder.parent / "package/fakes/us2000/more.py"
    module.write_text("from .squares import FIGURES\n")
    with pytest.raises(ValueError, match="is not the one id"):
        experiments.figures("fakes")


def test_figures_that_share_a_computation_must_agree_in_it(folder):
    module = folder.parent / "package/fakes/us2000/more.py"
    module.write_text(
        "from dataclasses import replace\nfrom . import squares\n"
        "odd = replace(squares.FIGURES['us2000.fig2'], id='us2000.fig4', presets={})\nFIGURES = {odd.id: odd}\n"
    )
    with pytest.raises(ValueError, match=r"share the computation 'us2000\.squares'"):
        experiments.figures("fakes")


def test_the_papers_of_this_package_are_in_order():
    for name, figure in experiments.figures().items():
        assert name == figure.id and {"smoke"} <= set(figure.presets)


def test_a_context_without_a_folder_sweeps_and_keeps_nothing():
    def doubled(config):
        return {"x": 2 * config["x"]}

    assert [r.scalars["x"] for r in Context().sweep(doubled, [{"x": 1}, {"x": 4}])] == [2, 8]


# Settings -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inside:
    depth: int = 2


@dataclass(frozen=True)
class Settings:
    epochs: int = 10
    rate: float = 0.1
    whiten: bool = False
    data: Literal["mnist", "cifar10"] = "mnist"
    level: Literal[0, 1] = 1
    limit: int | None = None
    norm: float | str = "auto"
    widths: tuple[int, ...] = (8, 8)
    range: tuple[float, int] = (0.5, 2)
    function: object = None
    inside: Inside = field(default_factory=Inside)


@pytest.mark.parametrize(
    "text, name, value",
    [
        ("epochs=20", "epochs", 20),
        ("rate=1", "rate", 1.0),
        ("rate=1e-3", "rate", 1e-3),
        ("whiten=true", "whiten", True),
        ("whiten=False", "whiten", False),
        ("data=cifar10", "data", "cifar10"),
        ("level=0", "level", 0),
        ("limit=none", "limit", None),
        ("limit=5", "limit", 5),
        ("norm=2", "norm", 2.0),
        ("norm=auto=x", "norm", "auto=x"),
        ("widths=1, 2,3", "widths", (1, 2, 3)),
        ("widths=(4,)", "widths", (4,)),
        ("range=1,2", "range", (1.0, 2)),
    ],
)
def test_settings_are_read_by_the_type_of_their_field(text, name, value):
    found = getattr(overridden(Settings(), [text]), name)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "epochs=1.5",
        "epochs=",
        "rate=fast",
        "whiten=1",
        "data=svhn",
        "limit=some",
        "range=1",
        "range=1,2.5",
        "function=f",
        "widths=",
        "widths=()",
        "widths=1,,2",
        "rate=nan",
        "rate=inf",
        "inside=3",
        "inside.depth=deep",
    ],
)
def test_settings_of_another_type_are_refused(text):
    with pytest.raises(ArgumentError, match="is not"):
        overridden(Settings(), [text])


def test_a_field_of_a_field_is_set_by_both_names():
    assert overridden(Settings(), ["inside.depth=3", "epochs=1"]) == Settings(epochs=1, inside=Inside(3))
    for text in ("inside.width=3", "epochs.depth=3"):
        with pytest.raises(ArgumentError, match="there is no field"):
            overridden(Settings(), [text])


def test_settings_can_be_told_from_a_config_and_make_it_again():
    texts = ["whiten=true", "limit=5", "widths=1,2,3", "inside.depth=3"]
    made = overridden(replace(Settings(), function="f"), texts)
    assert differences(plain(made), replace(Settings(), function="f")) == texts


def test_a_message_names_types_in_words():
    with pytest.raises(ArgumentError, match="is not a list of int"):
        overridden(Settings(), ["widths=x"])
    with pytest.raises(ArgumentError, match="is not int or none"):
        overridden(Settings(), ["limit=x"])


# Rules ----------------------------------------------------------------------------------------------------------------

RULES = [
    (at_least(0.9, partly=0.5), {1.0: "yes", 0.9: "yes", 0.7: "partly", 0.4: "no", -math.inf: "no"}),
    (at_most(0.05, partly=0.2), {0.0: "yes", 0.1: "partly", 0.3: "no", math.inf: "no"}),
    (at_least(0.9), {0.9: "yes", 0.89: "no"}),
    (within(1, 2, partly=(0, 3)), {1.5: "yes", 0.5: "partly", 3.5: "no", -0.5: "no"}),
    (near(-2, relative=0.1, partly=0.5), {-2.1: "yes", -1.5: "partly", 2.0: "no", -4.0: "no"}),
]


@pytest.mark.parametrize("rule, verdicts", RULES)
def test_rules_judge_by_their_thresholds(rule, verdicts):
    assert {value: rule(value) for value in verdicts} == verdicts
    assert rule(torch.tensor(next(iter(verdicts)), dtype=torch.float64)) == "yes"


@given(*[st.floats(allow_nan=False)] * 4)
def test_every_rule_that_can_be_written_says_no_to_something_and_to_nan(a, b, c, d):
    try:
        rule = Rule((a, b), (c, d))
    except ValueError:
        return
    assert rule(math.nan) == "no" and "no" in {rule(-math.inf), rule(math.inf)}


@pytest.mark.parametrize(
    "ends", [((0, 1), (-math.inf, math.inf)), ((0, 1), (0.5, 2)), ((1, 0), (0, 1)), ((math.nan, 1), (0, 2))]
)
def test_a_rule_that_could_not_say_no_cannot_be_written(ends):
    with pytest.raises(ValueError):
        Rule(*ends)


def test_several_numbers_agree_or_the_claim_holds_partly():
    rule = each(at_least(0.9, partly=0.5))
    assert rule({"mnist": 1.0, "cifar": 0.95}) == "yes"
    assert rule({"mnist": 1.0, "cifar": 0.1}) == "partly"
    assert rule([0.6, 0.7]) == "partly"
    assert rule([0.1, math.nan]) == "no" and rule({}) == "no"


def test_a_claim_carries_its_rule_its_error_and_the_sentence_for_its_verdict():
    said = {"paper": "Us 2000", "where": "eq (1)", "rule": at_most(0.1), "why": {"no": "it is not"}}
    bad = claim("small", measured=0.3, expected=0.1, **said)
    assert (bad.verdict, bad.why, bad.rule) == ("no", "it is not", "yes if ≤ 0.1, else no")
    assert bad.error == pytest.approx(2.0)
    good = claim("small", measured=0.05, expected="small", **said)
    assert (good.verdict, good.why, good.error) == ("yes", "", None)


def test_a_single_sentence_is_for_whatever_is_not_yes():
    said = {"paper": "Us 2000", "where": "", "rule": at_most(0.1, partly=0.2), "expected": 0, "why": "it is large"}
    assert [claim("", measured=m, **said).why for m in (0.05, 0.15, 0.3)] == ["", "it is large", "it is large"]


def test_those_that_are_against_a_claim_are_named_where_others_are_not():
    said = {"paper": "Us 2000", "where": "", "rule": each(at_most(0.1)), "expected": 0, "why": "it is large"}
    named = [
        claim("", measured=measured, name_against=True, **said).why
        for measured in ({"a, b": 0, "c": 0}, {"a, b": 1, "c": 0, "d": 2}, {"a, b": 1, "c": 1})
    ]
    assert named == ["", "Not so, or not wholly: a, b; d. it is large", "it is large"]
    mixed = said | {"rule": each(at_most(0.1, partly=0.5))}
    assert claim("", measured={"a": 0.3, "b": 1}, name_against=True, **mixed).why == "it is large"  # all are
    assert claim("", measured={"a": 0, "b": 1}, **said).why == "it is large"
    assert claim("", measured=[0, 1], name_against=True, **said).why == "it is large"  # they have no names
    assert claim("", measured={"a": 0, "b": 1}, name_against=True, **said | {"why": ""}).why.endswith("wholly: b.")


def test_rank_correlation_leaves_out_what_is_no_number_and_says_so_where_too_little_is_left():
    x = np.arange(5.0)
    assert spearman(x, np.array([1.0, np.nan, 7, 8, 90])) == pytest.approx(1)
    assert spearman(x, -(x**3)) == pytest.approx(-1)
    assert math.isnan(spearman(x, np.array([1, 2, np.nan, np.nan, np.nan])))
    assert spearman(x, 0 * x) == spearman(x, x * 0 + np.inf) == 0.0
    assert spearman(x, np.array([2.0, 1, 3, 4, 5])) == pytest.approx(0.9)
    assert spearman(x, np.array([1, 2, 3, np.inf, np.inf])) > 0.95
    assert median_spearman(x, np.stack([x, -x, x])) == pytest.approx(1)


def test_a_band_is_drawn_where_it_is_wanted_and_legends_beside_the_curves():
    figure, (left, right) = plot.panels(2)
    x = np.arange(4.0)
    banded(left, x, x - 1, x, x + 1, colour="k", where=x > 1, label="middle")
    (line,), (band,) = left.lines, left.collections
    assert line.get_ydata().tolist() == x.tolist() and band.get_paths()[0].vertices[:, 0].min() == 2
    legend_below(left, columns=1)
    legend_above(figure, left, columns=1)
    titled(right, "told", size=8)
    for legend in (left.get_legend(), *figure.legends):
        assert [text.get_text() for text in legend.texts] == ["middle"]
    assert len(figure.legends) == 1
    assert right.get_title(loc="left") == "told"
