"""How a figure gets to its record: what is computed, kept, shared, resumed."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ritz.cli import app
from ritz.cli import commands as app_module
from ritz.record import Record, lock
from tests.papers.paper_of_squares import cached, called, ritz


@pytest.mark.usefixtures("rendered")
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
    (claim,) = record.claims
    assert (claim.verdict, claim.measured, claim.rule) == ("yes", 16, "yes if ≥ 4, partly if ≥ 2, else no")
    assert "us2000.fig2 laptop: computed in" in result.stdout and "1 yes" in result.stdout


def test_what_is_there_is_not_computed_again_unless_forced(folder):
    ritz("run", "us2000.fig2", "--preset", "smoke")
    assert "already there" in ritz("run", "us2000.fig2", "--preset", "smoke").stdout
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


LENDING = """
from functools import partial

from ritz.papers.frame.figure import Figure
from ritz.papers.frame.loans import Loan

from .squares import PRESETS, area, draw, run


def area_at(record, at):
    return {"area": float(record.arrays["areas"][at])}


def loans(config):
    return [Loan(area, {"side": side}, partial(area_at, at=at)) for at, side in enumerate(config.sides)]


FIGURES = {"us2000.fig4": Figure("us2000.fig4", "Squares that are lent", PRESETS, run, draw, (), loans=loans)}
"""


@pytest.fixture
def lending(folder):
    """A paper with a figure whose records lend what they have."""
    (folder.parent / "package/fakes/us2000/lending.py").write_text(LENDING)
    return folder


def test_what_a_record_of_another_config_has_measured_is_not_measured_again_unless_forced(lending):
    ritz("run", "us2000.fig4", "--preset", "smoke")
    result = ritz("run", "us2000.fig4", "--preset", "laptop", "--set", "sides=2,3,1")
    assert called() == [1, 2, 3] and "2 measurements from records of other settings" in result.stdout
    (path,) = (lending / "results/us2000.fig4").glob("laptop+*")
    record = Record.load(path)
    assert record.arrays["areas"].tolist() == [4, 9, 1]
    assert record.provenance["lent"] == 2
    ritz("run", "us2000.fig4", "--preset", "laptop", "--set", "sides=2,3,1", "--force")
    assert called() == [1, 2, 3, 2, 3, 1]


ANOTHER = """
from dataclasses import dataclass
from functools import partial

import numpy as np

from ritz.papers.frame.figure import Figure
from ritz.papers.frame.loans import Loan

from .squares import area, draw


@dataclass(frozen=True)
class Config:
    longest: int = 3


def run(config, context):
    records = context.sweep(partial(area, scale=1.0), [{"side": side} for side in range(1, config.longest + 1)])
    return {"areas": np.array([record.scalars["area"] for record in records])}


def loans(config):
    return [Loan(area, {"side": side}, lambda record: {}) for side in range(1, config.longest + 1)]


FIGURES = {"us2000.fig5": Figure("us2000.fig5", "As many as fit", {"smoke": Config()}, run, draw, (), loans=loans)}
"""


def test_a_record_of_another_computation_lends_what_both_measure(lending):
    (lending.parent / "package/fakes/us2000/another.py").write_text(ANOTHER)
    ritz("run", "us2000.fig4", "--preset", "smoke")
    ritz("run", "us2000.fig5", "--preset", "smoke")
    assert called() == [1, 2, 3]
    record = Record.load(lending / "results/us2000.fig5/smoke")
    assert record.arrays["areas"].tolist() == [1, 4, 9] and record.provenance["lent"] == 2


def test_a_record_names_the_devices_of_its_measurements_and_their_seconds(lending):
    ritz("run", "us2000.fig4", "--preset", "smoke")
    path = lending / "results/us2000.fig4/smoke"
    lender = Record.load(path)
    replace(lender, provenance={**lender.provenance, "device": "NVIDIA H200", "seconds": 100.0}).save(path)
    ritz("run", "us2000.fig4", "--preset", "laptop", "--set", "sides=2,1")
    ritz("run", "us2000.fig4", "--preset", "laptop", "--set", "sides=2,1,3")
    lent, both = sorted(map(Record.load, path.parent.glob("laptop+*")), key=lambda record: len(record.arrays["areas"]))
    assert lent.provenance["device"] == "NVIDIA H200" and 100 < lent.provenance["seconds"] < 200
    assert both.provenance["device"] == "NVIDIA H200 and cpu" and 100 < both.provenance["seconds"] < 200
    assert len(both.provenance["made_of"]) == 2  # the lender of both is counted once


def test_neither_a_damaged_record_nor_one_with_other_fields_lends(lending):
    ritz("run", "us2000.fig4", "--preset", "smoke")
    path = lending / "results/us2000.fig4/smoke"
    text = (path / "record.json").read_text()
    (path / "record.json").write_text(text.replace('"scale": 1.0', '"scale": 1.0, "new": 3'))
    ritz("run", "us2000.fig4", "--preset", "laptop")
    assert called() == [1, 2, 1, 2, 3, 4]
    (path / "record.json").write_text(text.replace('"scale": 1.0', '"other": 1.0'))
    ritz("run", "us2000.fig4", "--preset", "paper", "--set", "sides=1,5")
    assert called()[6:] == [5]  # 1 is that of the preset laptop
    (path / "record.json").write_text("{")
    ritz("run", "us2000.fig4", "--preset", "paper", "--set", "sides=2,6")
    assert called()[7:] == [6]


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


def test_a_run_killed_between_its_claims_and_its_picture_is_finished(folder):
    (folder / "no-picture").touch()
    ritz("run", "us2000.fig2", code=1)
    assert len(Record.load(folder / "results/us2000.fig2/laptop").claims) == 1
    (folder / "no-picture").unlink()
    ritz("run", "us2000.fig2")
    assert (folder / "results/us2000.fig2/laptop/figure.png").exists()


def test_a_fault_in_a_rule_costs_no_computation(folder):
    (folder / "no-verdict").touch()
    assert "no verdict" in ritz("run", "us2000.fig2", code=1).stderr
    record = Record.load(folder / "results/us2000.fig2/laptop")
    assert record.arrays["areas"].tolist() == [1, 4, 9, 16] and not record.claims
    (folder / "no-verdict").unlink()
    ritz("run", "us2000.fig2")
    assert called() == [1, 2, 3, 4] and len(Record.load(folder / "results/us2000.fig2/laptop").claims) == 1


def test_a_run_stopped_while_its_record_is_written_computes_nothing_again(folder, monkeypatch):
    save = Record.save

    def stopped(self, place):
        if self.id == "us2000.fig2":
            raise KeyboardInterrupt
        return save(self, place)

    with monkeypatch.context() as patch:
        patch.setattr(Record, "save", stopped)
        CliRunner().invoke(app, ["run", "us2000.fig2"])
    assert not (folder / "results/us2000.fig2").exists() and len(cached(folder)) == 4
    ritz("run", "us2000.fig2")
    assert called() == [1, 2, 3, 4] and not cached(folder)


def test_a_record_is_written_once_and_not_read_again(folder, monkeypatch):
    written, read = [], []
    save, load = Record.save, Record.load.__func__
    monkeypatch.setattr(Record, "save", lambda self, place: written.append(self.id) or save(self, place))
    monkeypatch.setattr(Record, "load", classmethod(lambda cls, place: read.append(str(place)) or load(cls, place)))
    ritz("run", "us2000.fig2", "--preset", "smoke")
    assert written.count("us2000.fig2") == 1 and not [place for place in read if ".cache" not in place]


def test_one_lock_is_for_a_computation_with_its_sweeps(folder):
    (folder / "stop").touch()
    CliRunner().invoke(app, ["run", "us2000.fig2"])
    cache = folder / "results/.cache"
    (one,) = cache.rglob(".lock")
    assert one.parent.parent == cache / "us2000.squares"
    with lock(one.parent):
        assert "Another process is writing" in ritz("run", "us2000.fig2", code=2).stderr
        assert "Another process is writing" in ritz("run", "us2000.fig2", "--force", code=2).stderr
    assert len(cached(folder)) == 2  # what the other one needs


def test_few_calls_of_ours_lie_between_the_command_and_the_numbers(folder):
    ritz("run", "us2000.fig2", "--preset", "smoke")
    (stack,) = sys.modules["fakes.us2000.squares"].STACKS
    ours = [file for file in stack if Path(file).is_relative_to(Path(app_module.__file__).parents[1])]
    assert 4 <= len(ours) <= 20
