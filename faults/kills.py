"""Kills at random moments: every computation is killed again and again until it is over, then its bits are compared."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from .computations import COMPUTATIONS, eager
from .processes import outcome

EARLY = 0.7  # of the time of a whole run, before which every kill comes: most runs are killed several times


def kills(count: int, draw: random.Random, place: Path) -> dict[str, Any]:
    """So many kills, spread over all computations."""
    faults: list[str] = []
    by_name = {}
    with eager():
        for number, (name, compute) in enumerate(COMPUTATIONS.items()):
            quota = count * (number + 1) // len(COMPUTATIONS) - count * number // len(COMPUTATIONS)
            killed, runs, found = _killed(name, compute, quota, draw, place / "kills")
            by_name[name] = {"kills": killed, "runs": runs}
            faults += found
            for fault in found:
                print(f"  FAULT {fault}", flush=True)
            print(f"  {name}: {killed} kills, {runs} runs to the same bits, {len(found)} faults", flush=True)
    total = sum(row["kills"] for row in by_name.values())
    return {"kills": total, "runs": sum(row["runs"] for row in by_name.values()), "by_name": by_name, "faults": faults}


def _killed(
    name: str, compute: Callable[[Path], str], quota: int, draw: random.Random, place: Path
) -> tuple[int, int, list[str]]:
    answer, killed, runs, faults = place / "answer", 0, 0, list[str]()
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    whole, seconds = outcome(partial(compute, place / "whole"), answer)
    if len(whole) != 64:
        return 0, 0, [f"{name} by itself: {whole}"]
    while killed < quota and not faults:
        folder, left = place / f"run-{runs}", quota - killed
        result = "killed"
        while result == "killed":
            limit = draw.random() * EARLY * seconds if left > 0 else float("inf")
            result, _ = outcome(partial(compute, folder), answer, limit)
            killed, left = killed + (result == "killed"), left - 1
        runs += result == whole
        faults += [] if result == whole else [f"{name}, run {runs}: {result if len(result) != 64 else 'other bits'}"]
        faults += [f"{name} left {path.name}" for path in folder.rglob("*.tmp")]
        shutil.rmtree(folder, ignore_errors=True)
    return killed, runs, faults
