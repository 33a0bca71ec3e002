"""Linear layers and convolutions against PyTorch's own double backward."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ritz.engine.rules import EfficientRules
from tests.engine.rules.derivatives import CONVOLUTIONS, check_rule, choices, frozen
from tests.engine.rules.networks import check_curvature


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
def test_convolutions_have_the_derivatives_of_autograd(dims, options, normal):
    convolve = CONVOLUTIONS[dims]
    size = 5 if dims < 3 else 4
    x, w = normal(3, 4, *[size] * dims), normal(2, 4 // options.get("groups", 1), *[2] * dims)
    check_rule(lambda *t: convolve(*t, **options).square(), x, w, normal(2))
    check_rule(lambda *t: convolve(*t, **options).square(), x, w)


def test_convolutions_with_frozen_parts_have_the_derivatives_of_autograd(normal):
    for leaves in choices([normal(3, 2, 4, 4), normal(2, 2, 2, 2), normal(2)]):
        check_rule(lambda *t: F.conv2d(*t, padding=1).square(), *leaves)


def test_settings_that_differ_between_dimensions(normal):
    options = {"stride": (1, 2), "padding": (2, 0), "dilation": (1, 2)}
    check_rule(lambda *t: F.conv2d(*t, **options).square(), normal(2, 2, 5, 6), normal(3, 2, 3, 2), normal(3))


@pytest.mark.parametrize("options", [{"padding": "valid"}, {"padding": "same"}, {"padding": "same", "dilation": 2}])
def test_padding_may_be_given_by_name(options, normal):
    leaves = normal(2, 2, 5, 5), normal(3, 2, 3, 3), normal(3)
    check_rule(lambda *t: F.conv2d(*t, **options).square(), *leaves)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_more_padding_on_one_side_is_left_to_pytorch(normal):
    leaves = normal(2, 2, 4, 4), normal(3, 2, 3, 2), normal(3)
    check_rule(lambda *t: F.conv2d(*t, padding="same").square(), *leaves, used=False)


def test_a_convolution_of_one_image_is_left_to_pytorch(normal):
    check_rule(lambda *t: F.conv2d(*t).square(), normal(2, 4, 4), normal(3, 2, 2, 2), used=False)


TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
LARGER = {
    "plain": {},
    "stride": {"stride": 2},
    "all combined": {"stride": 3, "padding": 2, "output_padding": 1, "dilation": 2, "groups": 2},
}


@pytest.mark.parametrize("options", LARGER.values(), ids=LARGER)
@pytest.mark.parametrize("dims", TRANSPOSED)
def test_transposed_convolutions_have_the_derivatives_of_autograd(dims, options, normal):
    x, w = normal(3, 4, *[3] * dims), normal(4, 2, *[2] * dims)
    channels = 2 * options.get("groups", 1)
    check_rule(lambda *t: TRANSPOSED[dims](*t, **options).square(), x, w, normal(channels))
    check_rule(lambda *t: TRANSPOSED[dims](*t, **options).square(), x, w)


def test_a_transposed_convolution_of_one_image_is_left_to_pytorch(normal):
    check_rule(lambda *t: F.conv_transpose2d(*t).square(), normal(2, 4, 4), normal(2, 3, 2, 2), used=False)


def test_layers_that_store_the_transposed_weight(normal):
    for leaves in choices([normal(3), normal(5, 4), normal(4, 3)]):
        check_rule(lambda *t: torch.addmm(*t).square(), *leaves)
    check_rule(lambda *t: torch.addmm(*t, beta=2.0).square(), normal(3), normal(5, 4), normal(4, 3), used=False)
    check_rule(lambda *t: torch.addmm(*t).square(), normal(5, 3), normal(5, 4), normal(4, 3), used=False)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.norm = nn.Conv2d(2, 2, 3, padding="same"), nn.GroupNorm(2, 2)
        self.up, self.again = nn.ConvTranspose2d(2, 3, 2, stride=2), nn.BatchNorm2d(3)

    def forward(self, x):
        return F.silu(self.again(self.up(F.relu_(self.norm(self.down(x)))))).mean((2, 3))


def test_a_decoder_has_the_curvature_of_autograd(normal):
    check_curvature(Decoder(), frozen(normal(4, 2, 3, 3)))


def test_images_may_be_stored_channels_last(normal):
    x = frozen(normal(3, 2, 4, 4)).contiguous(memory_format=torch.channels_last).requires_grad_()
    check_rule(lambda *t: F.conv2d(*t, padding=1).square(), x, normal(4, 2, 3, 3), normal(4))


def test_images_stored_channels_last_stay_so(normal):
    x = frozen(normal(3, 2, 4, 4)).contiguous(memory_format=torch.channels_last).requires_grad_()
    w = normal(4, 2, 3, 3)
    with EfficientRules(second=False):
        y = F.conv2d(x, w, padding=1)
    for tensor in (y, *torch.autograd.grad(y.sum(), [x, w])):
        assert tensor.is_contiguous(memory_format=torch.channels_last)
