"""Pointwise functions against PyTorch's own double backward."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ritz.engine.rules.pointwise import POINTWISE as POINTWISE_RULES
from tests.engine.rules.derivatives import check_rule, frozen
from tests.engine.rules.in_place_functions import FUNCTIONS
from tests.engine.rules.networks import check_curvature

POINTWISE = {
    "gelu": F.gelu,
    "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "softplus, beta": lambda x: F.softplus(x, 2.0, 3.0),
    "elu": F.elu,
    "elu, alpha": lambda x: F.elu(x, 0.4),
    "celu": lambda x: F.celu(x, 0.4),
    "selu": F.selu,
    "logsigmoid": F.logsigmoid,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "torch.tanh": torch.tanh,
    "torch.sigmoid": torch.sigmoid,
    "torch.erf": torch.erf,
    "torch.sin": torch.sin,
    "torch.cos": torch.cos,
    "Tensor.tanh": lambda x: x.tanh(),
    "Tensor.sigmoid": lambda x: x.sigmoid(),
    "Tensor.erf": lambda x: x.erf(),
    "Tensor.sin": lambda x: x.sin(),
    "Tensor.cos": lambda x: x.cos(),
    "F.tanh": F.tanh,
    "F.sigmoid": F.sigmoid,
    "hardswish": F.hardswish,
    "hardtanh": lambda x: F.hardtanh(x, -0.3, 0.5),
    "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "torch.celu": lambda x: torch.celu(x, 0.4),
    "torch.selu": torch.selu,
    "by name": lambda x: F.gelu(input=x),
}


def test_every_pointwise_rule_is_tested():
    names = {getattr(f, "__name__", "") for f in POINTWISE_RULES}
    tests = {name.split(".")[-1].split(",")[0] for name in [*POINTWISE, *FUNCTIONS]}
    assert names <= tests | {"log_sigmoid", "hardsigmoid"}


@pytest.mark.parametrize("function", POINTWISE.values(), ids=POINTWISE)
def test_pointwise_functions_have_the_derivatives_of_autograd(function, normal):
    x = torch.cat([2.0 * frozen(normal(40)), torch.tensor([30.0, -30.0, 1e-9], dtype=torch.float64)]).requires_grad_()
    check_rule(lambda t: function(t).square(), x)
    check_rule(function, x)


LAYERS = [
    nn.GELU, nn.SiLU, nn.Mish, nn.Softplus, nn.ELU, nn.CELU, nn.SELU, nn.LogSigmoid, nn.Softsign, nn.Tanhshrink,
    nn.Tanh, nn.Sigmoid,
]  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS)
def test_the_modules_of_pointwise_functions_use_their_rules(layer, normal):
    check_rule(lambda x: layer()(x).square(), normal(20))


def test_pointwise_functions_of_constants_are_left_to_pytorch(normal):
    x = frozen(normal(20))
    check_rule(lambda w: torch.tanh(x) * w.square(), normal(20), used=False)


@pytest.mark.parametrize("layer", [nn.Hardsigmoid, nn.Hardswish, nn.ReLU6, nn.LeakyReLU])
def test_hard_functions_against_central_differences(layer, normal):
    network = nn.Sequential(nn.Linear(3, 4), layer(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    check_curvature(network, frozen(normal(6, 3)), differences=True)


class SqueezeAndExcite(nn.Module):
    """As in MobileNetV3: channels are weighted by a hard sigmoid, everything else is in place."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3)
        self.down, self.up, self.head = nn.Conv2d(3, 2, 1), nn.Conv2d(2, 3, 1), nn.Linear(3, 3)

    def forward(self, x):
        h = F.hardswish(self.norm(self.first(x)), inplace=True)
        scale = F.relu(self.down(F.adaptive_avg_pool2d(h, 1)), inplace=True)
        scale = F.hardsigmoid(self.up(scale), inplace=True)
        return self.head((scale * h).mean((2, 3)))


def test_channels_weighted_by_a_hard_sigmoid(normal):
    check_curvature(SqueezeAndExcite(), frozen(normal(5, 2, 4, 4)), differences=True)
