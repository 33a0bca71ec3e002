"""Normalisations: of layers, groups, instances and batches.

PyTorch's own double backward of a normalisation expands into dozens of elementwise passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from .bilinear import Bilinear, detached

Context = Any  # autograd's context object, to which a Function may attach what it likes


class WithValue(Function):
    """A rule's derivatives at PyTorch's own value.

    A value computed another way differs in its last digit, which decides where a ReLU follows. The value is wrapped in
    a function, so that it is not an input: a view of an input could not be changed in place afterwards.
    """

    @staticmethod
    def forward(ctx: Context, result: Tensor, value: Callable[[], Tensor]) -> Tensor:
        return value()

    @staticmethod
    def backward(ctx: Context, cotangent: Tensor) -> tuple[Tensor, None]:
        return cotangent, None


class Standardize(Function):
    """x̂ = r (x - mean) with r = 1/√(var + ε), over the last dimensions."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, shape: list[int], epsilon: float, second: bool) -> Tensor:
        standardized, mean, scale = torch.native_layer_norm(x, shape, None, None, epsilon)
        ctx.save_for_backward(x, standardized, mean, scale)
        ctx.shape, ctx.second = shape, second
        return standardized

    @staticmethod
    def backward(ctx: Context, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        x, standardized, mean, scale = ctx.saved_tensors
        if torch.is_grad_enabled():
            x = x if ctx.second else x.detach()
            result = StandardizeBackward.apply(cotangent, x, standardized, mean, scale, ctx.shape)
        else:
            result = _standardize_jacobian(cotangent, x, mean, scale, ctx.shape)
        return result, None, None, None


class StandardizeBackward(Function):
    """P ȳ = r (ȳ - mean(ȳ) - x̂ mean(ȳ x̂)) as a function of ȳ and x; P is symmetric."""

    @staticmethod
    def forward(
        ctx: Context, a: Tensor, x: Tensor, standardized: Tensor, mean: Tensor, scale: Tensor, shape: list[int]
    ) -> Tensor:
        result = _standardize_jacobian(a, x, mean, scale, shape)
        ctx.save_for_backward(a, x, standardized, mean, scale, result)
        ctx.shape = shape
        return result

    @staticmethod
    def backward(ctx: Context, c: Tensor) -> tuple[Tensor | None, ...]:
        a, x, standardized, mean, scale, projected = ctx.saved_tensors
        dims = list(range(-len(ctx.shape), 0))
        to_a = _standardize_jacobian(c, x, mean, scale, ctx.shape)
        if not ctx.needs_input_grad[1]:
            return to_a, None, None, None, None, None
        # ∇ₓ⟨c, P a⟩ = -r (x̂ mean(c·Pa) + P[mean(a x̂) c + mean(c x̂) a])
        mixed = (a * standardized).mean(dims, True) * c + (c * standardized).mean(dims, True) * a
        along = standardized * (c * projected).mean(dims, True)
        to_x = -scale * (along + _standardize_jacobian(mixed, x, mean, scale, ctx.shape))
        return to_a, to_x, None, None, None, None


def _standardize_jacobian(a: Tensor, x: Tensor, mean: Tensor, scale: Tensor, shape: list[int]) -> Tensor:
    return torch.ops.aten.native_layer_norm_backward(a, x, shape, mean, scale, None, None, [True, False, False])[0]


class LayerNorm(Function):
    """y = w x̂ + b."""

    @staticmethod
    def forward(
        ctx: Context,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        shape: list[int],
        epsilon: float,
        second: bool,
    ) -> Tensor:
        value, mean, scale = torch.native_layer_norm(x, shape, weight, bias, epsilon)
        ctx.save_for_backward(x, weight, bias, mean, scale)
        ctx.shape, ctx.second = shape, second
        return value

    @staticmethod
    def backward(ctx: Context, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, *constants = ctx.saved_tensors
        needed = list(ctx.needs_input_grad[:3])
        if not ctx.second:
            x, weight = x.detach(), detached(weight)
        run: Callable[..., Any] = LayerNormBackward.apply if torch.is_grad_enabled() else _layer_norm_backward
        return *run(cotangent, x, weight, *map(detached, constants), ctx.shape, needed), None, None, None


class LayerNormBackward(Function):
    """(x̄, w̄, b̄) = (P w ȳ, Σ ȳ x̂, Σ ȳ) as functions of ȳ, x and w, so that ẏ = w P ẋ + x̂ ẇ + ḃ."""

    @staticmethod
    def forward(
        ctx: Context,
        cotangent: Tensor,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        scale: Tensor,
        shape: list[int],
        needed: list[bool],
    ) -> tuple[Tensor | None, ...]:
        _, to_x, to_w, *_ = ctx.needs_input_grad
        standardized = (x - mean) * scale if needed[1] or to_x else None
        ctx.shape, ctx.output_shape = shape, cotangent.shape
        moment = None
        if to_x and standardized is not None:
            weighted = standardized if weight is None else standardized * weight
            moment = (cotangent * weighted).mean(_last(shape), True)
        ctx.save_for_backward(cotangent if to_x or to_w else None, x, weight, mean, scale, standardized, moment)
        ctx.set_materialize_grads(False)
        return _layer_norm_backward(cotangent, x, weight, bias, mean, scale, shape, needed)

    @staticmethod
    def backward(ctx: Context, dx: Tensor | None, dw: Tensor | None, db: Tensor | None) -> tuple[Tensor | None, ...]:
        y, x, weight, mean, scale, standardized, _ = ctx.saved_tensors
        _, to_x, to_w, *_ = ctx.needs_input_grad
        along = lambda t: _standardize_jacobian(t.contiguous(), x, mean, scale, ctx.shape)
        projected = None if dx is None else along(dx)
        total = None if db is None else db.expand(ctx.output_shape)
        if projected is not None:
            total = _sum_with_product(total, projected, weight)
        if dw is not None:
            total = _sum_with_product(total, standardized, dw)
        x_part = _norm_curvature(along, ctx.saved_tensors, ctx.shape, dx, projected, dw) if to_x else None
        w_part = (y * projected).sum_to_size(ctx.shape) if to_w and projected is not None else None
        return total, x_part, w_part, *[None] * 5


def _norm_curvature(
    along: Callable[[Tensor], Tensor],
    saved: tuple[Any, ...],  # as `LayerNormBackward` saves them, some of them None
    shape: list[int],
    dx: Tensor | None,
    projected: Tensor | None,
    dw: Tensor | None,
) -> Tensor | None:
    """P[ȳ ẇ - r (mean(a x̂) ẋ + mean(ẋ x̂) a)] - r x̂ mean(a·Pẋ) with a = w ȳ: ∇ₓ of ⟨ẋ, P a⟩ + ⟨ẇ, Σ ȳ x̂⟩."""
    y, _, weight, _, scale, standardized, moment = saved
    mixed = None if dw is None else y * dw
    if dx is None or projected is None:
        return None if mixed is None else along(mixed)
    a = y if weight is None else y * weight
    mean = lambda t: -scale * t.mean(_last(shape), True)
    mixed = _sum_with_product(mixed, dx, -scale * moment)
    mixed = _sum_with_product(mixed, a, mean(dx * standardized))
    return _sum_with_product(along(mixed), standardized, mean(a * projected))


def _last(shape: list[int]) -> list[int]:
    """The last dimensions, over which a layer is standardised."""
    return list(range(-len(shape), 0))


def _layer_norm_backward(
    cotangent: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    scale: Tensor,
    shape: list[int],
    needed: list[bool],
) -> tuple[Tensor | None, ...]:
    kernel = torch.ops.aten.native_layer_norm_backward
    results = kernel(cotangent.contiguous(), x, shape, mean, scale, weight, bias, needed)
    return tuple(tensor if used else None for tensor, used in zip(results, needed, strict=True))


def _sum_with_product(total: Tensor | None, a: Tensor, b: Tensor | None) -> Tensor:
    """total + a b, where a missing total is zero and a missing b is one."""
    if total is None:
        return a if b is None else a * b
    return total + a if b is None else torch.addcmul(total, a, b)


def layer_norm_rule(
    second: bool,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Tensor:
    """`F.layer_norm`."""
    return LayerNorm.apply(input, weight, bias, list(normalized_shape), eps, second)


def group_norm_rule(
    second: bool,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    """`F.group_norm`: every group of channels is standardised like a layer, and every channel scaled.

    Not for images stored channels last, whose groups would have to be gathered and scattered in every product.
    """
    if not input.is_contiguous():
        return NotImplemented
    groups = input.reshape(len(input), num_groups, -1)
    result = Standardize.apply(groups, [groups.shape[-1]], eps, second).view(input.shape)
    channels = [-1] + [1] * (input.ndim - 2)
    result = result if weight is None else result * weight.view(channels)
    result = result if bias is None else result + bias.view(channels)
    plain = detached(weight), detached(bias)
    return WithValue.apply(result, lambda: F.group_norm(input.detach(), num_groups, *plain, eps))


def instance_norm_rule(
    second: bool,
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """`F.instance_norm` by the statistics of each example: a group for each channel."""
    if running_mean is not None or not use_input_stats:
        return NotImplemented
    result = group_norm_rule(second, input, input.shape[1], weight, bias, eps)
    if result is NotImplemented:
        return NotImplemented
    plain = detached(weight), detached(bias)
    return WithValue.apply(result, lambda: F.instance_norm(input.detach(), None, None, *plain, eps=eps))


def batch_norm_rule(
    second: bool,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """`F.batch_norm` in evaluation mode: an affine map of each channel, fused with the convolution in front of it.

    An affine map of a convolution is a convolution.
    """
    if training or running_mean is None or running_var is None:
        return NotImplemented
    scale = (running_var + eps).rsqrt()  # in evaluation mode the layer is affine, channel by channel
    scale = scale if weight is None else scale * weight
    shift = -running_mean * scale if bias is None else bias - running_mean * scale
    x, w, b, maps, *versions = getattr(input, "convolution", [None] * 6)
    if x is not None and versions == [x._version, input._version]:  # nothing was changed in place since then
        w = w * scale.view([-1] + [1] * (w.ndim - 1))
        result = Bilinear.apply(x, w, shift if b is None else shift + b * scale, maps, second)
    else:
        channels = [-1] + [1] * (input.ndim - 2)
        result = torch.addcmul(shift.view(channels), input, scale.view(channels))
    plain = detached(weight), detached(bias)
    return WithValue.apply(
        result, lambda: F.batch_norm(input.detach(), running_mean, running_var, *plain, False, momentum, eps)
    )
