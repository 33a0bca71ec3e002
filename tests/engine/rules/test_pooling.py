"""Pooling by the largest, in every layout and with every option, against PyTorch's own derivatives."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import ritz
from tests.engine.curvature import class_targets
from tests.engine.rules.derivatives import assert_batched_products_agree, check_rule, frozen
from tests.engine.rules.networks import check_curvature, drawn

OPTIONS = {
    "windows apart": {"kernel_size": 2},
    "windows that overlap": {"kernel_size": 3, "stride": 2, "padding": 1},
    "windows with holes": {"kernel_size": (2, 1), "stride": 1, "dilation": (2, 1)},
    "windows over the edge": {"kernel_size": 2, "stride": (2, 3), "ceil_mode": True},
}


@pytest.mark.parametrize("function", [F.max_pool2d, torch.max_pool2d])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_rule_is_pytorchs_own(function, options, normal):
    check_rule(lambda x: function(x * x, **options).square(), normal(2, 2, 5, 5))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_max_pooling_has_the_derivatives_of_autograd_in_every_layout(layout, normal):
    pooled = lambda x: F.max_pool2d((x * x).contiguous(memory_format=layout), 2).square()
    check_rule(pooled, normal(2, 2, 4, 5))
    assert_batched_products_agree(pooled, normal(2, 2, 4, 5))


def test_max_pooling_still_returns_indices(normal):
    assert len(F.max_pool2d(normal(1, 2, 4, 4), 2, return_indices=True)) == 2
    check_rule(lambda x: F.max_pool2d(x * x, 2, return_indices=True)[0], normal(1, 2, 4, 4), used=False)


def network():
    layers = nn.Conv2d(1, 2, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3)
    return nn.Sequential(*layers)


def test_a_network_with_pooling_has_the_curvature_of_autograd(normal):
    check_curvature(network(), frozen(normal(5, 1, 4, 4)))


@pytest.mark.parametrize("operator", [ritz.hessian, ritz.gauss_newton])
def test_several_vectors_go_through_it_together(operator, normal):
    x = frozen(normal(5, 1, 4, 4))
    A = operator(ritz.Risk(drawn(network()), ritz.CrossEntropy(), (x, class_targets((5, 3)))))
    A @ torch.eye(A.size, 2, dtype=A.dtype)
    assert A.info.columns > 1
