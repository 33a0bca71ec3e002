"""Stacks of networks: what theory says of many at once is what it says of each, and what their whole Hessians say."""

from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

from ritz import theory
from ritz.errors import ArgumentError, NumericalError
from ritz.lab import data, ensemble, models
from ritz.risk.losses import SquaredError
from ritz.theory.arguments import stacked_on
from tests.seeds import normal

WIDTHS = [(1, 5, 1), (4, 5, 2), (3, 4, 4, 4, 1), (2, 3)]
NUMBERS = [theory.linear_trace, theory.spectral_norm_bound, theory.sharpness_bound]


def stacks(widths, count=3):
    return [normal(count, b, a, seed=a * b) for a, b in pairwise(widths)]


def networks(widths, activation, generator, count=3):
    options = {"activation": activation, "bias": False, "dtype": torch.float64}
    return ensemble.Ensemble.of([models.mlp(widths, generator=generator, **options) for _ in range(count)])


def own_data(widths, generator, count=3, examples=11):
    sets = [data.normalized(examples, widths[0], generator=generator, dtype=torch.float64) for _ in range(count)]
    return torch.stack([one.x for one in sets]), torch.stack([one.y for one in sets])


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_of_a_stack_are_those_of_each_network(widths, number):
    weights, X = stacks(widths), normal(3, 7, widths[0], seed=1)
    for each, shared in ((X, False), (X[0], True)):
        alone = [number([W[i] for W in weights], X[0] if shared else X[i]) for i in range(3)]
        assert_close(number(weights, each), torch.stack(alone), rtol=1e-13, atol=0)
    nested = number([W.unflatten(0, (1, 3)) for W in weights], X[None])
    assert_close(nested, number(weights, X)[None])


@pytest.mark.parametrize("widths", WIDTHS)
def test_balancedness_of_a_stack_is_that_of_each_network(widths):
    weights = stacks(widths)
    assert_close(
        theory.balancedness(weights), torch.stack([theory.balancedness(list(W)) for W in zip(*weights, strict=True)])
    )


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("number", NUMBERS)
def test_white_data_are_known_by_their_scale(widths, number):
    weights = stacks(widths)
    assert_close(number(weights, 1.5), number(weights, theory.whitened(normal(20, widths[0]), 1.5)))


@pytest.mark.parametrize("number", [theory.linear_trace, theory.sharpness_bound])
def test_multipliers_scale_each_layer_and_its_derivative(number):
    weights, X, scales = stacks((3, 4, 2)), normal(9, 3), (2.0, 0.5)
    scaled = number([m * W for m, W in zip(scales, weights, strict=True)], X)
    assert not torch.allclose(number(weights, X, multipliers=scales), scaled)
    assert_close(number(weights, X, multipliers=(2.0, 2.0)), 4 * number([2 * W for W in weights], X))


def test_a_network_that_diverged_has_nan_and_the_others_their_numbers():
    weights, X = stacks((3, 4, 2)), normal(9, 3)
    expected = {number: number(weights, X) for number in NUMBERS}
    weights[0][1, 0, 0] = torch.nan
    for number in NUMBERS:
        found = number(weights, X)
        assert found[1].isnan() and torch.equal(found[[0, 2]], expected[number][[0, 2]])
    assert theory.balancedness(weights).isnan().tolist() == [False, True, False]


@pytest.mark.usefixtures("unchecked")
def test_stacks_that_do_not_fit_are_refused():
    with pytest.raises(ArgumentError, match=r"W2 .* follows W1"):
        theory.linear_trace([normal(2, 4, 3), normal(2, 2, 5)], normal(9, 3))
    with pytest.raises(ArgumentError, match=r"W1 .* is applied to X"):
        theory.linear_trace([normal(2, 4, 3), normal(2, 2, 4)], normal(9, 5))


def test_products_of_layers_are_those_of_their_matrices():
    weights = stacks((3, 5, 5, 4))
    W1, W2, W3 = weights
    before, after = theory.products_before(weights), theory.products_after(weights)
    assert_close(before, [torch.eye(3).double().expand(3, 3, 3), W1, W2 @ W1])
    assert_close(after, [W3 @ W2, W3, torch.eye(4).double().expand(3, 4, 4)])
    assert_close(theory.product_without(weights, 0), W3 @ W2)
    assert_close(theory.product_without(weights, 1), W3 @ W1)
    assert_close(theory.product_without(weights, -1), W2 @ W1)
    with pytest.raises(ArgumentError, match="square one"):
        theory.product_without([normal(5, 3), normal(6, 5), normal(2, 6)], 1)


def test_white_inputs_are_as_many_as_the_precision_of_the_data_tells():
    for rank in (2, 3, 20):
        X = (normal(50, rank) @ normal(rank, 20, seed=1)).float()
        assert theory.whitened(X).shape == (50, rank) and theory.whitened(X).dtype == torch.float64


def test_moments_of_many_heads_are_those_of_each():
    x, s = normal(3, 2, 4), normal(3, seed=1)
    A = (s[:, None, None, None] * x[..., :, None] * x[..., None, :]).softmax(-1)
    found = theory.attention_moments(A, x)
    for i in range(3):
        for j in range(2):
            each = theory.attention_moments((s[i] * torch.outer(x[i, j], x[i, j])).softmax(-1), x[i, j])
            assert_close([m[i, j] for m in found], list(each))


@pytest.mark.parametrize("widths", [(1, 5, 1), (4, 5, 1), (3, 4, 4, 4, 1), (5, 5, 5, 1), (6, 2, 3, 1)])
def test_the_range_of_a_linear_hessian_has_all_its_eigenvalues(widths, generator):
    stack, (X, y) = networks(widths, "linear", generator), own_data(widths, generator)
    found = theory.linear_spectra(stack.matrices, X, y)
    whole = torch.cat([found.values, torch.zeros(3, found.zeros, dtype=torch.float64)], 1).sort(1).values
    assert_close(whole, ensemble.spectra(stack, SquaredError(), (X, y), each=True))


@pytest.mark.parametrize("widths", [(1, 5, 1), (4, 6, 1), (9, 3, 1)])
def test_the_range_of_a_relu_hessian_has_all_its_eigenvalues(widths, generator):
    stack, (X, y) = networks(widths, "relu", generator), own_data(widths, generator, examples=7)
    found = theory.relu_spectra(*stack.matrices, X, y)
    whole = torch.cat([found.values, torch.zeros(3, found.zeros, dtype=torch.float64)], 1).sort(1).values
    assert_close(whole, ensemble.spectra(stack, SquaredError(), (X, y), each=True))


def test_the_range_is_exact_where_the_network_fits_its_data(generator):
    stack, (X, _) = networks((3, 4, 4, 1), "linear", generator), own_data((3, 4, 4, 1), generator)
    y = stack.outputs(X, each=True)
    found = theory.linear_spectra(stack.matrices, X, y)
    expected = ensemble.spectra(stack, SquaredError(), (X, y), each=True)
    assert_close(found.values.amax(1), expected[:, -1])
    assert_close(found.values.sum(1), expected.sum(1))


@pytest.mark.parametrize("examples", [2, 5, 50])
def test_data_are_held_in_no_more_rows_than_inputs(examples):
    X = normal(3, examples, 5)
    _, R = stacked_on(stacks((5, 2)), X)
    assert R.shape == (3, min(examples, 5), 5)
    assert_close(R.mT @ R, X.mT @ X / examples)
    if examples <= 5:
        assert torch.equal(R, X / examples**0.5)  # as they are


@pytest.mark.parametrize("number", NUMBERS)
def test_as_many_data_sets_are_asked_for_as_there_are_networks(number):
    with pytest.raises(ArgumentError, match="count networks"):
        number(stacks((2, 1, 2), count=2), normal(3, 4, 2))


@pytest.mark.parametrize("products", [theory.products_before, theory.products_after])
def test_products_of_no_layers_are_refused(products):
    with pytest.raises(ArgumentError, match="No weights"):
        products(())


@pytest.mark.parametrize("bound", [theory.spectral_norm_bound, theory.sharpness_bound])
def test_a_bound_beyond_float64_is_refused(bound):
    with pytest.raises(NumericalError, match="norms of the blocks of G are beyond"):
        bound([normal(3, 2), normal(1, 3)], 1e308)


def test_the_whiteness_of_data_does_not_depend_on_their_scale():
    X = normal(7, 3)
    for scale in (1e-200, 1e200):
        assert theory.whiteness(scale * X) == pytest.approx(theory.whiteness(X), rel=1e-12)
