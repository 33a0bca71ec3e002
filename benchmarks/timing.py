"""Times and peaks of memory for all benchmarks, and the machine they were measured on."""

from __future__ import annotations

import contextlib
import gc
import json
import platform
import resource
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


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


def clear_memory(device: torch.device) -> None:
    """Free what nobody holds, and begin a new peak."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    else:
        with contextlib.suppress(OSError):  # Linux alone forgets a peak
            CLEAR.write_text("5")


def memory_now(device: torch.device) -> float:
    """Bytes that tensors hold on a GPU, that the process holds on a CPU."""
    return float(torch.cuda.memory_allocated()) if device.type == "cuda" else _status("VmRSS")


def memory_peak(device: torch.device) -> float:
    """The most of it since `clear_memory`."""
    return float(torch.cuda.max_memory_allocated()) if device.type == "cuda" else _status("VmHWM")


def _status(field: str) -> float:
    if not STATUS.exists():
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return 1024.0 * int(line.split()[1])


def device_of(*, gpu: bool) -> torch.device:
    """Where a benchmark runs."""
    return torch.device("cuda" if gpu else "cpu")


def machine(device: torch.device) -> dict[str, Any]:
    """What the times depend on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
    return {"machine": name, "torch": torch.__version__, "python": platform.python_version()}


def commit() -> str:
    """The commit, marked where the working tree differs from it."""
    command = ["git", "describe", "--always", "--abbrev=12", "--dirty= with uncommitted changes"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def report(facts: dict[str, Any], out: Path | None) -> None:
    """Print JSON, and write it where a file is named."""
    text = json.dumps(facts, indent=1)
    print(text)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text + "\n")
