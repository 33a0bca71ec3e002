"""Mutants against the tests that run their lines: each in a copy of the tree and a process of its own."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from .cover import ROOT

SECONDS, TIMES = 60, 10  # of a test: as many more than it took, and as many times as long
BYTES = 12 * 2**30
OUTCOMES = {0: "alive", 1: "killed", 2: "no import", 5: "alive"}  # by the status of pytest
FOREIGN = 99  # the status of a run that did not test its copy
SKIPPED = shutil.ignore_patterns(".git", ".venv", "out", "build", "dist", ".*_cache", ".data", "_build", "*.png", "zoo")


@contextmanager
def copies(number, root=ROOT):
    """Copies of the tree, so that the checkout is never touched."""
    with tempfile.TemporaryDirectory(prefix="ritz-mutants-") as folder:
        places = [Path(folder) / str(i) for i in range(number)]
        for place in places:
            shutil.copytree(root, place, ignore=SKIPPED)
        yield places


def outcomes(tests, seconds, jobs=1, root=ROOT):
    """Yield (mutant, result) of {mutant: tests} as they come; result: outcome, by which test, seconds, how many."""
    import_heavy()
    with copies(jobs if tests else 0, root) as places:
        waiting, running = list(reversed(tests)), {}
        while waiting or running:
            while waiting and len(running) < jobs:
                mutant = waiting.pop()
                place = next(place for place in places if place not in {run.place for run in running.values()})
                run = Run(mutant, place, tests[mutant], seconds)
                running[run.start()] = run
            pid, status = os.wait()
            run = running.pop(pid)
            yield run.mutant, run.result(status)


def passing(tests, root=ROOT):
    """The tests among these that exist, and pass where nothing is mutated."""
    files = sorted({test.split("::")[0] for test in tests if (root / test.split("::")[0]).exists()})
    there = sorted(tests & _pytest([*files, "--collect-only"], root)) if files else []
    return {line.removeprefix("PASSED ") for line in _pytest([*there, "-rA", "--tb=no"], root)} if there else set()


def _pytest(arguments, root):
    """The lines that it writes."""
    command = [sys.executable, "-m", "pytest", *arguments, "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = os.environ | {"PYTHONPATH": f"{root / 'src'}:{root}"}
    return set(subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True).stdout.splitlines())


def tests_of(mutant, cover, wide=False):
    """The tests that run one of its lines, the quickest first.

    Where none is known to, or `wide`, those of its whole file; also where it stands outside of all functions, since
    that is run by whichever test imports the file first.
    """
    lines, wide = cover["lines"].get(mutant.path, {}), wide or not mutant.in_function()
    at = {test for line in range(mutant.line, mutant.last_line + 1) for test in lines.get(str(line), ())}
    everywhere = {test for tests in lines.values() for test in tests}
    return sorted(everywhere if wide or not at else at, key=lambda test: (cover["seconds"][test], test))


def import_heavy():
    """What every run needs and no mutant changes."""
    import beartype  # noqa: F401
    import torch  # noqa: F401


class Run:
    """One mutant in one copy."""

    def __init__(self, mutant, place, tests, seconds):
        self.mutant, self.place, self.tests, self.seconds = mutant, place, tests, seconds
        self.file, self.report = place / mutant.path if mutant else None, place / "report.txt"

    def start(self):
        self.began = time.perf_counter()
        self.report.write_text("")
        if self.mutant:
            self.source, self.times = self.file.read_text(), self.file.stat()
            self.file.write_text(self.mutant.code(self.source))
        pid = os.fork()
        if pid == 0:
            _test(self.place, self.tests, self.seconds, self.report)
        self.pid = pid
        return pid

    def result(self, status):
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # what tests have started
        if self.mutant:
            self.file.write_text(self.source)
            os.utime(self.file, ns=(self.times.st_atime_ns, self.times.st_mtime_ns))
        return {
            "outcome": _outcome(status, (self.place / "log.txt").read_text()),
            "test": self.report.read_text(),
            "tests": len(self.tests),
            "seconds": round(time.perf_counter() - self.began, 1),
        }


def _outcome(status, log):
    if os.WIFSIGNALED(status):
        return "endless" if os.WTERMSIG(status) == signal.SIGALRM else "crash"
    code = os.WEXITSTATUS(status)
    if code == FOREIGN:
        raise RuntimeError("A run has tested another ritz than its copy.")
    if "while loading conftest" in log or "found no collectors" in log:
        return "no import"
    if code not in OUTCOMES:
        raise RuntimeError(f"pytest ended with {code}: it has tested nothing.")
    return OUTCOMES[code]


def _test(place, tests, seconds, report):
    """Run the tests in a child process, quickest first, until one fails; never returns."""
    status = FOREIGN
    try:
        _settle(place)
        if not tests:
            os._exit(5)
        plugin = Watch(tests, seconds, report)
        status = pytest.main([*tests, "-x", "-p", "no:cacheprovider", "-p", "no:xdist"], plugins=[plugin])
        ours = sys.modules.get("ritz")
        if ours is not None and not str(ours.__file__).startswith(str(place)):
            status = FOREIGN
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(int(status))


def _settle(place):
    os.setsid()
    log = os.open(place / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    os.chdir(place)
    os.environ["PYTHONPATH"] = f"{place / 'src'}:{place}"
    sys.path[:] = [str(place / "src"), str(place), *(path for path in sys.path if path not in ("", str(ROOT)))]
    sys.dont_write_bytecode = True
    for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "ritz")]:
        del sys.modules[name]


class Watch:
    """A plugin of pytest: tests in the order of the list, each with a limit, and the one that runs is written down."""

    def __init__(self, tests, seconds, report):
        self.place = {test: i for i, test in enumerate(tests)}
        self.seconds, self.report = seconds, report

    def pytest_collection_modifyitems(self, items):
        items.sort(key=lambda item: self.place.get(item.nodeid.split("[")[0], 0))

    def pytest_runtest_logstart(self, nodeid):
        self.report.write_text(nodeid)
        signal.alarm(int(SECONDS + TIMES * self.seconds.get(nodeid.split("[")[0], 0)))

    def pytest_runtest_logfinish(self):
        signal.alarm(0)
