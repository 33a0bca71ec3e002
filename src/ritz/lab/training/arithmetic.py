"""How PyTorch computes while it trains: as it is set, with TF32 products, or in bfloat16 wherever autocast takes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, get_args

import torch

from ...errors import ArgumentError

Arithmetic = Literal["tf32", "bfloat16"]


def check_arithmetic(precision: str | None) -> None:
    """Refuse an unknown precision of training."""
    if precision is not None and precision not in get_args(Arithmetic):
        raise ArgumentError(
            f"precision={precision!r} was given.",
            'Training is in the precision of the parameters (None), with TF32 products ("tf32") or in "bfloat16".',
            'Give None, "tf32" or "bfloat16".',
        )


def autocast(precision: Arithmetic | None, device: torch.device) -> torch.autocast:
    """Run the network under it; the loss, gradients and the optimiser stay outside.

    Weights are not cached: a captured step has to read them anew each time it is replayed.
    """
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16", cache_enabled=False)


@contextmanager
def multiply_in(precision: Arithmetic | None, device: torch.device) -> Iterator[None]:
    """TF32 in products and convolutions on a GPU, where that is the precision; all is as before afterwards."""
    backends: Any = torch.backends
    kinds = (backends.cuda.matmul, backends.cudnn.conv) if precision == "tf32" and device.type == "cuda" else ()
    with ExitStack() as stack:
        for kind in kinds:
            stack.callback(setattr, kind, "fp32_precision", kind.fp32_precision)
            kind.fp32_precision = "tf32"
        yield
