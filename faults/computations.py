"""Every computation that goes on after a kill, on problems of a second: a folder in, a checksum of its result out."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import ritz
from ritz.analysis.classes.attribution_arrays import results_of
from ritz.classes import attribution
from ritz.lab import training as lab
from ritz.lab.sweeps import sweep
from ritz.record import Record, checkpoints

FIGURE = "linear2026.fig4"
TIMES = ("seconds", "product_seconds")  # of a record: another number in every run


def checksum(*values: Any) -> str:
    """The checksum of tensors, arrays, mappings and plain values, to the bit."""
    state = hashlib.sha256()
    for value in values:
        if isinstance(value, Mapping):
            for key in sorted(value):
                state.update(f"{key}: {checksum(value[key])}".encode())
        elif isinstance(value, (torch.Tensor, np.ndarray)):
            array = np.ascontiguousarray(torch.as_tensor(value).detach().cpu().numpy())
            state.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
        else:
            state.update(repr(value).encode())
    return state.hexdigest()


def risk(size: int = 6) -> ritz.Risk:
    """A small classifier."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, size), nn.Tanh(), nn.Linear(size, 3)).double()
    x = torch.randn(24, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    y = torch.arange(24) % 3
    return ritz.Risk(model, nn.CrossEntropyLoss(), [(x[:13], y[:13]), (x[13:], y[13:])])


def large() -> ritz.Operator:
    """A matrix above what is solved exactly."""
    diagonal = torch.cat([torch.linspace(-1, 1, 694), torch.linspace(2, 4, 6)]).double()
    u = torch.randn(700, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    u = u / u.norm()
    reflected = lambda V: V - 2 * u * (u.T @ V)
    return ritz.Operator(lambda V: reflected(diagonal[:, None] * reflected(V)), 700, torch.float64, torch.device("cpu"))


def training(folder: Path) -> str:
    """A network with dropout and momentum."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(50, 3, generator=generator)
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Dropout(0.2), nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    options: dict[str, Any] = {"num_epochs": 25, "batch_size": 16, "generator": generator, "save_seconds": 0.0}
    folder.mkdir(parents=True, exist_ok=True)
    data = (x, (x[:, 0] > 0).long())
    for pause in lab.train(model, nn.CrossEntropyLoss(), data, optimizer, checkpoint=folder / "run.npz", **options):
        pause.note(drawn=torch.rand((), generator=generator))
    return checksum(pause.parameters, pause.history["loss"].values, pause.history["drawn"].values)


def measured(config: Mapping[str, int]) -> dict[str, Any]:
    """One task of a sweep."""
    generator = torch.Generator().manual_seed(config["seed"])
    return {"norm": float(torch.randn(200, 200, generator=generator).norm()), "seed": config["seed"]}


def swept(folder: Path) -> str:
    """A sweep in this process."""
    records = sweep(measured, [{"seed": seed} for seed in range(12)], folder)
    return checksum(*(record.scalars for record in records))


def eigenpairs(folder: Path) -> str:
    """A search."""
    pairs = ritz.eigenpairs(large(), 4, tolerance=1e-8, checkpoint=folder / "pairs.npz")
    return checksum(*pairs.state())


def density(folder: Path) -> str:
    """A density with outliers."""
    spectrum = ritz.spectral_density(large(), num_steps=20, outliers=2, checkpoint=folder / "density.npz")
    return checksum(*spectrum.state())


def trace(folder: Path) -> str:
    """A trace."""
    estimate = ritz.trace(large(), num_products=200, checkpoint=folder / "trace.npz")
    return checksum(estimate.value, estimate.standard_error, estimate.num_products)


def gram(folder: Path) -> str:
    """The spectrum of G through its Gram matrix."""
    return checksum(*ritz.gram_spectrum(risk(20), checkpoint=folder).state())


def lines(folder: Path) -> str:
    """An attribution by products."""
    scalars, results = results_of(attribution(risk(), exact_rows=0, checkpoint=folder))
    return checksum(scalars, results.arrays)


SAID = io.StringIO()  # by commands: click keeps every stream that it has written to, so there is one for all


class CommandFailed(Exception):
    """What a command said before it ended with an exit code."""


def command(*arguments: str) -> None:
    """The command `ritz` in this process; what it says is shown where it fails."""
    from ritz.cli import app

    SAID.seek(0)
    SAID.truncate()
    with contextlib.redirect_stdout(SAID), contextlib.redirect_stderr(SAID):
        code = app(list(arguments), standalone_mode=False)
    if code:
        raise CommandFailed(SAID.getvalue())


def record_checksum(folder: Path) -> str:
    """The checksum of a record without its times."""
    record = Record.load(folder)
    scalars = {key: value for key, value in record.scalars.items() if key not in TIMES}
    return checksum(scalars, record.arrays)


def spectrum_command(folder: Path) -> str:
    """`ritz spectrum`."""
    command("spectrum", "faults.computations:risk", "--probes", "2", "--steps", "16", "--out", str(folder))
    return record_checksum(folder)


def classes_command(folder: Path) -> str:
    """`ritz classes`."""
    command("classes", "faults.computations:risk", "--exact-rows", "40", "--out", str(folder))
    return record_checksum(folder)


def run_command(folder: Path) -> str:
    """`ritz run`."""
    command("run", FIGURE, "--preset", "smoke", "--out", str(folder))
    return record_checksum(folder / FIGURE / "smoke")


COMPUTATIONS: dict[str, Callable[[Path], str]] = {
    "lab.train": training,
    "a sweep": swept,
    "ritz run": run_command,
    "ritz spectrum": spectrum_command,
    "ritz classes": classes_command,
    "eigenpairs": eigenpairs,
    "spectral_density": density,
    "trace": trace,
    "gram_spectrum": gram,
    "attribution": lines,
}


@contextlib.contextmanager
def eager() -> Iterator[None]:
    """Checkpoints are written at every chance, not every half minute; nothing is warned of."""
    ticks, before = itertools.count(step=1000.0), (checkpoints.SHARE, checkpoints.monotonic)
    checkpoints.SHARE, checkpoints.monotonic = 0, functools.partial(next, ticks)  # type: ignore[assignment]
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        checkpoints.SHARE, checkpoints.monotonic = before
