"""A map of which tests run which lines of the core, and how long each takes: made once, before any mutant.

python -m tests.mutants.cover map.json [tests ...]
"""

import json
import signal
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import coverage

ROOT = Path(__file__).parents[2]
SECONDS, PARAMETERS = 20, 2
CORE = ("engine", "solvers", "risk/losses", "classes", "theory")
TESTS = (
    *("tests/engine", "tests/solvers", "tests/risk", "tests/classes", "tests/theory", "tests/factored", "tests/layers"),
    *("tests/checks", "tests/analysis", "tests/test_bad_input.py", "tests/test_errors.py", "tests/test_faults.py"),
    *("tests/test_operators.py", "tests/test_spectrum.py", "tests/test_travel.py"),
)


class Slow(BaseException):
    """A test has shown enough of its lines."""


class Lines:
    """A plugin of pytest: the lines that a test runs are kept under its name, and its seconds.

    Of a test with many parameters two are run, each for a few seconds at most: later ones hardly run other lines.
    """

    def __init__(self, measured):
        self.measured, self.seconds, self.failed = measured, defaultdict(float), set()

    def pytest_collection_modifyitems(self, config, items):
        self.number = Counter(map(base, items))
        place = {item: i for name in self.number for i, item in enumerate(x for x in items if base(x) == name)}
        config.hook.pytest_deselected(items=[item for item in items if place[item] >= PARAMETERS])
        items[:] = [item for item in items if place[item] < PARAMETERS]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item):
        self.measured.switch_context(base(item))
        start = time.process_time()
        yield
        share = self.number[base(item)] / min(PARAMETERS, self.number[base(item)])
        self.seconds[base(item)] += share * (time.process_time() - start)
        self.measured.switch_context("")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item):
        signal.signal(signal.SIGPROF, _stop)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        outcome = yield
        signal.setitimer(signal.ITIMER_PROF, 0)
        if outcome.excinfo and issubclass(outcome.excinfo[0], Slow):
            self.seconds[base(item)] += 10 * SECONDS  # nobody knows how much more
            outcome.force_result(None)
        elif outcome.excinfo:
            self.failed.add(base(item))
            outcome.force_result(None)


def _stop(number, frame):
    raise Slow


def base(item):
    """The name of a test without its parameters."""
    return item.nodeid.split("[")[0]


def cover(tests=TESTS):
    """{"seconds": {test: seconds}, "lines": {file: {line: [tests]}}} of the core's files.

    A test that fails without any mutant cannot tell of one, and is left out.
    """
    sources = [str(ROOT / "src/ritz" / folder) for folder in CORE]
    measured = coverage.Coverage(data_file=None, include=[f"{source}/*" for source in sources], config_file=False)
    plugin = Lines(measured)
    measured.start()
    status = pytest.main([*tests, "-p", "no:cacheprovider", "-p", "no:xdist"], plugins=[plugin])
    measured.stop()
    if status not in (0, 1) or not plugin.seconds:
        raise SystemExit(f"The tests do not run (status {status}).")
    seconds = {test: round(time, 3) for test, time in plugin.seconds.items() if test not in plugin.failed}
    return {"seconds": seconds, "lines": _lines(measured.get_data(), seconds), "failed": sorted(plugin.failed)}


def _lines(data, tests):
    lines = defaultdict(dict)
    for path in data.measured_files():
        for line, names in data.contexts_by_lineno(path).items():
            lines[str(Path(path).relative_to(ROOT))][line] = sorted(name for name in names if name in tests)
    return lines


def merged(maps):
    """One map from those of several folders of tests."""
    whole = {"seconds": {}, "lines": defaultdict(lambda: defaultdict(list)), "failed": []}
    for part in maps:
        whole["seconds"] |= part["seconds"]
        whole["failed"] += part["failed"]
        for path, lines in part["lines"].items():
            for line, tests in lines.items():
                whole["lines"][path][line] += tests
    return whole


if __name__ == "__main__":
    place, *tests = sys.argv[1:]
    Path(place).write_text(json.dumps(cover(tests or TESTS)))
