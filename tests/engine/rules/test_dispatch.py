"""The rules together, while a model runs and afterwards."""

import torch
from torch import nn
from torch.nn import functional as F

from ritz.engine.rules import EfficientRules
from tests.engine.rules.derivatives import check_rule, frozen


def test_a_network_of_many_kinds_of_layers_has_the_derivatives_of_autograd(normal):
    layers = [nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.SiLU(), nn.Conv2d(4, 4, 3, groups=2), nn.GELU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.LayerNorm(16), nn.Linear(16, 3), nn.Tanh()).double().eval()
    names = [name for name, _ in model.named_parameters()]
    run = lambda x, *p: torch.func.functional_call(model, dict(zip(names, p, strict=True)), (x,)).square()
    check_rule(run, frozen(normal(5, 2, 4, 4)), *model.parameters())


def test_nothing_is_used_outside_of_the_context(normal):
    x = normal(5, 4)
    with EfficientRules(second=True) as mode:
        pass
    F.gelu(F.linear(x, normal(3, 4)))
    assert not mode.used
