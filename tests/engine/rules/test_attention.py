"""Attention against PyTorch's own double backward."""

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close

from ritz.engine.rules import EfficientRules
from tests.engine.rules.derivatives import assert_batched_products_agree, choices, frozen, value_and_derivatives


@pytest.fixture
def plain_attention():
    """Fused attention has no second derivative to compare with; the engine switches it off, too."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def attended(**options):
    return lambda *t: F.scaled_dot_product_attention(*t, **options).pow(3)


def check_attention(function, *leaves, used=True):
    """The first-order rule; where second derivatives are asked for, PyTorch's own are used."""
    for second in (True, False):
        active = "used" if used and not second else "idle"
        expected = value_and_derivatives(function, leaves, active=None, second=second)
        actual = value_and_derivatives(function, leaves, active=active, second=second)
        assert_close(actual[0], expected[0], rtol=0, atol=0)
        for a, b in zip(actual[1] + actual[2], expected[1] + expected[2], strict=True):
            assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.usefixtures("plain_attention")
@pytest.mark.parametrize("leading", [(3,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}])
def test_attention_with_frozen_parts(leading, options, normal):
    for leaves in choices([normal(*leading, 5, 4), normal(*leading, 6, 4), normal(*leading, 6, 2)]):
        check_attention(attended(**options), *leaves)


@pytest.mark.usefixtures("plain_attention")
def test_attention_with_a_mask(normal):
    q, k, v = normal(2, 3, 5, 4), normal(2, 3, 6, 4), normal(2, 3, 6, 4)
    hidden = torch.rand(5, 6, generator=torch.Generator().manual_seed(3)) < 0.5
    hidden[2] = False  # a position that sees nothing
    check_attention(attended(attn_mask=hidden), q, k, v)
    check_attention(attended(attn_mask=frozen(normal(2, 1, 5, 6))), q, k, v)


@pytest.mark.usefixtures("plain_attention")
def test_heads_cut_from_one_layer(normal):
    def heads(x, w):
        q, k, v = (t.unflatten(-1, (2, 3)).transpose(1, 2) for t in (x @ w).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)

    check_attention(heads, normal(2, 5, 4), normal(4, 18))


@pytest.mark.usefixtures("plain_attention")
def test_unusual_attention_is_left_to_pytorch(normal):
    q, k, v = normal(2, 4, 5, 3), normal(2, 2, 5, 3), normal(2, 2, 5, 3)
    check_attention(attended(enable_gqa=True), q, k, v, used=False)  # heads that share their keys
    check_attention(attended(), q, normal(1, 4, 5, 3), normal(2, 4, 5, 3), used=False)  # keys for every example
    check_attention(attended(), normal(5, 3), normal(5, 3), normal(5, 3), used=False)
    learned = lambda q, bias: F.scaled_dot_product_attention(q, q, q, attn_mask=bias).pow(3)
    check_attention(learned, normal(2, 4, 5, 3), normal(5, 5), used=False)


@pytest.mark.usefixtures("plain_attention")
def test_attention_with_dropout_is_left_to_pytorch(normal):
    with EfficientRules(second=False) as mode:
        F.scaled_dot_product_attention(normal(2, 4, 3), normal(2, 4, 3), normal(2, 4, 3), dropout_p=0.5)
    assert not mode.used


@pytest.mark.usefixtures("plain_attention")
def test_attention_in_several_directions_at_once(normal):
    leaves = normal(2, 3, 5, 4), normal(2, 3, 5, 4), normal(2, 3, 5, 4)
    assert_batched_products_agree(lambda *t: F.scaled_dot_product_attention(*t, is_causal=True), *leaves)
