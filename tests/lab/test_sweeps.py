"""Sweeps: nothing is computed twice, nothing is lost, and nothing is half-written, whoever is killed."""

import os
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ritz import record
from ritz.errors import ArgumentError, FileError
from ritz.lab import workers
from ritz.lab.sweeps import InProcess, Processes, Ray, SweepError, SweepWarning, sweep
from ritz.record import Record, key
from tests.lab import sweep_tasks as tasks
from tests.lab.sweep_folders import ENVIRONMENT, PATIENCE, ROOT, assert_same, configs, hidden
from tests.lab.sweep_tasks import Config
from tests.processes import CONTEXT

# What a sweep leaves --------------------------------------------------------------------------------------------------


def test_results_come_in_the_order_of_the_configs_and_lie_under_their_keys(tmp_path):
    records = sweep(tasks.measured, configs(), tmp_path)
    assert [r.scalars["index"] for r in records] == [0, 1, 2, 3]
    assert sorted(p.name for p in tmp_path.glob("[!.]*")) == sorted(key(c) for c in configs())
    assert_same(records, [Record.load(tmp_path / key(c)) for c in configs()])
    values = records[2].arrays["values"]
    assert records[2].scalars["norm"] == pytest.approx(np.linalg.norm(values), rel=1e-14)
    assert records[2].config == {"index": 2, "width": 3, "folder": ""} and records[2].id == "measured"


def test_results_that_are_there_are_not_computed_again(tmp_path):
    first = sweep(tasks.traced, configs(tmp_path, 2), tmp_path / "out")
    second = sweep(tasks.traced, configs(tmp_path, 4), tmp_path / "out")
    assert [len(tasks.calls(tmp_path, i)) for i in range(4)] == [1, 1, 1, 1]
    assert_same(second[:2], first)


def test_a_config_named_twice_is_computed_once(tmp_path):
    one = Config(0, folder=str(tmp_path))
    records = sweep(tasks.traced, [one, one], tmp_path / "out")
    assert len(records) == 2 and len(tasks.calls(tmp_path, 0)) == 1


def test_the_provenance_says_how_long_a_task_took(tmp_path):
    (record,) = sweep(tasks.measured, configs(count=1), tmp_path)
    assert 0 < record.provenance["seconds"] < 60 and record.provenance["device"] == "cpu"


def test_a_task_may_return_a_record_which_is_filed_under_the_config_it_was_called_with(tmp_path):
    (found,) = sweep(tasks.recorded, [{"index": 5}], tmp_path, name="points")
    assert (found.id, found.preset, found.config) == ("points", "own", {"index": 5})
    assert found.scalars == {"index": 5} and "seconds" in found.provenance


def test_what_is_bound_to_a_function_is_no_part_of_the_identity(tmp_path):
    def scaled(config, factor):
        return {"x": factor * config["x"]}

    first = sweep(partial(scaled, factor=2), [{"x": 3}], tmp_path)
    assert_same(sweep(partial(scaled, factor=4), [{"x": 3}], tmp_path), first)


@pytest.mark.parametrize("damage", ["truncated arrays", "no json", "half a json", "other config"])
def test_a_damaged_result_is_computed_again_with_a_warning(tmp_path, damage):
    good = sweep(tasks.measured, configs(), tmp_path)
    folder = tmp_path / key(configs()[1])
    arrays, header = folder / "arrays.npz", folder / "record.json"
    if damage == "truncated arrays":
        arrays.write_bytes(arrays.read_bytes()[:-7])
    elif damage == "no json":
        header.unlink()
    elif damage == "half a json":
        header.write_bytes(header.read_bytes()[:100])
    else:
        header.write_text(header.read_text().replace('"width": 3', '"width": 4'))
    with pytest.warns(SweepWarning, match="computed again"):
        again = sweep(tasks.measured, configs(), tmp_path)
    assert_same(again, good)
    assert_same(sweep(tasks.measured, configs(), tmp_path), good)  # without a warning


def test_results_of_another_function_are_not_taken_for_its_own(tmp_path):
    sweep(tasks.measured, configs(), tmp_path)
    with pytest.raises(ArgumentError, match="holds results of 'measured'"):
        sweep(tasks.traced, configs(), tmp_path)


def test_results_of_an_earlier_version_of_the_function_are_taken_with_a_warning(tmp_path, monkeypatch):
    source = "def task(config):\n    return {'y': config['x']}\n"
    versions = [source, source.replace("return", "# the same\n    return"), source.replace("config['x']", "2")]
    for number, (text, warned) in enumerate(zip(versions, (False, False, True), strict=True)):
        (tmp_path / f"version{number}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        task = import_module(f"version{number}").task
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            (record,) = sweep(partial(task), [{"x": 1}], tmp_path / "out")
        assert record.scalars["y"] == 1
        said = "code of task has changed since it gave 1 of the 1"
        assert [said in str(w.message) for w in caught] == [True] * warned


def test_two_sweeps_do_not_write_to_one_folder(tmp_path):
    if os.name == "nt":
        pytest.skip("no locks there")
    with record.lock(tmp_path), pytest.raises(FileError, match="Another process is writing"):
        sweep(tasks.measured, configs(), tmp_path)
    assert len(sweep(tasks.measured, configs(), tmp_path)) == 4


# Keys -----------------------------------------------------------------------------------------------------------------


def test_the_key_of_a_config_is_the_same_for_ever():
    """By sha256sum, once: a key that changes with the process, the order or the version would lose every result."""
    assert record.canonical({"b": (1, 2.5), "a": None, "ü": float("nan")}) == (
        '{"a":null,"b":[1,2.5],"\\u00fc":{"float":"nan"}}'
    )
    assert key({"width": 10, "rate": 0.1}) == key({"rate": 0.1, "width": 10}) == "20b91a337eee9207ce98b873dc173777"


def test_a_dataclass_and_the_mapping_of_its_fields_have_one_key():
    assert key(Config(1)) == key({"folder": "", "index": 1, "width": 3})


@pytest.mark.parametrize("one, other", [({"x": 1}, {"x": 2}), ({"x": 1}, {"y": 1}), ({"x": 0.1}, {"x": 0.1 + 2e-17})])
def test_keys_differ_where_configs_do(one, other):
    assert (key(one) == key(other)) is (one == other)


@pytest.mark.parametrize("config", [3, [1], {"x": object()}, {1: 2}])
def test_a_config_that_has_no_names_or_no_text_is_refused_before_anything_runs(tmp_path, config):
    with pytest.raises(ArgumentError):
        sweep(tasks.measured, [config], tmp_path / "out")
    assert not (tmp_path / "out").exists()


# Failures -------------------------------------------------------------------------------------------------------------


def test_a_task_that_raises_is_reported_with_its_config_and_costs_nobody_else(tmp_path):
    with pytest.warns(SweepWarning, match="failed: KeyError"), pytest.raises(SweepError) as caught:
        sweep(tasks.failing, configs(tmp_path), tmp_path / "out", workers=InProcess())
    (failure,) = caught.value.failures
    assert failure.config == Config(1, folder=str(tmp_path)) and "no such checkpoint" in failure.traceback
    assert "1 of 4 tasks failed" in str(caught.value) and "index=1" in str(caught.value)
    assert [r is None for r in caught.value.records] == [False, True, False, False]
    with pytest.warns(SweepWarning), pytest.raises(SweepError):
        sweep(tasks.failing, configs(tmp_path), tmp_path / "out")
    assert [len(tasks.calls(tmp_path, i)) for i in range(4)] == [1, 0, 1, 1]


@pytest.mark.parametrize("task, message", [(tasks.leaving, "SystemExit"), (tasks.wordless, "type int")])
@pytest.mark.usefixtures("unchecked")
def test_other_ways_to_have_no_result_are_failures_too(tmp_path, task, message):
    with pytest.warns(SweepWarning), pytest.raises(SweepError, match=message):
        sweep(task, configs(count=2), tmp_path)


def test_a_task_that_goes_to_another_folder_does_not_take_its_results_there(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    def move(config):
        os.chdir(tmp_path / "elsewhere")
        return {"x": config["x"]}

    sweep(move, [{"x": 1}, {"x": 2}], "here")
    assert len(list((tmp_path / "here").glob("[!.]*"))) == 2 and not list((tmp_path / "elsewhere").iterdir())


def test_an_exception_without_a_text_costs_nobody_else(tmp_path):
    class SilentError(Exception):
        def __str__(self):
            raise ValueError("no text")

    def fail(config):
        if config["x"] == 1:
            raise SilentError
        return {"x": config["x"]}

    with pytest.warns(SweepWarning), pytest.raises(SweepError, match="SilentError") as caught:
        sweep(fail, [{"x": 1}, {"x": 2}], tmp_path)
    assert [record is None for record in caught.value.records] == [True, False]


def test_an_interrupt_keeps_what_was_done(tmp_path):
    def interrupted(config):
        if config["index"] == 2:
            raise KeyboardInterrupt
        return {"index": config["index"]}

    with pytest.raises(KeyboardInterrupt):
        sweep(interrupted, [{"index": i} for i in range(4)], tmp_path)
    assert len(list(tmp_path.glob("[!.]*"))) == 2 and not hidden(tmp_path)


@pytest.mark.parametrize("wrong", ["threads", Processes])
def test_unknown_workers_are_refused_with_a_list_of_all(tmp_path, wrong):
    with pytest.raises(ArgumentError, match=r"in-process.*processes.*ray"):
        sweep(tasks.measured, configs(), tmp_path, workers=wrong)


# Processes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opaque:
    """A config that names its fields, and cannot be pickled."""

    index: int

    def __reduce__(self):
        raise TypeError("not to be pickled")


def test_a_request_for_one_thread_holds_in_every_process(tmp_path, monkeypatch):
    """16 cores, two sweeps of 4 processes each, and OMP_NUM_THREADS=1: 8 threads, not 32."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)), raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    (record,) = sweep(tasks.dangerous, [Config(0, folder=str(tmp_path))], tmp_path / "out", workers=Processes(4))
    assert record.scalars["threads"] == 1


def test_a_worker_that_is_killed_or_raises_or_gets_what_cannot_travel_costs_only_its_task(tmp_path, monkeypatch):
    """In one sweep, as processes that import torch take seconds: also that each has its share of the cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(7)), raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr("ritz.lab.workers.get_context", lambda kind: CONTEXT)
    given = [Opaque(3) if index == 3 else Config(index, folder=str(tmp_path)) for index in range(6)]
    with pytest.warns(SweepWarning) as warned, pytest.raises(SweepError, match="3 of 6 tasks failed") as caught:
        sweep(tasks.dangerous, given, tmp_path / "out", workers=Processes(count=2, retries=1))
    errors = {failure.config.index: failure.error for failure in caught.value.failures}
    assert errors[1] == "KeyError: 'no such checkpoint'" and "not to be pickled" in errors[3]
    assert errors[2].startswith("Its process died 2 times")
    retried = [str(warning.message) for warning in warned if "died. It is tried again" in str(warning.message)]
    assert len(retried) == 2 and sum("index=4" in message for message in retried) == 1
    assert [len(tasks.calls(tmp_path, i)) for i in (0, 4, 5)] == [1, 2, 1]  # what was killed once, and nobody else
    assert not hidden(tmp_path / "out")
    found = [record for record in caught.value.records if record is not None]
    assert [record.scalars.pop("threads") for record in found] == [3, 3, 3]
    done = [given[index] for index in (0, 4, 5)]
    assert_same(found, sweep(tasks.measured, done, tmp_path / "reference", name="dangerous"))


class Wordless:
    """A task that refuses to be pickled without saying why."""

    def __call__(self, config):
        return {}

    def __reduce__(self):
        raise TypeError


@pytest.mark.parametrize("task", [lambda config: {}, partial(lambda config: {}), Wordless()])
def test_a_function_that_no_other_process_can_import_is_refused(tmp_path, task):
    with pytest.raises(ArgumentError, match="cannot be called in another process"):
        sweep(task, configs(), tmp_path, workers="processes")


def test_a_function_that_a_worker_does_not_find_is_refused_before_the_work(tmp_path, monkeypatch, capfd):
    def here_only(config):
        return {}

    here_only.__qualname__, here_only.__module__ = "here_only", tasks.__name__  # which is imported in a moment
    monkeypatch.setattr(tasks, "here_only", here_only, raising=False)
    with pytest.raises(ArgumentError, match="cannot be called in another process"):
        sweep(here_only, configs(), tmp_path, workers=Processes(count=1))


def test_no_process_at_all_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="over 0 processes"):
        sweep(tasks.measured, configs(), tmp_path, workers=Processes(count=0))


# The driver is killed -------------------------------------------------------------------------------------------------

DRIVER = """
import sys
from ritz.lab.sweeps import Processes, sweep
from tests.lab import sweep_tasks as tasks
if __name__ == "__main__":
    folder = sys.argv[1]
    configs = [tasks.Config(index, folder=folder) for index in range(6)]
    sweep(tasks.endless_at_two, configs, folder + "/out", workers=Processes(count=2))
"""

KILLED_WHILE_WRITING = """
import os, signal, sys
from ritz.lab.sweeps import sweep
from tests.lab import sweep_tasks as tasks

def run(write):
    place, writes = os.replace, []
    def replace(source, target):
        writes.append(target)
        if len(writes) == write:
            os.kill(os.getpid(), signal.SIGKILL)
        place(source, target)
    os.replace = replace
    sweep(tasks.measured, [tasks.Config(index) for index in range(4)], f"{sys.argv[1]}/{write}")

for write in map(int, sys.argv[2:]):
    child = os.fork()
    if not child:
        run(write)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
"""


def until(condition, driver):
    """Wait for it, but not for a driver that has ended by itself, or hangs."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert driver.poll() in (None, -signal.SIGKILL), f"the driver ended with {driver.returncode}"
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


@contextmanager
def process(*arguments):
    """A Python process that does not outlive the test, however that ends; its workers end with it."""
    started = subprocess.Popen([sys.executable, *map(str, arguments)], env=ENVIRONMENT)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def alive(pid):
    """Whether a process runs; one that ended and waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see who lives")
def test_a_killed_driver_loses_nothing_that_was_done_and_leaves_no_worker_behind(tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    out = tmp_path / "out"
    with process(script, tmp_path) as driver:
        until(lambda: tasks.calls(tmp_path, 2) and tasks.calls(tmp_path, 3), driver)
        pids = {int(pid) for i in range(4) for pid in tasks.calls(tmp_path, i)}
        driver.kill()
        driver.wait()
        until(lambda: not any(map(alive, pids)), driver)
    done = [i for i in range(6) if (out / key(Config(i, folder=str(tmp_path)))).exists()]
    assert done == [0, 1]

    (tmp_path / "go").touch()
    records = sweep(tasks.endless_at_two, configs(tmp_path, 6), out)
    assert [len(tasks.calls(tmp_path, i)) for i in range(6)] == [1, 1, 2, 2, 1, 1]
    assert_same(records, sweep(tasks.measured, configs(tmp_path, 6), tmp_path / "other", name="endless_at_two"))
    assert not hidden(out)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_driver_killed_while_it_writes_leaves_nothing_half_written(tmp_path):
    script, writes = tmp_path / "driver.py", ["4", "5", "6"]  # of the second record: its arrays, its JSON, its folder
    script.write_text(KILLED_WHILE_WRITING)
    subprocess.run([sys.executable, str(script), str(tmp_path), *writes], env=ENVIRONMENT, check=True)
    reference = sweep(tasks.measured, configs(), tmp_path / "reference")
    for out in (tmp_path / write for write in writes):
        assert [path.name for path in out.glob("[!.]*")] == [key(Config(0))]
        Record.load(out / key(Config(0)))
        assert hidden(out)
        assert_same(sweep(tasks.measured, configs(), out), reference)
        assert not hidden(out)


# Ray ------------------------------------------------------------------------------------------------------------------


class FakeRay(SimpleNamespace):
    """The part of Ray's interface that a sweep uses, in this process. It counts what it was asked for."""

    class RayError(Exception):
        pass

    def __init__(self, gpus=0.0, running=False, lost=()):
        exceptions = SimpleNamespace(RayError=self.RayError)
        super().__init__(exceptions=exceptions, gpus=gpus, running=running, lost=set(lost), asked=[], shut=0)

    def is_initialized(self):
        return self.running

    def init(self, **options):
        self.asked.append(options)
        self.running = True

    def shutdown(self):
        self.running, self.shut = False, self.shut + 1

    def cluster_resources(self):
        return {"CPU": 2.0, **({"GPU": self.gpus} if self.gpus else {})}

    def remote(self, **options):
        self.asked.append(options)

        def decorated(function):
            return SimpleNamespace(remote=lambda *arguments: (function, arguments))

        return decorated

    def wait(self, references, *, num_returns):
        assert num_returns == 1
        return references[-1:], references[:-1]

    def get(self, reference):
        function, arguments = reference
        if arguments[1].index in self.lost:
            raise self.RayError("the node went away")
        return function(*arguments)


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def with_ray(monkeypatch, ray):
    monkeypatch.setitem(sys.modules, "ray", ray)
    return ray


def test_on_ray_tasks_ask_for_their_share_and_give_the_same_results(tmp_path, monkeypatch, one_thread):
    ray = with_ray(monkeypatch, FakeRay(gpus=1.0))
    records = sweep(tasks.measured, configs(), tmp_path / "a", workers=Ray(gpus_per_task=0.25, retries=5))
    assert ray.asked[0]["address"] is None
    assert ray.asked[1] == {"num_cpus": 1, "num_gpus": 0.25, "max_retries": 5}
    assert ray.shut == 1
    assert_same(records, sweep(tasks.measured, configs(), tmp_path / "b"))


def test_a_cluster_that_was_joined_before_is_left_running(tmp_path, monkeypatch, one_thread):
    ray = with_ray(monkeypatch, FakeRay(running=True))
    sweep(tasks.measured, configs(), tmp_path, workers="ray")
    assert ray.running and ray.shut == 0


def test_what_ray_loses_is_a_failure_and_costs_nobody_else(tmp_path, monkeypatch, one_thread):
    with_ray(monkeypatch, FakeRay(lost=[1]))
    with pytest.warns(SweepWarning), pytest.raises(SweepError, match="the node went away") as caught:
        sweep(tasks.measured, configs(), tmp_path, workers="ray")
    assert [r is None for r in caught.value.records] == [False, True, False, False]


def test_gpus_that_no_machine_has_are_not_waited_for(tmp_path, monkeypatch):
    ray = with_ray(monkeypatch, FakeRay())
    with pytest.raises(ArgumentError, match="1 GPUs per task"):
        sweep(tasks.measured, configs(), tmp_path, workers=Ray(gpus_per_task=1))
    assert ray.shut == 1


def test_without_ray_the_message_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ArgumentError, match=r"pip install 'ritz\[ray\]'"):
        sweep(tasks.measured, configs(), tmp_path, workers="ray")


def test_the_example_is_a_whole_experiment(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    import sweep as example

    given = [example.Config(width, seed=0, num_epochs=2) for width in (4, 16)]
    narrow, wide = sweep(example.measurement, given, tmp_path)
    assert wide.scalars["accuracy"] > narrow.scalars["accuracy"] > 0.2
    assert wide.scalars["sharpness"] == wide.arrays["eigenvalues"].max() > 0


def test_a_worker_that_dies_while_it_starts_is_followed_by_another(tmp_path, monkeypatch):
    submit, deaths = workers._Worker.submit, []

    def dying(self, function, *arguments):
        if function is workers._ready and len(deaths) < 2:
            deaths.append(self)
            failed = Future()
            failed.set_exception(BrokenProcessPool("killed"))
            return failed
        return submit(self, function, *arguments)

    monkeypatch.setattr(workers._Worker, "submit", dying)
    with pytest.warns(SweepWarning, match="died while it started"):
        records = sweep(tasks.measured, configs(count=1), tmp_path, workers=Processes(1))
    assert records[0].scalars["index"] == 0 and len(deaths) == 2
    deaths.clear()
    with pytest.raises(ArgumentError, match="cannot be called in another process"):
        sweep(tasks.measured, configs(count=2), tmp_path, workers=Processes(1, retries=1))


def test_a_result_that_no_file_can_hold_costs_nobody_else(tmp_path):
    answers = {1: "\ud800", 2: torch.eye(2).to_sparse(), 3: 7.0}
    with pytest.raises(SweepError) as caught, pytest.warns(SweepWarning):
        sweep(lambda config: {"y": answers[config["x"]]}, [{"x": x} for x in answers], tmp_path)
    assert [failure.config["x"] for failure in caught.value.failures] == [1, 2]
    assert caught.value.records[2].scalars["y"] == 7.0
