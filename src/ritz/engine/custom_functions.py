"""Custom autograd Functions and hooks on tensors: whether the derivative of their backward pass is complete."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from ..risk.hidden_derivatives import has_custom_function, is_derivative
from ..risk.memory import free_memory
from ..risk.parameters import as_pairs
from .linearized import DoesNotApply, ReverseMode, nowhere_zero
from .pieces import inner, norm

VECTORS = 40  # of the size of θ in float64: what must be free for a check in that precision


def check_custom_functions(batch: ReverseMode) -> None:
    """Refuse a linearisation that lacks what a custom Function or a hook hides from autograd in the backward pass.

    What the second derivative lacks is symmetric, so that only finite differences of Jᵀu show it; what J v lacks, as
    the derivative of u ↦ Jᵀu, those of f. Where already Jᵀu is not the derivative of the outputs, as for rounding with
    a straight-through gradient, it is a convention, and so is what follows from it. One that clips or scales gradients
    by their own size is no Jᵀ at all, and J could not be had from it.
    """
    if batch.risk.has_hooks or has_custom_function(batch.outputs):
        batch = _in_double(batch)
        with batch.risk.numerics():
            _check(batch)


def _in_double(batch: ReverseMode) -> ReverseMode:
    """The batch linearised in float64, where small steps tell; as it is, if memory or a Function does not take that.

    In float32 a step must be so long that it meets the kinks of most networks with ReLUs.
    """
    risk = batch.risk
    if risk.dtype == torch.float64 or VECTORS * 8 * risk.size > free_memory(risk.device):
        return batch
    try:
        double = risk.in_double(batch.batch)
        way = partial(ReverseMode, rules=True) if batch.by_rules else type(batch)
        with double.numerics():
            return way(double, next(iter(double.batches)), batch.order)
    except Exception:  # whatever a user's Function raises in another precision
        return batch


def _check(batch: ReverseMode) -> None:
    who = "a hook on a tensor" if batch.risk.has_hooks else "the backward pass of a custom autograd Function"
    if not _is_linear(batch):
        raise DoesNotApply(f"{who} is not linear in the gradient, as one that clips it")
    u = batch.risk.loss.gradient(batch.z, batch.batch.targets)
    u = u if bool(u.any()) else nowhere_zero(batch.z)  # G does not vanish where all errors do
    gradient = batch.vjp(u[None])
    length, scale = norm(gradient), norm(batch.risk.theta[None])
    if not 0 < length < float("inf"):
        return
    v = gradient * ((scale or 1.0) / length)
    line = _Line(batch, u, v, torch.finfo(v.dtype).eps ** (1 / 3))
    right = line.is_derivative(v.new_tensor([[inner(gradient, v)]]), line.value)
    complete = lambda: (
        line.is_derivative(batch.functional(v), line.gradient)
        if batch.order == 2
        else line.is_derivative(batch.jvp(v).reshape(1, -1), line.outputs)
    )
    if right and not complete():
        raise DoesNotApply(f"{who} hides part of its derivative from autograd")


def _is_linear(batch: ReverseMode) -> bool:
    """Whether u ↦ Jᵀu doubles with u, but for what a solver in it leaves undone."""
    u = nowhere_zero(batch.z)[None]
    once, twice = batch.vjp(u), batch.vjp(2 * u)
    return not norm(twice - 2 * once) > torch.finfo(u.dtype).eps ** 0.25 * norm(twice)


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

    def outputs(self, t: float) -> Float[Tensor, "1 m"]:
        """f."""
        with torch.no_grad():
            return self._outputs(t)[1].reshape(1, -1)

    def gradient(self, t: float) -> Float[Tensor, "1 n"]:
        """Jᵀu."""
        leaves, z = self._outputs(t)
        risk = self.batch.risk
        return risk.flatten(torch.autograd.grad(z, leaves, self.u, allow_unused=True))[None]

    def is_derivative(self, candidate: Tensor, function: Callable[[float], Tensor]) -> bool:
        """Whether finite differences of a function of t agree with a candidate for its derivative."""
        return is_derivative(candidate, function, self.step, norm)

    def _outputs(self, t: float) -> tuple[list[Tensor], Tensor]:
        risk = self.batch.risk
        moved = risk.unflatten(risk.theta + t * self.v[0])
        leaves = [leaf.detach().requires_grad_() for leaf in map(as_pairs, moved)]
        return leaves, risk.outputs(leaves, self.batch.batch)
