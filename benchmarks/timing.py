"""How the benchmarks take times, and how they report them."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def timed(work: Callable[[], Result], device: torch.device) -> tuple[Result, float]:
    """What the work gives, and the seconds until the device has finished it."""
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    synchronize()
    started = time.perf_counter()
    result = work()
    synchronize()
    return result, time.perf_counter() - started


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """The time of one run."""
    return timed(work, device)[1]


def device_of(*, gpu: bool) -> torch.device:
    """Where a benchmark runs."""
    return torch.device("cuda" if gpu else "cpu")


def machine(device: torch.device) -> dict[str, Any]:
    """What the times depend on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
    return {"machine": name, "torch": torch.__version__, "python": platform.python_version()}


def report(facts: dict[str, Any], out: Path | None) -> None:
    """Print JSON, and write it where a file is named."""
    text = json.dumps(facts, indent=1)
    print(text)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text + "\n")
