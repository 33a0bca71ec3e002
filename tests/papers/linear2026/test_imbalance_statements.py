"""What is said about Fig. 1 right and 2, on data that must give yes and on data that must give no."""

from dataclasses import replace

import numpy as np
import pytest

from ritz.record import Record, plain
from tests.papers.linear2026.problems import paper_figures, verdicts

TWO = ("mnist", "cifar10")  # names alone: nothing is read
ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)


def curves(name, **changed):
    """A record of Fig. 1c or 2 in which everything is as the paper says, but for what is changed."""
    config = replace(paper_figures()[f"linear2026.{name}"].presets["paper"], data=TWO, alphas=ALPHAS)
    shape = (len(TWO), len(config.inputs) * len(config.starts), len(ALPHAS))
    shares = np.tile(ALPHAS, (2, 1))
    printed = 4 * shares**0.75
    sharpness = np.broadcast_to(printed[:, None], shape)
    arrays = {
        "shares": shares, "printed": printed, "sharpness": sharpness, "exact": sharpness, "peak": sharpness,
        "along": sharpness[:, :, None], "loss": np.full(shape, 0.2), "diverged": np.zeros(shape, bool),
        "num_inputs": np.full(shape, 784), "rest": np.full(shape, 0.16), "learning_rate": np.full(shape, 0.01),
        "residual": np.full(shape, 1e-5), "converged": np.ones(shape, bool), "epochs": np.tile([1, 100], (2, 1)),
    }  # fmt: skip
    arrays |= {key: np.broadcast_to(change(arrays[key]), arrays[key].shape) for key, change in changed.items()}
    return Record("", "", plain(config), {}, arrays)


def falling(sharpness):
    return 20 * sharpness[..., ::-1] * np.array([1.0, 2.0])[:, None, None]  # and different between the data sets


BAD = {"residual": lambda r: 1e4 * r, "converged": lambda c: ~c}
DEFICIENT = {  # 131 columns of the whitening by QR are invented, and fit what random ones would
    "num_inputs": lambda n: n - np.array([0, 131])[:, None],
    "rest": lambda r: r * np.array([1 - 131 / (5000 - 653), 1])[:, None],
}


def test_figure_1c_as_the_paper_has_it():
    assert verdicts("fig1c", curves("fig1c")) == ["yes"] * 7  # no columns are invented: nothing to compare
    assert verdicts("fig1c", curves("fig1c", **DEFICIENT)) == ["yes"] * 5 + ["no", "yes", "yes", "yes"]


def test_figure_1c_can_be_refuted_in_every_point():
    two = np.array([1.0, 3.0])[:, None]
    changed = {**DEFICIENT, "rest": lambda r: r, "sharpness": lambda s: falling(s) * two, **BAD}
    assert verdicts("fig1c", curves("fig1c", **changed)) == ["no"] * 9
    changed["rest"] = lambda r: r * np.array([0.5, 1])[:, None]  # a decrease 17 times what random inputs bring
    assert verdicts("fig1c", curves("fig1c", **changed))[7] == "no"


def test_figure_1c_is_refuted_by_a_network_that_diverged():
    record = curves("fig1c", sharpness=lambda s: np.where(np.arange(5) == 2, np.nan, s))
    assert verdicts("fig1c", record)[1:4] == ["no", "no", "no"]


def test_whitenings_are_compared_only_where_columns_are_invented():
    one = np.array([True, False])[:, None, None]
    changed = {"num_inputs": lambda n: np.where(one, n - np.array([0, 131])[:, None], n)}
    changed["rest"] = lambda r: np.where(one, DEFICIENT["rest"](r), r)
    claims = paper_figures()["linear2026.fig1c"].claims(curves("fig1c", **changed))
    assert [set(claim.measured) for claim in claims[6:8]] == [{"MNIST"}, {"MNIST"}]
    assert claims[5].verdict == "partly" and claims[5].measured == {"MNIST": 131, "CIFAR-10": 0}


def raw_curves(**changed):
    """Raw inputs as the paper has them, in the first variant, and white ones in the second."""
    first = np.array([True, False])[:, None]
    far = {
        "sharpness": lambda s: np.where(first, 30 * s[..., [1, 3, 0, 4, 2]], s),
        "peak": lambda p: np.where(first, 50 * p, p),
    }
    return curves("fig2a", **(far | changed))


def test_figure_2a_as_the_paper_has_it():
    assert verdicts("fig2a", raw_curves()) == ["yes"] * 5


def test_figure_2a_can_be_refuted_in_every_point():
    same = {"sharpness": lambda s: s, "peak": lambda p: p, "diverged": lambda d: ~d, **BAD}
    assert verdicts("fig2a", raw_curves(**same)) == ["no"] * 5


def test_figure_2a_says_which_data_sets_diverged_and_rests_on_the_others():
    gone = np.array([False, True])[:, None, None] & np.array([True, False])[:, None]
    without = {key: lambda values: np.where(gone, np.nan, values) for key in ("sharpness", "peak", "residual")}
    record = curves("fig2a", diverged=lambda d: d | gone, **without)
    claims = paper_figures()["linear2026.fig2a"].claims(record)
    assert [claim.verdict for claim in claims] == ["no", "no", "no", "partly", "yes"]
    assert all("without CIFAR-10" in claim.why and "CIFAR-10" not in claim.measured for claim in (claims[0], claims[2]))
    assert "without CIFAR-10" in claims[1].why and claims[1].measured == pytest.approx(1)
    few = np.array([[False] * 5, [True, True, True, False, False]])[:, None]  # two points have no rank correlation
    record = curves("fig2a", sharpness=lambda s: np.where(few, np.nan, s))
    assert paper_figures()["linear2026.fig2a"].claims(record)[1].measured == pytest.approx(1)


def test_a_formula_that_is_far_too_large_breaks_down_as_one_that_is_far_too_small():
    for factor in (30, 1 / 30):  # relative to the sharpness, the errors are 0.97 and 29
        assert verdicts("fig2a", raw_curves(sharpness=lambda s, factor=factor: factor * s))[0] == "yes"


def test_a_peak_is_compared_with_that_on_white_inputs_and_not_with_the_prediction():
    record = raw_curves(peak=lambda p: 50 * p)
    assert paper_figures()["linear2026.fig2a"].claims(record)[2].measured == {"MNIST": 1.0, "CIFAR-10": 1.0}


@pytest.mark.parametrize("name, count", [("fig2b", 3), ("fig2c", 5)])
def test_figures_2b_and_2c_can_be_confirmed_and_refuted(name, count):
    assert verdicts(name, curves(name)) == ["yes"] * count
    assert verdicts(name, curves(name, sharpness=falling, **BAD)) == ["no"] * count


def test_a_tanh_network_is_judged_for_each_start():
    record = curves("fig2c", sharpness=lambda s: np.where(np.arange(2)[:, None] == 0, s, falling(s)))
    assert verdicts("fig2c", record) == ["yes", "yes", "no", "no", "yes"]
