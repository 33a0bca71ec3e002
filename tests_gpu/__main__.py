"""Run the tests of the device and keep a record: which passed, on what machine, at which commit, in what time.

    python -m tests_gpu [--out FILE] [--commit NAME] [--patience SECONDS] [pytest's own arguments]

Each file runs in a process of its own, all at once; one that is named among the arguments runs here. A process that
does not end in time is stopped, and the record says so. RITZ_TEST_DEVICE=cpu rehearses without a GPU.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from benchmarks.timing import commit, machine

from tests_gpu.devices import DEVICE

# The machine has its own PyTorch and pytest, whose warnings are not ours.
OPTIONS = ["-o", "filterwarnings=", "-p", "no:cacheprovider"]
FOLDER = Path(__file__).parent


class Outcomes:
    """A plugin that notes how each test ended."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.seconds: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid.split("::")[0]] += report.duration
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[report.nodeid] = report.outcome
        if report.outcome == "failed":
            self.reasons[report.nodeid] = str(report.longrepr).strip().splitlines()[-1]
        if report.outcome == "skipped":
            self.reasons[report.nodeid] = str(report.longrepr[-1] if report.longrepr else "")

    def facts(self) -> dict:
        return {
            "outcomes": self.outcomes,
            "seconds_by_file": {name: round(taken, 1) for name, taken in self.seconds.items()},
            "not_passed": self.reasons,
        }


def run_here(arguments: list[str]) -> tuple[int, dict]:
    """The tests that pytest is told of, in this process."""
    outcomes = Outcomes()
    code = pytest.main([*OPTIONS, *arguments], plugins=[outcomes])
    return int(code), outcomes.facts()


def run_all(arguments: list[str], patience: float) -> tuple[int, dict]:
    """All files at once, a process for each, with an equal share of the cores."""
    files = sorted(FOLDER.glob("test_*.py"))
    threads = str(max(1, (os.cpu_count() or 1) // len(files)))
    environment = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **os.environ}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(files)) as pool:
        work = lambda file: run_file(file, Path(folder) / f"{file.stem}.json", arguments, patience, environment)
        results = list(pool.map(work, files))
    joint: dict = {"outcomes": {}, "seconds_by_file": {}, "not_passed": {}}
    for _, facts in results:
        for name, entries in joint.items():
            entries.update(facts[name])
    nothing = int(pytest.ExitCode.NO_TESTS_COLLECTED)  # in one of the files, where arguments choose
    return max((code for code, _ in results if code != nothing), default=nothing), joint


def run_file(file: Path, out: Path, arguments: list[str], patience: float, environment: dict) -> tuple[int, dict]:
    """One file in a process of its own; what it printed is shown when it has ended."""
    name = f"{FOLDER.name}/{file.name}"
    command = [sys.executable, "-m", FOLDER.name, name, "--raw", str(out), *arguments]
    started = time.perf_counter()
    try:
        done = subprocess.run(
            command, cwd=FOLDER.parent, env=environment, text=True, timeout=patience,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        code, text, reason = done.returncode, done.stdout, f"its process ended with {done.returncode}"
    except subprocess.TimeoutExpired as late:
        printed = late.stdout or b""
        code, text = 1, printed.decode(errors="replace") if isinstance(printed, bytes) else printed
        reason = f"did not end within {patience:.0f} s"
    print(f"{name}: {time.perf_counter() - started:.0f} s\n{text}", flush=True)
    if out.exists():
        return code, json.loads(out.read_text())
    return code or 1, {"outcomes": {name: "failed"}, "seconds_by_file": {}, "not_passed": {name: reason}}


def record(facts: dict, name: str, seconds: float) -> dict:
    """What is kept of a run."""
    available = DEVICE.type == "cpu" or torch.cuda.is_available()
    return {
        **(machine(DEVICE) if available else {"machine": "no GPU"}),
        "commit": name,
        "command": "make test-gpu",
        "date": time.strftime("%Y-%m-%d"),
        "seconds": round(seconds, 1),
        "counts": dict(Counter(facts["outcomes"].values())),
        "seconds_by_file": facts["seconds_by_file"],
        "not_passed": facts["not_passed"],
        "tests": sorted(facts["outcomes"]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON to write")
    parser.add_argument("--commit", default=commit(), help="what is tested, where git cannot tell")
    parser.add_argument("--patience", type=float, default=600, help="seconds that a file may take")
    parser.add_argument("--raw", type=Path, help=argparse.SUPPRESS)  # what a process of ours hands back
    options, rest = parser.parse_known_args()
    started = time.perf_counter()
    named = any(FOLDER.name in argument for argument in rest)
    code, facts = run_here(rest) if named else run_all(rest, options.patience)
    if options.raw is not None:
        options.raw.write_text(json.dumps(facts))
    kept = record(facts, options.commit, time.perf_counter() - started)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    if not named:
        print(f"{kept['counts']} in {kept['seconds']} s; not passed: {kept['not_passed']}")
    return code


if __name__ == "__main__":
    sys.exit(main())
