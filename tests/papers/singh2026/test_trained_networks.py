"""Networks in three parametrisations: what is measured of them, and how their training ends."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ritz import theory
from ritz.lab import data, ensemble
from ritz.papers.singh2026 import trained_networks
from ritz.risk.losses import SquaredError

CPU = torch.device("cpu")


@pytest.fixture
def point():
    few = trained_networks.Training(
        networks=4, examples=30, batch_size=16, window=2, improvement=1e-2, epochs=3, data_of="shared"
    )
    return trained_networks.NetworkPoint("NTP", (2, 5, 2), "linear", few)


def trained_as(point, **settings):
    return replace(point, training=replace(point.training, **settings))


@pytest.mark.parametrize("name", trained_networks.NAMES)
def test_traces_of_linear_networks_are_those_that_are_measured(name, point, generator):
    point = replace(point, parametrization=name, widths=(2, 4, 4, 3))
    examples = trained_networks.regression_examples(point, generator)
    stack, recipe = trained_networks.initial_networks(point, generator)
    stack, x, y = stack.to(torch.float64), examples.x.double(), examples.y.double()
    found = theory.linear_trace(stack.matrices, x, multipliers=recipe.multipliers)
    torch.testing.assert_close(found, ensemble.trace(stack, SquaredError(), (x, y)).values)


def diagonal_blocks(W, V, multipliers, x, y):
    """The blocks of the Hessian for one layer each, whole, by automatic differentiation."""

    def loss(W, V):
        return ((x @ (multipliers[0] * W).T @ (multipliers[1] * V).T - y) ** 2).sum() / (2 * len(x))

    for layer, weight in enumerate((W, V)):
        H = torch.func.jacfwd(torch.func.grad(loss, argnums=layer), argnums=layer)(W, V)
        yield H.reshape(weight.numel(), weight.numel())


@pytest.mark.parametrize("name", trained_networks.NAMES)
@pytest.mark.parametrize("widths", [(3, 5, 4), (4, 3, 2)])
def test_the_bound_is_the_largest_eigenvalue_of_the_diagonal_blocks(name, widths, point, generator):
    point = replace(point, parametrization=name, widths=widths)
    examples = trained_networks.regression_examples(point, generator)
    stack, recipe = trained_networks.initial_networks(point, generator)
    stack, x, y = stack.to(torch.float64), examples.x.double() * torch.linspace(1, 2, widths[0]), examples.y.double()
    found = theory.sharpness_bound(stack.matrices, x, multipliers=recipe.multipliers)
    for W, V, bound, top in zip(*stack.matrices, found, ensemble.spectra(stack, SquaredError(), (x, y))[:, -1]):
        blocks = diagonal_blocks(W, V, recipe.multipliers, x, y)
        assert float(bound) == pytest.approx(max(float(torch.linalg.eigvalsh(H)[-1]) for H in blocks))
        assert top >= bound * (1 - 1e-12)


def test_the_bound_for_white_inputs_is_the_one_of_the_paper(generator):
    W, V = torch.randn(3, 5, 4, generator=generator).double(), torch.randn(3, 2, 5, generator=generator).double()
    white = data.decorrelated(30, 4, generator=generator, dtype=torch.float64).x
    found = theory.sharpness_bound([W, V], white)
    expected = torch.maximum(ensemble.norms(W).spectral, ensemble.norms(V).spectral) ** 2
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("activation", ["linear", "relu"])
@pytest.mark.parametrize("name", trained_networks.NAMES)
def test_training_lowers_the_loss_of_every_network(activation, name, point):
    settings = {"epochs": 60, "window": 30, "data_of": "shared" if name == "NTP" else "own"}
    point = trained_as(replace(point, activation=activation, parametrization=name), **settings)
    found = trained_networks.measurements(point, CPU)
    assert (found["losses"][1] < found["losses"][0]).all()
    assert found["sharpness"].shape == (2, 4) and found["norms"].shape == (2, 2, 3, 4)
    assert found["sharpness"].isfinite().all()


@pytest.mark.parametrize("activation", ["linear", "relu"])
def test_the_three_ends_of_training_are_told_apart(activation, point):
    point = replace(point, activation=activation)
    ended = trained_networks.measurements(trained_as(point, window=1, improvement=0.99, epochs=50), CPU)
    assert ended["finished"].all() and not ended["diverged"].any() and ended["epochs"] < 50
    cut = trained_networks.measurements(trained_as(point, window=50), CPU)
    assert not cut["finished"].any() and not cut["diverged"].any() and cut["epochs"] == 3
    lost = trained_networks.measurements(trained_as(point, learning_rate=1e3, epochs=40, window=50), CPU)
    assert lost["diverged"].all() and not lost["finished"].any()
    assert lost["sharpness"][0].isfinite().all() and lost["sharpness"][1].isnan().all()
    assert lost["losses"][1].isnan().all()


def test_an_eigenvalue_that_was_not_found_is_none(point, monkeypatch):
    def one_missed(networks, *_, **__):
        values = torch.arange(1.0, 5.0, dtype=torch.float64)[:, None]
        return ensemble.Top(values, values, torch.tensor([True, False, True, True]), 1)

    monkeypatch.setattr(trained_networks.ensemble, "sharpness", one_missed)
    found = trained_networks.measurements(point, CPU)
    assert found["sharpness"].isnan().tolist() == [[False, True, False, False]] * 2
    ending = trained_networks.ending(found)
    assert ending["used"].tolist() == [3, 3] and ending["lost"].tolist() == [0.25, 0.25]


def test_products_of_two_layers_are_the_layers(point):
    found = trained_networks.measurements(point, CPU)
    generator = torch.Generator().manual_seed(0)
    weights = trained_networks.initial_networks(point, generator)[0].to(torch.float64).matrices
    expected = [trained_networks.norms(theory.product_without(weights, left)) for left in range(2)]
    torch.testing.assert_close(found["products"][0], torch.stack(expected))


@pytest.mark.parametrize("data_of", ["own", "shared"])
def test_sharpness_is_measured_on_all_examples_though_linear_networks_see_few(point, data_of):
    point = trained_as(point, data_of=data_of)
    found = trained_networks.measurements(point, CPU)
    generator = torch.Generator().manual_seed(point.training.seed)
    stack = trained_networks.initial_networks(point, generator)[0].to(torch.float64)
    examples = trained_networks.regression_examples(point, generator)
    both = examples.x.double(), examples.y.double()
    expected = ensemble.spectra(stack, SquaredError(), both, each=point.training.each)
    torch.testing.assert_close(found["sharpness"][0], expected[:, -1])


def test_standard_weights_are_those_that_pytorch_draws(generator):
    drawn = trained_networks.pytorch_default((400, 300, 1), generator=generator).weights[0]
    layer = torch.nn.Linear(400, 300, bias=False)
    assert float(drawn.abs().max()) <= 400**-0.5
    assert float(drawn.std()) == pytest.approx(float(layer.weight.detach().std()), rel=0.02)


def test_correlations_are_taken_over_the_networks_stage_by_stage():
    x = torch.tensor([[1.0, 2.0, 3.0, 5.0], [1.0, 2.0, 3.0, 5.0]])
    quantities = torch.stack([torch.stack([2 * x[0], -x[0]]), torch.stack([x[0] ** 0, x[0].flip(0)])])
    found = trained_networks.coefficients(x, quantities)
    assert found.shape == (2, 2)
    assert found[0].tolist() == pytest.approx([1.0, -1.0])
    assert found[1, 1] == pytest.approx(np.corrcoef([1, 2, 3, 5], [5, 3, 2, 1])[0, 1])
