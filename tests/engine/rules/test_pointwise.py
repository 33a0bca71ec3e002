"""Pointwise functions against PyTorch's own double backward."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ritz.engine.rules.pointwise import POINTWISE as POINTWISE_RULES
from tests.engine.rules.derivatives import check_rule, frozen

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
    "by name": lambda x: F.gelu(input=x),
}


def test_every_pointwise_rule_is_tested():
    names = {getattr(f, "__name__", "") for f in POINTWISE_RULES}
    assert names <= {name.split(".")[-1].split(",")[0] for name in POINTWISE} | {"log_sigmoid"}


@pytest.mark.parametrize("function", POINTWISE.values(), ids=POINTWISE)
def test_pointwise_functions(function, normal):
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


@pytest.mark.parametrize("layer", [nn.ELU, nn.CELU, nn.SELU, nn.SiLU, nn.Mish])
def test_pointwise_functions_in_place_are_left_to_pytorch(layer, normal):
    check_rule(lambda x: layer(inplace=True)(2.0 * x).square(), normal(20), used=False)


def test_pointwise_functions_of_constants_are_left_to_pytorch(normal):
    x = frozen(normal(20))
    check_rule(lambda w: torch.tanh(x) * w.square(), normal(20), used=False)
