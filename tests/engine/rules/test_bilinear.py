"""Linear layers and convolutions against PyTorch's own double backward."""

import pytest
import torch
from torch.nn import functional as F

from ritz.engine.rules import EfficientRules
from tests.engine.rules.derivatives import CONVOLUTIONS, check_rule, choices, frozen


@pytest.mark.parametrize("leading", [(5,), (5, 2), (2, 3, 2)])
def test_linear_layers_with_any_leading_dimensions(leading, normal):
    for leaves in choices([normal(*leading, 4), normal(3, 4), normal(3)]):
        check_rule(lambda *t: F.linear(*t).square(), *leaves)
    for leaves in choices([normal(*leading, 4), normal(3, 4)]):
        check_rule(lambda *t: F.linear(*t).square(), *leaves)


def test_a_linear_layer_of_one_example_is_left_to_pytorch(normal):
    check_rule(lambda *t: F.linear(*t).square(), normal(4), normal(3, 4), normal(3), used=False)


def test_a_linear_layer_called_by_names(normal):
    check_rule(lambda x, w, b: F.linear(input=x, bias=b, weight=w).square(), normal(5, 4), normal(3, 4), normal(3))


def test_a_weight_that_is_used_twice(normal):
    check_rule(lambda x, w: F.linear(torch.tanh(F.linear(x, w)), w), normal(5, 4), normal(4, 4))


SETTINGS = {
    "plain": {},
    "stride": {"stride": 2},
    "padding": {"padding": 1},
    "dilation": {"dilation": 2, "padding": 2},
    "groups": {"groups": 2},
    "all combined": {"stride": 2, "padding": 2, "dilation": 2, "groups": 2},
}


@pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("dims", CONVOLUTIONS)
def test_convolutions(dims, options, normal):
    convolve = CONVOLUTIONS[dims]
    size = 5 if dims < 3 else 4
    x, w = normal(3, 4, *[size] * dims), normal(2, 4 // options.get("groups", 1), *[2] * dims)
    check_rule(lambda *t: convolve(*t, **options).square(), x, w, normal(2))
    check_rule(lambda *t: convolve(*t, **options).square(), x, w)


def test_convolutions_with_frozen_parts(normal):
    for leaves in choices([normal(3, 2, 4, 4), normal(2, 2, 2, 2), normal(2)]):
        check_rule(lambda *t: F.conv2d(*t, padding=1).square(), *leaves)


def test_settings_that_differ_between_dimensions(normal):
    options = {"stride": (1, 2), "padding": (2, 0), "dilation": (1, 2)}
    check_rule(lambda *t: F.conv2d(*t, **options).square(), normal(2, 2, 5, 6), normal(3, 2, 3, 2), normal(3))


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_padding_by_name_is_left_to_pytorch(padding, normal):
    leaves = normal(2, 2, 4, 4), normal(3, 2, 3, 3), normal(3)
    check_rule(lambda *t: F.conv2d(*t, padding=padding).square(), *leaves, used=False)


def test_a_convolution_of_one_image_is_left_to_pytorch(normal):
    check_rule(lambda *t: F.conv2d(*t).square(), normal(2, 4, 4), normal(3, 2, 2, 2), used=False)


def test_a_transposed_convolution_is_left_to_pytorch(normal):
    leaves = normal(2, 2, 4, 4), normal(2, 3, 2, 2)
    check_rule(lambda *t: F.conv_transpose2d(*t, stride=2).square(), *leaves, used=False)


def test_images_stored_channels_last(normal):
    x = frozen(normal(3, 2, 4, 4)).contiguous(memory_format=torch.channels_last).requires_grad_()
    check_rule(lambda *t: F.conv2d(*t, padding=1).square(), x, normal(4, 2, 3, 3), normal(4))


def test_images_stored_channels_last_stay_so(normal):
    x = frozen(normal(3, 2, 4, 4)).contiguous(memory_format=torch.channels_last).requires_grad_()
    w = normal(4, 2, 3, 3)
    with EfficientRules(second=False):
        y = F.conv2d(x, w, padding=1)
    for tensor in (y, *torch.autograd.grad(y.sum(), [x, w])):
        assert tensor.is_contiguous(memory_format=torch.channels_last)
