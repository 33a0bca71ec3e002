"""Pointwise functions φ(x), with their slope φ' and curvature φ'' evaluated once.

PyTorch's own double backward of GELU evaluates the error function anew in every product; that of a hard sigmoid does
not exist.
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
        ctx.save_for_backward(slope, x if second else None)
        ctx.phi = phi
        return value

    @staticmethod
    def backward(ctx: Context, cotangent: Tensor) -> tuple[Tensor, None, None]:
        slope, x = ctx.saved_tensors
        if torch.is_grad_enabled() and x is not None:
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


class Overwrite(Function):
    """x with its values replaced and its history dropped, as after an in-place operation."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, value: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        ctx.part = x._is_view()  # what comes back to a part of a tensor must be said to be zero: None changes nothing
        return x.copy_(value)

    @staticmethod
    def backward(ctx: Context, cotangent: Tensor) -> tuple[Tensor | None, Tensor]:
        return torch.zeros_like(cotangent) if ctx.part else None, cotangent


def pointwise_rule(func: Any, *, bent: bool = True, in_place: bool = False) -> Callable[..., Any]:
    """The rule of one pointwise function; if it is not `bent`, its second derivative is zero wherever it exists."""

    def rule(second: bool, input: Tensor, *args: Any, inplace: bool = False, **kwargs: Any) -> Any:
        if not input.requires_grad:
            return NotImplemented
        phi = lambda t: func(t, *args, **kwargs)
        if not (inplace or in_place):
            return Pointwise.apply(input, phi, second and bent)
        return Overwrite.apply(input, Pointwise.apply(input.clone(), phi, second and bent))

    return rule


SMOOTH = (
    F.gelu, F.silu, F.mish, F.softplus, F.elu, F.celu, F.selu, F.logsigmoid, F.softsign, F.tanhshrink, F.hardswish,
    torch.celu, torch.selu, torch.tanh, torch.sigmoid, torch.erf, torch.sin, torch.cos,
    Tensor.tanh, Tensor.sigmoid, Tensor.erf, Tensor.sin, Tensor.cos,
)  # fmt: skip
OF_PIECES = (F.hardsigmoid, F.hardtanh, F.relu6, F.leaky_relu)
IN_PLACE = {
    F.elu_: F.elu, torch.celu_: torch.celu, torch.selu_: torch.selu,
    torch.tanh_: torch.tanh, torch.sigmoid_: torch.sigmoid, torch.erf_: torch.erf, torch.sin_: torch.sin,
    torch.cos_: torch.cos, Tensor.tanh_: torch.tanh, Tensor.sigmoid_: torch.sigmoid, Tensor.erf_: torch.erf,
    Tensor.sin_: torch.sin, Tensor.cos_: torch.cos,
}  # fmt: skip
IN_PLACE_OF_PIECES = {F.hardtanh_: F.hardtanh, F.leaky_relu_: F.leaky_relu}

POINTWISE: dict[Any, Callable[..., Any]] = {
    **{func: pointwise_rule(func) for func in SMOOTH},
    **{func: pointwise_rule(func, bent=False) for func in OF_PIECES},
    **{func: pointwise_rule(plain, in_place=True) for func, plain in IN_PLACE.items()},
    **{func: pointwise_rule(plain, bent=False, in_place=True) for func, plain in IN_PLACE_OF_PIECES.items()},
}
