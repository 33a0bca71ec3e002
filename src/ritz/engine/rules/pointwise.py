"""Pointwise functions φ(x), whose slope φ' and curvature φ'' are evaluated once.

PyTorch's own double backward of GELU evaluates the error function anew in every product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

Context = Any  # autograd's context object, to which a Function may attach what it likes
Scalar = Callable[[Tensor], Tensor]  # a function applied elementwise


class Pointwise(Function):
    """φ(x), its slope and curvature evaluated once."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, phi: Scalar, second: bool) -> Tensor:
        value, slope = _value_and_slope(x, phi)
        ctx.save_for_backward(x, slope)
        ctx.phi, ctx.second = phi, second
        return value

    @staticmethod
    def backward(ctx: Context, cotangent: Tensor) -> tuple[Tensor, None, None]:
        x, slope = ctx.saved_tensors
        if torch.is_grad_enabled() and ctx.second:
            return PointwiseBackward.apply(cotangent, x, slope, ctx.phi), None, None
        return cotangent * slope, None, None


class PointwiseBackward(Function):
    """ȳ φ'(x) as a function of ȳ and x."""

    @staticmethod
    def forward(ctx: Context, cotangent: Tensor, x: Tensor, slope: Tensor, phi: Scalar) -> Tensor:
        ctx.save_for_backward(slope, cotangent * _curvature(x, phi))
        return cotangent * slope

    @staticmethod
    def backward(ctx: Context, tangent: Tensor) -> tuple[Tensor, Tensor, None, None]:
        slope, bend = ctx.saved_tensors
        return tangent * slope, tangent * bend, None, None


def _value_and_slope(x: Tensor, phi: Scalar) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        value = phi(x)
        (slope,) = torch.autograd.grad(value, x, torch.ones_like(value))
    return value.detach(), slope


def _curvature(x: Tensor, phi: Scalar) -> Tensor:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        value = phi(x)
        (slope,) = torch.autograd.grad(value, x, torch.ones_like(value), create_graph=True)
        (curvature,) = torch.autograd.grad(slope, x, torch.ones_like(slope))
    return curvature


def pointwise_rule(func: Any) -> Callable[..., Any]:
    """The rule of one pointwise function; in place, it is left to PyTorch."""

    def rule(second: bool, input: Tensor, *args: Any, **kwargs: Any) -> Any:
        if kwargs.pop("inplace", False) or not input.requires_grad:
            return NotImplemented
        return Pointwise.apply(input, lambda t: func(t, *args, **kwargs), second)

    return rule


POINTWISE = (
    F.gelu, F.silu, F.mish, F.softplus, F.elu, F.celu, F.selu, F.logsigmoid, F.softsign, F.tanhshrink,
    torch.tanh, torch.sigmoid, torch.erf, torch.sin, torch.cos,
    Tensor.tanh, Tensor.sigmoid, Tensor.erf, Tensor.sin, Tensor.cos,
)  # fmt: skip
