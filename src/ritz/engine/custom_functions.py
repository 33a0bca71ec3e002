"""Custom autograd Functions: whether the derivative of their backward pass is complete."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from ..risk.parameters import as_pairs
from .agreement import tolerance
from .graph_bytes import nodes
from .linearized import DoesNotApply, ReverseMode
from .pieces import inner, norm

TIMES = 30  # times the disagreement of two step sizes, plus rounding: how far a difference may be from a derivative


def check_custom_functions(batch: ReverseMode) -> None:
    """Refuse a linearisation that lacks what a custom Function's backward pass hides from autograd.

    A backward that reads numbers without their history is a constant to autograd: the first derivative is right, and
    the second lacks terms, symmetrically, so that only finite differences of Jᵀu show it. Where already the first
    derivative is not that of the outputs, as for rounding with a straight-through gradient, it is a convention, and so
    is the second.
    """
    if any(map(_is_custom, nodes([batch.outputs.grad_fn]))):
        with batch.risk.numerics():
            _check(batch)


def _is_custom(node: object) -> bool:
    """Whether a node belongs to a Function defined neither by PyTorch nor by ritz."""
    if not isinstance(node, BackwardCFunction):
        return False
    return getattr(node, "_forward_cls", type(node)).__module__.partition(".")[0] not in ("torch", "ritz")


def _check(batch: ReverseMode) -> None:
    u = batch.risk.loss.gradient(batch.z, batch.batch.targets)
    gradient = batch.vjp(u[None])
    length, scale = norm(gradient), norm(batch.risk.theta[None])
    if not 0 < length < float("inf"):
        return
    v = gradient * ((scale or 1.0) / length)
    line = _Line(batch, u, v, torch.finfo(v.dtype).eps ** (1 / 3))
    slope, second = v.new_tensor([inner(gradient, v)]), batch.functional(v)
    if line.is_derivative(slope[None], line.value) and not line.is_derivative(second, line.gradient):
        raise DoesNotApply("the backward pass of a custom autograd Function hides part of its derivative from autograd")


@dataclass(frozen=True)
class _Line:
    """f along θ + t v, against a fixed u."""

    batch: ReverseMode
    u: Tensor
    v: Float[Tensor, "1 n"]
    step: float

    def value(self, t: float) -> Float[Tensor, "1 1"]:
        """u · f."""
        with torch.no_grad():
            return (self.u * self._outputs(t)[1]).sum().reshape(1, 1)

    def gradient(self, t: float) -> Float[Tensor, "1 n"]:
        """Jᵀu."""
        leaves, z = self._outputs(t)
        risk = self.batch.risk
        return risk.flatten(torch.autograd.grad(z, leaves, self.u, allow_unused=True))[None]

    def is_derivative(self, candidate: Tensor, function: Callable[[float], Tensor]) -> bool:
        """Whether finite differences agree; undecided near a kink, where two step sizes disagree with each other."""
        near, far = (self._difference(function, step) for step in (self.step, 2 * self.step))
        noise = norm(near - far) + tolerance(candidate.dtype) * norm(near)
        return not norm(candidate - near) > TIMES * noise

    def _difference(self, function: Callable[[float], Tensor], step: float) -> Tensor:
        return (function(step) - function(-step)) / (2 * step)

    def _outputs(self, t: float) -> tuple[list[Tensor], Tensor]:
        risk = self.batch.risk
        moved = risk.unflatten(risk.theta + t * self.v[0])
        leaves = [leaf.detach().requires_grad_() for leaf in map(as_pairs, moved)]
        return leaves, risk.outputs(leaves, self.batch.batch)
