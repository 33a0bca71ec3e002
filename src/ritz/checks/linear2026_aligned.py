"""Checks of layers that share singular vectors, at any loss and on the way to a minimum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Generator

from .. import theory
from .check import Check
from .draws import normal, scale, whole
from .linear2026 import PAPER, Inputs, any_widths, gauss_newton, hessian, network_outputs, orthogonal, white


def aligned(generator: Generator, widths: Sequence[int] | None = None, kind: str | None = None) -> Inputs:
    """Layers that share singular vectors with one another and with the residual; `kind` is one of KINDS."""
    widths = widths or any_widths(generator, widest=4)
    kind = kind or KINDS[whole(generator, 0, len(KINDS) - 1)]
    depth, q = len(widths) - 1, max(widths)
    s, rho = 0.05 + torch.rand(depth, q, generator=generator, dtype=torch.float64), normal(generator, q)
    s = s * torch.tensor([scale(generator) for _ in range(depth)]).to(s)[:, None]
    if kind == "balanced":
        s = s[:1].expand(depth, q)
    if kind == "equal":
        s, rho = torch.ones_like(s), rho.sign()
    if kind == "some zero":
        gone = torch.rand(depth + 1, q, generator=generator) < 0.4
        gone[:, 0] = False  # else all may vanish, and errors would have no scale
        s, rho = s * ~gone[1:], rho * ~gone[0]
    if kind == "minimum":
        rho = 0 * rho
    U = [orthogonal(generator, d) for d in widths]
    weights = [U[k + 1] @ torch.diag(s[k])[: widths[k + 1], : widths[k]] @ U[k].T for k in range(depth)]
    X = white(generator, widths[0], 1.5)
    size = float(s.max(1).values.prod()) or 1.0  # R is known up to rounding of the product of the norms
    R = size * U[-1] @ torch.diag(rho)[: widths[-1], : widths[0]] @ U[0].T
    return weights, X, network_outputs(weights, X) - X @ R.T


KINDS = ("unbalanced", "balanced", "equal", "some zero", "minimum")


def _aligned_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    weights, X, Y = aligned(generator, (3, 4, 2, 3), "balanced")
    return {
        "L = 1": aligned(generator, (3, 2)),
        "L = 6": aligned(generator, (2,) * 7, "balanced"),
        **{kind: aligned(generator, (3, 4, 3, 5), kind) for kind in KINDS},
        "bottleneck": aligned(generator, (4, 1, 4), "unbalanced"),
        "widths up": aligned(generator, (1, 2, 3, 4), "unbalanced"),
        "widths down": aligned(generator, (4, 3, 2, 1), "unbalanced"),
        "all weights zero": ([0 * W for W in weights], X, Y),
        "two layers, all weights zero": ([0 * normal(generator, 4, 3), 0 * normal(generator, 2, 4)], X, Y[:, :2]),
        "zero inputs": (weights, 0 * X, Y),
    }


def near_convergence(generator: Generator, widths: Sequence[int] | None = None, size: float | None = None) -> Inputs:
    """Aligned layers whose residual is between 1 and 1e-17 of the product of their norms."""
    weights, X, Y = aligned(generator, widths)
    share = 10.0 ** (-17 * float(torch.rand((), generator=generator, dtype=torch.float64))) if size is None else size
    return weights, X, network_outputs(weights, X) + share * (Y - network_outputs(weights, X))


def _near_convergence_degenerate(generator: Generator) -> Mapping[str, Inputs]:
    sizes = (1e-6, 3e-7, 1e-8, 3e-10, 1e-10, 1e-12, 1e-15)
    return {f"residual {size:g}": near_convergence(generator, (3, 4, 3, 5), size) for size in sizes}


_aligned_g = partial(theory.aligned_linear, gauss_newton=True)
CHECKS = (
    Check("aligned layers", PAPER, "new", aligned, theory.aligned_linear, hessian, _aligned_degenerate),
    Check(
        "aligned layers near convergence",
        PAPER,
        "new",
        near_convergence,
        theory.aligned_linear,
        hessian,
        _near_convergence_degenerate,
    ),
    Check("aligned layers, G", PAPER, "new", aligned, _aligned_g, gauss_newton, _aligned_degenerate),
)
