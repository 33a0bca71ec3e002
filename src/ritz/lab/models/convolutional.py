"""Convolutional networks for 32 × 32 images: VGG11, ResNet-18 and ResNet-20, with batch norm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import ArgumentError, check_positive, check_whole
from . import build

COUNTED = "A network has at least one of these."
POOL = 0  # in a list of channels: halve the image here
VGG11 = (
    64,
    POOL,
    128,
    POOL,
    256,
    256,
    POOL,
    512,
    512,
    POOL,
    512,
    512,
    POOL,
)  # Simonyan and Zisserman (2014), Table 1 A


def vgg11(
    num_classes: int = 10,
    *,
    generator: torch.Generator,
    num_channels: int = 3,
    narrow: int = 1,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> nn.Sequential:
    """VGG11 with its three large linear layers and batch norm throughout: 28,157,706 parameters for 10 classes.

    Papyan (2020), App. D: batch norm in place of dropout. As its authors published it, there is one after every
    convolution too, the normalised linear layers have no bias, and weights are Gaussian: of variance 2/fan-out in
    convolutions, of deviation 0.01 in linear layers. Smaller images are padded (`data.padded`). `narrow` divides the
    width of every hidden layer, for machines without a GPU.

    >>> build.parameter_count(vgg11(generator=torch.Generator(), device="meta"))
    28157706
    """

    check_positive(COUNTED, num_classes=num_classes, num_channels=num_channels)

    def layout() -> nn.Sequential:
        features, classifier = _vgg_features(num_channels, narrow), _vgg_classifier(num_classes, narrow)
        return nn.Sequential(*features, nn.Flatten(), *classifier)

    _check_narrow(narrow)

    return build.network(layout, _draw_vgg, generator=generator, device=device, dtype=dtype)


def _vgg_features(num_channels: int, narrow: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    before = num_channels
    for after in (width // narrow for width in VGG11):
        if after == POOL:
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
            before = after
    return layers


def _vgg_classifier(num_classes: int, narrow: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    width = 4096 // narrow
    for before in (512 // narrow, width):
        layers += [nn.Linear(before, width, bias=False), nn.BatchNorm1d(width), nn.ReLU()]
    return [*layers, nn.Linear(width, num_classes)]


def _check_narrow(narrow: int) -> None:
    """Refuse a `narrow` that does not divide 64, and so every width of the network."""
    check_whole(narrow=narrow)
    if not 1 <= narrow <= 64 or 64 % narrow:
        raise ArgumentError(
            f"narrow={narrow} was given.",
            "It divides the widths of all layers, which are multiples of 64.",
            "Give 1, 2, 4, 8, 16, 32 or 64.",
        )


def _draw_vgg(part: nn.Module, generator: torch.Generator) -> None:
    if isinstance(part, nn.Linear):
        build.fill_normal(part.weight, 0.01, generator)
        if part.bias is not None:
            part.bias.zero_()
    else:
        _draw_by_fan_out(part, generator)


class ResidualBlock(nn.Module):
    """φ(x' + N(C φ(N(C x)))): two 3 × 3 convolutions C with batch norm N, beside a shortcut x'.

    Where the block changes the size, x' is a strided 1 × 1 convolution with batch norm (`projected`, option B of He et
    al. 2016), or every second pixel with zeros for the new channels (option A).

    >>> ResidualBlock(2, 4, stride=2)(torch.zeros(1, 2, 8, 8)).shape
    torch.Size([1, 4, 4, 4])
    """

    def __init__(self, before: int, after: int, *, stride: int = 1, projected: bool = True) -> None:
        super().__init__()
        check_positive(COUNTED, before=before, after=after, stride=stride)
        self.conv1, self.norm1 = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.conv2, self.norm2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        self.stride, self.new_channels = stride, after - before
        self.shortcut: nn.Sequential | None = None
        if projected and (stride > 1 or after != before):
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        h = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(h + self._shortened(x))

    def _shortened(self, x: Tensor) -> Tensor:
        if self.shortcut is not None:
            return self.shortcut(x)
        below = self.new_channels // 2
        padding = (0, 0, 0, 0, below, self.new_channels - below)
        return F.pad(x[:, :, :: self.stride, :: self.stride], padding) if self.new_channels else x


class Stage(NamedTuple):
    """Blocks of one size: their channels, how many there are, and the stride of the first."""

    channels: int
    num_blocks: int
    stride: int


def resnet18(
    num_classes: int = 10,
    *,
    generator: torch.Generator,
    num_channels: int = 3,
    narrow: int = 1,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> nn.Sequential:
    """ResNet-18 for 32 × 32 images: 11,173,962 parameters for 10 classes and 3 channels.

    The first convolution is 3 × 3 without stride, and no pooling follows it: the form in which Papyan (2020) published
    it for small images. He et al. (2016), Table 1, is for 224 × 224. `narrow` divides the width of every layer.

    >>> build.parameter_count(resnet18(generator=torch.Generator(), device="meta"))
    11173962
    """
    _check_narrow(narrow)
    stages = [Stage(width // narrow, 2, stride) for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2))]
    layout = partial(_resnet, stages, num_channels, num_classes, projected=True)
    return build.network(layout, _draw_resnet, generator=generator, device=device, dtype=dtype)


def resnet20(
    num_classes: int = 10,
    *,
    generator: torch.Generator,
    num_channels: int = 3,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> nn.Sequential:
    """ResNet-20 for 32 × 32 images: 269,722 parameters for 10 classes and 3 channels.

    He et al. (2016), Sec. 4.2, with shortcuts that have no parameters (option A; with option B there are 272,474).

    >>> build.parameter_count(resnet20(generator=torch.Generator(), device="meta"))
    269722
    """
    stages = [Stage(16, 3, 1), Stage(32, 3, 2), Stage(64, 3, 2)]
    layout = partial(_resnet, stages, num_channels, num_classes, projected=False)
    return build.network(layout, _draw_resnet, generator=generator, device=device, dtype=dtype)


def _resnet(stages: Sequence[Stage], num_channels: int, num_classes: int, *, projected: bool) -> nn.Sequential:
    check_positive(COUNTED, num_classes=num_classes, num_channels=num_channels)
    width = stages[0].channels
    layers: list[nn.Module] = [nn.Conv2d(num_channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    for stage in stages:
        for index in range(stage.num_blocks):
            stride = stage.stride if index == 0 else 1
            layers.append(ResidualBlock(width, stage.channels, stride=stride, projected=projected))
            width = stage.channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_classes))


def _draw_resnet(part: nn.Module, generator: torch.Generator) -> None:
    """Linear layers by PyTorch's default, all else by fan-out, as He et al. (2015)."""
    draw: Callable[[nn.Module, torch.Generator], None]
    draw = build.default if isinstance(part, nn.Linear) else _draw_by_fan_out
    draw(part, generator)


def _draw_by_fan_out(part: nn.Module, generator: torch.Generator) -> None:
    if isinstance(part, nn.Conv2d):
        fan_out = part.weight.numel() // part.in_channels
        build.fill_normal(part.weight, (2 / fan_out) ** 0.5, generator)
        if part.bias is not None:
            part.bias.zero_()
    else:
        build.fill_norm(part)
