"""The loop that all training shares: epoch after epoch, with a pause after each.

A `Trainee` is what is trained, and knows how to train for an epoch; `pauses` adds the schedule, the notes, the progress
bar and the file. A killed run returns to the last pause in its file and goes on to the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from ... import progress
from ...errors import ArgumentError, check_whole
from ...record import Checkpoint, identity_of
from ...record.checkpoints import Arrays
from .randomness import random_states, set_random_states
from .saved_run import SavedRun
from .schedules import Pace, Schedule
from .series import Series, curve, numbers

Number = TypeVar("Number", float, Tensor)
Parameters = TypeVar("Parameters")
Parameters_co = TypeVar("Parameters_co", covariant=True)


@runtime_checkable
class Trainee(Protocol[Parameters_co]):
    """The object that a loop trains, epoch after epoch, with a state that can be saved."""

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
        """The settings that identify this run, before it starts."""


@dataclass(frozen=True, eq=False)
class Pause(Generic[Number, Parameters]):
    """A pause after an epoch: its number, from 1, and the mean training loss seen during it.

    For one network these are numbers; for many, trained at once, tensors. The loss of full-batch descent is the one
    before its step.

    >>> from ritz.lab.training import linear_descent
    >>> one, zero = torch.ones(1, 1), torch.zeros(1, 1)
    >>> for pause in linear_descent([one], one, zero, learning_rate=0.5, num_epochs=3):
    ...     pause.note(square=pause.epoch**2)
    >>> pause.history["square"].values.tolist()
    [1.0, 4.0, 9.0]
    """

    epoch: int
    step: int
    loss: Number
    learning_rate: Number  # of the epoch that is over; the first layer's where there are several
    accuracy: float | None  # of the predictions made during the epoch, where the targets are classes
    diverged: Any  # bool, or one for each network: the loss is NaN or infinite, and training of it has ended
    done: Any  # the schedule has ended the training
    _run: _Run[Any] = field(repr=False)

    @property
    def parameters(self) -> Parameters:
        """A copy of the parameters as they are at this pause."""
        if self._run.epoch != self.epoch:
            raise ArgumentError(
                f"The parameters after epoch {self.epoch} were requested, and training is at {self._run.epoch}.",
                "Only the present parameters are kept.",
                "Ask for them at the pause, inside the loop.",
            )
        parameters: Parameters = self._run.trainee.parameters()
        return parameters

    def note(self, **values: Any) -> None:
        """Keep measured numbers with this epoch: they are in `history`, and in the file, so that a kill loses none."""
        if taken := sorted(values.keys() & self._run.facts.keys()):
            raise ArgumentError(
                f"{taken[0]!r} was requested as the name of a note.",
                "The history keeps under this name what training itself records.",
                f"Choose another name, such as test_{taken[0]}.",
            )
        self._run.note(self.epoch, values)

    @property
    def history(self) -> dict[str, Series]:
        """Everything noted so far, by name, with `loss`, `learning_rate` and `accuracy` of every epoch."""
        return {name: curve(notes) for name, notes in self._run.notes.items()}


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
) -> Iterator[Pause[Any, Parameters]]:
    """Train and pause after every epoch, resuming from the file, which belongs to these settings, if there is one.

    A resumed run pauses once more where it was saved, so that measurements that were not noted are repeated.
    """
    start = schedule.after(Pace.start(losses), losses, epoch=0, num_epochs=num_epochs)
    run = _Run(trainee, schedule, num_epochs, start)
    if checkpoint is None:
        return _epochs(run, None, label)
    identity = trainee.identity()
    for name, value in {"num_epochs": num_epochs, "schedule": schedule, **settings}.items():
        identity |= identity_of(name, value)
    return _epochs(run, Checkpoint(checkpoint, identity, save_seconds), label)


def _epochs(run: _Run[Parameters], file: Checkpoint | None, label: str) -> Iterator[Pause[Any, Parameters]]:
    with progress.bar(label, total=run.num_epochs) as bar:
        if file is not None and (state := file.state()) is not None:
            with file.reading():
                run.restore(*state)
            bar.advance(run.epoch)
            yield run.pause()
        while not run.over:
            run.advance()
            if file is not None:
                file.keep(run.state, last=run.over)
            bar.advance(loss=run.loss.nanmean())
            yield run.pause()


class _Run(Generic[Parameters]):
    """The whole state of a loop: what is trained, how far, at what pace, and what was noted."""

    def __init__(self, trainee: Trainee[Parameters], schedule: Schedule, num_epochs: int, pace: Pace) -> None:
        self.trainee, self.schedule, self.num_epochs, self.pace = trainee, schedule, num_epochs, pace
        self.epoch, self.over = 0, num_epochs < 1
        self.loss = self.rate = torch.full_like(pace.factor, torch.nan)
        self.diverged = torch.zeros_like(pace.done)
        self.accuracy: float | None = None
        self.notes = dict[str, dict[int, Any]]()

    def advance(self) -> None:
        """Train for one epoch. Networks that have diverged or ended stay as they are."""
        self.rate = self.trainee.rate(self.pace)
        resting = Pace(self.pace.factor, self.pace.reference, self.pace.done | self.diverged)
        loss, self.accuracy = self.trainee.epoch(resting)
        self.epoch += 1
        self.loss = loss.to(self.pace.factor)
        self.diverged = self.diverged | ~self.loss.isfinite()
        self.pace = self.schedule.after(self.pace, self.loss, epoch=self.epoch, num_epochs=self.num_epochs)
        self.over = self.epoch >= self.num_epochs or bool((self.pace.done | self.diverged).all())
        self.note(self.epoch, self.facts)

    @property
    def facts(self) -> dict[str, Any]:
        """The numbers that are noted for every epoch anyway."""
        own = {"loss": self.loss, "learning_rate": self.rate, "accuracy": self.accuracy}
        return {name: value for name, value in own.items() if value is not None}

    def note(self, epoch: int, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            kept = numbers(name, value)
            shape = tuple(next(iter(self.notes.get(name, {}).values()), kept).shape)
            if tuple(kept.shape) != shape:
                raise ArgumentError(
                    f"{name!r} of shape {tuple(kept.shape)} was to be noted after one of shape {shape}.",
                    "All notes of one name become one array.",
                    "Note the same number of values every time, padded with NaN, or use another name.",
                )
            self.notes.setdefault(name, {})[epoch] = kept

    def pause(self) -> Pause[Any, Parameters]:
        single = self.loss.ndim == 0
        facts = (self.loss, self.rate, self.diverged, self.pace.done)
        loss, rate, diverged, done = (fact.item() if single else fact.clone() for fact in facts)
        step = self.epoch * self.trainee.steps_per_epoch
        return Pause(self.epoch, step, loss, rate, self.accuracy, diverged, done, self)

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        arrays, header = self.trainee.state()
        arrays = {f"trainee/{name}": value for name, value in arrays.items()}
        arrays |= {f"random/{name}": value for name, value in random_states(self.trainee.generator).items()}
        own = {"factor": self.pace.factor, "reference": self.pace.reference, "done": self.pace.done}
        own |= {"loss": self.loss, "rate": self.rate, "diverged": self.diverged}
        arrays |= {f"run/{name}": value for name, value in own.items()}
        for name, notes in self.notes.items():
            values = curve(notes)
            arrays |= {f"notes/{name}/epochs": values.epochs, f"notes/{name}/values": values.values}
        facts = {"epoch": self.epoch, "over": self.over, "accuracy": self.accuracy, "notes": list(self.notes)}
        return arrays, {"trainee": header, **facts}

    def restore(self, arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> None:
        saved = SavedRun(arrays, header)
        saved.check(self.state()[0], self.num_epochs)
        own = {name: torch.from_numpy(value) for name, value in saved.under("run/").items()}
        place = self.pace.factor.device
        factor, reference, done, self.loss, self.rate, self.diverged = (
            own[name].to(place) for name in ("factor", "reference", "done", "loss", "rate", "diverged")
        )
        self.pace, self.accuracy = Pace(factor, reference, done), header["accuracy"]
        self.epoch, self.over = header["epoch"], header["over"]
        self.notes.clear()
        for name in header["notes"]:
            noted = saved.notes(name)
            pairs = zip(noted.epochs, noted.values, strict=True)
            self.notes[name] = {int(epoch): value for epoch, value in pairs}
        self.trainee.restore(saved.under("trainee/"), header["trainee"])
        set_random_states(saved.under("random/"), self.trainee.generator)


def check_run(*, num_epochs: int, batch_size: int | None, generator: torch.Generator | None) -> None:
    """Refuse impossible numbers, and random batches without a source of randomness."""
    check_whole(num_epochs=num_epochs, batch_size=batch_size)
    if num_epochs < 1 or (batch_size is not None and batch_size < 1):
        raise ArgumentError(
            f"num_epochs={num_epochs} and batch_size={batch_size} were given.",
            "A run needs at least one epoch, and a batch at least one example.",
            "Give positive numbers; batch_size=None takes all examples at once.",
        )
    if batch_size is not None and generator is None:
        raise ArgumentError(
            f"Batches of {batch_size} were requested, without a generator.",
            "Each epoch shuffles the examples, and only a generator makes this repeatable.",
            "Pass generator=torch.Generator().manual_seed(0), or batch_size=None for full-batch descent.",
        )
