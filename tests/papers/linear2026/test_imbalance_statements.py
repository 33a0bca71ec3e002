"""What is said about Fig. 1 right and 2, on data that must give yes and on data that must give no."""

from dataclasses import replace

import numpy as np
import pytest

from ritz.papers.linear2026.variants import variants
from ritz.record import Record, plain
from tests.papers.both_ways import missing_verdicts
from tests.papers.linear2026.problems import paper_figures, verdicts

TWO = ("mnist", "cifar10")  # names alone: nothing is read


def curves(name, **changed):
    """A record of Fig. 1c or 2, of the paper's size, as the paper says it is but for what is changed."""
    config = replace(paper_figures()[f"linear2026.{name}"].presets["paper"], data=TWO)
    shape = (len(TWO), len(variants(config)), config.num_seeds, len(config.alphas))
    shares = np.tile(config.alphas, (2, 1))
    printed = 4 * shares**0.75
    sharpness = np.broadcast_to(printed[:, None, None], shape)
    rest = np.broadcast_to(0.16 * (1.1 - shares[:, None, None]), shape)
    arrays = {
        "shares": shares, "printed": printed, "sharpness": sharpness, "exact": sharpness, "peak": sharpness,
        "along": np.stack([0.5 * sharpness, sharpness], -1), "loss": 1.001 * rest, "first_loss": 0 * rest + 0.5,
        "late_change": 0 * rest, "diverged": np.zeros(shape, bool), "num_inputs": np.full(shape, 784), "rest": rest,
        "learning_rate": np.full(shape, 0.01), "residual": np.full(shape, 1e-5), "converged": np.ones(shape, bool),
        "balance": np.full(shape, 1e-4), "bound": sharpness, "epochs": np.tile([1, 100], (2, 1)),
        "by_size": np.full((2, len(config.sizes)), 1.6),
    }  # fmt: skip
    arrays |= {key: np.broadcast_to(change(arrays[key]), arrays[key].shape) for key, change in changed.items()}
    return Record("", "", plain(config), {}, arrays)


def falling(sharpness):
    return 20 * sharpness[..., ::-1] * np.array([1.0, 2.0])[:, None, None, None]  # and different between the data sets


def rank_revealing(record_change, size=4):
    """A change of the second variant, rank-revealing inputs, alone."""
    second = (np.arange(size) == 1)[:, None, None]
    return lambda values: np.where(second, record_change(values), values)


BAD = {
    "residual": lambda r: 1e4 * r, "converged": lambda c: ~c, "loss": lambda r: 5 * r[..., ::-1] + 0.5,
    "balance": lambda b: 1e4 * b, "by_size": lambda s: s * np.linspace(1, 2, 5), "first_loss": lambda r: 0.1 * r,
}  # fmt: skip
DEFICIENT = {  # 131 columns of the whitening by QR are invented, and fit what random ones would
    "num_inputs": rank_revealing(lambda n: n - 131),
    "rest": rank_revealing(lambda r: r / (1 - 131 / (5000 - 653))),
}


def test_every_statement_about_figure_1c_can_be_confirmed_and_refuted():
    wrong = {**DEFICIENT, "rest": rank_revealing(lambda r: 2 * r), "sharpness": lambda s: falling(s), **BAD}
    wrong["sharpness"] = lambda s: rank_revealing(lambda v: 3 * v)(falling(s))
    records = [curves("fig1c"), curves("fig1c", **DEFICIENT), curves("fig1c", **wrong)]
    assert missing_verdicts(paper_figures()["linear2026.fig1c"], records) == []


def test_figure_1c_is_refuted_by_networks_that_diverged():
    record = curves("fig1c", sharpness=lambda s: np.where(np.arange(9) == 2, np.nan, s))
    assert verdicts("fig1c", record)[1:3] == ["no", "no"]


def test_the_median_seed_is_judged_and_one_that_is_off_is_not():
    one = (np.arange(5) == 0)[:, None]
    record = curves("fig1c", sharpness=lambda s: np.where(one, s[..., ::-1], s))
    claim = paper_figures()["linear2026.fig1c"].claims(record)[0]
    assert claim.verdict == "yes" and claim.reading == "own images and weights for each share"
    most = (np.arange(5) < 3)[:, None]
    record = curves("fig1c", sharpness=lambda s: np.where(most, s[..., ::-1], s))
    claim = paper_figures()["linear2026.fig1c"].claims(record)[0]
    assert claim.verdict == "no" and "-1.00 to 1.00" in claim.why


def test_another_reading_stands_beside_and_decides_nothing():
    shared = (np.arange(4) == 3)[:, None, None]
    record = curves("fig1c", sharpness=lambda s: np.where(shared, s[..., ::-1], s))
    claim = paper_figures()["linear2026.fig1c"].claims(record)[0]
    assert claim.verdict == "yes"
    assert {words: one["verdict"] for words, one in claim.beside.items()} == {
        "rate kept": "yes",
        "one seed for all shares": "no",
    }


def raw_curves(**changed):
    """Raw inputs as the paper has them, in all variants but the second, which has white ones."""
    white = (np.arange(5) == 1)[:, None, None]
    far = {
        "sharpness": lambda s: np.where(white, s, 30 * s[..., [1, 3, 0, 4, 2, 8, 6, 7, 5][::-1]]),
        "peak": lambda p: np.where(white, p, 50 * p),
    }
    return curves("fig2a", **(far | changed))


def test_every_statement_about_figure_2a_can_be_confirmed_and_refuted():
    same = {"sharpness": lambda s: s, "peak": lambda p: 1 / p, "diverged": lambda d: ~d, **BAD}
    records = [raw_curves(), raw_curves(**{key: same[key] for key in same if key not in ("first_loss", "by_size")})]
    assert missing_verdicts(paper_figures()["linear2026.fig2a"], records) == []


def test_a_peak_that_does_not_depend_on_the_labels_is_no_lower_and_says_where_it_comes_from():
    claim = paper_figures()["linear2026.fig2a"].claims(raw_curves(peak=lambda p: p * [3, 1, 2, 3, 1, 2, 3, 1, 2] / p))[
        3
    ]
    assert claim.verdict == "yes" and "that of the initial weights" in claim.why


def test_figure_2a_says_which_data_sets_diverged_and_rests_on_the_others():
    gone = np.array([False, True])[:, None, None, None] & (np.arange(5) != 1)[:, None, None]
    without = {key: lambda values: np.where(gone, np.nan, values) for key in ("sharpness", "peak", "residual")}
    record = curves("fig2a", diverged=lambda d: d | gone, **without)
    claims = paper_figures()["linear2026.fig2a"].claims(record)
    assert [claim.verdict for claim in claims[:3]] == ["no", "no", "no"]
    assert all("without CIFAR-10" in claim.why and "CIFAR-10" not in claim.measured for claim in (claims[0], claims[2]))
    assert claims[1].measured == pytest.approx(1) and claims[4].verdict == "partly"


def test_a_formula_that_is_far_too_large_breaks_down_as_one_that_is_far_too_small():
    for factor in (30, 1 / 30):  # relative to the sharpness, the errors are 0.97 and 29
        assert verdicts("fig2a", raw_curves(sharpness=lambda s, factor=factor: factor * s))[0] == "yes"


@pytest.mark.parametrize("name", ["fig2b", "fig2c"])
def test_every_statement_about_figures_2b_and_2c_can_be_confirmed_and_refuted(name):
    wrong = {key: BAD[key] for key in ("residual", "converged")}
    records = [curves(name), curves(name, sharpness=falling, **wrong)]
    assert missing_verdicts(paper_figures()[f"linear2026.{name}"], records) == []
    for record in records:
        verdicts(name, record)  # is drawn


def legend(name, record):
    return [text.get_text() for text in paper_figures()[f"linear2026.{name}"].draw(record).legends[0].get_texts()]


def test_a_training_that_has_not_ended_is_said_and_drawn_hollow():
    record = curves("fig2b", loss=lambda r: 2 * r, sharpness=falling)
    assert "0 of 90 trainings have ended" in paper_figures()["linear2026.fig2b"].claims(record)[0].why
    assert "training has not ended" in legend("fig2b", record)
    assert "training has not ended" not in legend("fig2b", curves("fig2b"))
