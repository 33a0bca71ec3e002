"""Linear layers and convolutions as bilinear maps: y = C(x, w), x̄ = I(ȳ, w), w̄ = K(ȳ, x).

The three maps are each other's derivatives, so that derivatives of any order are fast kernels, where PyTorch's own
double backward of a convolution convolves with kernels as large as the image.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from .convolution import Convolution, has_memory

Context = Any  # autograd's context object, to which a Function may attach what it likes


class Matrix:
    """The bilinear maps of y = x Wᵀ, for x with any leading dimensions."""

    def forward(self, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
        """C(x, w) + b."""
        return F.linear(x, w, bias)

    def along(self, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
        """C(x, w) + b of tangents."""
        return F.linear(x, w, bias)

    def to_input(self, y: Tensor, w: Tensor) -> Tensor:
        """I(ȳ, w) = ȳ W."""
        return y @ w

    def to_weight(self, y: Tensor, x: Tensor) -> Tensor:
        """K(ȳ, x) = ȳᵀ x."""
        return y.reshape(-1, y.shape[-1]).T @ x.reshape(-1, x.shape[-1])

    def to_bias(self, y: Tensor) -> Tensor:
        """Σ ȳ."""
        return y.reshape(-1, y.shape[-1]).sum(0)

    def from_bias(self, b: Tensor) -> Tensor:
        """b, shaped to broadcast over y."""
        return b

    def add_along(self, y: Tensor, x: Tensor, w: Tensor) -> Tensor:
        """y + C(x, w), accumulated by the matrix product itself where y is a tensor of its own."""
        if not has_memory(y):
            return y + F.linear(x, w)
        y.view(-1, y.shape[-1]).addmm_(x.reshape(-1, x.shape[-1]), w.T)
        return y

    def stored(self, w: Tensor) -> Tensor:
        """w as it is: no other memory layout of a matrix would help."""
        return w


class Bilinear(Function):
    """y = C(x, w) + b, with x̄ = I(ȳ, w), w̄ = K(ȳ, x): the three maps are each other's derivatives."""

    @staticmethod
    def forward(
        ctx: Context, x: Tensor, w: Tensor, bias: Tensor | None, maps: Matrix | Convolution, second: bool
    ) -> Tensor:
        to_x, to_w, *_ = ctx.needs_input_grad
        ctx.save_for_backward(x if to_w else None, w if to_x else None)  # what is not kept may change in place
        ctx.maps, ctx.second = maps, second
        y = maps.forward(x, w, bias)
        return torch.ops.aten._unsafe_view(y, y.shape) if y._is_view() else y  # a view could not be changed in place

    @staticmethod
    def backward(ctx: Context, y: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        needed = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():
            x, w = (x, w) if ctx.second else (detached(x), detached(w))
            return *BilinearBackward.apply(y, x, w, ctx.maps, needed), None, None
        return *_bilinear_backward(y, x, w, ctx.maps, needed), None, None


class BilinearBackward(Function):
    """(x̄, w̄, b̄) as functions of ȳ, x and w."""

    @staticmethod
    def forward(
        ctx: Context,
        y: Tensor,
        x: Tensor | None,
        w: Tensor | None,
        maps: Matrix | Convolution,
        needed: tuple[bool, ...],
    ) -> tuple[Tensor | None, ...]:
        _, to_x, to_w, *_ = ctx.needs_input_grad
        ctx.save_for_backward(y if to_x or to_w else None, x, w)
        ctx.maps, ctx.shape = maps, y.shape
        ctx.set_materialize_grads(False)
        return _bilinear_backward(y, x, w, maps, needed)

    @staticmethod
    def backward(ctx: Context, dx: Tensor | None, dw: Tensor | None, db: Tensor | None) -> tuple[Tensor | None, ...]:
        y, x, w = ctx.saved_tensors
        maps, (_, to_x, to_w, *_) = ctx.maps, ctx.needs_input_grad
        dw = None if dw is None else maps.stored(dw)
        return (
            _tangent(maps, ctx.shape, x, w, dx, dw, db),
            maps.to_input(y, dw) if to_x and dw is not None else None,
            maps.to_weight(y, dx) if to_w and dx is not None else None,
            None,
            None,
        )


def _bilinear_backward(
    y: Tensor, x: Tensor | None, w: Tensor | None, maps: Matrix | Convolution, needed: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    return (
        None if w is None else maps.to_input(y, w),
        None if x is None else maps.to_weight(y, x),
        maps.to_bias(y) if needed[2] else None,
    )


def _tangent(
    maps: Matrix | Convolution,
    shape: torch.Size,
    x: Tensor | None,
    w: Tensor | None,
    dx: Tensor | None,
    dw: Tensor | None,
    db: Tensor | None,
) -> Tensor | None:
    """ẏ = C(ẋ, w) + C(x, ẇ) + ḃ."""
    if dw is not None and x is not None:
        along = maps.along(x, dw, db)
        return along if dx is None or w is None else maps.add_along(along, dx, w)
    if dx is not None and w is not None:
        return maps.along(dx, w, db)
    return None if db is None else maps.from_bias(db).expand(shape)


def detached(tensor: Tensor | None) -> Tensor | None:
    """A tensor detached from its history, or None."""
    return None if tensor is None else tensor.detach()


def linear_rule(second: bool, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """`F.linear` of a batch, with a matrix that has entries."""
    if input.ndim < 2 or weight.ndim != 2 or not weight.numel():
        return NotImplemented
    return Bilinear.apply(input, weight, bias, Matrix(), second)


def addmm_rule(second: bool, input: Tensor, mat1: Tensor, mat2: Tensor, **factors: Any) -> Any:
    """`torch.addmm` as the linear layer of networks that store the transposed weight."""
    if factors or input.ndim != 1:
        return NotImplemented
    return linear_rule(second, mat1, mat2.T, input)


def convolution_rule(
    second: bool,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """`F.conv1d`, `F.conv2d` and `F.conv3d` of a batch, with equal padding on both sides."""
    if isinstance(padding, str):
        padding = _padding_in_numbers(padding, weight, dilation)
    if padding is None or input.ndim != weight.ndim:  # an input without a batch dimension
        return NotImplemented
    maps = Convolution(input, weight, stride, padding, dilation, groups)
    weight = maps.stored(weight)
    result = Bilinear.apply(input, weight, bias, maps, second)
    if result.requires_grad:
        result.convolution = (input, weight, bias, maps, input._version, result._version)  # for a batch norm behind it
    return result


def _padding_in_numbers(name: str, weight: Tensor, dilation: Any) -> list[int] | None:
    """The padding that "valid" or "same" stands for; None where one side gets more than the other."""
    sizes = weight.shape[2:]
    steps = [dilation] * len(sizes) if isinstance(dilation, int) else dilation
    added = [step * (size - 1) if name == "same" else 0 for step, size in zip(steps, sizes, strict=True)]
    return None if any(number % 2 for number in added) else [number // 2 for number in added]


def transposed_convolution_rule(
    second: bool,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """`F.conv_transpose1d` and its kin of a batch."""
    if input.ndim != weight.ndim:
        return NotImplemented
    more = [output_padding] * (weight.ndim - 2) if isinstance(output_padding, int) else output_padding
    maps = Convolution(input, weight, stride, padding, dilation, groups, more)
    return Bilinear.apply(input, maps.stored(weight), bias, maps, second)
