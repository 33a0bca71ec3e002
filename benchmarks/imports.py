"""The time to import ritz, and for the command to print its help, in units of `import torch`.

    python -m benchmarks.imports [--repetitions 9] [--out FILE]

Every start is a process of its own. They alternate, so that a busy machine slows all of them, and the median of the
ratios counts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

STARTS = {
    "python alone": ["-c", "pass"],
    "import torch": ["-c", "import torch"],
    "import ritz": ["-c", "import ritz"],
    "import ritz, first use": ["-c", "import ritz; ritz.Risk, ritz.hessian, ritz.eigenpairs"],
    "ritz --help": ["-m", "ritz", "--help"],
    "ritz run --help": ["-m", "ritz", "run", "--help"],
    "ritz run --wrong": ["-m", "ritz", "run", "--wrong"],
}
UNIT = "import torch"


def seconds(arguments: list[str]) -> float:
    """The time from the start of the interpreter to its end."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], capture_output=True, check=False)
    return time.perf_counter() - started


def row(name: str, times: list[float], unit: list[float]) -> dict[str, Any]:
    """The ratio of one start to the unit, with its range."""
    ratios = [a / b for a, b in zip(times, unit, strict=True)]
    ratio = statistics.median(ratios)
    facts = {"start": name, "ratio": ratio, "lowest": min(ratios), "highest": max(ratios)}
    return facts | {"seconds": statistics.median(times)}


def main() -> None:
    """Measure and print JSON, one object for each start."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--out", type=Path, help="JSON to write, besides printing")
    options = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in STARTS}
    for arguments in STARTS.values():
        seconds(arguments)  # the first time compiles, and reads from the disk
    for _ in range(options.repetitions):
        for name, arguments in STARTS.items():
            times[name].append(seconds(arguments))
    facts = {"machine": f"{os.cpu_count()} CPU cores", "torch": version("torch"), "python": platform.python_version()}
    text = json.dumps({**facts, "rows": [row(name, times[name], times[UNIT]) for name in STARTS]}, indent=1)
    print(text)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
