"""Max pooling, with derivatives that take several directions at once in any memory layout."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

Context = Any  # autograd's context object, to which a Function may attach what it likes


class MaxPool(Function):
    """Max pooling; which number of a window is the largest is taken as fixed."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, *options: Any) -> Tensor:
        value, places = torch.ops.aten.max_pool2d_with_indices(x, *options)
        ctx.save_for_backward(x, places)
        ctx.options = options
        return value

    @staticmethod
    def backward(ctx: Context, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        x, places = ctx.saved_tensors
        own = MaxPoolBackward.apply if torch.is_grad_enabled() else _to_places
        return own(cotangent, x.detach(), places, ctx.options), *(None for _ in ctx.options)


class MaxPoolBackward(Function):
    """The numbers ȳ put back at the places they came from, as a function of ȳ."""

    @staticmethod
    def forward(ctx: Context, cotangent: Tensor, x: Tensor, places: Tensor, options: tuple[Any, ...]) -> Tensor:
        ctx.save_for_backward(places)
        return _to_places(cotangent, x, places, options)

    @staticmethod
    def backward(ctx: Context, tangent: Tensor) -> tuple[Tensor, None, None, None]:
        return _at_places(tangent, *ctx.saved_tensors), None, None, None


def _to_places(cotangent: Tensor, x: Tensor, places: Tensor, options: tuple[Any, ...]) -> Tensor:
    return torch.ops.aten.max_pool2d_with_indices_backward(cotangent, x, *options, places)


def _at_places(tangent: Tensor, places: Tensor) -> Tensor:
    """The numbers at these places, in their layout: PyTorch asks for the tangent's, which several directions lack."""
    if places.ndim == 4 and places.is_contiguous(memory_format=torch.channels_last):
        rows, own = (t.permute(0, 2, 3, 1).reshape(len(places), -1, places.shape[1]) for t in (tangent, places))
        return rows.gather(1, own).reshape(len(places), *places.shape[2:], -1).permute(0, 3, 1, 2)
    rows, own = (t.reshape(*places.shape[:-2], -1) for t in (tangent, places))
    return rows.gather(-1, own).reshape(places.shape)


def max_pool_rule(
    second: bool,
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """`F.max_pool2d`, unless the indices are requested too."""
    if not input.requires_grad or return_indices:
        return NotImplemented
    lists = ([size] if isinstance(size, int) else list(size or ()) for size in (kernel_size, stride, padding, dilation))
    return MaxPool.apply(input, *lists, ceil_mode)
