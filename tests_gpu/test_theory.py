"""Closed forms against operators on the device, with weights and data there, too."""

import pytest
import torch
from torch import nn

import ritz
from ritz import theory
from tests_gpu.devices import CPU, DEVICE, assert_same, normal

WEIGHTS = {"on the device": DEVICE, "on the CPU": CPU}


def linear(*weights):
    model = nn.Sequential(*(nn.Linear(W.shape[1], W.shape[0], bias=False, dtype=W.dtype) for W in weights))
    for layer, W in zip(model, weights, strict=True):
        layer.weight.data = W.clone()
    return model


@pytest.fixture
def regression():
    return normal(6, 4, seed=1) / 2, normal(3, 6, seed=2) / 2, normal(12, 4, seed=3), normal(12, 3, seed=4)


@pytest.mark.parametrize("weights_on", WEIGHTS)
@pytest.mark.parametrize("matrix", ["hessian", "gauss_newton"])
def test_two_layer_linear_networks_match_their_operator(regression, matrix, weights_on, place):
    W1, W2, X, Y = regression
    risk = ritz.Risk(linear(W1, W2).to(DEVICE), ritz.SquaredError(), (X.to(place), Y.to(place)))
    there = (tensor.to(WEIGHTS[weights_on]) for tensor in regression)
    form = theory.two_layer_linear(*there, gauss_newton=matrix == "gauss_newton")
    comparison = theory.compare(form, getattr(ritz, matrix)(risk))
    assert comparison.value < 1e-9
    assert comparison.residual is None or comparison.residual < 1e-7


@pytest.mark.parametrize("weights_on", WEIGHTS)
def test_closed_forms_agree(regression, weights_on):
    place = WEIGHTS[weights_on]
    v, w, x, y = (normal(5, seed=seed) for seed in range(4))
    for form, arguments in (
        (theory.linear_network, (v, w, x, y)),
        (theory.relu_network, (v, w, x, y)),
        (theory.two_layer_linear, regression),
    ):
        here, there = form(*arguments), form(*(tensor.to(place) for tensor in arguments))
        assert_same(there.spectrum().nodes, here.spectrum().nodes)


@pytest.mark.parametrize("weights_on", WEIGHTS)
def test_attention_and_traces_agree(regression, weights_on):
    place = WEIGHTS[weights_on]
    q, k, x, y = (normal(5, seed=seed) for seed in range(4))
    here = theory.self_attention(0.7, q, k, x, y)
    there = theory.self_attention(0.7, *(t.to(place) for t in (q, k, x, y)))
    assert_same(there.spectrum().nodes, here.spectrum().nodes)


def test_comparisons_beyond_dense_sizes_multiply_on_the_device():
    W1, W2, X, Y = normal(150, 10) / 4, normal(4, 150, seed=1) / 12, normal(20, 10, seed=2), normal(20, 4, seed=3)
    risk = ritz.Risk(linear(W1, W2).to(DEVICE), ritz.SquaredError(), (X, Y))
    assert risk.size > 2000
    comparison = theory.compare(theory.two_layer_linear(W1, W2, X, Y), ritz.hessian(risk))
    assert comparison.value < 1e-8
    assert torch.isfinite(torch.tensor(comparison.residual if comparison.residual is not None else 0.0))
