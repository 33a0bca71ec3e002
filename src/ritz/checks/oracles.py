"""Oracles for closed forms: dense matrices by autograd, in float64."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import jacfwd


def dense_hessian(loss: Callable[..., Tensor], *parameters: Tensor) -> Float[Tensor, "n n"]:
    """∇² loss(*parameters), flat in the order given, row-major: reverse over reverse, all rows together.

    Not `torch.func.hessian`: torch 2.13 is wrong there for some layers. Forward over reverse takes twice as long for
    matrices this small. Where a softmax is nearly sure, rows and columns agree to 1e-12 only: their mean is returned.
    """
    theta, rebuilt = _flat(parameters)
    with torch.enable_grad():
        theta.requires_grad_()
        (gradient,) = torch.autograd.grad(loss(*rebuilt(theta)), theta, create_graph=True, materialize_grads=True)
        if not gradient.requires_grad:  # the gradient of a linear function is constant
            return torch.zeros(len(theta), len(theta), dtype=theta.dtype)
        units = torch.eye(len(theta), dtype=theta.dtype)
        (H,) = torch.autograd.grad(gradient, theta, units, is_grads_batched=True, materialize_grads=True)
    return (H.detach() + H.detach().T) / 2


def dense_gauss_newton(outputs: Callable[..., Tensor], *parameters: Tensor) -> Float[Tensor, "n n"]:
    """Jᵀ J / N, with J the Jacobian of the outputs and N the length of their first dimension."""
    theta, rebuilt = _flat(parameters)
    J = jacfwd(lambda t: outputs(*rebuilt(t)))(theta)
    rows = J.reshape(-1, len(theta))
    return rows.T @ rows / len(J)


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Σᵢ ‖fᵢ - yᵢ‖² / 2N: the papers' loss."""
    return 0.5 * (outputs - targets).square().sum() / len(targets)


def _flat(parameters: tuple[Tensor, ...]) -> tuple[Tensor, Callable[[Tensor], list[Tensor]]]:
    sizes = [p.numel() for p in parameters]

    def rebuilt(theta: Tensor) -> list[Tensor]:
        return [part.reshape(p.shape) for part, p in zip(theta.split(sizes), parameters, strict=True)]

    return torch.cat([p.flatten() for p in parameters]).to(torch.float64), rebuilt
