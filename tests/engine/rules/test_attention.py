"""Attention against PyTorch's own double backward."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ritz.engine.rules import EfficientRules
from tests.engine.rules.derivatives import assert_batched_products_agree, check_rule, choices, frozen
from tests.engine.rules.networks import check_curvature


@pytest.fixture
def plain_attention():
    """Fused attention has no second derivative to compare with; the engine switches it off, too."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def attended(**options):
    return lambda *t: F.scaled_dot_product_attention(*t, **options).pow(3)


@pytest.mark.usefixtures("plain_attention")
@pytest.mark.parametrize("leading", [(3,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}])
def test_attention_with_frozen_parts_has_the_derivatives_of_autograd(leading, options, normal):
    for leaves in choices([normal(*leading, 5, 4), normal(*leading, 6, 4), normal(*leading, 6, 2)]):
        check_rule(attended(**options), *leaves)


@pytest.mark.usefixtures("plain_attention")
def test_attention_with_a_mask_has_the_derivatives_of_autograd(normal):
    q, k, v = normal(2, 3, 5, 4), normal(2, 3, 6, 4), normal(2, 3, 6, 4)
    hidden = torch.rand(5, 6, generator=torch.Generator().manual_seed(3)) < 0.5
    hidden[2] = False  # a position that sees nothing
    check_rule(attended(attn_mask=hidden), q, k, v)
    check_rule(attended(attn_mask=frozen(normal(2, 1, 5, 6))), q, k, v)


@pytest.mark.usefixtures("plain_attention")
def test_heads_cut_from_one_layer(normal):
    def heads(x, w):
        q, k, v = (t.unflatten(-1, (2, 3)).transpose(1, 2) for t in (x @ w).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)

    check_rule(heads, normal(2, 5, 4), normal(4, 18))


@pytest.mark.usefixtures("plain_attention")
def test_heads_that_share_their_keys(normal):
    for leaves in choices([normal(2, 4, 5, 3), normal(2, 2, 5, 3), normal(2, 2, 5, 3)]):
        check_rule(attended(enable_gqa=True), *leaves)


@pytest.mark.usefixtures("plain_attention")
def test_unusual_attention_is_left_to_pytorch(normal):
    check_rule(
        attended(), normal(2, 4, 5, 3), normal(1, 4, 5, 3), normal(2, 4, 5, 3), used=False
    )  # keys for every example
    check_rule(attended(), normal(5, 3), normal(5, 3), normal(5, 3), used=False)
    learned = lambda q, bias: F.scaled_dot_product_attention(q, q, q, attn_mask=bias).pow(3)
    check_rule(learned, normal(2, 4, 5, 3), normal(5, 5), used=False)


@pytest.mark.usefixtures("plain_attention")
def test_attention_with_dropout_is_left_to_pytorch(normal):
    with EfficientRules(second=False) as mode:
        F.scaled_dot_product_attention(normal(2, 4, 3), normal(2, 4, 3), normal(2, 4, 3), dropout_p=0.5)
    assert not mode.used


@pytest.mark.usefixtures("plain_attention")
def test_attention_in_several_directions_at_once(normal):
    leaves = normal(2, 3, 5, 4), normal(2, 3, 5, 4), normal(2, 3, 5, 4)
    assert_batched_products_agree(lambda *t: F.scaled_dot_product_attention(*t, is_causal=True), *leaves)


class Block(nn.Module):
    """One head after another layer, its keys shared where `groups` is larger than one."""

    def __init__(self, groups):
        super().__init__()
        self.first, self.head, self.groups = nn.Linear(3, 4 + 8 // groups, bias=False), nn.Linear(4, 3), groups

    def forward(self, x):
        heads = lambda t: t.unflatten(-1, (-1, 2)).transpose(1, 2)
        q, k, v = (heads(t) for t in self.first(x).split([4, 4 // self.groups, 4 // self.groups], -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.groups > 1)
        return self.head(y.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("groups", [1, 2])
def test_a_block_of_attention_has_the_curvature_of_autograd(groups, normal):
    check_curvature(Block(groups), frozen(normal(4, 5, 3)))
