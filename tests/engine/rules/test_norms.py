"""Normalisations against PyTorch's own double backward."""

import contextlib

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ritz.engine.rules import EfficientRules
from tests.engine.rules.derivatives import CONVOLUTIONS, assert_batched_products_agree, check_rule, choices, frozen
from tests.engine.rules.networks import check_curvature


def statistics(count=3):
    generator = torch.Generator().manual_seed(2)
    mean, variance = torch.randn(2, count, generator=generator, dtype=torch.float64)
    return mean, variance.exp()


@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 4), (5, 3, 2, 2), (2, 3, 2, 2, 2)])
def test_batch_norm_alone_has_the_derivatives_of_autograd(shape, normal):
    for leaves in choices([normal(*shape), normal(3), normal(3)]):
        check_rule(lambda x, w, b: F.batch_norm(x, *statistics(), w, b).square(), *leaves)
    check_rule(lambda x: F.batch_norm(x, *statistics()).square(), normal(*shape))
    check_rule(lambda x, w: F.batch_norm(x, *statistics(), weight=w).square(), normal(*shape), normal(3))


@pytest.mark.parametrize("dims", CONVOLUTIONS)
def test_batch_norm_after_a_convolution_has_the_derivatives_of_autograd(dims, normal):
    convolve, x, w = CONVOLUTIONS[dims], normal(3, 2, *[3] * dims), normal(3, 2, *[2] * dims)
    normed = lambda h, scale, shift: F.batch_norm(h, *statistics(), scale, shift).square()
    for leaves in choices([w, normal(3), normal(3)]):
        check_rule(lambda w, s, b: normed(convolve(frozen(x), w), s, b), *leaves)
    check_rule(lambda x, w, c, s, b: normed(convolve(x, w, c), s, b), x, w, normal(3), normal(3), normal(3))


def test_a_convolution_whose_output_is_used_besides_the_batch_norm(normal):
    def block(x, w, scale):
        h = F.conv2d(x, w)
        return F.batch_norm(h, *statistics(), scale).sigmoid() * h + h.square()

    check_rule(block, normal(3, 2, 3, 3), normal(3, 2, 2, 2), normal(3))


def test_a_convolution_with_two_batch_norms(normal):
    def block(x, w, a, b):
        h = F.conv2d(x, w)
        return F.batch_norm(h, *statistics(), a) * F.batch_norm(h, *statistics(), b)

    check_rule(block, normal(3, 2, 3, 3), normal(3, 2, 2, 2), normal(3), normal(3))


@pytest.mark.parametrize("change", [F.relu_, lambda h: h.mul_(2.0), lambda h: F.silu(h, inplace=True)])
def test_a_convolution_changed_in_place_is_not_fused_with_the_batch_norm_behind_it(change, normal):
    def block(x, w, scale):
        h = F.conv2d(x, w)
        change(h)
        return F.batch_norm(h, *statistics(), scale).square()

    check_rule(block, normal(3, 2, 3, 3), normal(3, 2, 2, 2), normal(3))


def test_batch_norm_with_a_bias_alone(normal):
    shifted = lambda x, b: F.batch_norm(x, *statistics(), bias=b).square()
    reference = lambda x, b: (F.batch_norm(x, *statistics()) + b).square()
    check_rule(shifted, normal(5, 3), normal(3), reference=reference)


def test_batch_norm_by_the_batch_itself_is_left_to_pytorch(normal):
    check_rule(lambda x, w: F.batch_norm(x, None, None, w, training=True).square(), normal(5, 3), normal(3), used=False)


@pytest.mark.parametrize("normalized", [(4,), (3, 4), (2, 3, 4)])
def test_layer_norm_over_the_last_dimensions(normalized, normal):
    x = normal(2, 2, 3, 4)
    norm = lambda x, w=None, b=None: F.layer_norm(x, normalized, w, b).pow(3)
    check_rule(norm, x)
    check_rule(norm, x, normal(*normalized))
    for leaves in choices([x, normal(*normalized), normal(*normalized)]):
        check_rule(norm, *leaves)


def test_layer_norm_with_its_own_epsilon_and_a_bias_alone(normal):
    shifted = lambda x, b: F.layer_norm(x, (4,), bias=b, eps=0.3).pow(3)
    reference = lambda x, b: (F.layer_norm(x, (4,), eps=0.3) + b).pow(3)  # PyTorch's double backward wants a weight
    check_rule(shifted, normal(5, 4), normal(4), reference=reference)


def test_layer_norm_of_equal_entries(normal):
    check_rule(lambda x: F.layer_norm(x * 0.0 + 1.0, (4,)).pow(3) + x, normal(5, 4))


def test_layer_norm_of_several_directions_at_once(normal):
    x, w, b = normal(5, 4), normal(4), normal(4)
    assert_batched_products_agree(lambda *t: F.layer_norm(t[0], (4,), *t[1:]), x, w, b)


@pytest.mark.parametrize("shape", [(5, 4), (3, 4, 3), (2, 4, 2, 3)])
def test_norms_of_groups_and_instances(shape, normal):
    grouped = lambda x, *affine: F.group_norm(x, 2, *affine).pow(3)
    check_rule(grouped, normal(*shape))
    for leaves in choices([normal(*shape), normal(4), normal(4)]):
        check_rule(grouped, *leaves)
        if len(shape) > 2:
            check_rule(lambda x, w, b: F.instance_norm(x, weight=w, bias=b).pow(3), *leaves)


def test_instances_by_running_statistics_are_left_to_pytorch(normal):
    normed = lambda x, w: F.instance_norm(x, *statistics(4), w, use_input_stats=False).pow(3)
    check_rule(normed, normal(2, 4, 3), normal(4), used=False)


@pytest.mark.parametrize("norm", [lambda x, w: F.group_norm(x, 2, w), lambda x, w: F.instance_norm(x, weight=w)])
def test_groups_of_images_stored_channels_last_are_left_to_pytorch(norm, normal):
    x = frozen(normal(2, 4, 3, 3)).contiguous(memory_format=torch.channels_last).requires_grad_()
    check_rule(lambda x, w: norm(x, w).pow(3), x, normal(4), used=False)


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.norm(self.first(x)).sin_())


def test_layer_norm_has_the_curvature_of_autograd(normal):
    check_curvature(Normed(), frozen(normal(6, 3)))


def test_layer_norm_keeps_little_more_than_pytorch(normal):
    kept = {}
    x, w, b = normal(50, 4), normal(4), normal(4)
    for name, context in {"rules": EfficientRules(second=True), "plain": contextlib.nullcontext()}.items():
        sizes = {}
        count = lambda t, sizes=sizes: sizes.update({t.untyped_storage().data_ptr(): t.numel()}) or t.detach()
        with torch.autograd.graph.saved_tensors_hooks(count, lambda t: t):
            with context:
                y = F.layer_norm(2.0 * x, (4,), w, b)
            gradient = torch.autograd.grad(y, [x, w, b], torch.ones_like(y).requires_grad_(), create_graph=True)
        kept[name] = sum(sizes.values())
        del gradient
    assert kept["rules"] <= kept["plain"] + x.numel() + 50  # the standardised input, and one number for each row
