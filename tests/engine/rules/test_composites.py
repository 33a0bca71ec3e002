"""Functions of PyTorch that are made of others: the rules reach what is inside."""

import pytest
import torch
from torch import nn

from ritz.engine.rules import EfficientRules
from tests.engine.rules.derivatives import frozen
from tests.engine.rules.networks import check_curvature


class Heads(nn.Module):
    def __init__(self, need_weights=False, mask=None, padding=None, **options):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(4, 2, batch_first=True, **options), nn.Linear(4, 3)
        self.calls, self.padding = {"need_weights": need_weights, "attn_mask": mask}, padding

    def forward(self, x):
        padding = None if self.padding is None else self.padding.expand(len(x), -1)
        y, weights = self.attention(x, x, x, key_padding_mask=padding, **self.calls)
        y = y if weights is None else y + weights.mean((1, 2), keepdim=True)
        return self.head(y.mean(1))


CAUSAL = torch.ones(3, 3, dtype=torch.bool).triu(1)
PADDING = torch.tensor([False, False, True])
KINDS = {
    "plain": {},
    "with weights": {"need_weights": True},
    "causal": {"mask": CAUSAL},
    "causal, with weights": {"need_weights": True, "mask": CAUSAL},
    "padded": {"padding": PADDING},
    "more keys": {"add_bias_kv": True, "add_zero_attn": True},
    "without bias": {"bias": False},
}


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_attention_of_several_heads_has_the_curvature_of_autograd(options, normal):
    check_curvature(Heads(**options), frozen(normal(5, 3, 4)))


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_layer_of_an_encoder_has_the_curvature_of_autograd(norm_first, normal):
    layer = nn.TransformerEncoderLayer(4, 2, 5, activation="gelu", batch_first=True, norm_first=norm_first)
    network = nn.Sequential(layer, nn.Flatten(), nn.Linear(8, 3))
    check_curvature(network, frozen(normal(5, 2, 4)))


def test_the_rules_reach_the_layers_inside_of_an_attention(normal, monkeypatch):
    seen = []
    run = EfficientRules.__torch_function__
    spy = lambda mode, func, *rest: (seen.append(getattr(func, "__name__", "")), run(mode, func, *rest))[1]
    monkeypatch.setattr(EfficientRules, "__torch_function__", spy)
    with EfficientRules(second=False):
        Heads().double()(frozen(normal(5, 3, 4)))
    assert seen.count("linear") == 3 and "scaled_dot_product_attention" in seen
