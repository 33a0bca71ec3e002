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
from ritz.experiments import Context, figures
from ritz.experiments.linear2026 import along_training, closed_form, data, imbalance, networks
from ritz.experiments.linear2026.data import White
from ritz.experiments.linear2026.judged import spearman
from ritz.experiments.results import order, run
from ritz.lab import models
from ritz.lab.train import HALVING
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
    if name in ("fig1a", "fig1b"):  # every assumption of the theory holds
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


def test_training_follows_the_rule_of_the_paper():
    assert (HALVING.window, HALVING.improvement, HALVING.factor) == (100, 1e-3, 0.5)


def test_the_exact_prediction_is_the_sharpness_of_a_balanced_minimum_with_a_loss(generator):
    X, Y = problem(generator, D=7, sigma_x=1.3)
    white = White.of(X, Y, 1.3)
    weights = theory.balanced_weights(white.T / 1.3, [5, 5])
    measured = torch.linalg.eigvalsh(dense_hessian(weights, X, Y))[-1]
    assert white.rest > 0.1
    assert networks.exact_sharpness(white, 3, 5) == pytest.approx(float(measured), rel=1e-10)


def test_the_printed_prediction_is_exact_at_zero_loss(generator):
    Y = closed_form._labels(4, 0.4, 30)
    X = data.white_inputs(torch.cat([Y, torch.randn(30, 2, generator=generator).double()], 1), 0.7, "qr")
    white = White.of(X, Y, 0.7)
    assert white.rest == pytest.approx(0, abs=1e-12)
    assert networks.exact_sharpness(white, 3, 6) == pytest.approx(networks.printed_sharpness(0.4, 3, 0.7), rel=1e-10)


def test_equation_7_is_the_trace_of_the_whole_hessian_at_any_loss(generator):
    X, Y = problem(generator)
    weights = gaussian_weights(generator, 9, 4, 5, 3)
    printed = networks.printed_trace(weights, 1.5)
    assert printed == pytest.approx(theory.linear_trace(weights, X), rel=1e-12)
    assert printed == pytest.approx(float(dense_hessian(weights, X, Y).trace()), rel=1e-12)


def test_equation_15_gives_the_top_of_the_closed_form(generator):
    W1, W2 = gaussian_weights(generator, 9, 5, 3)
    expected = theory.shallow_linear(W1, W2, 1.5).eigenvalues().flip(0)[:6]
    torch.testing.assert_close(networks.printed_pairs(W1, W2, 1.5, 6), expected)


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
    assert imbalance.logarithmic(1000, 1) == [1000]
    assert imbalance.logarithmic(1000, 4) == [1, 10, 100, 1000]
    assert imbalance.logarithmic(3, 9) == [1, 2, 3]


# What goes wrong


def test_a_run_that_diverges_is_recorded_as_diverged_and_drawn(tmp_path):
    figure = known()["linear2026.fig2a"]
    record = run(order(figure, "smoke", ["learning_rate=50"], tmp_path), known().values(), Context())
    assert record.arrays["diverged"].all() and np.isnan(record.arrays["sharpness"]).all()
    assert np.isnan(record.arrays["peak"]).all()
    assert record.claims[-1].verdict == "no" and "paper leaves open" in record.claims[-1].why


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
    monkeypatch.setattr("ritz.lab.train.pauses.monotonic", lambda: next(ticks))
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
        "along": sharpness[:, :, None], "loss": 0 * sharpness, "diverged": np.zeros(shape, bool),
        "num_inputs": np.full(shape, 784),
    }  # fmt: skip
    arrays |= {key: np.broadcast_to(change(arrays[key]), arrays[key].shape) for key, change in changed.items()}
    return Record("", "", plain(config), {}, arrays)


def verdicts(name, record):
    known()[f"linear2026.{name}"].draw(record)
    return [claim.verdict for claim in known()[f"linear2026.{name}"].claims(record)]


def falling(sharpness):
    return 20 * sharpness[..., ::-1] * np.array([1.0, 2.0])[:, None, None]  # and different between the data sets


def test_figure_1c_as_the_paper_has_it():
    assert verdicts("fig1c", curves("fig1c")) == ["yes"] * 7


def test_figure_1c_can_be_refuted_in_every_point():
    two = np.array([1.0, 3.0])[:, None]
    record = curves("fig1c", sharpness=lambda s: falling(s) * two, num_inputs=lambda n: n - np.array([0, 131])[:, None])
    assert verdicts("fig1c", record) == ["no"] * 7


def test_figure_1c_is_refuted_by_a_network_that_diverged():
    record = curves("fig1c", sharpness=lambda s: np.where(np.arange(5) == 2, np.nan, s))
    assert verdicts("fig1c", record)[1:4] == ["no", "no", "no"]


def test_figure_2a_as_the_paper_has_it():
    record = curves("fig2a", sharpness=lambda s: 30 * s[..., [1, 3, 0, 4, 2]], peak=lambda p: 50 * p)
    assert verdicts("fig2a", record) == ["yes"] * 4


def test_figure_2a_can_be_refuted_in_every_point():
    assert verdicts("fig2a", curves("fig2a", diverged=lambda d: ~d)) == ["no"] * 4
    one = curves("fig2a", diverged=lambda d: d | np.array([False, True])[:, None, None])
    assert verdicts("fig2a", one)[-1] == "partly"


@pytest.mark.parametrize("name, count", [("fig2b", 2), ("fig2c", 4)])
def test_figures_2b_and_2c_can_be_confirmed_and_refuted(name, count):
    assert verdicts(name, curves(name)) == ["yes"] * count
    assert verdicts(name, curves(name, sharpness=falling)) == ["no"] * count


def test_a_tanh_network_is_judged_for_each_start():
    record = curves("fig2c", sharpness=lambda s: np.where(np.arange(2)[:, None] == 0, s, falling(s)))
    assert verdicts("fig2c", record) == ["yes", "yes", "no", "no"]


def test_figure_1a_can_be_refuted_in_every_point():
    config = closed_form.RandomConfig(depth=2, width=3)
    good = {"measured": np.r_[np.zeros(9), np.arange(1.0, 10)], "predicted": np.r_[np.zeros(9), np.arange(1.0, 10)]}
    assert verdicts("fig1a", Record("", "", plain(config), {}, good)) == ["yes", "yes"]
    bad = good | {"measured": np.arange(1.0, 19)}
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
    arrays = {"epochs": epochs, "loss": 1 / epochs}
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
    assert verdicts("fig4", along("fig4")) == ["yes"] * 4
    rising = np.linspace(10, 9, 10) * (1 + 0.1 * np.arange(1, 6)[:, None])
    bad = along("fig4", measured=np.tile(rising, (2, 1, 1)), num_nonzero=np.array([36]))
    assert verdicts("fig4", bad) == ["no"] * 4


def test_rank_correlation_leaves_out_what_is_no_number_and_says_so_where_too_little_is_left():
    x = np.arange(5.0)
    assert spearman(x, np.array([1.0, np.nan, 7, 8, 90])) == pytest.approx(1)
    assert spearman(x, -(x**3)) == pytest.approx(-1)
    assert np.isnan(spearman(x, np.array([1, 2, np.nan, np.nan, np.nan])))
    assert spearman(x, 0 * x) == 0.0
    assert spearman(x, np.array([2.0, 1, 3, 4, 5])) == pytest.approx(0.9)
