"""All figures of the paper: that they run, resume, and refuse what they cannot judge."""

import functools
from dataclasses import replace
from itertools import count as counting

import numpy as np
import pytest

from ritz.errors import ArgumentError
from ritz.papers.frame.figure import Context
from ritz.papers.frame.results import order, run
from ritz.papers.linear2026 import along_training, data, imbalance, training
from tests.papers.linear2026.problems import IDS, paper_figures


def test_every_figure_of_the_paper_has_an_id_and_three_presets():
    assert list(paper_figures()) == [f"linear2026.{name}" for name in IDS]
    assert all(set(figure.presets) == {"paper", "laptop", "smoke"} for figure in paper_figures().values())


@pytest.fixture(scope="module")
def smoke_run(tmp_path_factory):
    """The record of a figure's smoke run and where it lies; each runs once."""

    @functools.cache
    def of_figure(name):
        figure, out = paper_figures()[f"linear2026.{name}"], tmp_path_factory.mktemp(name)
        return run(order(figure, "smoke", [], out), paper_figures().values(), Context()), out / figure.id / "smoke"

    return of_figure


@pytest.mark.parametrize("name", IDS)
def test_a_smoke_run_leaves_a_record_a_picture_and_verdicts(name, smoke_run):
    record, folder = smoke_run(name)
    assert record.claims and all(claim.verdict in ("yes", "partly", "no") for claim in record.claims)
    assert (folder / "figure.png").stat().st_size > 10_000
    assert all(claim.why for claim in record.claims if claim.verdict != "yes")
    if name == "fig1b":  # every assumption of the theory holds
        assert {claim.verdict for claim in record.claims} == {"yes"}


@pytest.mark.parametrize("name", ["fig2a", "fig4"])
def test_a_run_that_was_stopped_goes_on_to_the_same_numbers(name, tmp_path, monkeypatch):
    figure = paper_figures()[f"linear2026.{name}"]
    config = replace(figure.presets["smoke"], num_epochs=60, num_pauses=4)
    if name == "fig2a":
        config = replace(config, alphas=(0.3,), num_seeds=1, scales=("one",), rates=("halved",), draws=("own",))
    whole = figure.run(config, Context(folder=tmp_path / "whole"))
    module, count = (training, [0]) if name == "fig2a" else (along_training, [0])
    real = module.top_eigenpairs

    def stopped(*arguments, **options):
        count[0] += 1
        if count[0] == 4:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(module, "top_eigenpairs", stopped)
    ticks = counting(0, 1000)  # seconds: the file is written at every pause
    monkeypatch.setattr("ritz.record.checkpoints.monotonic", lambda: next(ticks))
    with pytest.raises(KeyboardInterrupt):
        figure.run(config, Context(folder=tmp_path / "parts"))
    assert list((tmp_path / "parts" / "training").glob("*.npz"))
    again = figure.run(config, Context(folder=tmp_path / "parts"))
    assert set(whole) == set(again)
    for key, array in whole.items():
        np.testing.assert_array_equal(array, again[key])


def test_a_run_that_was_stopped_at_its_last_measurement_goes_on_to_the_same_numbers(tmp_path, monkeypatch):
    figure = paper_figures()["linear2026.fig2b"]
    config = replace(figure.presets["smoke"], num_epochs=40, num_seeds=1, alphas=(0.3,))
    whole, real = figure.run(config, Context(folder=tmp_path / "whole")), training._of_all

    def stopped(measure, pause, *arguments):
        if pause.epoch == config.num_epochs:
            raise KeyboardInterrupt
        return real(measure, pause, *arguments)

    ticks = counting(0, 1000)  # seconds: the file is written at every pause
    monkeypatch.setattr("ritz.record.checkpoints.monotonic", lambda: next(ticks))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(training, "_of_all", stopped)
        figure.run(config, Context(folder=tmp_path / "parts"))
    again = figure.run(config, Context(folder=tmp_path / "parts"))
    assert np.isfinite(whole["late_change"]).all()
    for key, array in whole.items():
        np.testing.assert_array_equal(array, again[key])


def test_a_run_in_its_folder_is_not_computed_again(tmp_path, monkeypatch):
    figure = paper_figures()["linear2026.fig2b"]
    config, context = replace(figure.presets["smoke"], num_epochs=40, alphas=(0.1, 0.3)), Context(folder=tmp_path)
    first = figure.run(config, context)
    monkeypatch.setattr(imbalance.data, "training_set", lambda *_: pytest.fail("read again"))
    again = figure.run(config, context)
    np.testing.assert_array_equal(first["sharpness"], again["sharpness"])


@pytest.mark.parametrize(
    "name, setting",
    [
        ("fig1c", {"inputs": ("raw",)}),
        ("fig1c", {"inputs": ("qr", "raw")}),
        ("fig1c", {"starts": ("kaiming", "balanced")}),
        ("fig2a", {"inputs": ("qr",)}),
        ("fig2b", {"inputs": ("rank",)}),
        ("fig4", {"depth": 3}),
    ],
)
def test_what_a_figure_cannot_judge_is_refused_before_it_is_trained(name, setting, monkeypatch):
    monkeypatch.setattr(data, "training_set", lambda *_: pytest.fail("data were read"))
    figure = paper_figures()[f"linear2026.{name}"]
    with pytest.raises(ArgumentError):
        figure.run(replace(figure.presets["smoke"], **setting), Context())
