"""How long a piece of work takes on the device of a risk."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from ..risk import Risk


def seconds_of(risk: Risk, work: Callable[[], Any]) -> float:
    """How long a piece of work takes, until the device has finished it."""
    _synchronize(risk)
    start = time.perf_counter()
    work()
    _synchronize(risk)
    return time.perf_counter() - start


def _synchronize(risk: Risk) -> None:
    if risk.device.type == "cuda":
        torch.cuda.synchronize(risk.device)
