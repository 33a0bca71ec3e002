"""The gradient of the user's own module, with which that of a risk is compared before the first product."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from ..errors import ModelError, OutputsWarning, first_line, listed, warn_user
from ..foreign_errors import is_out_of_memory
from .batches import Batch, Batches, in_pieces
from .first_evaluation import COMPARED_EXAMPLES, Evaluation
from .losses import Loss
from .model import output_tensor
from .network import Network, called
from .original import Original
from .parameters import inference_error
from .point import Point

DISTANCE = 0.01  # of the second point from θ: far enough for zeros to become something, near enough to stay finite
SHOWN = 4  # names of parameters in a message


def check_own_gradient(original: Original, loss: Loss, point: Point, batches: Batches, evaluation: Evaluation) -> None:
    """Refuse a model that uses its parameters in a way that the risk cannot follow, as seen on the first examples.

    A loss that depends on parameters is refused too: a risk takes it for a function of outputs and targets. Outputs
    without a slope on all data are warned of: H is zero as said, and hardly ever meant.
    """
    first = next(iter(batches))
    few = first.first(COMPARED_EXAMPLES) if batches.separable else first
    check = partial(_check_batch, original, loss, point, evaluation)
    flat = in_pieces(check, few, divisible=batches.separable)
    if all(flat) and not _has_slope(point, batches):
        _warn_of_no_slope()


def _check_batch(original: Original, loss: Loss, point: Point, evaluation: Evaluation, batch: Batch) -> bool:
    """Refuse a model whose Jᵀu differs between the user's own module and our copy, at θ or at a moved θ.

    Outputs and derivatives at one point may agree by chance, as where a weight is zero. The user's parameters are moved
    in their own memory, and back before ours are moved, so that whatever reads them directly shows. Returns whether
    Jᵀu is zero at both.
    """
    network, tensors, theta = point.network, point.tensors(), point.shapes
    here = _own(original, theta, batch)
    evaluation.check(loss, here.z, batch, point)  # which was without gradients
    _check_loss(original, loss, theta, here.z, batch.targets)
    _check_lost(original, here, tensors, batch)
    _compare(here, network, tensors, theta, batch, "θ")
    movable = {name: tensors[name] for name in original.parameters if original.can_move(name)}
    with original.moved(movable, DISTANCE) as moved:
        theirs = _own(original, theta, batch)
    if theirs.finite:  # else θ is on the boundary of where the model is defined
        there = {**tensors, **moved}
        _compare(theirs, network.holding(there, theta), there, theta, batch, "a θ nearby")
    return here.norm == theirs.norm == 0


def _has_slope(point: Point, batches: Iterable[Batch]) -> bool:
    """Whether Jᵀu of our copy is other than zero on any batch."""
    leaves = point.leaves()
    for batch in batches:
        z = point.outputs(leaves, batch)
        if not z.requires_grad:
            continue
        slopes = torch.autograd.grad(z, leaves, _cotangent(z), allow_unused=True)
        if any(slope is not None and bool(slope.to_dense().any()) for slope in slopes):
            return True
    return False


def _warn_of_no_slope() -> None:
    warn_user(
        "No output of the model has a slope in θ, on any example: gradient, H and G are zero, whatever the loss. Steps "
        "(sign, round, argmax, comparisons) and units that are dead or saturated have none. If that is not meant, "
        "return what stands before the step, give it a straight-through gradient, or choose parameters that outputs "
        "depend on: Risk(..., parameters=...).",
        OutputsWarning,
    )


def _check_lost(original: Original, here: _Reference, tensors: Mapping[str, Tensor], batch: Batch) -> None:
    """Refuse outputs that depend on parameters with respect to which they have no gradient.

    A step too small to change any branch tells these from parameters whose derivative is zero.
    """
    names = [name for name, gradient in here.gradient.items() if gradient is None and original.can_move(name)]
    eps = torch.finfo(here.z.dtype).eps
    if not names:
        return
    with original.moved({name: tensors[name] for name in names}, eps**0.5), original.untouched():
        z = output_tensor(called(original.model, batch.inputs), len(batch)).detach()
    if z.shape == here.z.shape and float((z - here.z).norm()) > 100 * eps * float(here.z.norm()):
        raise _lost_gradient("θ" if len(names) == len(here.gradient) else listed(sorted(names), SHOWN))


@dataclass(frozen=True)
class _Reference:
    """Outputs z and Jᵀu of the user's own module."""

    z: Tensor
    gradient: dict[str, Tensor | None]
    norm: float = field(init=False)

    def __post_init__(self) -> None:
        norms = [float(g.norm()) for g in self.gradient.values() if g is not None]
        object.__setattr__(self, "norm", math.hypot(*norms))

    @property
    def finite(self) -> bool:
        return math.isfinite(self.norm) and bool(torch.isfinite(self.z).all())


def _cotangent(z: Tensor) -> Tensor:
    generator = torch.Generator(z.device).manual_seed(0)
    return torch.randn(z.shape, generator=generator, device=z.device, dtype=z.dtype)


def _own(original: Original, theta: Collection[str], batch: Batch) -> _Reference:
    parameters = [original.parameters[name] for name in theta]
    with original.untouched():
        try:
            z = output_tensor(called(original.model, batch.inputs), len(batch))
            gradient: tuple[Tensor | None, ...] = (None,) * len(parameters)
            if z.requires_grad:
                gradient = torch.autograd.grad(z, parameters, _cotangent(z), allow_unused=True)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            raise _refusal(error) from error
    values = z.detach().clone()  # of outputs that are views of parameters, which move
    return _Reference(values, dict(zip(theta, gradient, strict=True)))


def _check_loss(original: Original, loss: Loss, theta: Collection[str], z: Tensor, y: Tensor) -> None:
    """Refuse a loss whose terms depend, by autograd, on parameters of the model other than through its outputs."""
    with torch.enable_grad():
        total = loss.terms(z.detach().requires_grad_(), y).sum()
        if not total.requires_grad:
            return
        slopes = torch.autograd.grad(total, [original.parameters[name] for name in theta], allow_unused=True)
    names = [name for name, slope in zip(theta, slopes, strict=True) if slope is not None]
    if names:
        raise ModelError(
            f"The loss depends on parameters of the model: {listed(sorted(names), SHOWN)}.",
            "A risk needs a function of outputs and targets alone: gradient and curvature would lack what the "
            "parameters add.",
            "Leave a penalty c·|θ|² out of the loss, and add its Hessian to the operator: ritz.hessian(risk) + 2 * c.",
            "Let the forward pass return what the loss needs of the parameters, as further outputs of every example.",
            "Leave these parameters out of θ, as constants: Risk(..., parameters=...).",
        )


def _compare(
    theirs: _Reference,
    network: Network,
    tensors: Mapping[str, Tensor],
    theta: Collection[str],
    batch: Batch,
    where: str,
) -> None:
    """Compare our own Jᵀu parameter by parameter as it arrives, keeping none of it."""
    leaves = {name: tensors[name].detach().requires_grad_() for name in theta}
    z = output_tensor(network({**tensors, **leaves}, batch.inputs), len(batch))
    if z.shape != theirs.z.shape or _differ(theirs.z, z.detach(), 0.0):
        raise _difference("The outputs of the model itself differ from those of its copy", where)
    names: list[str] = []
    pending = set(theta)

    def compare(name: str, own: Tensor | None) -> None:
        pending.discard(name)
        if _differ(theirs.gradient.pop(name), own, theirs.norm):
            names.append(name)

    def visit(name: str, leaf: Tensor) -> None:
        compare(name, leaf.grad)
        leaf.grad = None

    for name, leaf in leaves.items():
        leaf.register_post_accumulate_grad_hook(lambda leaf, name=name: visit(name, leaf))
    if z.requires_grad:
        _send_back(z, list(leaves.values()), where)
    for name in list(pending):
        compare(name, None)
    if names:
        raise _difference(
            f"The gradient of the model itself differs from that of its copy in {listed(sorted(names), SHOWN)}", where
        )


def _send_back(z: Tensor, leaves: list[Tensor], where: str) -> None:
    """A backward pass through the copy, which may fail where that through the model itself does not."""
    try:
        torch.autograd.backward(z, _cotangent(z), inputs=leaves)
    except Exception as error:  # whatever a user's own backward pass raises
        if is_out_of_memory(error):
            raise
        seen = f"The model itself can be differentiated, and its copy fails: {first_line(error).rstrip('.')}"
        raise _difference(seen, where) from error


def _differ(a: Tensor | None, b: Tensor | None, scale: float) -> bool:
    """Whether two tensors differ by more than rounding; a scale says what counts as zero."""
    dense = [tensor.to_dense() for tensor in (a, b) if tensor is not None]
    if not dense:
        return False
    eps = torch.finfo(dense[0].dtype).eps
    difference = float((dense[0] - dense[-1] if len(dense) == 2 else dense[0]).norm())
    return difference > eps**0.4 * max(float(tensor.norm()) for tensor in dense) + 1e3 * eps * scale


def _difference(seen: str, where: str) -> ModelError:
    return ModelError(
        f"{seen}, at {where}.",
        "The forward pass reaches parameters otherwise than through its module: from a global, a cache, or a "
        "closure that feeds a custom autograd Function; the curvature would lack what they contribute.",
        "Take every parameter from the module itself, in its methods: self.weight.",
        "Hand it to a custom Function as an argument, again from self: Function.apply(x, self.weight).",
        "Compute what is derived from parameters in every forward pass instead of keeping it.",
        "In place of a solver's adjoint, differentiate through its steps: torchdiffeq's odeint, not odeint_adjoint.",
    )


def _refusal(error: RuntimeError) -> ModelError:
    seen = first_line(error)
    if "heckpoint" in str(error):
        return ModelError(
            "The model uses activation checkpointing in its reentrant form.",
            f"It cannot be differentiated by torch.autograd.grad: {seen}",
            "Pass use_reentrant=False to torch.utils.checkpoint.checkpoint.",
            "Turn checkpointing off for the analysis.",
        )
    if "nference tensor" in str(error):
        return inference_error()
    return ModelError(
        f"The model itself cannot be differentiated: {seen}",
        "Curvature is a derivative of its gradient.",
        "Call torch.autograd.grad(model(inputs).sum(), list(model.parameters())) on one batch to see where it fails.",
    )


def _lost_gradient(names: str) -> ModelError:
    return ModelError(
        f"The outputs of the model change with {names}, but have no gradient there.",
        "It is lost inside: under torch.no_grad(), by .detach(), or in activation checkpointing in its reentrant form "
        "on inputs that need no gradient.",
        "Pass use_reentrant=False to torch.utils.checkpoint.checkpoint.",
        "Leave out torch.no_grad() and .detach() in the forward pass.",
        "Freeze what is to stay as it is: parameter.requires_grad_(False).",
        "Leave it out of θ: Risk(..., parameters=...).",
    )
