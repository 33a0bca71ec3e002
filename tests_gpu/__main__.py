"""Run the tests of the device and keep a record: which passed, on what machine, at which commit, in what time.

    python -m tests_gpu [--out FILE] [--commit NAME] [pytest's own arguments]

RITZ_TEST_DEVICE=cpu rehearses them without a GPU.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from benchmarks.timing import commit, machine

from tests_gpu.devices import DEVICE

# The machine has its own PyTorch and pytest, whose warnings are not ours.
OPTIONS = ["-o", "filterwarnings=", "-p", "no:cacheprovider"]


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON to write")
    parser.add_argument("--commit", default=commit(), help="what is tested, where git cannot tell")
    options, rest = parser.parse_known_args()
    outcomes, started = Outcomes(), time.perf_counter()
    paths = [] if any("tests_gpu" in argument for argument in rest) else [str(Path(__file__).parent)]
    code = pytest.main([*OPTIONS, *paths, *rest], plugins=[outcomes])
    if options.out is not None:
        available = DEVICE.type == "cpu" or torch.cuda.is_available()
        facts = {
            **(machine(DEVICE) if available else {"machine": "no GPU"}),
            "commit": options.commit,
            "command": "make test-gpu",
            "date": time.strftime("%Y-%m-%d"),
            "seconds": round(time.perf_counter() - started, 1),
            "counts": dict(Counter(outcomes.outcomes.values())),
            "seconds_by_file": {name: round(taken, 1) for name, taken in outcomes.seconds.items()},
            "not_passed": outcomes.reasons,
            "tests": sorted(outcomes.outcomes),
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
