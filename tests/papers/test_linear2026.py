"""The figures of linear2026: their reductions against plain networks, their rules against data that must fail."""

from dataclasses import replace
from itertools import count as counting
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import grad, jacfwd

from ritz import theory
from ritz.errors import ArgumentError
from ritz.lab import models
from ritz.lab.training import HALVING
from ritz.papers.frame.figure import Context
from ritz.papers.frame.registry import figures
from ritz.papers.frame.results import order, run
from ritz.papers.linear2026 import along_training, closed_form, data, imbalance, networks, setting
from ritz.papers.linear2026.data import White
from ritz.record import Record, plain

IDS = ["fig1a", "fig1b", "fig1c", "fig2a", "fig2b", "fig2c", "fig3", "fig4"]
TWO = ("mnist", "cifar10")  # names alone: nothing is read
ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)


def known():
    return {name: figure for name, figure in figures().items() if name.startswith("linear2026.")}


def problem(generator, N=40, D=9, K=3, sigma_x=1.5):
    X = data.white_inputs(torch.randn(N, D, generator=generator, dtype=torch.float64), sigma_x, "qr")
    return X, torch.randn(N, K, generator=generator, dtype=torch.float64)


def gaussian_weights(generator, *widths):
    return [torch.randn(b, a, generator=generator, dtype=torch.float64) / a**0.5 for a, b in pairwise(widths)]


def loss_of(shapes, X, Y):
    def loss(theta):
        z = X
        for W, shape in zip(theta.split([a * b for a, b in shapes]), shapes, strict=True):
            z = z @ W.view(shape).T
        return (z - Y).square().sum() / (2 * len(X))

    return loss


def dense_hessian(weights, X, Y):
    theta = torch.cat([W.flatten() for W in weights])
    return jacfwd(grad(loss_of([W.shape for W in weights], X, Y)))(theta)


# The figures


def test_every_figure_of_the_paper_has_an_id_and_three_presets():
    assert list(known()) == [f"linear2026.{name}" for name in IDS]
    assert all(set(figure.presets) == {"paper", "laptop", "smoke"} for figure in known().values())


@pytest.mark.parametrize("name", IDS)
def test_a_smoke_run_leaves_a_record_a_picture_and_verdicts(name, tmp_path):
    figure = known()[f"linear2026.{name}"]
    record = run(order(figure, "smoke", [], tmp_path), known().values(), Context())
    assert record.claims and all(claim.verdict in ("yes", "partly", "no") for claim in record.claims)
    assert (tmp_path / figure.id / "smoke" / "figure.png").stat().st_size > 10_000
    assert all(claim.why for claim in record.claims if claim.verdict != "yes")
    if name == "fig1b":  # every assumption of the theory holds
        assert {claim.verdict for claim in record.claims} == {"yes"}


# Reductions against plain networks


def test_a_chain_has_the_hessian_of_its_layers(generator):
    X, Y = problem(generator)
    weights = gaussian_weights(generator, 9, 4, 5, 3)
    top = networks.top_eigenpairs(networks.Chain(weights), (X, Y), 5)
    torch.testing.assert_close(top.values, torch.linalg.eigvalsh(dense_hessian(weights, X, Y))[-5:].flip(0))
    model = models.linear_network([9, 4, 5, 3], generator=generator, parametrization=weights, dtype=torch.float64)
    torch.testing.assert_close(networks.Chain(weights)(X), model(X))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 4), st.floats(0.2, 3.0))
def test_examples_of_white_data_have_their_loss_and_hessian(seed, D, K, sigma_x):
    generator = torch.Generator().manual_seed(seed)
    X, Y = problem(generator, D=D, K=K, sigma_x=sigma_x)
    weights, small = gaussian_weights(generator, D, 3, K), White.of(X, Y, sigma_x).examples()
    assert len(small.x) == D + 1
    shapes, theta = [W.shape for W in weights], torch.cat([W.flatten() for W in weights])
    torch.testing.assert_close(loss_of(shapes, *small)(theta), loss_of(shapes, X, Y)(theta))
    torch.testing.assert_close(dense_hessian(weights, *small), dense_hessian(weights, X, Y))


@pytest.mark.parametrize("width", [3, 20])  # fewer and more directions than the inputs have
def test_descent_in_few_inputs_is_descent_in_all_of_them(generator, width):
    starts, whites, sets = [], [], []
    for D in (12, 15):
        X, Y = problem(generator, D=D, sigma_x=1.2)
        sets.append((X, Y))
        whites.append(White.of(X, Y, 1.2))
        starts.append(gaussian_weights(generator, D, width, width, 3))
    descent = networks.WhiteDescent(starts, whites)
    *_, pause = descent.pauses(learning_rate=0.05, num_epochs=30, checkpoint=None)
    for index, (X, Y) in enumerate(sets):
        theta = torch.cat([W.flatten() for W in starts[index]])
        slope = grad(loss_of([W.shape for W in starts[index]], X, Y))
        for _ in range(30):
            theta = theta - 0.05 * slope(theta)
        found = torch.cat([W.flatten() for W in descent.weights(pause.parameters, index)])
        torch.testing.assert_close(found, theta)


@pytest.mark.parametrize("D, k", [(30, 1), (30, 12), (9, 3)])  # with inputs to spare, and with fewer than are used
def test_the_largest_eigenvalues_need_few_of_the_inputs(generator, D, k):
    X, Y = problem(generator, D=D, sigma_x=1.2)
    weights = gaussian_weights(generator, D, 5, 4, 3)
    weights[0] *= 0.1  # then inputs that the network does not use have some of them
    descent = networks.WhiteDescent([weights], [White.of(X, Y, 1.2)])
    small, white = descent.reduced(descent.start, 0, k)
    assert small[0].shape[1] == min(D, 5 + 3 + k)
    few, all_of_them = (torch.linalg.eigvalsh(dense_hessian(*one)).flip(0)[:k] for one in (
        (small, *white.examples()), (weights, X, Y)))  # fmt: skip
    torch.testing.assert_close(few, all_of_them)


def test_the_loss_of_white_data_is_that_of_the_data(generator):
    X, Y = problem(generator)
    for widths in ((9, 3), (9, 4, 5, 3)):
        weights = gaussian_weights(generator, *widths)
        theta, shapes = torch.cat([W.flatten() for W in weights]), [W.shape for W in weights]
        assert White.of(X, Y, 1.5).loss(weights) == pytest.approx(float(loss_of(shapes, X, Y)(theta)), rel=1e-12)


def test_inputs_that_are_not_white_are_refused(generator):
    X, Y = problem(generator, N=60, D=40, sigma_x=1.5)
    for wrong in (X * (torch.arange(40) != 7), 1.01 * X, X + 0.01 * X.roll(1, 1)):
        with pytest.raises(ArgumentError, match="not white"):
            White.of(wrong, Y, 1.5)


def test_training_follows_the_rule_of_the_paper():
    assert (HALVING.window, HALVING.improvement, HALVING.factor) == (100, 1e-3, 0.5)


def test_the_exact_prediction_is_the_sharpness_of_a_balanced_minimum_with_a_loss(generator):
    X, Y = problem(generator, D=7, sigma_x=1.3)
    white = White.of(X, Y, 1.3)
    weights = theory.balanced_weights(white.T / 1.3, [5, 5])
    measured = torch.linalg.eigvalsh(dense_hessian(weights, X, Y))[-1]
    assert white.rest > 0.1
    assert networks.exact_sharpness(white, 3) == pytest.approx(float(measured), rel=1e-10)


def test_the_printed_prediction_is_exact_at_zero_loss(generator):
    Y = closed_form._labels(4, 0.4, 30)
    X = data.white_inputs(torch.cat([Y, torch.randn(30, 2, generator=generator).double()], 1), 0.7, "qr")
    white = White.of(X, Y, 0.7)
    assert white.rest == pytest.approx(0, abs=1e-12)
    assert networks.exact_sharpness(white, 3) == pytest.approx(networks.printed_sharpness(0.4, 3, 0.7), rel=1e-10)


def test_equation_7_is_the_trace_of_the_whole_hessian_at_any_loss(generator):
    X, Y = problem(generator)
    weights = gaussian_weights(generator, 9, 4, 5, 3)
    printed = float(theory.linear_trace(weights, 1.5))
    assert printed == pytest.approx(float(theory.linear_trace(weights, X)), rel=1e-12)
    assert printed == pytest.approx(float(dense_hessian(weights, X, Y).trace()), rel=1e-12)


def test_equation_15_gives_the_top_of_the_closed_form(generator):
    W1, W2 = gaussian_weights(generator, 9, 5, 3)
    expected = theory.shallow_linear(W1, W2, 1.5).eigenvalues().flip(0)[:6]
    torch.testing.assert_close(networks.printed_pairs(W1, W2, 1.5, 6), expected)


def test_unequal_widths_leave_more_eigenvalues_than_the_paper_counts_and_the_figures_own_do_not():
    found = closed_form.run_random(closed_form.RandomConfig(counted=(3, 2, 4)), Context())
    assert closed_form._count(found["measured"].numpy()) == 20**2  # the least of them is 3e-14 of the largest
    assert closed_form._count(found["unequal"].numpy()) == 10  # not 4
    zeros = found["measured"].abs().sort().values[:-400] / found["measured"].max()
    assert zeros.max() < closed_form.NOT_ZERO / 4


def test_a_narrow_hidden_layer_leaves_more_eigenvalues_than_the_paper_counts():
    assert along_training._count(along_training.Config(counted=(12, 5, 3))) == 12 * 3  # not 5 · 3


# Data


def test_full_rank_is_told_from_deficient(generator):
    X = torch.randn(60, 20, generator=generator, dtype=torch.float64)
    assert data.has_full_rank(X) and data.has_full_rank(X * torch.logspace(0, -5, 20).double())
    assert not data.has_full_rank(torch.cat([X, X[:, :3] @ torch.rand(3, 2, generator=generator).double()], 1))
    assert not data.has_full_rank(X * (torch.arange(20) != 7))


def test_rank_revealing_inputs_are_fewer_only_where_the_data_are_deficient(generator):
    X = torch.randn(60, 20, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(data.white_inputs(X, 2.0, "rank"), data.white_inputs(X, 2.0, "qr"))
    X[:, 4] = 0
    assert data.white_inputs(X, 2.0, "qr").shape[1] == 20
    white = data.white_inputs(X, 2.0, "rank")
    torch.testing.assert_close(white.T @ white / 60, 4 * torch.eye(19, dtype=torch.float64))


def test_subsets_have_the_share_asked_for_and_are_nested():
    digits = data.training_set("digits", None)
    small, large = (data.subset(digits, 100, alpha_max=alpha, seed=0) for alpha in (0.28, 0.55))
    assert [data.largest_share(small), data.largest_share(large)] == [0.28, 0.55]
    of_zero = [{tuple(row) for row in part.x[part.y == 0].tolist()} for part in (small, large)]
    assert of_zero[0] < of_zero[1]


def test_balanced_networks_start_balanced_and_the_others_do_not(generator):
    weights = networks.initial_weights("balanced", [9, 5, 5, 3], singular_values=(0.2, 0.9), generator=generator)
    sigma = torch.linalg.svdvals(weights[1])[:3]
    assert theory.balancedness(weights) < 1e-12 and 0.2 <= sigma.min() <= sigma.max() <= 0.9
    weights = networks.initial_weights("kaiming", [9, 5, 5, 3], singular_values=(0.2, 0.9), generator=generator)
    assert theory.balancedness(weights) > 0.1 and weights[0].abs().max() <= 1 / 3


def test_pauses_are_spread_from_the_first_epoch_to_the_last():
    assert setting.logarithmic(1000, 1) == [1000]
    assert setting.logarithmic(1000, 4) == [1, 10, 100, 1000]
    assert setting.logarithmic(3, 9) == [1, 2, 3]
    assert setting.late(1000, 1) == [1000]
    assert setting.late(1000, 6) == [1, 10, 100, 400, 700, 1000]
    assert setting.late(5, 3) == [1, 5] and setting.late(2, 2) == [1, 2]
    assert len(setting.late(10_000, 40)) >= 38 and sum(epoch > 1000 for epoch in setting.late(10_000, 40)) == 20


# What goes wrong


def test_a_run_that_diverges_is_recorded_as_diverged_and_drawn(tmp_path):
    figure = known()["linear2026.fig2a"]
    record = run(order(figure, "smoke", ["learning_rate=50"], tmp_path), known().values(), Context())
    assert record.arrays["diverged"].all() and np.isnan(record.arrays["sharpness"]).all()
    assert np.isnan(record.arrays["peak"]).all()
    assert record.claims[-2].verdict == "no" and "paper leaves open" in record.claims[-2].why


def test_tanh_networks_that_diverge_have_no_sharpness(tmp_path):
    figure = known()["linear2026.fig2c"]
    settings = ["learning_rate=1e30", "num_epochs=20", "starts=kaiming"]
    record = run(order(figure, "smoke", settings, tmp_path), known().values(), Context())
    assert record.arrays["diverged"].any() and np.isnan(record.arrays["sharpness"][record.arrays["diverged"]]).all()


@pytest.mark.parametrize("name", ["fig2a", "fig4"])
def test_a_run_that_was_stopped_goes_on_to_the_same_numbers(name, tmp_path, monkeypatch):
    figure = known()[f"linear2026.{name}"]
    config = figure.presets["smoke"]
    whole = figure.run(config, Context(folder=tmp_path / "whole"))
    module, count = (imbalance, [0]) if name == "fig2a" else (along_training, [0])
    real = module.top_eigenpairs

    def stopped(*arguments, **options):
        count[0] += 1
        if count[0] == 4:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(module, "top_eigenpairs", stopped)
    ticks = counting(0, 1000)  # seconds: the file is written at every pause
    monkeypatch.setattr("ritz.lab.training.run_file.monotonic", lambda: next(ticks))
    with pytest.raises(KeyboardInterrupt):
        figure.run(config, Context(folder=tmp_path / "parts"))
    assert list((tmp_path / "parts" / "training").glob("*.npz"))
    again = figure.run(config, Context(folder=tmp_path / "parts"))
    for key, array in whole.items():
        np.testing.assert_array_equal(array, again[key])


def test_what_is_done_is_not_done_again(tmp_path, monkeypatch):
    figure = known()["linear2026.fig2b"]
    context = Context(folder=tmp_path)
    first = figure.run(figure.presets["smoke"], context)
    monkeypatch.setattr(imbalance.data, "training_set", lambda *_: pytest.fail("read again"))
    again = figure.run(figure.presets["smoke"], context)
    np.testing.assert_array_equal(first["sharpness"], again["sharpness"])


@pytest.mark.parametrize("name", ["fig1c", "fig4"])
def test_a_training_without_pauses_is_refused_before_it_starts(name, tmp_path):
    with pytest.raises(ArgumentError, match="nothing to measure"):
        order(known()[f"linear2026.{name}"], "smoke", ["num_pauses=0"], tmp_path)


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
    figure = known()[f"linear2026.{name}"]
    with pytest.raises(ArgumentError):
        figure.run(replace(figure.presets["smoke"], **setting), Context())


def test_equal_whitenings_are_trained_once(generator, monkeypatch):
    X = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    sets = [(X, data.data.one_hot(torch.arange(40) % 10, 10, dtype=torch.float64))]
    config = imbalance.Config(alphas=(0.1,), width=4, num_epochs=5)
    group = [imbalance.Variant("qr", "balanced"), imbalance.Variant("rank", "balanced")]
    networks_seen = []
    real = imbalance.WhiteDescent
    monkeypatch.setattr(imbalance, "WhiteDescent", lambda s, p: networks_seen.append(len(s)) or real(s, p))
    found = imbalance._white(config, group, sets, None)
    assert networks_seen == [1] and found["sharpness"].shape == (2,)
    X[:, 2] = 0
    found = imbalance._white(config, group, [(X, sets[0][1])], None)
    assert networks_seen == [1, 2] and found["num_inputs"].tolist() == [6, 5]


def test_probes_differ_between_epochs_and_data_sets(generator, monkeypatch):
    X, Y = problem(generator, D=6, sigma_x=1.0)
    descent = networks.WhiteDescent([gaussian_weights(generator, 6, 4, 3)], [White.of(X, Y, 1.0)])
    values = set()
    for name, epoch, seed in [("mnist", 1, 0), ("mnist", 2, 0), ("cifar10", 1, 0), ("mnist", 1, 7), ("mnist", 1, 0)]:
        config = along_training.Config(data=(name,), depth=2, num_probes=3, seed=seed)
        values.add(along_training.traces(descent, descent.start, epoch, config)["measured"])
    assert len(values) == 4  # and the same where nothing differs


def test_along_training_the_loss_is_that_of_the_weights_that_are_measured():
    config = replace(known()["linear2026.fig4"].presets["smoke"], num_epochs=40, num_pauses=4)
    found = along_training.run_pairs(config, Context())
    longer = along_training.run_pairs(replace(config, num_epochs=41), Context())
    assert (np.diff(found["loss"]) < 0).all() and (found["loss"] > found["rest"]).all()
    assert longer["loss"][0, -1] < found["loss"][0, -1]


def test_a_run_along_which_training_diverges_has_gaps(tmp_path):
    figure = known()["linear2026.fig3"]
    record = run(order(figure, "smoke", ["learning_rate=50"], tmp_path), known().values(), Context())
    assert np.isnan(record.arrays["measured"][:, -1]).all() and record.arrays["epochs"].shape == (1, 5)
    assert record.claims[0].verdict == "no"


# The rules, on data that must give yes and on data that must give no


def curves(name, **changed):
    """A record of Fig. 1c or 2 in which everything is as the paper says, but for what is changed."""
    config = replace(known()[f"linear2026.{name}"].presets["paper"], data=TWO, alphas=ALPHAS)
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


def verdicts(name, record):
    known()[f"linear2026.{name}"].draw(record)
    claims = known()[f"linear2026.{name}"].judged(record)
    assert all(claim.why and "nan" not in claim.why for claim in claims if claim.verdict != "yes")
    return [claim.verdict for claim in claims]


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
    claims = known()["linear2026.fig1c"].judged(curves("fig1c", **changed))
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
    claims = known()["linear2026.fig2a"].judged(record)
    assert [claim.verdict for claim in claims] == ["no", "no", "no", "partly", "yes"]
    assert all("without CIFAR-10" in claim.why and "CIFAR-10" not in claim.measured for claim in (claims[0], claims[2]))
    assert "without CIFAR-10" in claims[1].why and claims[1].measured == pytest.approx(1)
    few = np.array([[False] * 5, [True, True, True, False, False]])[:, None]  # two points have no rank correlation
    record = curves("fig2a", sharpness=lambda s: np.where(few, np.nan, s))
    assert known()["linear2026.fig2a"].judged(record)[1].measured == pytest.approx(1)


def test_a_formula_that_is_far_too_large_breaks_down_as_one_that_is_far_too_small():
    for factor in (30, 1 / 30):  # relative to the sharpness, the errors are 0.97 and 29
        assert verdicts("fig2a", raw_curves(sharpness=lambda s, factor=factor: factor * s))[0] == "yes"


def test_a_peak_is_compared_with_that_on_white_inputs_and_not_with_the_prediction():
    record = raw_curves(peak=lambda p: 50 * p)
    assert known()["linear2026.fig2a"].judged(record)[2].measured == {"MNIST": 1.0, "CIFAR-10": 1.0}


@pytest.mark.parametrize("name, count", [("fig2b", 3), ("fig2c", 5)])
def test_figures_2b_and_2c_can_be_confirmed_and_refuted(name, count):
    assert verdicts(name, curves(name)) == ["yes"] * count
    assert verdicts(name, curves(name, sharpness=falling, **BAD)) == ["no"] * count


def test_a_tanh_network_is_judged_for_each_start():
    record = curves("fig2c", sharpness=lambda s: np.where(np.arange(2)[:, None] == 0, s, falling(s)))
    assert verdicts("fig2c", record) == ["yes", "yes", "no", "no", "yes"]


def test_figure_1a_can_be_refuted_in_every_point():
    config = closed_form.RandomConfig(depth=2, width=3)
    good = {"measured": np.r_[np.zeros(9), np.arange(1.0, 10)], "predicted": np.r_[np.zeros(9), np.arange(1.0, 10)]}
    good |= {"unequal": np.r_[np.zeros(10), np.ones(4)]}
    assert verdicts("fig1a", Record("", "", plain(config), {}, good)) == ["yes", "yes"]
    true = good | {"unequal": np.r_[np.zeros(4), np.ones(10)]}
    assert verdicts("fig1a", Record("", "", plain(config), {}, true)) == ["yes", "partly"]
    bad = true | {"measured": np.arange(1.0, 19)}
    assert verdicts("fig1a", Record("", "", plain(config), {}, bad)) == ["no", "no"]


def contour(**changed):
    config = closed_form.ContourConfig(alphas=ALPHAS, depths=(2, 4, 8), sizes=(10, 20), grid=5)
    sharpness = np.array([[networks.printed_sharpness(a, depth, 1.0) for a in ALPHAS] for depth in config.depths])
    norms = np.linspace(0.1, 1.2, 5)
    formula = np.array([[networks.printed_sharpness(s**2, depth, 1.0) for s in norms] for depth in config.depths])
    arrays = {"norms": norms, "formula": formula, "shares": np.array(ALPHAS), "sharpness": sharpness}
    arrays |= {"by_size": np.array([2.0, 2.0])}
    return Record("", "", plain(config), {}, arrays | changed)


def test_figure_1b_can_be_refuted_in_every_point():
    assert verdicts("fig1b", contour()) == ["yes"] * 4
    flat = np.array([[5.0, 4, 3, 2, 9], [5, 4, 3, 2, 8], [5, 4, 3, 2, 6]])
    assert verdicts("fig1b", contour(sharpness=flat, by_size=np.array([2.0, 2.5]))) == ["no"] * 4


def along(name, **changed):
    config = replace(known()[f"linear2026.{name}"].presets["paper"], data=TWO)
    epochs = np.tile([1.0, 10, 100, 1000, 10_000], (2, 1))
    arrays = {"epochs": epochs, "loss": 0.1 + 1 / epochs, "rest": 0 * epochs + 0.1, "learning_rate": 0 * epochs + 0.01}
    if name == "fig3":
        arrays |= {"measured": 300 + epochs**0, "printed": 300 * epochs**0, "error": epochs**0}
    else:
        top = np.tile(np.linspace(10, 9, 10), (2, 5, 1))
        arrays |= {"printed": top, "measured": top * (1 + 0.1 / epochs[..., None]), "num_nonzero": np.array([15])}
        arrays |= {"norms": np.full((2, 5, 2), 5**0.5), "error": 0 * top}
    return Record("", "", plain(config), {}, arrays | changed)


def test_figure_3_can_be_refuted_in_every_point():
    assert verdicts("fig3", along("fig3")) == ["yes"] * 3
    assert verdicts("fig3", along("fig3", measured=np.full((2, 5), 400.0))) == ["no"] * 3


def test_figure_4_can_be_refuted_in_every_point():
    assert verdicts("fig4", along("fig4")) == ["yes"] * 5
    rising = np.linspace(10, 9, 10) * (1 + 0.1 * np.arange(1, 6)[:, None])
    bad = along("fig4", measured=np.tile(rising, (2, 1, 1)), num_nonzero=np.array([36]), error=np.full((2, 5, 10), 0.5))
    assert verdicts("fig4", bad) == ["no"] * 5
