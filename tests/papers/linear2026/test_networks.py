"""Linear networks at the cost of their outputs, against plain ones."""

import pytest
import torch
from torch.func import grad

from ritz import theory
from ritz.lab import models
from ritz.lab.training import HALVING
from ritz.papers.linear2026 import closed_form, data, networks
from ritz.papers.linear2026.data import White
from tests.papers.linear2026.problems import dense_hessian, gaussian_weights, loss_of, problem


def test_a_chain_has_the_hessian_of_its_layers(generator):
    X, Y = problem(generator)
    weights = gaussian_weights(generator, 9, 4, 5, 3)
    top = networks.top_eigenpairs(networks.Chain(weights), (X, Y), 5)
    torch.testing.assert_close(top.values, torch.linalg.eigvalsh(dense_hessian(weights, X, Y))[-5:].flip(0))
    model = models.linear_network([9, 4, 5, 3], generator=generator, parametrization=weights, dtype=torch.float64)
    torch.testing.assert_close(networks.Chain(weights)(X), model(X))


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
    small, white = descent.reduction(descent.start, 0, k)
    assert small[0].shape[1] == min(D, 5 + 3 + k)
    few, all_of_them = (torch.linalg.eigvalsh(dense_hessian(*one)).flip(0)[:k] for one in (
        (small, *white.examples()), (weights, X, Y)))  # fmt: skip
    torch.testing.assert_close(few, all_of_them)


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
    Y = closed_form.one_hot_labels(4, 0.4, 30)
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


def test_balanced_networks_start_balanced_and_the_others_do_not(generator):
    weights = networks.initial_weights("balanced", [9, 5, 5, 3], singular_values=(0.2, 0.9), generator=generator)
    sigma = torch.linalg.svdvals(weights[1])[:3]
    assert theory.balancedness(weights) < 1e-12 and 0.2 <= sigma.min() <= sigma.max() <= 0.9
    weights = networks.initial_weights("kaiming", [9, 5, 5, 3], singular_values=(0.2, 0.9), generator=generator)
    assert theory.balancedness(weights) > 0.1 and weights[0].abs().max() <= 1 / 3
