"""`python -m faults`: kill, fill up, damage and crowd what ritz computes; the counts go into docs/faults.md."""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from . import report
from .deaths import deaths
from .disks import disks
from .hostile import hostile
from .kills import kills
from .threads import threads

COUNTS = {"kills": 300, "deaths": 100, "disks": 50, "hostile": 1000, "threads": 20, "fuzz": 20_000}


def fuzz(count: int, draw: random.Random, place: Path) -> dict[str, Any]:
    """So many calls of public functions with arguments of every kind, right and wrong."""
    out, seed = place / "fuzz.json", draw.randrange(2**31)
    options = ["--calls", str(count), "--seed", str(seed), "--json", str(out)]
    ended = subprocess.run([sys.executable, "-m", "tests.fuzz", *options], stdout=subprocess.DEVNULL)
    if not out.exists():
        return {"calls": 0, "faults": [f"python -m tests.fuzz ended with {ended.returncode}"]}
    facts = json.loads(out.read_text())
    found = facts.get("faults", [])
    print(f"  {facts['calls']} calls, {len(found)} faults", flush=True)
    return {**facts, "faults": found if isinstance(found, list) else [str(found)]}


PARTS: dict[str, Callable[[int, random.Random, Path], dict[str, Any]]] = {
    "kills": kills,
    "deaths": deaths,
    "disks": disks,
    "hostile": hostile,
    "threads": threads,
    "fuzz": fuzz,
}


def main() -> int:
    """Run all parts, or those that are named; 1 if anything was lost or silent."""
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--share", type=float, default=1.0, help="of all faults, such as 0.1 for a tenth")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random")
    parser.add_argument("--out", type=Path, default=Path("out/faults.json"), help="where the counts go")
    parser.add_argument("--write", action="store_true", help="write the table of docs/faults.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    counts = {name: part for name, part in PARTS.items() if not options.parts or name in options.parts}
    result = _result(counts, options.share, options.seed)
    report.write(result, options.out, page=options.write)
    print(report.table(result))
    faults = [fault for part in result["parts"].values() for fault in part["faults"]]
    for fault in faults:
        print(f"FAULT {fault}", file=sys.stderr)
    return 1 if faults else 0


def _result(parts: dict[str, Any], share: float, seed: int) -> dict[str, Any]:
    start, found = time.monotonic(), dict[str, Any]()
    place = Path(tempfile.mkdtemp(prefix="faults-"))
    try:
        for name, part in parts.items():
            print(name, flush=True)
            began = time.monotonic()
            draw = random.Random(f"{seed} {name}")  # a part by itself has the same faults as among all others
            found[name] = part(max(1, round(share * COUNTS[name])), draw, place)
            found[name]["seconds"] = round(time.monotonic() - began)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True).stdout.strip()
    return {
        "seed": seed,
        "share": share,
        "minutes": (time.monotonic() - start) / 60,
        "commit": commit or "unknown",
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "parts": found,
    }


if __name__ == "__main__":
    sys.exit(main())
