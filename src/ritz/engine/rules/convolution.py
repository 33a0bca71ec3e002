"""The three bilinear maps of a convolution: y = C(x, w), x̄ = I(ȳ, w), w̄ = K(ȳ, x).

In float32 cuDNN has slow kernels for images of a few pixels, where it takes Fourier transforms or divides the work as
for large ones, and slower ones for many images than for some. There the maps of tangents and cotangents go another way:
small images as a matrix product of their patches, and others in parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

MOST_IMAGES = 512  # for a float32 convolution: beyond, cuDNN chooses kernels that take up to twice as long
SMALL_IMAGE = 16  # pixels: up to here patches are faster, two to eight times on an H200; at 64 they are not
LONG_PATCH = 256  # numbers: shorter patches make matrices that are too thin


class Convolution:
    """The bilinear maps of a convolution, or of a transposed one if the extra size of its output is given."""

    def __init__(
        self, x: Tensor, w: Tensor, stride: Any, padding: Any, dilation: Any, groups: int, more_output: Any = None
    ) -> None:
        self.transposed, self.groups = more_output is not None, groups
        numbers = (stride, padding, dilation, more_output or 0)
        tuples = ([a] * (w.ndim - 2) if isinstance(a, int) else list(a) for a in numbers)
        self.stride, self.padding, self.dilation, self.more_output = tuples
        self.input_shape, self.weight_shape = x.shape, w.shape
        self.channels_last = x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)

    def forward(self, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
        """C(x, w) + b by the kernel that the model itself takes: the last digit decides where a ReLU follows."""
        return torch.ops.aten.convolution(
            x, w, bias, self.stride, self.padding, self.dilation, self.transposed, self.more_output, self.groups
        )

    def along(self, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
        """C(x, w) + b of tangents, by the fastest kernels."""
        if not _has_slow_kernels(x):
            return self.forward(x, w, bias)
        one = self._by_patches if self._is_small() else self.forward
        return _in_parts(lambda part: one(part, w, bias), x)

    def to_input(self, y: Tensor, w: Tensor) -> Tensor:
        """I(ȳ, w), stored as w is."""
        if not _has_slow_kernels(y):
            return self._to_input(y, w)
        if self._is_small():  # the transposed map is a convolution, too, with the kernel turned round
            turned = w.flip(2, 3).transpose(0, 1)
            return _in_parts(lambda part: self._by_patches(part, turned), y)
        return _in_parts(lambda part: self._to_input(part, w), y)

    def to_weight(self, y: Tensor, x: Tensor) -> Tensor:
        """K(ȳ, x)."""
        if not _has_slow_kernels(y) or len(y) <= MOST_IMAGES:
            return self._to_weight(y, x)
        return reduce(torch.add, map(self._to_weight, y.split(MOST_IMAGES), x.split(MOST_IMAGES)))

    def to_bias(self, y: Tensor) -> Tensor:
        """Σ ȳ over examples and positions."""
        return y.sum([0, *range(2, y.ndim)])

    def from_bias(self, b: Tensor) -> Tensor:
        """b, shaped to broadcast over y."""
        return b.view([-1] + [1] * len(self.stride))

    def add_along(self, y: Tensor, x: Tensor, w: Tensor) -> Tensor:
        """y + C(x, w)."""
        return y.add_(self.along(x, w))

    def stored(self, w: Tensor) -> Tensor:
        """A kernel in the memory layout of the images, so that products convert nothing."""
        if self.channels_last and has_memory(w):
            return w.contiguous(memory_format=torch.channels_last)
        return w

    def _to_input(self, y: Tensor, w: Tensor) -> Tensor:
        only_a_shape = y.new_empty(1).expand(len(y), *self.input_shape[1:])
        return self._backward(y, only_a_shape, w, [True, False, False])[0]

    def _to_weight(self, y: Tensor, x: Tensor) -> Tensor:
        return self._backward(y, x, y.new_empty(1).expand(self.weight_shape), [False, True, False])[1]

    def _backward(self, y: Tensor, x: Tensor, w: Tensor, mask: list[bool]) -> tuple[Any, ...]:
        numbers = self.stride, self.padding, self.dilation, self.transposed, self.more_output, self.groups
        return torch.ops.aten.convolution_backward(y, x, w, None, *numbers, mask)

    def _is_small(self) -> bool:
        """Whether patches are faster, of a convolution that keeps the size of its images."""
        sizes = list(self.weight_shape[2:])
        keeps_size = [2 * p + 1 for p in self.padding] == sizes and {*self.stride, *self.dilation} == {1}
        return (
            len(sizes) == 2
            and keeps_size
            and not self.transposed
            and self.groups == 1
            and math.prod(self.input_shape[2:]) <= SMALL_IMAGE
            and min(self.weight_shape[:2]) * math.prod(sizes) >= LONG_PATCH
        )

    def _by_patches(self, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
        """C(x, w) + b as one matrix product with the neighbourhood of every pixel, in the layout of the images."""
        high, wide = w.shape[2:]
        padded = F.pad(x, (wide // 2, wide // 2, high // 2, high // 2)).permute(0, 2, 3, 1)
        windows = padded.unfold(1, high, 1).unfold(2, wide, 1)  # examples × rows × columns × channels × high × wide
        patches = windows.permute(0, 1, 2, 4, 5, 3).reshape(-1, high * wide * w.shape[1])
        kernel = w.permute(2, 3, 1, 0).reshape(-1, w.shape[0])
        y = patches @ kernel if bias is None else torch.addmm(bias, patches, kernel)
        images = y.view(len(x), *x.shape[2:], -1).permute(0, 3, 1, 2)
        return images if self.channels_last else images.contiguous()


def _has_slow_kernels(x: Tensor) -> bool:
    """Whether cuDNN multiplies in float32; several columns under vmap are left to PyTorch."""
    cudnn: Any = torch.backends.cudnn
    return x.is_cuda and x.dtype == torch.float32 and cudnn.conv.fp32_precision == "ieee" and has_memory(x)


def _in_parts(work: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return work(x) if len(x) <= MOST_IMAGES else torch.cat([work(part) for part in x.split(MOST_IMAGES)])


def has_memory(tensor: Tensor) -> bool:
    """Whether a tensor is a plain array that can be written to, and does not stand for several columns under vmap."""
    try:
        tensor.data_ptr()
    except RuntimeError:
        return False
    return True
