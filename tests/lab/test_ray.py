"""Sweeps over a real Ray: killed workers, a killed driver, tasks that ask for a GPU. Runs where ray is installed.

pip install -e '.[ray]'
"""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from ritz.errors import ArgumentError
from ritz.lab.sweeps import Ray, SweepError, sweep
from ritz.record import key
from tests.lab import sweep_tasks as tasks
from tests.lab.sweep_folders import ENVIRONMENT, PATIENCE, assert_same, configs, hidden
from tests.lab.sweep_tasks import Config

ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'ritz[ray]'")
pytestmark = pytest.mark.filterwarnings("ignore")

DRIVER = """
import sys, warnings
warnings.simplefilter("ignore")
from ritz.lab.sweeps import Ray, sweep
from tests.lab import sweep_tasks as tasks
if __name__ == "__main__":
    folder = sys.argv[1]
    configs = [tasks.Config(index, folder=folder) for index in range(6)]
    sweep(tasks.endless_at_two, configs, folder + "/out", workers=Ray(cpus_per_task=0.5))
"""


@pytest.fixture
def cluster():
    """One with two cores and one GPU, which need not be there: Ray counts it."""
    ray.init(num_cpus=2, num_gpus=1, log_to_driver=False, include_dashboard=False)
    yield
    ray.shutdown()


def test_a_killed_worker_costs_only_its_task_and_a_gpu_is_shared(tmp_path, cluster):
    records = sweep(tasks.killed_once, configs(tmp_path), tmp_path / "out", workers=Ray(gpus_per_task=0.5, retries=2))
    assert len(tasks.calls(tmp_path, 1)) == 2 and ray.is_initialized()
    assert_same(records, sweep(tasks.measured, configs(tmp_path), tmp_path / "b", name="killed_once"))
    given = [Config(index, folder=str(tmp_path / "again")) for index in range(5)]
    (tmp_path / "again").mkdir()
    with pytest.raises(SweepError, match="2 of 5 tasks failed") as caught:
        sweep(tasks.dangerous, given, tmp_path / "dangerous", workers=Ray(retries=1))
    errors = {failure.config.index: failure.error for failure in caught.value.failures}
    assert "KeyError" in errors[1] and "Ray lost it" in errors[2]  # killed every time; index 4 was killed once
    assert not hidden(tmp_path / "out") and not hidden(tmp_path / "dangerous")
    with pytest.raises(ArgumentError, match="2 GPUs per task were requested, and the Ray cluster has 1"):
        sweep(tasks.measured, configs(), tmp_path / "none", workers=Ray(gpus_per_task=2))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see who lives")
def test_a_killed_driver_loses_nothing_that_was_done(tmp_path):
    script, out = tmp_path / "driver.py", tmp_path / "out"
    script.write_text(DRIVER)
    driver = subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=ENVIRONMENT, start_new_session=True)
    deadline, first = time.monotonic() + PATIENCE, out / key(Config(0, folder=str(tmp_path)))
    try:
        while not (tasks.calls(tmp_path, 2) and first.exists()):
            assert driver.poll() is None and time.monotonic() < deadline, "it never came"
            time.sleep(0.05)
        driver.kill()
    finally:
        driver.kill()
        driver.wait()
    pids = {int(pid) for index in range(6) for pid in tasks.calls(tmp_path, index)}
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)  # Ray ends its workers itself
    done = [index for index in range(6) if (out / key(Config(index, folder=str(tmp_path)))).exists()]
    before = [len(tasks.calls(tmp_path, index)) for index in range(6)]
    (tmp_path / "go").touch()
    records = sweep(tasks.endless_at_two, configs(tmp_path, 6), out)
    assert 0 in done and 2 not in done
    after = [len(tasks.calls(tmp_path, index)) for index in range(6)]
    assert [after[index] - before[index] for index in range(6)] == [index not in done for index in range(6)]
    assert_same(records, sweep(tasks.measured, configs(tmp_path, 6), tmp_path / "b", name="endless_at_two"))
    assert not hidden(out)
