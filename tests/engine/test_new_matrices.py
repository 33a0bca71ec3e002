"""Matrices beside H, G, E and F: sampled curvature, the covariance of gradients, the tangent kernel."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import ritz
from ritz.errors import ArgumentError
from ritz.testing import check_operator
from tests.engine.curvature import LOSSES, class_targets, dense_matrices
from tests.seeds import seeded
from tests.shapes import unchecked
from tests.zoo import case, unequal_batches, whole


@pytest.mark.parametrize("loss", ["cross entropy", "squared error", "binary"])
@pytest.mark.parametrize("network", ["mlp", "transformer"])
def test_the_mean_over_seeds_of_sampled_curvature_is_gauss_newton(network, loss):
    built, (given, targets, terms) = case(network), LOSSES[loss]
    y = targets(built.shape)
    risk = ritz.Risk(built.model, given, unequal_batches(built.inputs, y))
    expected = dense_matrices(risk, built, y, terms)["G"]
    v = torch.randn(risk.size, generator=seeded(0), dtype=torch.float64)
    product = lambda seed: ritz.monte_carlo_fisher(risk, generator=seeded(seed)) @ v
    first = product(0)
    with unchecked():
        products = torch.stack([first, *map(product, range(1, 60))])
    error = products.std(0) / 60**0.5
    ratios = (products.mean(0) - expected @ v).abs() / (error + 1e-12)
    assert ratios.max() < 6 and (ratios < 2).double().mean() > 0.8


def test_the_samples_are_the_same_in_every_product_and_however_data_are_cut():
    built = case("mlp")
    y = class_targets(built.shape)
    batches = [unequal_batches(built.inputs, y), [(built.inputs[i : i + 2], y[i : i + 2]) for i in range(0, 11, 2)]]
    A, B = (
        ritz.monte_carlo_fisher(
            ritz.Risk(built.model, ritz.CrossEntropy(), data, memory=m), num_samples=3, generator=seeded(1)
        )
        for data, m in zip(batches, ("1G", 0), strict=True)
    )
    first = A.dense()
    assert torch.equal(first, A.dense())
    assert_close(B.dense(), first, rtol=1e-10, atol=1e-14)
    assert float(torch.linalg.eigvalsh(first)[0]) > -1e-12
    assert not torch.allclose(first, ritz.monte_carlo_fisher(A.matmat.risk, num_samples=3, generator=seeded(2)).dense())


def test_a_mean_of_no_samples_is_refused(x, y):
    model = nn.Linear(x.shape[1], 3).double()
    with pytest.raises(ArgumentError, match="num_samples=0"):
        ritz.monte_carlo_fisher(ritz.Risk(model, ritz.CrossEntropy(), (x, y)), num_samples=0)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_covariance_of_gradients_is_that_of_the_terms(reduction):
    built = case("mlp")
    y, weight = class_targets(built.shape), torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    risk = ritz.Risk(built.model, nn.CrossEntropyLoss(weight, reduction=reduction), unequal_batches(built.inputs, y))
    outputs, w = whole(risk, built), weight[y]
    losses = lambda t: nn.functional.cross_entropy(outputs(t), y, reduction="none")
    centred = torch.func.jacfwd(losses)(risk.theta)
    centred = centred - (w @ centred) / w.sum()
    covariance = ritz.gradient_covariance(risk)
    check_operator(covariance, (centred.T * w) @ centred / (w.sum() if reduction == "mean" else 1))
    assert covariance.semidefinite


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_terms_of_negative_weight_count_negatively(reduction):
    built = case("mlp")
    y, weight = class_targets(built.shape), torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    risk = ritz.Risk(built.model, nn.CrossEntropyLoss(weight, reduction=reduction), unequal_batches(built.inputs, y))
    outputs, w = whole(risk, built), weight[y]
    gradients = torch.func.jacfwd(lambda t: nn.functional.cross_entropy(outputs(t), y, reduction="none"))(risk.theta)
    total = w.sum() if reduction == "mean" else 1
    check_operator(ritz.empirical_fisher(risk), (gradients.T * w) @ gradients / total)
    centred = gradients - (w @ gradients) / w.sum()
    check_operator(ritz.gradient_covariance(risk), (centred.T * w) @ centred / total)
    assert not ritz.gradient_covariance(risk).semidefinite


def test_a_sum_over_nothing_has_no_covariance(x, y):
    risk = ritz.Risk(nn.Linear(x.shape[1], 3).double(), nn.CrossEntropyLoss(reduction="sum"), (x, y.fill_(-100)))
    assert not ritz.gradient_covariance(risk).dense().any()


@pytest.mark.parametrize("network", ["mlp", "cnn", "transformer", "recurrent"])
def test_the_tangent_kernel_is_that_of_the_jacobian(network):
    built = case(network)
    risk = ritz.Risk(built.model, ritz.CrossEntropy(), unequal_batches(built.inputs, class_targets(built.shape)))
    J = torch.func.jacrev(lambda t: whole(risk, built)(t).flatten())(risk.theta)
    K = ritz.ntk(risk)
    assert K.size == len(J)
    check_operator(K, J @ J.T)
