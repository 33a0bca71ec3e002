"""A closed form against the dense float64 autograd Hessian: what a check is, its oracles and its errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.func import grad, jacfwd

from ..theory import ClosedForm, compare

VALUE_TOLERANCE = 1e-10  # of eigenvalues, relative to max |λ|
VECTOR_TOLERANCE = 1e-9  # of eigenvectors: ‖A z - λ z‖ relative to max |λ|, and |Zᵀ Z - I|


def _nothing(_: Generator) -> Mapping[str, tuple[Any, ...]]:
    return {}


@dataclass(frozen=True)
class Check:
    """One result of one paper: how to draw its input, its closed form, and the dense matrix it must agree with.

    Both functions take the drawn tuple as positional arguments. A scalar result is a closed form of one line
    against a 1 × 1 matrix.
    """

    result: str
    paper: str
    equation: str
    draw: Callable[[Generator], tuple[Any, ...]]
    closed_form: Callable[..., ClosedForm]
    oracle: Callable[..., Float[Tensor, "n n"]]
    degenerate: Callable[[Generator], Mapping[str, tuple[Any, ...]]] = _nothing  # cases by name, each an input


@dataclass(frozen=True)
class Errors:
    """How far a closed form is from its oracle, relative to max |λ|."""

    values: float
    vectors: float | None  # the larger of residual and departure from orthonormality; None: no eigenvectors

    @property
    def small(self) -> bool:
        """Whether both are within what is promised."""
        return self.values <= VALUE_TOLERANCE and (self.vectors is None or self.vectors <= VECTOR_TOLERANCE)


def errors(check: Check, inputs: tuple[Any, ...]) -> Errors:
    """The errors of one check on one input."""
    closed_form = check.closed_form(*inputs)
    found = compare(closed_form, check.oracle(*inputs))
    if found.residual is None:
        return Errors(found.value, None)
    known = [group for group in closed_form.groups if group.basis is not None]
    Z = torch.cat([closed_form.eigenvectors(group) for group in known], 1)
    skew = float((Z.T @ Z - torch.eye(Z.shape[1], dtype=Z.dtype)).abs().max())
    return Errors(found.value, max(found.residual, skew))


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


def normal(generator: Generator, *shape: int, scale: float = 1.0) -> Tensor:
    """Independent Gaussians in float64."""
    return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)


def scale(generator: Generator, decades: float = 3.0) -> float:
    """A positive scale, uniform in its logarithm, within 10^±decades."""
    return float(10 ** (decades * (2 * torch.rand((), generator=generator, dtype=torch.float64) - 1)))


def whole(generator: Generator, low: int, high: int) -> int:
    """An integer from low to high, both included."""
    return int(torch.randint(low, high + 1, (), generator=generator))


def width(generator: Generator, low: int, high: int) -> int:
    """An integer from low to high, uniform in its logarithm: narrow networks as often as wide ones."""
    share = float(torch.rand((), generator=generator, dtype=torch.float64))
    return min(high, int(low * ((high + 1) / low) ** share))


def _flat(parameters: tuple[Tensor, ...]) -> tuple[Tensor, Callable[[Tensor], list[Tensor]]]:
    sizes = [p.numel() for p in parameters]

    def rebuilt(theta: Tensor) -> list[Tensor]:
        return [part.reshape(p.shape) for part, p in zip(theta.split(sizes), parameters, strict=True)]

    return torch.cat([p.flatten() for p in parameters]).to(torch.float64), rebuilt
