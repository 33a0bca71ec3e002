"""Operations in place: activations that overwrite their input, and changes to what a rule returned."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from ritz.engine.rules import EfficientRules
from tests.engine.rules.derivatives import check_rule, frozen
from tests.engine.rules.in_place_functions import FUNCTIONS
from tests.engine.rules.networks import check_curvature

LAYERS = [
    nn.ELU, nn.CELU, nn.SELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.ReLU6, nn.Hardtanh, nn.LeakyReLU,
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions_in_place_use_their_rules(function, normal):
    def overwritten(x):
        h = 2.0 * x
        returned = function(h)
        assert returned is h
        return h.square()

    check_rule(overwritten, normal(20))


@pytest.mark.parametrize("layer", LAYERS)
def test_modules_in_place_use_their_rules(layer, normal):
    check_rule(lambda x: layer(inplace=True)(2.0 * x).square(), normal(20))


def test_a_part_of_a_tensor_may_be_overwritten(normal):
    def gated(x):
        h = 2.0 * x
        F.silu(h[:, :2], inplace=True)
        return h.square()

    check_rule(gated, normal(5, 4))


def test_a_tensor_may_be_overwritten_twice(normal):
    check_rule(lambda x: F.hardswish(F.silu(3.0 * x, inplace=True), inplace=True).tanh_(), normal(20))


def test_constants_are_overwritten_by_pytorch(normal):
    x = frozen(normal(20))
    check_rule(lambda w: F.silu(x.clone(), inplace=True) * w.square(), normal(20), used=False)


def test_a_parameter_is_not_overwritten(normal):
    x = normal(4)
    with EfficientRules(second=True), pytest.raises(RuntimeError, match="leaf"):
        torch.tanh_(x)


class Changed(nn.Module):
    """A layer, an operation in place on what it returns, and a head."""

    def __init__(self, layer, change, features):
        super().__init__()
        self.layer, self.change, self.head = layer, change, nn.Linear(features, 3)
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        h = self.layer(x)
        self.change(h, self.gate)
        return self.head(h.flatten(1))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(3, 3) for _ in range(3))

    def forward(self, x):
        return F.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x))


PLACES = {
    "linear": lambda: nn.Linear(3, 3),
    "linear without bias": lambda: nn.Linear(3, 3, bias=False),
    "convolution": lambda: nn.Conv1d(4, 4, 3, padding=1),
    "batch norm": lambda: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(4)),
    "batch norm after a convolution": lambda: nn.Sequential(nn.Conv1d(4, 4, 1), nn.BatchNorm1d(4)),
    "layer norm": lambda: nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)),
    "pointwise": lambda: nn.Sequential(nn.Linear(3, 3), nn.GELU()),
    "pointwise in place": lambda: nn.Sequential(nn.Linear(3, 3), nn.SiLU(inplace=True)),
    "hard": lambda: nn.Sequential(nn.Linear(3, 3), nn.Hardtanh()),
    "attention": Attention,
}  # each from (5, 4, 3) to the same shape
CHANGES = {
    "by itself": lambda h, gate: F.relu_(h),
    "by a parameter": lambda h, gate: h.mul_(gate).add_(gate),
    "in part": lambda h, gate: h[:, :1].sigmoid_(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("layer", PLACES.values(), ids=PLACES)
def test_the_result_of_a_rule_may_be_changed_in_place(layer, change, normal):
    check_curvature(Changed(layer(), change, 12), frozen(normal(5, 4, 3)))


class FrozenThenChanged(nn.Module):
    """A frozen layer does not need what it was given."""

    def __init__(self):
        super().__init__()
        self.first, self.frozen, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        h = torch.sin(self.first(x))
        frozen = self.frozen(h)
        h.mul_(2.0)
        return self.last(torch.tanh(frozen) + h)


def test_the_input_of_a_frozen_layer_may_be_changed_afterwards(normal):
    check_curvature(FrozenThenChanged(), frozen(normal(6, 4)))


class Detached(nn.Module):
    """A convolution without gradient in front of a trained batch norm."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.Linear(3, 3)

    def forward(self, x):
        with torch.no_grad():
            h = self.conv(x)
        return self.head(self.norm(h).tanh().mean(2)) + 0.1 * self.conv(x).square().mean(2)


def test_a_convolution_without_gradient_stays_so_behind_a_batch_norm(normal):
    check_curvature(Detached(), frozen(normal(6, 2, 4)))


def test_values_are_those_of_pytorch(normal):
    x, layer = (
        frozen(normal(6, 4)),
        nn.Sequential(nn.Linear(4, 4), nn.Hardswish(inplace=True), nn.Linear(4, 3)).double(),
    )
    with EfficientRules(second=True):
        z = layer(x)
    assert_close(z, layer(x), rtol=0, atol=0)
