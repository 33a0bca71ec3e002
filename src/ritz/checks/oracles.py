"""What closed forms must agree with: dense matrices by autograd, in float64."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import grad, jacfwd


def dense_hessian(loss: Callable[..., Tensor], *parameters: Tensor) -> Float[Tensor, "n n"]:
    """∇² loss(*parameters), flat in the order given, row-major: forward over reverse.

    Not `torch.func.hessian`: with both modes swapped, torch 2.13 is wrong for some layers.
    """
    theta, rebuilt = _flat(parameters)

    def flat_loss(t: Tensor) -> Tensor:
        return loss(*rebuilt(t))

    return jacfwd(grad(flat_loss))(theta)


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
