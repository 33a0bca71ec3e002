"""Trained networks by piece: found on the shelf, or trained as printed and put there.

    records = sweep_on_shelf(training, pieces, context)  # errors along training, of each piece
    model = trained_network(piece, epoch, place)  # in a task: it trains what is not on the shelf

An interrupted piece goes on from its last pause. In the shelf's folder "networks" each piece has a folder with a record
and its parameters at every epoch at which it is kept; if another process is training a piece, this one waits. Beside
them lie the small records of what was measured: where these exist, the network is not needed any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from ...errors import FileError, NumericalError
from ...lab.data import Examples
from ...lab.training import Annealing, Pause, accuracy, train
from ...lab.training.arithmetic import multiply_in
from ...record import Record, digest, discard, key, lock, plain, read_arrays, write_arrays
from ..frame.figure import Context
from .setting import Piece, network, split

_LEAST = 4  # of a batch is the least: of 13 examples a class two are left over, which batch norm cannot bear
_WAIT = 2.0  # seconds between checks whether another process has trained the piece


@dataclass(frozen=True)
class Place:
    """Where networks are trained and kept. None of it changes what they are."""

    device: torch.device
    data_dir: Path | None = None
    shelf: Path | None = None  # None: nothing is kept

    @classmethod
    def of(cls, context: Context) -> Place:
        """The place for a figure's run."""
        return cls(context.device, context.data_dir, context.shelf)


def sweep_on_shelf(task: Callable[..., Any], configs: Iterable[Any], context: Context) -> list[Record]:
    """What a task returns for each config and the place, kept beside the networks for other computations."""
    shared = context if context.shelf is None else replace(context, folder=context.shelf)
    return shared.sweep(partial(task, place=Place.of(context)), configs)


def training(piece: Piece, *, place: Place) -> dict[str, Any]:
    """Errors along training and the initial rate, of a piece that is trained now unless it is on the shelf."""
    with _folder(piece, place) as folder:
        record = _record(piece, place, folder)
    return {**record.arrays, **record.scalars}


def trained_network(piece: Piece, epoch: int | None, place: Place) -> nn.Sequential:
    """The network after an epoch at which it is kept, the last unless given, in eval mode and float32."""
    epoch = piece.num_epochs if epoch is None else epoch
    with _folder(piece, place) as folder:
        _record(piece, place, folder)
        arrays, _ = read_arrays(_parameters(folder, epoch))
    model = network(piece, "meta")
    model.load_state_dict(
        {name: torch.from_numpy(value).to(place.device) for name, value in arrays.items()}, assign=True
    )
    return model.eval()


def identity(model: nn.Module) -> str:
    """A fingerprint of all parameters: measurements of one network are of one and the same training."""
    return digest(*model.parameters())


def best_rate(piece: Piece, place: Place) -> tuple[float, dict[str, float]]:
    """The largest learning rate with the least test error after a short training from seed 0, and all errors."""
    rates, short = piece.training.rates, _short(piece)
    if len(rates) == 1:
        return rates[0], {}
    with _folder(short, place) as folder:
        file = folder / "rates.npz"
        if not file.exists():
            write_arrays(file, {}, {"errors": [_error_at(short, rate, place) for rate in rates]})
        errors = dict(zip(rates, read_arrays(file)[1]["errors"], strict=True))
    return min(rates, key=lambda rate: (errors[rate], -rate)), {f"{rate:g}": error for rate, error in errors.items()}


def _short(piece: Piece) -> Piece:
    """The piece as it is trained to choose its rate: briefly, from seed 0."""
    settings, steps = piece.training, -(-piece.num_classes * piece.per_class // piece.training.batch_size)
    epochs = max(settings.sweep_fraction * piece.num_epochs, settings.sweep_steps / steps)
    epochs = min(max(round(epochs), 1), piece.num_epochs)
    return replace(piece, seed=0, pauses=(), training=replace(settings, num_epochs=epochs))


def _error_at(piece: Piece, rate: float, place: Place) -> float:
    """The last test error; 1 where training diverged."""
    model, train_set, test_set = untrained(piece, place)
    *_, last = epochs(piece, model, train_set, rate)
    return 1.0 if last.diverged else _error(model, test_set)


def untrained(piece: Piece, place: Place) -> tuple[nn.Sequential, Examples, Examples]:
    """The network at its start and its data, on the device, with channels last on a GPU, where that is faster."""
    both = split(piece, place.data_dir)
    model: Any = network(piece, place.device)
    if place.device.type == "cuda":
        model = model.to(memory_format=torch.channels_last)
    train_set, test_set = (
        Examples(part.x.to(place.device), part.y.to(place.device)) for part in (both.train, both.test)
    )
    return model, train_set, test_set


def epochs(
    piece: Piece, model: nn.Module, examples: Examples, rate: float, file: Path | None = None
) -> Iterator[Pause[Any, Any]]:
    """Train the network at an initial rate as the piece says, pausing after every epoch."""
    settings, on_gpu = piece.training, examples.x.is_cuda
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        fused=on_gpu,  # a step of the wide MLP takes three quarters of the time
    )
    return train(
        model,
        F.cross_entropy,
        examples,
        optimizer,
        num_epochs=piece.num_epochs,
        batch_size=settings.batch_size,
        generator=torch.Generator().manual_seed(piece.seed),
        schedule=Annealing(),
        checkpoint=file,
        precision=settings.precision if on_gpu else None,
        capture=True,
        least_batch=settings.batch_size // _LEAST,
    )


def _record(piece: Piece, place: Place, folder: Path) -> Record:
    """The record of a piece, which is trained now unless it has one; its parameters are written to files."""
    if (folder / "record.json").exists():
        return Record.load(folder)
    model, train_set, test_set = untrained(piece, place)
    rate, tried = best_rate(piece, place)
    started = time.perf_counter()
    _keep(model, folder, 0, piece)
    at, notes = error_epochs(piece), {"train_error": _error(model, train_set), "test_error": _error(model, test_set)}
    for pause in epochs(piece, model, train_set, rate, folder / "run.npz"):
        if pause.epoch in at or pause.epoch in piece.epochs:
            pause.note(train_error=_error(model, train_set), test_error=_error(model, test_set))
        _keep(model, folder, pause.epoch, piece)
    _check_end(piece, rate, pause)
    curves = {name: np.array([first, *pause.history[name].at(at[1:])]) for name, first in notes.items()}
    scalars = {
        "rate": rate,
        "tried": tried,
        "last_train_error": curves["train_error"][-1],
        "last_test_error": curves["test_error"][-1],
        "identity": identity(model),
        "seconds_of_training": time.perf_counter() - started,
        "device": torch.cuda.get_device_name(place.device) if place.device.type == "cuda" else "cpu",
    }
    record = Record("training", "", plain(piece), scalars, {"epochs": np.array(at), **curves})
    record.save(folder)
    discard(folder / "run.npz")
    return record


def _check_end(piece: Piece, rate: float, pause: Any) -> None:
    if pause.diverged:
        raise NumericalError(
            f"{piece.title}: training at the rate {rate:g} diverged in epoch {pause.epoch}.",
            "There is no trained network to measure.",
            "Set smaller rates among which to choose: --set training.rates=0.01,0.001",
        )


def error_epochs(piece: Piece) -> list[int]:
    """When errors are counted: before training, at epochs on a logarithmic scale, and where the network is kept."""
    count = max(piece.training.num_errors, 2)
    even = {round(piece.num_epochs ** (index / (count - 1))) for index in range(count)}
    return sorted({0, *even, *piece.epochs})


def _error(model: nn.Module, examples: Examples) -> float:
    """The share of examples that are misclassified; TF32 changes it by an example in thousands at most."""
    with multiply_in("tf32", examples.x.device):
        return 1 - accuracy(model.eval(), examples)


def _keep(model: nn.Module, folder: Path, epoch: int, piece: Piece) -> None:
    if epoch in piece.epochs and not _parameters(folder, epoch).exists():
        state = {name: value.contiguous() for name, value in model.state_dict().items()}
        write_arrays(_parameters(folder, epoch), state)


def _parameters(folder: Path, epoch: int) -> Path:
    return folder / f"epoch-{epoch}.npz"


@contextmanager
def _folder(piece: Piece, place: Place) -> Iterator[Path]:
    """The piece's folder on the shelf, locked for this process; a temporary one without a shelf."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(TemporaryDirectory())) if place.shelf is None else place.shelf
        while True:
            try:
                folder = stack.enter_context(lock(root / "networks" / key(plain(piece))))
                break
            except FileError as error:
                if "Another process" not in error.seen:
                    raise
                time.sleep(_WAIT)
        yield folder
