"""`python -m faults.soak --minutes 60`: training, a sweep and `ritz spectrum` in a loop; nothing may grow or be left.

Memory is compared between the second tenth of the time and the last: the first is when everything is imported.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from .computations import spectrum_command, swept, training
from .report import insert

GROWTH = 20.0  # megabytes by which memory may differ, whatever the allocator does


def state(place: Path) -> dict[str, float]:
    """What grows where something is not given back."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "megabytes": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "temporary": sum(1 for _ in place.rglob("*.tmp")) + sum(1 for _ in Path(tempfile.gettempdir()).iterdir()),
    }


def soaked(minutes: float) -> dict[str, Any]:
    """Rounds for so long, with the state after each."""
    place, rows = Path(tempfile.mkdtemp(prefix="soak-")), list[dict[str, float]]()
    end, bits = time.monotonic() + 60 * minutes, set[tuple[str, ...]]()
    usual, tempfile.tempdir = tempfile.tempdir, str(place / "temporary")  # where no other program leaves anything
    Path(tempfile.tempdir).mkdir()
    try:
        while time.monotonic() < end:
            folder = place / "round"
            with warnings.catch_warnings(action="ignore"):
                own = training(folder / "training"), swept(folder / "sweep"), spectrum_command(folder / "spectrum")
            bits.add(own)
            rows.append({**state(place), "minute": minutes - (end - time.monotonic()) / 60})
            shutil.rmtree(folder)
    finally:
        tempfile.tempdir = usual
        shutil.rmtree(place, ignore_errors=True)
    return _summary(minutes, rows, len(bits))


def _summary(minutes: float, rows: list[dict[str, float]], bits: int) -> dict[str, Any]:
    early = [row for row in rows if 0.1 * minutes <= row["minute"] <= 0.2 * minutes] or rows[:1]
    late = [row for row in rows if row["minute"] >= 0.9 * minutes] or rows[-1:]
    change = {name: [statistics.median(row[name] for row in part) for part in (early, late)] for name in rows[0]}
    del change["minute"]
    faults = [f"{bits} different results"] if bits != 1 else []
    grown = change["megabytes"][1] - change["megabytes"][0]
    faults += [f"memory grew by {grown:.0f} MB"] if grown > GROWTH else []
    counts = ("descriptors", "threads", "temporary")  # PyTorch makes a folder for what it compiles, once
    faults += [f"{name} grew" for name in counts if change[name][1] > change[name][0]]
    return {"minutes": minutes, "rounds": len(rows), **change, "faults": faults}


def table(result: dict[str, Any]) -> str:
    """What there was early and late."""
    units = {
        "megabytes": "memory, MB",
        "descriptors": "open files",
        "threads": "threads",
        "temporary": "temporary files",
    }
    lines = ["| | early | late |", "|---|---|---|"]
    lines += [f"| {title} | {result[name][0]:.0f} | {result[name][1]:.0f} |" for name, title in units.items()]
    grown = f"{len(result['faults'])} faults"
    return "\n".join([*lines, "", f"{result['minutes']:g} minutes, {result['rounds']} rounds, {grown}."])


def main() -> int:
    """Soak, print, 1 if anything grew."""
    parser = argparse.ArgumentParser(prog="python -m faults.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=Path("out/soak.json"))
    parser.add_argument("--write", action="store_true", help="write the table of docs/faults.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    result = soaked(options.minutes)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    if options.write:
        insert("<!-- soak -->", table(result))
    print(json.dumps(result, indent=1))
    return 1 if result["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
