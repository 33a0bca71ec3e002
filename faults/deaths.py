"""Kills of the workers of a sweep at random moments: while they start, while they compute, while they answer."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from ritz.lab.sweeps import Processes, sweep

from .computations import checksum

TASKS, PATIENCE = 8, 12  # tasks of a sweep; kills in one sweep at most
SECONDS = 0.4  # that a task takes


def slow(config: dict[str, int]) -> dict[str, Any]:
    """A task that takes a while."""
    start, total = time.process_time(), 0.0
    while time.process_time() - start < SECONDS:
        total += 1.0
    return {"seed": config["seed"], "square": config["seed"] ** 2}


def deaths(count: int, draw: random.Random, place: Path) -> dict[str, Any]:
    """So many deaths, in as many sweeps as it takes; every sweep has all its results in the end."""
    configs, died, sweeps, faults = [{"seed": seed} for seed in range(TASKS)], 0, 0, list[str]()
    expected = checksum(*({"seed": seed, "square": seed**2} for seed in range(TASKS)))
    while died < count and not faults:
        folder = place / "deaths"
        shutil.rmtree(folder, ignore_errors=True)
        killer = Killer(min(PATIENCE, count - died), draw.random())
        killer.start()
        try:
            with warnings.catch_warnings(action="ignore"):
                records = sweep(slow, configs, folder, workers=Processes(2, retries=3 * PATIENCE))
            if checksum(*(record.scalars for record in records)) != expected:
                faults.append("a sweep has other results")
        except Exception as error:
            faults.append(f"a sweep ended with {type(error).__name__}: {error}")
        killer.stop()
        died, sweeps = died + killer.killed, sweeps + 1
        faults += [f"a sweep left {path.name}" for path in folder.rglob("*.tmp")]
        print(f"  {died} workers died in {sweeps} sweeps, {len(faults)} faults", *faults, sep="\n  FAULT ", flush=True)
    return {"deaths": died, "sweeps": sweeps, "faults": faults}


class Killer(threading.Thread):
    """Kills a worker of this process now and then."""

    def __init__(self, most: int, seed: float) -> None:
        super().__init__(daemon=True)
        self.most, self.killed, self.draw, self.over = most, 0, random.Random(seed), threading.Event()

    def run(self) -> None:
        """Until so many are dead, or it is told to stop."""
        while self.killed < self.most and not self.over.wait(self.draw.uniform(0.05, 5.0)):
            workers = list(_workers())
            if workers:
                try:
                    os.kill(self.draw.choice(workers), signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self.killed += 1

    def stop(self) -> None:
        """No more kills."""
        self.over.set()
        self.join()


def _workers() -> list[int]:
    """The processes that a pool of this one started."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"spawn_main" in (place / "cmdline").read_bytes():
                found.append(int(place.name))
        except (OSError, IndexError):
            continue
    return found
