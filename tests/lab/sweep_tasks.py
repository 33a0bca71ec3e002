"""Tasks for tests of sweeps: functions of a module, which other processes can import."""

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from ritz.record import Record


@dataclass(frozen=True)
class Config:
    index: int
    width: int = 3
    folder: str = ""  # where a task leaves its traces


def measured(config):
    generator = torch.Generator().manual_seed(config.index)
    values = torch.randn(config.width, config.width, generator=generator, dtype=torch.float64)
    return {"norm": values.norm(), "values": values, "index": config.index}


def traced(config):
    """Leave a file with the number of this process for every call."""
    with (Path(config.folder) / f"called-{config.index}").open("a") as file:
        file.write(f"{os.getpid()}\n")
    return measured(config)


def calls(folder, index):
    path = Path(folder) / f"called-{index}"
    return path.read_text().split() if path.exists() else []


def recorded(config):
    return Record("mine", "own", {"ignored": 1}, {"index": config["index"]}, {"x": torch.zeros(2)})


def failing(config):
    if config.index == 1:
        raise KeyError("no such checkpoint")
    return traced(config)


def leaving(config):
    sys.exit(3) if config.index == 1 else None
    return measured(config)


def wordless(config):
    return 7


def killed_once(config):
    """The first process at index 1 is killed in the middle, as by the system when memory runs out."""
    first = not calls(config.folder, config.index)
    result = traced(config)
    if config.index == 1 and first:
        os.kill(os.getpid(), signal.SIGKILL)
    return result


def dangerous(config):
    """Index 1 raises, index 2 is killed every time, index 4 once."""
    if config.index == 1:
        raise KeyError("no such checkpoint")
    if config.index == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    first = not calls(config.folder, config.index)
    result = traced(config) | {"threads": torch.get_num_threads()}
    if config.index == 4 and first:
        os.kill(os.getpid(), signal.SIGKILL)
    return result


def endless_at_two(config):
    """Indices 2 and 3 wait until somebody ends the process, unless the file `go` is there."""
    result = traced(config)
    while config.index in (2, 3) and not (Path(config.folder) / "go").exists():
        time.sleep(0.01)
    return result
