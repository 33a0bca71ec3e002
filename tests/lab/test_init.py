"""Initial weights are what their names say, and parametrisations keep what they promise as networks widen."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from ritz import theory
from ritz.errors import ArgumentError, ModelError
from ritz.lab import init, models
from tests.seeds import seeded

WIDTHS = st.lists(st.integers(1, 6), min_size=2, max_size=5)
RECIPES = {"standard": init.standard, "neural tangent": init.neural_tangent, "maximal update": init.maximal_update}
every_recipe = pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES.keys())


def eye(n):
    return torch.eye(n, dtype=torch.float64)


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 1000))
def test_an_orthogonal_matrix_has_orthonormal_rows_or_columns(rows, columns, seed):
    Q = init.orthogonal(rows, columns, generator=seeded(seed), gain=3.0) / 3
    assert Q.shape == (rows, columns)
    assert_close(Q.T @ Q if rows >= columns else Q @ Q.T, eye(min(rows, columns)))


def test_orthogonal_matrices_are_uniform_over_both_signs_of_every_column():
    generator = seeded()
    draws = torch.stack([init.orthogonal(3, 2, generator=generator) for _ in range(2000)])
    assert float((draws.mean(0) / (1 / 3 / 2000) ** 0.5).abs().max()) < 4  # each entry has mean 0 and variance 1/3


def test_kaiming_uniform_fills_the_interval_that_pytorch_fills():
    W = init.kaiming_uniform(200, 50, generator=seeded())
    theirs = nn.Linear(50, 200).weight.detach().abs().max()
    assert float(W.abs().max()) <= 50**-0.5 and abs(float(W.abs().max() - theirs)) < 1e-3
    assert float(W.var() * 150) == pytest.approx(1, abs=4 * (0.8 / 10_000) ** 0.5)  # a uniform square varies by 4/5


@settings(deadline=None)
@given(WIDTHS, st.integers(0, 1000))
def test_balanced_weights_are_balanced_with_the_given_singular_values(widths, seed):
    S = torch.rand(min(widths), generator=seeded(seed), dtype=torch.float64) + 0.1
    weights = init.balanced(widths, S, generator=seeded(seed))
    assert [tuple(W.shape) for W in weights] == list(zip(widths[1:], widths[:-1], strict=True))
    assert theory.balancedness(weights) < 1e-13
    for W in weights:
        assert_close(torch.linalg.svdvals(W)[: len(S)], S.sort(descending=True).values)
        assert float(torch.linalg.svdvals(W)[len(S) :].sum()) < 1e-13
    product = weights[0]
    for W in weights[1:]:
        product = W @ product
    expected = S.sort(descending=True).values ** len(weights)
    assert_close(torch.linalg.svdvals(product)[: len(S)], expected)


def test_fewer_singular_values_than_widths_give_weights_of_that_rank():
    weights = init.balanced((5, 4, 6), [2.0, 1.0], generator=seeded())
    assert [int(torch.linalg.matrix_rank(W)) for W in weights] == [2, 2]
    assert theory.balancedness(weights) < 1e-14


@pytest.mark.parametrize("values", [[], [1.0] * 4, [-1.0], [float("nan")], [[1.0]]])
@pytest.mark.usefixtures("unchecked")
def test_singular_values_that_no_layer_can_have_are_refused(values):
    with pytest.raises(ArgumentError, match=r"singular.values"):
        init.balanced((4, 3, 5), values, generator=seeded())


@every_recipe
@pytest.mark.parametrize("widths", [(3,), (3, 0), (), (2, 2.5)])
@pytest.mark.usefixtures("unchecked")
def test_widths_of_no_network_are_refused(recipe, widths):
    with pytest.raises(ArgumentError, match="widths"):
        recipe(widths, generator=seeded())


WIDE = (300, 200, 400)
VARIANCES = {
    "standard": [1 / 300, 1 / 200],
    "neural tangent": [1.0, 1.0],
    "maximal update": [200 / 300 / 300, 1 / 200],
}
MULTIPLIERS = {
    "standard": [1.0, 1.0],
    "neural tangent": [300**-0.5, 200**-0.5],
    "maximal update": [1.0, 1.0],
}
RATES = {"standard": [0.1, 0.1], "neural tangent": [0.1, 0.1], "maximal update": [0.1 * 200 / 300, 0.1 * 400 / 200]}


@pytest.mark.parametrize("name", RECIPES)
def test_variances_multipliers_and_rates_are_those_of_the_parametrisation(name):
    found = RECIPES[name](WIDE, generator=seeded(), learning_rate=0.1)
    for W, variance in zip(found.weights, VARIANCES[name], strict=True):
        assert float(W.square().mean() / variance) == pytest.approx(1, abs=4 * (2 / W.numel()) ** 0.5)
    assert list(found.multipliers) == pytest.approx(MULTIPLIERS[name])
    assert list(found.learning_rates) == pytest.approx(RATES[name])


@every_recipe
def test_a_gain_scales_every_layer(recipe):
    plain, scaled = (recipe((4, 3, 2), generator=seeded(), gain=gain) for gain in (1.0, 2.5))
    for W, V, m, n in zip(plain.weights, scaled.weights, plain.multipliers, scaled.multipliers, strict=True):
        assert_close(2.5 * m * W, n * V)


def spectral_ratios(weights):
    """‖W_ℓ‖₂/√(n_ℓ/n_{ℓ-1}), which the spectral condition keeps constant."""
    return [float(torch.linalg.matrix_norm(W, 2)) * (W.shape[1] / W.shape[0]) ** 0.5 for W in weights]


def test_maximal_update_keeps_the_spectral_condition_at_every_width_and_the_printed_one_does_not():
    def ratios(width):
        found = init.maximal_update((10, width, width, 10), generator=seeded())
        return spectral_ratios(found.weights)

    for narrow, wide in zip(ratios(64), ratios(1024), strict=True):
        assert 0.7 < wide / narrow < 1.5 and 0.9 < wide < 2.2
    printed = spectral_ratios([torch.randn(n, n, generator=seeded(), dtype=torch.float64) for n in (64, 1024)])
    assert printed[1] / printed[0] == pytest.approx(4, rel=0.1)  # √(1024/64)


def feature_change(recipe, width, seed):
    """The root mean square of the change of the hidden features in one step of gradient descent."""
    generator, widths = seeded(seed), (8, width, width, 8)
    x, y = (torch.randn(32, 8, generator=generator, dtype=torch.float64) for _ in range(2))
    found = recipe(widths, generator=generator, learning_rate=0.1)
    model = models.linear_network(widths, generator=generator, parametrization=found, dtype=torch.float64)
    hidden = model[: 2 * len(model) // 3]  # with multipliers there are two modules for each layer
    before = hidden(x).detach()
    (model(x) - y).square().sum(1).mean().mul(0.5).backward()
    torch.optim.SGD(found.groups(model), lr=1.0).step()
    return float((hidden(x).detach() - before).square().mean().sqrt())


def test_one_step_changes_features_equally_at_every_width_under_maximal_update_alone():
    def growth(recipe):
        narrow, wide = (sum(feature_change(recipe, width, seed) for seed in range(4)) for width in (256, 1024))
        return wide / narrow

    assert growth(init.maximal_update) == pytest.approx(1, abs=0.2)
    assert growth(init.standard) == pytest.approx(2, abs=0.3)  # as the root of the width
    assert growth(init.neural_tangent) == pytest.approx(0.5, abs=0.1)  # lazy: as its inverse


def test_the_neural_tangent_parametrisation_trains_as_its_multiplied_weights_do_at_squared_rates():
    x = torch.randn(9, 3, generator=seeded(), dtype=torch.float64)
    found = init.neural_tangent((3, 5, 2), generator=seeded(), learning_rate=0.3)
    tangent = models.mlp(
        (3, 5, 2), generator=seeded(), activation="tanh", bias=False, parametrization=found, dtype=torch.float64
    )
    product = [m * W for m, W in zip(found.multipliers, found.weights, strict=True)]
    plain = models.mlp(
        (3, 5, 2), generator=seeded(), activation="tanh", bias=False, parametrization=product, dtype=torch.float64
    )
    rates = [0.3 * m**2 for m in found.multipliers]
    groups = [{"params": [p], "lr": rate} for p, rate in zip(plain.parameters(), rates, strict=True)]
    optimizers = [torch.optim.SGD(found.groups(tangent), lr=1.0), torch.optim.SGD(groups, lr=1.0)]
    for _ in range(5):
        for model, optimizer in zip((tangent, plain), optimizers, strict=True):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        assert_close(tangent(x), plain(x))


def test_groups_hold_every_parameter_once_and_refuse_another_network():
    found = init.maximal_update((4, 6, 3), generator=seeded())
    model = models.mlp((4, 6, 3), generator=seeded(), parametrization=found)
    groups = found.groups(model)
    assert [len(group["params"]) for group in groups] == [2, 2]
    assert [p for group in groups for p in group["params"]] == list(model.parameters())
    with pytest.raises(ModelError, match="linear layers"):
        found.groups(models.mlp((4, 5, 3), generator=seeded()))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_the_same_seed_gives_the_same_weights(seed):
    for recipe in RECIPES.values():
        first, second = (recipe((3, 4, 2), generator=seeded(seed)).weights for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
