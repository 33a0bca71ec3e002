"""Figs. 4, 14-16 and 26: rules that say no, and points that were cut off."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ritz import Risk, SquaredError
from ritz.operators import functional_hessian
from ritz.papers.singh2026 import correlations, network_readings, trained_networks

from .records import FIGURES, ended, of_all_readings, verdicts


def sweep_record(figure, **changes):
    """Correlations as the paper has them, unless changed: norms are parametrisation × size × stage × layer × norm."""
    config = figure.presets["smoke"]
    norms = np.empty((3, len(config.sizes), 2, 2, 3))
    norms[:, :, 0] = np.array([[0.45, 0.1, 0.1], [0.05, 0.05, 0.05]])
    norms[:, :, 1] = np.array([[0.9, 0.5, 0.4], [0.3, 0.2, 0.1]])
    norms[0, :, 1] = norms[0, :, 1, ::-1].copy()  # in SP the second matrix leads
    norms[1, :, 1, :, 0] = 0.9  # in NTP both correlate
    norms[1, :, 1, 1, 0] = 0.78  # the first somewhat more
    trace = np.zeros_like(norms) + np.array([0.8, 0.95, 0.8])
    arrays = ended(3, len(config.sizes)) | {
        "norms": norms,
        "trace_norms": trace,
        "alignments": np.full((3, len(config.sizes), 2, 3), 0.8),
        "above": np.ones((3, len(config.sizes), 2)),
        "trace_error": np.zeros((3, len(config.sizes), 2)),
        "difference": np.zeros((3, len(config.sizes), 2)),
        "width_norms": norms[:, :1],
    }
    return of_all_readings(figure, arrays | changes)


LINEAR = ("4", "14", "15", "26")
UNTRAINED = ("initializ", "across … widths", "lower-bounded")  # what does not tell how training ended


@pytest.mark.parametrize("number", LINEAR)
def test_claims_about_correlations_hold_where_they_are_as_the_paper_says(number):
    figure = FIGURES[f"singh2026.fig{number}"]
    assert set(verdicts(figure, sweep_record(figure)).values()) == {"yes"}


@pytest.mark.parametrize("number", LINEAR)
def test_claims_about_correlations_are_refused_where_they_are_the_opposite(number):
    figure = FIGURES[f"singh2026.fig{number}"]
    good = {name: array if name == "width_norms" else array[0] for name, array in sweep_record(figure).arrays.items()}
    norms = np.empty_like(good["norms"])
    norms[:, :, 0] = np.array([[0.1, 0.1, 0.1], [0.9, 0.9, 0.9]])
    norms[:, :, 1] = np.array([[0.1, 0.3, 0.2], [0.05, 0.3, 0.2]])
    changes = {
        "norms": norms,
        "trace_norms": good["trace_norms"][..., [1, 0, 2]] - 0.8,
        "alignments": 0 * good["alignments"],
        "above": 0.5 * good["above"],
        "trace_error": 1 + good["trace_error"],
        "difference": 1 + good["difference"],
        "width_norms": 0 * good["width_norms"],
    }
    claims = figure.claims(sweep_record(figure, **changes))
    assert {claim.verdict for claim in claims} == {"no"}
    assert all(claim.why for claim in claims)


def test_claims_about_relu_correlations_can_hold_and_be_refused():
    figure = FIGURES["singh2026.fig16"]
    norms = np.zeros((3, 3, 2, 2, 3)) + np.array([0.5, 0.8, 0.6])
    assert set(verdicts(figure, of_all_readings(figure, ended(3, 3) | {"norms": norms})).values()) == {"yes"}
    other = norms[..., [1, 0, 2]] + 0.15
    assert set(verdicts(figure, of_all_readings(figure, ended(3, 3) | {"norms": other})).values()) == {"no"}


def test_an_interval_is_judged_by_all_sizes_and_not_by_the_middle_one():
    figure = FIGURES["singh2026.fig16"]
    norms = np.zeros((3, 3, 2, 2, 3)) + np.array([0.5, 0.8, 0.6])
    norms[:, 0, 1, 0, 0], norms[:, 2, 1, 0, 0] = 0.1, 0.95
    found = verdicts(figure, of_all_readings(figure, ended(3, 3) | {"norms": norms}))
    assert found[named(found, "between 0.25 and 0.75")] == "no"


def test_a_strong_correlation_is_judged_where_it_is_weakest():
    figure = FIGURES["singh2026.fig4"]
    norms = sweep_record(figure).arrays["norms"][0]
    norms[:, -1, 1] = 0.3
    found = verdicts(figure, sweep_record(figure, norms=norms))
    assert found[named(found, "Strong correlation")] == "no"


@pytest.mark.parametrize("leader", [0, 1])
def test_a_matrix_that_leads_in_all_parametrisations_does_not_depend_on_them(leader):
    figure = FIGURES["singh2026.fig4"]
    norms = sweep_record(figure).arrays["norms"][0]
    norms[:, :, 1, leader, 0], norms[:, :, 1, 1 - leader, 0] = 0.9, np.array([0.1, 0.8, 0.5])[:, None]
    found = verdicts(figure, sweep_record(figure, norms=norms))
    assert found[named(found, "Which matrix drives")] == "no"


def test_one_wrong_trace_of_many_is_not_hidden():
    point = trained_networks.NetworkPoint("SP", (2, 5, 2), "linear")
    norms = torch.ones(2, 2, 3, 9, dtype=torch.float64)
    trace = torch.full((2, 9), 4.0, dtype=torch.float64)
    assert correlations.trace_error(point, trace, norms).tolist() == [0, 0]
    trace[1, 3], trace[1, 4] = 8.0, torch.nan
    assert correlations.trace_error(point, trace, norms).tolist() == [0, 1]
    assert correlations.trace_error(point, trace * torch.nan, norms).isnan().all()
    assert correlations.trace_error(replace(point, parametrization="NTP"), trace, norms).isnan().all()


def test_networks_without_an_eigenvalue_are_neither_above_nor_below_the_bound():
    point = trained_networks.NetworkPoint("SP", (2, 5, 2), "linear")
    sharpness, norms = torch.tensor([[1.0, 3.0, torch.nan], [torch.nan] * 3]), torch.full((2, 2, 3, 3), 2.0)
    found = correlations.share_above(point, sharpness, norms)
    assert found[0] == 0.5 and found[1].isnan()
    assert correlations.share_above(replace(point, parametrization="NTP"), sharpness, norms).isnan().all()


def test_the_first_reading_is_judged_and_the_others_stand_beside_it():
    figure = FIGURES["singh2026.fig4"]
    record = sweep_record(figure)
    record.arrays["norms"][1, :, :, 1] = 0.1  # with shared data nothing correlates
    claim = figure.claims(record)[1]
    words = [reading.words for reading in network_readings.LINEAR]
    assert claim.verdict == "yes" and claim.reading == words[0] and list(claim.beside) == words[1:]
    assert [one["verdict"] for one in claim.beside.values()] == ["no", "yes", "yes", "yes"]


@pytest.mark.parametrize("number", [4, 17])
def test_points_that_were_cut_off_are_marked_and_told(number, computed):
    figure = FIGURES[f"singh2026.fig{number}"]
    record = computed(figure)
    for finished, said in ((1.0, False), (0.5, True)):
        arrays = record.arrays | {"finished": np.full_like(record.arrays["finished"], finished)}
        changed = replace(record, arrays=arrays)
        titles = [ax.get_title(loc="left") for ax in figure.draw(changed).axes]
        assert any("not finished in 3 epochs" in title for title in titles) == said
        claims = [claim for claim in figure.claims(changed) if not any(word in claim.statement for word in UNTRAINED)]
        assert all(("Not finished after 3 epochs" in claim.why) == said for claim in claims)


def test_hollow_points_are_those_that_were_cut_off(computed):
    figure = FIGURES["singh2026.fig14"]
    record = computed(figure)
    finished = np.ones_like(record.arrays["finished"])
    finished[0, 1, 2] = 0.5
    before, after, _ = figure.draw(replace(record, arrays=record.arrays | {"finished": finished})).axes
    assert not any(len(line.get_xdata()) for line in before.lines if line.get_markerfacecolor() == "w")
    hollow = [line.get_xdata().tolist() for line in after.lines if line.get_markerfacecolor() == "w"]
    assert hollow == [[record.config["sizes"][2]]] * 6


def test_nan_supports_no_statement_on_correlations():
    figure = FIGURES["singh2026.fig4"]
    lost = np.full((3, 3, 2, 2, 3), np.nan)
    found = verdicts(figure, sweep_record(figure, norms=lost, width_norms=lost[:, :1]))
    others = [named(found, "lower-bounded"), named(found, "well-approximated")]
    assert {found.pop(name) for name in others} == {"yes"} and set(found.values()) == {"no"}


def named(found, words):
    """The statement that has these words."""
    return next(statement for statement in found if words in statement)


def test_networks_have_the_same_start_in_every_reading(point):
    """Only what is read differs: where nothing does, it is one point and computed once."""
    points = {reading.value: network_readings.read(point, reading.value) for reading in network_readings.LINEAR}
    starts = [trained_networks.measurements(one, torch.device("cpu"))["norms"][0] for one in points.values()]
    assert all(torch.equal(start, starts[0]) for start in starts)
    assert points["printed-rates"] == points["own"] and len(set(points.values())) == 4
    largest = network_readings.read(replace(point, parametrization="μP", widths=(10, 5, 10)), "printed-rates")
    assert largest.training.learning_rate == 1.0
    recipe = trained_networks.initial_networks(largest, torch.Generator())[1]
    assert trained_networks.layer_rates(largest, recipe) == [0.1, 0.2]


@pytest.fixture
def point():
    few = trained_networks.Training(networks=3, examples=20, batch_size=10, window=1, epochs=1)
    return trained_networks.NetworkPoint("SP", (2, 4, 2), "linear", few)


@pytest.mark.parametrize("reading", ["own", "shared", "own-unit"])
def test_networks_learn_what_their_reading_says(point, reading):
    several = network_readings.read(replace(point, training=replace(point.training, networks=60)), reading)
    x, y = trained_networks.regression_examples(several, torch.Generator().manual_seed(0))
    own = reading != "shared"
    assert x.shape == ((60, 20, 2) if own else (20, 2)) and (not own or not torch.equal(x[0], x[1]))
    if own:
        power = float(y.square().mean()) - 0.01
        assert power == pytest.approx(2.0 if reading == "own-unit" else 1.0, rel=0.25)  # E|Wx|²/K = D Var W


def test_a_single_layer_teacher_is_one_of_relu_units(point):
    relu = replace(point, activation="relu", training=replace(point.training, noise=0.0, networks=200))
    _, y = trained_networks.regression_examples(relu, torch.Generator().manual_seed(0))
    assert bool((y >= 0).all()) and float((y == 0).float().mean()) == pytest.approx(0.5, abs=0.1)
    assert float(y.square().mean()) == pytest.approx(1.0, rel=0.2)


def test_the_difference_of_hessian_and_gauss_newton_is_that_of_dense_matrices(generator):
    W, V = torch.randn(2, 4, 3, generator=generator).double(), torch.randn(2, 2, 4, generator=generator).double()
    x, y = torch.randn(2, 9, 3, generator=generator).double(), torch.randn(2, 9, 2, generator=generator).double()
    found = trained_networks.functional_norm([W, V], x, y, multipliers=[0.5, 2.0])
    for i in range(2):
        network = torch.nn.Sequential(torch.nn.Linear(3, 4, bias=False), torch.nn.Linear(4, 2, bias=False)).double()
        with torch.no_grad():
            network[0].weight.copy_(0.5 * W[i]), network[1].weight.copy_(2.0 * V[i])
        E = functional_hessian(Risk(network, SquaredError(), (x[i], y[i]))).dense()
        scales = torch.cat([torch.full((12,), 0.5), torch.full((8,), 2.0)]).double()  # weights of layers m₁W, m₂V
        expected = torch.linalg.matrix_norm(scales[:, None] * E * scales, 2)
        assert float(found[i]) == pytest.approx(float(expected))
