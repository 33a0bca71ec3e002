"""How far two computations of the same product lie apart, against how far they may."""

from __future__ import annotations

import torch
from torch import Tensor


def distance(a: Tensor, b: Tensor) -> float:
    """‖a - b‖ / ‖b‖, absolute where b is zero."""
    scale = float(b.norm())
    return float((a - b).norm()) / scale if scale > 0 else float((a - b).norm())


def tolerance(dtype: torch.dtype) -> float:
    """How far two ways to compute the same product may lie apart, relative."""
    return torch.finfo(dtype).eps ** 0.5
