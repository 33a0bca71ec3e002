"""The paths: ways to compute products with the curvature of one batch.

What does not depend on the vector is done once. The graph of Jᵀu or of ∇R is kept, and a product is a backward pass
through it: 6 matrix products per layer for H and E, 4 for G, where a gradient costs 3. The floors are therefore 2 and
4/3 gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ..errors import ModelError
from ..risk import Risk
from ..risk.batches import Batch
from .rules import EfficientRules

Pieces = Sequence[Tensor | None]  # parameter-shaped; None where a parameter plays no part
Map = Callable[[list[Tensor], bool], Pieces]  # tangent pieces (with a leading dimension of columns if True) -> product
Linearization = Callable[[Risk, Batch], Map]  # what is done once per batch


@dataclass(frozen=True)
class Path:
    """One way to compute a product, by name."""

    name: str
    linearize: Linearization
    keeps: bool = True  # whether its linearisation is worth keeping between products
    reference: bool = False  # whether the others are held against it: PyTorch's own derivatives


def candidates(linearize: Callable[..., Map], forward: Linearization) -> list[Path]:
    """The ways to try: with the efficient rules, by PyTorch alone, and by forward differentiation."""
    return [
        Path("kept graph, efficient rules", partial(linearize, rules=True)),
        Path("kept graph", partial(linearize, rules=False), reference=True),
        Path("forward over reverse", forward, keeps=False),
    ]


class DoesNotApply(RuntimeError):
    """A way to compute a product that does not serve this model; the trial goes on to the next."""


class OutputGradient(Function):
    """u = ∂ℓ/∂z as a function of z, differentiated by the loss's own Hessian product."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, gradient: Tensor, curvature: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.curvature = curvature
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, tangent: Tensor) -> tuple[Tensor, None, None]:
        return ctx.curvature(tangent), None, None


def hessian_map(risk: Risk, batch: Batch, *, rules: bool) -> Map:
    """v ↦ H v by a second backward pass through the kept graph of ∇R."""
    leaves, z = _forward(risk, batch, rules, second=True)
    detached = z.detach()
    gradient = risk.loss.gradient(detached, batch.targets)
    u = OutputGradient.apply(z, gradient, risk.loss.curvature(detached, batch.targets))
    return _second_backward(leaves, z, u)


def functional_map(risk: Risk, batch: Batch, *, rules: bool) -> Map:
    """v ↦ E v: the derivative of Jᵀu for fixed u = ∂ℓ/∂z, which is Σ_k u_k ∇²f_k. One pass, no difference H - G."""
    leaves, z = _forward(risk, batch, rules, second=True)
    return _second_backward(leaves, z, risk.loss.gradient(z.detach(), batch.targets))


def gauss_newton_map(risk: Risk, batch: Batch, *, rules: bool) -> Map:
    """v ↦ Jᵀ (∂²ℓ/∂z²) J v."""
    return _output_space_map(risk, batch, rules, risk.loss.curvature)


def fisher_map(risk: Risk, batch: Batch, *, rules: bool) -> Map:
    """v ↦ Σᵢ wᵢ gᵢ gᵢᵀ v with gᵢ = Jᵢᵀ ∂ℓᵢ/∂zᵢ, without forming any gᵢ."""
    return _output_space_map(risk, batch, rules, partial(_gradient_moment, risk))


def _gradient_moment(risk: Risk, z: Tensor, targets: Tensor) -> Callable[[Tensor], Tensor]:
    gradient, weights = risk.loss.gradient(z, targets), risk.loss.weights(z, targets)
    _check_terms(risk, z, weights)
    one_per_example = len(weights) == len(z)  # else one for every index but the class
    dims = list(range(1, z.ndim)) if one_per_example else [getattr(risk.loss, "class_dim", -1) % z.ndim]
    shape = [1 if dim in dims else size for dim, size in enumerate(z.shape)]
    inverse = torch.where(weights > 0, 1 / weights, 0.0).reshape(shape)
    if z.ndim == 1:
        return lambda u: gradient * gradient * inverse * u
    return lambda u: gradient * inverse * (gradient * u).sum(dims, keepdim=True)


def _check_terms(risk: Risk, z: Tensor, weights: Tensor) -> None:
    rows = z.numel() // (1 if z.ndim == 1 else z.shape[getattr(risk.loss, "class_dim", -1)])
    if not risk.separable or len(weights) not in (rows, len(z)):
        raise ModelError(
            f"The loss has {len(weights)} terms on {len(z)} examples"
            + (", each of which depends on several." if not risk.separable else f" of {rows} rows of outputs."),
            "The empirical Fisher is made of one gradient for each term, which needs a term for each example or row.",
            "Return one value per example; give ignored tokens the weight zero by ignore_index.",
            "Use gauss_newton(risk), which has no such condition.",
        )


def _forward(risk: Risk, batch: Batch, rules: bool, *, second: bool) -> tuple[list[Tensor], Tensor]:
    leaves = risk.leaves()
    if not rules:
        return leaves, risk.outputs(leaves, batch)
    with EfficientRules(second=second) as mode:
        z = risk.outputs(leaves, batch)
    if not mode.used:
        raise DoesNotApply("no layer has a rule of its own")
    return leaves, z


def _second_backward(leaves: list[Tensor], z: Tensor, u: Tensor) -> Map:
    gradient = torch.autograd.grad(z, leaves, u, create_graph=True, allow_unused=True)
    return partial(_vector_jacobian, gradient, leaves)


def _output_space_map(risk: Risk, batch: Batch, rules: bool, middle: Callable[[Tensor, Tensor], Any]) -> Map:
    """v ↦ Jᵀ M J v. J v is the derivative of u ↦ Jᵀu along v: linear in u, so its graph serves at any u."""
    leaves, z = _forward(risk, batch, rules, second=False)
    u = torch.zeros_like(z, requires_grad=True)
    transposed = torch.autograd.grad(z, leaves, u, create_graph=True, allow_unused=True)
    M = middle(z.detach(), batch.targets)

    def product(tangent: list[Tensor], batched: bool) -> Pieces:
        (Jv,) = _vector_jacobian(transposed, [u], tangent, batched)
        if Jv is None:
            return [None] * len(leaves)
        MJv = torch.func.vmap(M)(Jv) if batched else M(Jv)
        return _vector_jacobian([z], leaves, [MJv], batched)

    return product


def _vector_jacobian(outputs: Pieces, inputs: list[Tensor], cotangents: Sequence[Tensor], batched: bool) -> Pieces:
    pairs = [(o, c) for o, c in zip(outputs, cotangents, strict=True) if o is not None and o.requires_grad]
    if not pairs:
        return [None] * len(inputs)
    connected, along = zip(*pairs, strict=True)
    return torch.autograd.grad(connected, inputs, along, retain_graph=True, allow_unused=True, is_grads_batched=batched)


def hessian_forward(risk: Risk, batch: Batch) -> Map:
    """v ↦ H v by forward differentiation of the gradient, for operations without a double backward. Keeps nothing."""

    def gradient(*parameters: Tensor) -> tuple[Tensor, ...]:
        z, pullback = _pulled_back(lambda *p: risk.outputs(p, batch), *parameters)
        return pullback(risk.loss.gradient(z, batch.targets))

    return _forward_derivative(risk, gradient)


def functional_forward(risk: Risk, batch: Batch) -> Map:
    """v ↦ E v by forward differentiation of Jᵀu for fixed u. Keeps nothing."""
    with torch.no_grad():
        u = risk.loss.gradient(risk.outputs(risk.leaves(), batch), batch.targets)
    return _forward_derivative(risk, lambda *p: torch.func.vjp(lambda *q: risk.outputs(q, batch), *p)[1](u))


def gauss_newton_forward(risk: Risk, batch: Batch) -> Map:
    """v ↦ G v with J v by forward differentiation. Keeps nothing."""
    return _forward_then_reverse(risk, batch, risk.loss.curvature)


def fisher_forward(risk: Risk, batch: Batch) -> Map:
    """v ↦ F v with J v by forward differentiation. Keeps nothing."""
    return _forward_then_reverse(risk, batch, partial(_gradient_moment, risk))


def _pulled_back(function: Callable[..., Tensor], *primals: Tensor) -> tuple[Tensor, Callable[..., Any]]:
    """`torch.func.vjp`, without the third value that its signature allows."""
    value, pullback = torch.func.vjp(function, *primals)[:2]
    return value, pullback


def _forward_derivative(risk: Risk, gradient: Callable[..., tuple[Tensor, ...]]) -> Map:
    primals = tuple(leaf.detach() for leaf in risk.leaves())
    along = lambda *tangent: torch.func.jvp(gradient, primals, tangent)[1]
    return lambda tangent, batched: (torch.func.vmap(along) if batched else along)(*tangent)


def _forward_then_reverse(risk: Risk, batch: Batch, middle: Callable[[Tensor, Tensor], Any]) -> Map:
    primals = tuple(leaf.detach() for leaf in risk.leaves())
    network = lambda *p: risk.outputs(p, batch)
    z, pullback = _pulled_back(network, *primals)
    M = middle(z, batch.targets)
    along = lambda *tangent: pullback(M(torch.func.jvp(network, primals, tangent)[1]))
    return lambda tangent, batched: (torch.func.vmap(along) if batched else along)(*tangent)
