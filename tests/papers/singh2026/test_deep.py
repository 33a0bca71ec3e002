"""Figs. 17-22: how deep networks are trained, and rules that say no."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ritz.lab import ensemble
from ritz.papers.singh2026 import deep, trained_networks
from ritz.risk.losses import SquaredError

from .records import FIGURES, ended, of_all_readings, verdicts


def deepest(preset, name):
    return deep.point_of(preset, "own", name, max(preset.depths))


@pytest.mark.parametrize("name", trained_networks.NAMES)
@pytest.mark.parametrize("number", [17, 21])
def test_the_papers_stop_rule_does_not_fire_on_the_plateau_that_deep_networks_start_from(number, name):
    point = deepest(FIGURES[f"singh2026.fig{number}"].presets["paper"], name)
    few = replace(point, training=replace(point.training, networks=3, epochs=point.training.window + 1))
    generator = torch.Generator().manual_seed(1)
    examples = trained_networks.regression_examples(few, generator)
    stack, recipe = trained_networks.initial_networks(few, generator)
    start = ensemble.losses(stack, SquaredError(), examples, each=True)
    end = trained_networks.train(few, stack, examples, recipe, generator)
    assert (end.loss <= (1 - 10 * point.training.improvement) * start).all()  # far from firing
    assert not end.done.any() and not end.diverged.any()


def test_the_slow_rate_is_that_of_deep_networks_with_one_input():
    papers = {number: FIGURES[f"singh2026.fig{number}"].presets["paper"] for number in (17, 18, 21)}
    rates = {
        (number, name): deepest(papers[number], name).training.learning_rate
        for number in papers
        for name in ("SP", "NTP")
    }
    assert rates.pop((17, "SP")) == rates.pop((21, "SP")) == 1e-3
    assert set(rates.values()) == {1e-2}
    assert deep.point_of(papers[17], "own", "SP", 2).training.learning_rate == 1e-2


def deep_record(figure, last, other, weights, frobenius=0.0):
    """Networks of two and three layers: what Ŵ_B has after training, and what the others have."""
    products = np.full((3, 2, 2, 3, 3), np.nan)
    products[:, 0, :, :2], products[:, 1] = other, other
    products[:, 0, 1, 1], products[:, 1, 1, 2] = last, last
    single = np.full((3, 2, 2, 3, 3), np.nan)
    single[:, 0, :, :2], single[:, 1] = weights, weights
    single[..., 1] = np.where(np.isnan(single[..., 1]), np.nan, frobenius)
    return of_all_readings(figure, ended(3, 2) | {"products": products, "weights": single})


@pytest.mark.parametrize("number", range(17, 23))
def test_claims_about_deep_networks_hold_where_the_product_without_the_last_matrix_leads(number):
    figure = FIGURES[f"singh2026.fig{number}"]
    assert set(verdicts(figure, deep_record(figure, 0.9, 0.3, 0.2, frobenius=0.8)).values()) == {"yes"}


@pytest.mark.parametrize("number", range(17, 23))
def test_claims_about_deep_networks_are_refused_where_it_does_not(number):
    figure = FIGURES[f"singh2026.fig{number}"]
    claims = figure.claims(deep_record(figure, 0.0, 0.3, 0.3, frobenius=0.1))
    assert {claim.verdict for claim in claims} == {"no"}
    assert all(claim.why for claim in claims)


def test_one_parametrisation_in_which_the_product_does_not_correlate_is_enough_for_a_no():
    for number in (17, 18):
        figure = FIGURES[f"singh2026.fig{number}"]
        record = deep_record(figure, 0.9, 0.3, 0.2)
        record.arrays["products"][0, 0, 1, 1, 2] = 0.1
        found = verdicts(figure, record)
        assert [verdict for statement, verdict in found.items() if "model parametrizations" in statement] == ["no"]


def test_a_coefficient_that_stays_is_not_higher_near_convergence():
    figure = FIGURES["singh2026.fig17"]
    record = deep_record(figure, 0.9, 0.3, 0.2)
    record.arrays["products"][:, :, :, 0] = record.arrays["products"][:, :, :, 1] + 0.01
    assert [verdict for name, verdict in verdicts(figure, record).items() if "near convergence" in name] == ["no"]


def test_norms_are_compared_for_each_hidden_matrix_and_not_between_the_largest():
    figure = FIGURES["singh2026.fig22"]
    record = deep_record(figure, 0.9, 0.3, 0.5, frobenius=0.2)
    record.arrays["weights"][:, :, :, :, 0] = 0.9  # vectors, whose norms are one, correlate most
    assert set(verdicts(figure, record).values()) == {"no"}
    record.arrays["weights"][:, :, 1, 1, 1, 1] = 0.8
    assert set(verdicts(figure, record).values()) == {"yes"}
