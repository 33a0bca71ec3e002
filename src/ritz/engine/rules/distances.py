"""Distances between points, by operations that PyTorch can differentiate twice."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .norms import WithValue


def distances_rule(second: bool, x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: Any = None) -> Tensor:
    """`torch.cdist`: ‖x - x'‖ for every pair of points; between equal ones without derivatives, as in PyTorch."""
    result = _norms(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)
    mode = {} if compute_mode is None else {"compute_mode": compute_mode}
    return WithValue.apply(result, lambda: torch.cdist(x1.detach(), x2.detach(), p, **mode))


def own_distances_rule(second: bool, input: Tensor, p: float = 2.0) -> Tensor:
    """`F.pdist`: ‖x - x'‖ for every pair among some points."""
    first, other = torch.triu_indices(len(input), len(input), 1, device=input.device)
    return WithValue.apply(_norms(input[first] - input[other], p), lambda: F.pdist(input.detach(), p))


def _norms(x: Tensor, p: float) -> Tensor:
    zero = (x == 0).all(-1)
    return torch.linalg.vector_norm(x.masked_fill(zero[..., None], 1.0), p, -1).masked_fill(zero, 0.0)
