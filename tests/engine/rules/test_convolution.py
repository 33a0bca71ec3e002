"""Convolutions in float32 on a GPU, which every tensor here passes for: small images by patches, others in parts."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from ritz.engine.rules import convolution
from tests.engine.rules.derivatives import check_rule, choices, frozen
from tests.engine.rules.networks import check_curvature

KERNELS = {"3 × 3": (3, 3), "1 × 5": (1, 5), "1 × 1": (1, 1)}


@pytest.fixture(autouse=True)
def slow_kernels(monkeypatch):
    monkeypatch.setattr(convolution, "_has_slow_kernels", convolution.has_memory)
    monkeypatch.setattr(convolution, "LONG_PATCH", 1)
    monkeypatch.setattr(convolution, "MOST_IMAGES", 2)


@pytest.fixture
def patches(monkeypatch):
    """How many convolutions went by patches, counted."""
    count = []
    own = convolution.Convolution._by_patches
    spy = lambda self, *tensors: count.append(1) or own(self, *tensors)
    monkeypatch.setattr(convolution.Convolution, "_by_patches", spy)
    return count


@pytest.mark.parametrize("size", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels last"])
def test_small_images_by_patches_have_the_derivatives_of_autograd(size, last, normal, patches):
    padding = tuple(n // 2 for n in size)
    layout = torch.channels_last if last else torch.contiguous_format
    for x, w, b in choices([normal(5, 2, 3, 4), normal(3, 2, *size), normal(3)]):
        images = x.detach().contiguous(memory_format=layout).requires_grad_(x.requires_grad)
        check_rule(lambda *t: F.conv2d(*t, padding=padding).square(), images, w, b)
    assert patches


OTHERS = {
    "large images": ((5, 2, 5, 5), {"padding": 1}),
    "stride": ((5, 2, 4, 4), {"padding": 1, "stride": 2}),
    "dilation": ((5, 2, 4, 4), {"padding": 2, "dilation": 2}),
    "no padding": ((5, 2, 4, 4), {}),
    "a row": ((5, 2, 8), {"padding": 1}),
}


@pytest.mark.parametrize(("shape", "options"), OTHERS.values(), ids=OTHERS)
def test_other_convolutions_in_parts_have_the_derivatives_of_autograd(shape, options, normal, patches):
    convolve = F.conv1d if len(shape) == 3 else F.conv2d
    x, w = normal(*shape), normal(3, 2, *[3] * (len(shape) - 2))
    check_rule(lambda *t: convolve(*t, **options).square(), x, w, normal(3))
    check_rule(lambda *t: convolve(*t, **options).square(), frozen(x), w)
    assert not patches


def test_groups_and_transposed_convolutions_do_not_go_by_patches(normal, patches):
    check_rule(lambda *t: F.conv2d(*t, padding=1, groups=2).square(), normal(5, 2, 3, 3), normal(2, 1, 3, 3))
    check_rule(lambda *t: F.conv_transpose2d(*t, padding=1).square(), normal(5, 2, 3, 3), normal(2, 3, 3, 3))
    assert not patches


def test_a_network_of_small_images_has_the_curvature_of_autograd(normal, patches):
    layers = [torch.nn.Conv2d(2, 3, 3, padding=1), torch.nn.BatchNorm2d(3), torch.nn.Tanh()]
    model = torch.nn.Sequential(*layers, torch.nn.Conv2d(3, 3, 3, padding=1), torch.nn.Flatten())
    check_curvature(model, frozen(normal(5, 2, 4, 4)))
    assert patches


def test_the_value_is_that_of_the_models_own_kernel(normal, patches):
    x, w = frozen(normal(5, 2, 4, 4)), frozen(normal(3, 2, 3, 3))
    maps = convolution.Convolution(x, w, 1, 1, 1, 1)
    assert torch.equal(maps.forward(x, w), F.conv2d(x, w, padding=1)) and not patches
    assert_close(maps.along(x, w), F.conv2d(x, w, padding=1))
    assert patches
