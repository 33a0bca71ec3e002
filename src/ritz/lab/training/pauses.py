"""The loop that all training here shares: epochs, pauses between them, and a file from which it goes on.

What is trained, and how an epoch of it goes, is a `Trainee`; `pauses` adds the schedule, the notes, the progress bar
and the file. A run that was killed comes back to the last pause in its file and goes on to the same bits.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from ... import progress, record
from ...errors import ArgumentError, FileError, check_whole
from .schedules import Pace, Schedule

Number = TypeVar("Number", float, Tensor)
Parameters = TypeVar("Parameters")
Parameters_co = TypeVar("Parameters_co", covariant=True)
Arrays = dict[str, Any]
SAVE_SECONDS = 30.0  # between two writings of the file: what a kill can cost
SAMPLE = 512  # examples that stand for a data set in its fingerprint


@runtime_checkable
class Trainee(Protocol[Parameters_co]):
    """What a loop trains: epoch after epoch, with a state that can be saved."""

    steps_per_epoch: int
    generator: torch.Generator | None  # its state, and that of PyTorch's own, are kept by the loop

    def epoch(self, pace: Pace) -> tuple[Tensor, float | None]:
        """Train for one epoch; returns the mean loss seen during it, and the accuracy where there is one."""

    def rate(self, pace: Pace) -> Tensor:
        """The learning rate at this pace; the first layer's where there are several."""

    def parameters(self) -> Parameters_co:
        """A copy of the parameters."""

    def state(self) -> tuple[Arrays, Mapping[str, Any]]:
        """Everything else that the next epoch depends on, as arrays and JSON values."""

    def restore(self, arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> None:
        """Go back to a state."""

    def identity(self) -> dict[str, str]:
        """What tells this run from another, before it starts."""


@dataclass(frozen=True)
class Series:
    """Values noted along a run, and after which epochs."""

    epochs: np.ndarray
    values: np.ndarray

    def at(self, epochs: Sequence[int]) -> np.ndarray:
        """One row for each of these epochs; NaN where nothing was noted, as after the end of a run."""
        own = {int(epoch): value for epoch, value in zip(self.epochs, self.values, strict=True)}
        rows = np.full((len(epochs), *self.values.shape[1:]), np.nan)
        for row, epoch in enumerate(epochs):
            rows[row] = own.get(epoch, np.nan)
        return rows


@dataclass(frozen=True, eq=False)
class Checkpoint(Generic[Number, Parameters]):
    """A pause after an epoch: its number, from 1, and the mean training loss seen during it.

    One network has numbers; many, trained at once, have tensors. Full-batch descent has seen the loss before its step.
    """

    epoch: int
    step: int
    loss: Number
    learning_rate: Number  # of the epoch that is over; the first layer's where there are several
    accuracy: float | None  # of the predictions made during the epoch, where the targets are classes
    diverged: Any  # bool, or one for each network: the loss is no number any more, and training of it has ended
    done: Any  # the schedule has ended the training
    _run: _Run[Any] = field(repr=False)

    @property
    def parameters(self) -> Parameters:
        """A copy of the parameters as they are at this pause."""
        if self._run.epoch != self.epoch:
            raise ArgumentError(
                f"The parameters after epoch {self.epoch} were asked for, and training is at {self._run.epoch}.",
                "Only the present ones exist.",
                "Ask for them at the pause, inside the loop.",
            )
        found: Parameters = self._run.trainee.parameters()
        return found

    def note(self, **values: Any) -> None:
        """Keep measured numbers with this epoch: they are in `history`, and in the file, so that a kill loses none."""
        if taken := sorted(values.keys() & self._run.known.keys()):
            raise ArgumentError(
                f"{taken[0]!r} was to be noted.",
                "The history has what training itself has seen under this name.",
                f"Choose another name, such as test_{taken[0]}.",
            )
        self._run.note(self.epoch, values)

    @property
    def history(self) -> dict[str, Series]:
        """All that was noted so far, by name, with `loss`, `learning_rate` and `accuracy` of every epoch."""
        return {name: _series(notes) for name, notes in self._run.notes.items()}


def pauses(
    trainee: Trainee[Parameters],
    schedule: Schedule,
    losses: Tensor,
    *,
    num_epochs: int,
    label: str,
    checkpoint: str | Path | None,
    save_seconds: float,
    settings: Mapping[str, object],
) -> Iterator[Checkpoint[Any, Parameters]]:
    """Train and pause after every epoch, from the file's state where there is one; the file is of these settings.

    A run found in its file pauses once more where it was saved, so that what was not noted there is measured again.
    """
    start = schedule.after(Pace.start(losses), losses, epoch=0, num_epochs=num_epochs)
    run = _Run(trainee, schedule, num_epochs, start)
    if checkpoint is None:
        return _pauses(run, None, label)
    settings = {"num_epochs": num_epochs, "schedule": schedule, **settings}
    identity = trainee.identity() | {name: _described(value) for name, value in settings.items()}
    return _pauses(run, _File(Path(checkpoint), identity, save_seconds), label)


def _pauses(run: _Run[Parameters], file: _File | None, label: str) -> Iterator[Checkpoint[Any, Parameters]]:
    with progress.bar(label, total=run.num_epochs) as bar:
        if file is not None and file.restore(run):
            bar.advance(run.epoch)
            yield run.pause()
        while not run.over:
            run.advance()
            if file is not None:
                file.save(run, last=run.over)
            bar.advance(loss=run.loss.nanmean())
            yield run.pause()


class _Run(Generic[Parameters]):
    """The state of a loop, all of it: what is trained, how far, at what pace, and what was noted."""

    def __init__(self, trainee: Trainee[Parameters], schedule: Schedule, num_epochs: int, pace: Pace) -> None:
        self.trainee, self.schedule, self.num_epochs, self.pace = trainee, schedule, num_epochs, pace
        self.epoch, self.over = 0, num_epochs < 1
        self.loss = self.rate = torch.full_like(pace.factor, torch.nan)
        self.diverged = torch.zeros_like(pace.done)
        self.accuracy: float | None = None
        self.notes = dict[str, dict[int, Any]]()

    def advance(self) -> None:
        """One epoch. What has diverged or ended stays as it is."""
        self.rate = self.trainee.rate(self.pace)
        resting = Pace(self.pace.factor, self.pace.reference, self.pace.done | self.diverged)
        loss, self.accuracy = self.trainee.epoch(resting)
        self.epoch += 1
        self.loss = loss.to(self.pace.factor)
        self.diverged = self.diverged | ~self.loss.isfinite()
        self.pace = self.schedule.after(self.pace, self.loss, epoch=self.epoch, num_epochs=self.num_epochs)
        self.over = self.epoch >= self.num_epochs or bool((self.pace.done | self.diverged).all())
        self.note(self.epoch, self.known)

    @property
    def known(self) -> dict[str, Any]:
        """What is noted of every epoch, asked for or not."""
        own = {"loss": self.loss, "learning_rate": self.rate, "accuracy": self.accuracy}
        return {name: value for name, value in own.items() if value is not None}

    def note(self, epoch: int, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            kept = _numbers(name, value)
            shape = tuple(next(iter(self.notes.get(name, {}).values()), kept).shape)
            if tuple(kept.shape) != shape:
                raise ArgumentError(
                    f"{name!r} of shape {tuple(kept.shape)} was to be noted, and before it was of shape {shape}.",
                    "All notes of a name become one array.",
                    "Note the same number of values every time, filled up with NaN, or use another name.",
                )
            self.notes.setdefault(name, {})[epoch] = kept

    def pause(self) -> Checkpoint[Any, Parameters]:
        single = self.loss.ndim == 0
        facts = (self.loss, self.rate, self.diverged, self.pace.done)
        loss, rate, diverged, done = (fact.item() if single else fact.clone() for fact in facts)
        step = self.epoch * self.trainee.steps_per_epoch
        return Checkpoint(self.epoch, step, loss, rate, self.accuracy, diverged, done, self)

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        arrays, header = self.trainee.state()
        arrays = {f"trainee/{name}": value for name, value in arrays.items()}
        arrays |= {f"random/{name}": value for name, value in _random_states(self.trainee.generator).items()}
        own = {"factor": self.pace.factor, "reference": self.pace.reference, "done": self.pace.done}
        own |= {"loss": self.loss, "rate": self.rate, "diverged": self.diverged}
        arrays |= {f"run/{name}": value for name, value in own.items()}
        for name, notes in self.notes.items():
            series = _series(notes)
            arrays |= {f"notes/{name}/epochs": series.epochs, f"notes/{name}/values": series.values}
        return arrays, {"trainee": header, "epoch": self.epoch, "over": self.over, "accuracy": self.accuracy}

    def restore(self, arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> None:
        own = {name: torch.from_numpy(value) for name, value in _under("run/", arrays).items()}
        place = self.pace.factor.device
        factor, reference, done, self.loss, self.rate, self.diverged = (
            own[name].to(place) for name in ("factor", "reference", "done", "loss", "rate", "diverged")
        )
        self.pace, self.accuracy = Pace(factor, reference, done), header["accuracy"]
        self.epoch, self.over = header["epoch"], header["over"]
        noted = _under("notes/", arrays)
        for name in {key.removesuffix("/epochs") for key in noted if key.endswith("/epochs")}:
            pairs = zip(noted[f"{name}/epochs"], noted[f"{name}/values"], strict=True)
            self.notes[name] = {int(epoch): value for epoch, value in pairs}
        self.trainee.restore(_under("trainee/", arrays), header["trainee"])
        _set_random_states(_under("random/", arrays), self.trainee.generator)


class _File:
    """The file of a run: written whole or not at all, at most every so many seconds and at the end."""

    def __init__(self, path: Path, identity: Mapping[str, str], seconds: float) -> None:
        self.path, self.identity, self.seconds = path, dict(identity), seconds
        self.due = monotonic() + seconds
        record.check_writable(path.parent)

    def save(self, run: _Run[Any], *, last: bool) -> None:
        if last or (started := monotonic()) >= self.due:
            arrays, header = run.state()
            record.write_arrays(self.path, arrays, {**header, "identity": self.identity})
            if not last:  # a large network does not spend more than a tenth of its time on writing
                self.due = monotonic() + max(self.seconds, 10 * (monotonic() - started) * (self.seconds > 0))

    def restore(self, run: _Run[Any]) -> bool:
        """Bring the run to the state in the file; False where there is no file."""
        if not self.path.exists():
            return False
        arrays, header = record.read_arrays(self.path)
        found = header.get("identity")
        found = found if isinstance(found, dict) else {}
        differing = [name for name in self.identity if found.get(name) != self.identity[name]]
        if differing:
            raise FileError(
                f"{self.path} is not of this run: different {', '.join(differing)}.",
                "Training that went on from it would be neither the old run nor this one.",
                "Name another file, or remove this one to start afresh.",
                "To go on with the old run, give the same settings, data and initial weights as then.",
            )
        run.restore(arrays, header)
        return True


def _random_states(generator: torch.Generator | None) -> dict[str, Tensor]:
    """Of all sources that training or a measurement may draw from: dropout, for one, has PyTorch's own."""
    states = {"torch": torch.get_rng_state()}
    if generator is not None:
        states["generator"] = generator.get_state()
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _set_random_states(states: Mapping[str, np.ndarray], generator: torch.Generator | None) -> None:
    torch.set_rng_state(torch.from_numpy(states["torch"]))
    if generator is not None:
        generator.set_state(torch.from_numpy(states["generator"]))
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(torch.from_numpy(states["cuda"]))


def fingerprint(*tensors: Tensor | None) -> str:
    """A checksum of shapes, types and values."""
    digest = hashlib.sha256()
    for tensor in tensors:
        if tensor is None:
            digest.update(b"none")
            continue
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        flat = tensor.detach().cpu().flatten().clone(memory_format=torch.contiguous_format)  # also where it is expanded
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def sampled(rows: Tensor, dim: int = 0) -> Tensor:
    """Evenly spread examples, enough to tell one data set from another."""
    count = rows.shape[dim]
    return rows.index_select(dim, torch.arange(0, count, max(count // SAMPLE, 1), device=rows.device))


def check_run(*, num_epochs: int, batch_size: int | None, generator: torch.Generator | None) -> None:
    """Refuse numbers that no run has, and random batches without a source of randomness."""
    check_whole(num_epochs=num_epochs, batch_size=batch_size)
    if num_epochs < 1 or (batch_size is not None and batch_size < 1):
        raise ArgumentError(
            f"num_epochs={num_epochs} and batch_size={batch_size} were given.",
            "A run has at least one epoch, and a batch at least one example.",
            "Give positive numbers; batch_size=None takes all examples at once.",
        )
    if batch_size is not None and generator is None:
        raise ArgumentError(
            f"Batches of {batch_size} were asked for, without a generator.",
            "Each epoch shuffles the examples, and only a generator can do it again the same way.",
            "Pass generator=torch.Generator().manual_seed(0), or batch_size=None for full-batch descent.",
        )


def _described(setting: object) -> str:
    """A setting as a text that is the same in every process: without the addresses of functions."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(setting))


def _numbers(name: str, value: Any) -> Tensor | np.ndarray:
    """A copy of what was measured. A tensor stays on its device, where nothing has to wait for it."""
    if isinstance(value, Tensor) and not value.is_complex():
        return value.detach().clone()
    try:
        array = np.array(None if isinstance(value, Tensor) else value)
    except (TypeError, ValueError):  # rows of different lengths, tensors of another device
        array = np.array(None)
    if array.dtype.kind not in "biuf":
        raise ArgumentError(
            f"{name!r} was to be noted as {value!r:.80}.",
            "Notes are real numbers, one or an array of them: they become a curve.",
            "Note a number, a tensor or a list of numbers.",
        )
    return array


def _series(notes: Mapping[int, Any]) -> Series:
    values = [value.cpu().double().numpy() if isinstance(value, Tensor) else value for value in notes.values()]
    return Series(np.array(list(notes)), np.array(values, dtype=np.float64))


def _under(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
