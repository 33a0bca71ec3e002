"""Long computations that are killed at random moments go on from what they left, to the same bits."""

import itertools
import math
import os
import random
import shutil
import signal
import sys
import time

import pytest
import torch
from torch import nn

import ritz
from ritz.analysis import classes
from ritz.analysis import spectrum as spectra
from ritz.analysis.classes import ClassSettings
from ritz.analysis.classes.attribution_arrays import results_of
from ritz.classes import attribution
from ritz.errors import FileError
from ritz.record import checkpoints, read_arrays, write_arrays
from ritz.record.layouts import layout_of
from tests.shapes import unchecked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs fork, and the clock of another process")
KILLS = 3
generator = lambda: torch.Generator().manual_seed(5)


def risk(num_examples=24, scale=1.0):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    x = scale * torch.randn(num_examples, 4, generator=generator(), dtype=torch.float64)
    y = torch.arange(num_examples) % 3
    return ritz.Risk(model, nn.CrossEntropyLoss(), [(x[:13], y[:13]), (x[13:], y[13:])])


def lines(folder, **options):
    scalars, results = results_of(attribution(risk(), checkpoint=folder, generator=generator(), **options))
    return {**scalars, **results.arrays}


def analysis(folder, exact_rows=3000):
    record = classes.run(risk(), ClassSettings(weight_decay=1e-3, exact_rows=exact_rows), checkpoint=folder)
    return {**{k: v for k, v in record.scalars.items() if k != "seconds"}, **record.arrays}


def whole_spectrum(folder, exact_rows=4096):
    settings = spectra.Settings(num_eigenpairs=2, num_probes=2, num_steps=12, per_layer=True, exact_rows=exact_rows)
    record = spectra.run(risk(), settings, checkpoint=folder)
    return {**{k: v for k, v in record.scalars.items() if k != "seconds"}, **record.arrays}


def spectrum(folder):
    arrays, facts = ritz.gram_spectrum(risk(), subtract=("between_class",), checkpoint=folder).state()
    return {**arrays, **facts}


def trace(folder):
    estimate = ritz.trace(ritz.hessian(risk()), num_products=40, checkpoint=folder / "trace.npz")
    return {"value": estimate.value, "error": estimate.standard_error}


COMPUTATIONS = {
    "trace": trace,
    "gram_spectrum": spectrum,
    "attribution by its Gram matrix": lines,
    "attribution by products": lambda folder: lines(folder, exact_rows=0),
    "spectrum": whole_spectrum,
    "spectrum by probes": lambda folder: whole_spectrum(folder, exact_rows=0),
    "classes": analysis,
    "classes by products": lambda folder: analysis(folder, exact_rows=30),
}


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """Files are written before every step."""
    write_eagerly(monkeypatch)


def write_eagerly(monkeypatch):
    ticks = itertools.count(step=1000.0)
    monkeypatch.setattr(checkpoints, "SHARE", 0)
    monkeypatch.setattr(checkpoints, "monotonic", lambda: next(ticks))


@pytest.fixture(scope="module")
def by_products(tmp_path_factory):
    """The folder of an attribution by products that is over."""
    folder = tmp_path_factory.mktemp("by_products")
    with pytest.MonkeyPatch.context() as patch:
        write_eagerly(patch)
        attribution(risk(), exact_rows=0, checkpoint=folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def imported(tmp_path_factory):
    """What computations import is there before processes are made of this one."""
    analysis(tmp_path_factory.mktemp("imported"), exact_rows=30)


def seconds_to_death(compute, folder, limit=math.inf):
    """What a process of its own computes for until it is over, or killed after so many seconds of it."""
    child = os.fork()
    if not child:
        try:
            with unchecked():  # as it is in this process: a check would be made anew in each of them
                compute(folder)
        finally:
            os._exit(0)
    clock, flags = (~child << 3) | 2, os.WEXITED | os.WNOHANG | os.WNOWAIT  # it does not go on while others compute
    while os.waitid(os.P_PID, child, flags) is None and time.clock_gettime(clock) < limit:
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    return usage.ru_utime + usage.ru_stime, os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def kill(compute, folder, limit):
    """Kill it after so many seconds of its own; where it was over by then, start anew and kill it in half of these."""
    while not seconds_to_death(compute, folder, limit)[1]:
        shutil.rmtree(folder)
        limit /= 2


def assert_same(one, other):
    assert one.keys() == other.keys()
    for key, value in one.items():
        same = torch.equal(value, other[key]) if isinstance(value, torch.Tensor) else value == other[key]
        assert same, key


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_a_computation_killed_at_random_moments_gives_the_same_bits(tmp_path, name, monkeypatch):
    compute, moments = COMPUTATIONS[name], random.Random(name)
    seconds, _ = seconds_to_death(compute, tmp_path / "whole")
    for _ in range(KILLS):
        kill(compute, tmp_path / "killed", moments.random() * seconds)
    result = compute(tmp_path / "killed")
    assert not list((tmp_path / "killed").rglob("*.tmp"))  # those of the dead are gone
    monkeypatch.setattr(checkpoints.Checkpoint, "keep", lambda *_, **__: pytest.fail("something was computed again"))
    assert_same(compute(tmp_path / "whole"), result)  # what is over is read alone


def test_a_folder_of_another_risk_is_refused_and_left_alone(tmp_path):
    ritz.gram_spectrum(risk(), checkpoint=tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for other, what in ((risk(scale=1.1), "data"), (risk(23), "data"), (risk().at(risk().theta * 2), "parameters")):
        with pytest.raises(FileError, match=f"different .*{what}"):
            ritz.gram_spectrum(other, checkpoint=tmp_path)
    with pytest.raises(FileError, match=r"different .*subtract"):
        ritz.gram_spectrum(risk(), subtract=("within",), checkpoint=tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_search_within_an_attribution_keeps_few_vectors(by_products):
    count, size = 5, risk().size
    for path in by_products.iterdir():
        arrays, _ = read_arrays(path)
        vectors = sum(array.size // size for array in arrays.values() if size in array.shape)
        assert vectors <= 2 * count + 12, path.name


@pytest.mark.parametrize(
    "damage",
    [
        lambda arrays, facts: arrays.pop("array/share/within"),
        lambda arrays, facts: arrays.update({"array/share/within": arrays["array/share/within"] + 0.1}),
        lambda arrays, facts: arrays.update({"array/share/within": arrays["array/share/within"][:-1]}),
        lambda arrays, facts: arrays.update({"array/in_class_means": arrays["array/in_class_means"] + 2}),
        lambda arrays, facts: facts["inside"].pop(),
    ],
)
def test_shares_that_are_those_of_no_lines_are_refused(by_products, tmp_path, damage):
    path = tmp_path / "lines-of-G.npz"
    shutil.copytree(by_products, tmp_path, dirs_exist_ok=True)
    arrays, header = read_arrays(path)
    damage(arrays, header["facts"])
    write_arrays(path, arrays, {**header, "layout": layout_of(arrays)})
    with pytest.raises(FileError, match="is damaged"):
        attribution(risk(), exact_rows=0, checkpoint=tmp_path)
