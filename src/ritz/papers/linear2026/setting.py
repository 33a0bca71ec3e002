"""What the figures of trained networks have in common: data sets, training, and when it is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from torch import Generator, Tensor

from ...errors import ArgumentError
from ...record import Record
from ..frame.figure import Context
from ..frame.statements import at_most
from .data import NUM_CLASSES, TITLES, Name
from .networks import Start, initial_weights

TO_A_PERCENT = at_most(0.01, partly=0.05)  # for what is exact at the minimum, if training comes that near to it


@dataclass(frozen=True)
class Setting:
    """Data, network and training; sources: linear2026, App. C, unless another is named."""

    data: tuple[Name, ...] = ("mnist", "fashion_mnist", "cifar10")  # "MNIST, FashionMNIST and CIFAR10"
    num_examples: int = 5000  # "subsets of n = 5,000 samples"
    depth: int = 4  # "4-layer Linear-MLP"
    width: int = 64  # "with width 64"
    sigma_x: float = 1.0  # "orthogonalized with σ_x = 1"
    learning_rate: float = 0.01  # "trained with η_max = 0.01", halved by the rule of "Training"
    num_epochs: int = 10_000  # "full-batch gradient descent for 10,000 epochs"
    singular_values: tuple[float, float] = (0.0, 1.0)  # open: of balanced layers uniform in [0, 1], as in Fig. 1 left
    num_pauses: int = 1  # open: measurements along training, the last at its end
    seed: int = 0  # open: which images, which weights

    def __post_init__(self) -> None:
        if min(self.num_pauses, self.num_epochs, self.depth) < 1:
            raise ArgumentError(
                f"num_pauses={self.num_pauses}, num_epochs={self.num_epochs} and depth={self.depth} were given.",
                "Then there would be nothing to train, or nothing to measure.",
                "Give at least one of each; num_pauses=1 measures at the end of training.",
            )

    def weights(
        self, start: Start, num_inputs: int, like: Tensor, *, seed: int | None = None, scale: float = 1.0
    ) -> list[Tensor]:
        """The initial weights in float64: for one seed, the same for every data set with this number of inputs.

        `scale` multiplies the singular values of balanced layers.
        """
        widths = [num_inputs, *[self.width] * (self.depth - 1), NUM_CLASSES]
        generator = Generator().manual_seed(self.seed if seed is None else seed)
        low, high = self.singular_values
        weights = initial_weights(start, widths, singular_values=(scale * low, scale * high), generator=generator)
        return [W.to(like.device) for W in weights]


S = TypeVar("S", bound=Setting)


def by_data_set(task: Callable[..., Any], config: S, context: Context, *, name: str) -> dict[str, np.ndarray]:
    """Run a task for each data set, and stack its arrays; it takes a config of one data set, a device and folders."""
    place: dict[str, Any] = {"device": context.device, "data_dir": context.data_dir, "folder": context.folder}
    records = context.sweep(partial(task, **place), [replace(config, data=(one,)) for one in config.data], name=name)
    return {key: np.stack([record.arrays[key] for record in records]) for key in records[0].arrays}


def logarithmic(num_epochs: int, count: int) -> list[int]:
    """`count` epochs from 1 to the last, evenly spaced on a logarithmic scale; only the last for a count of one."""
    if count == 1:
        return [num_epochs]
    return sorted({round(num_epochs ** (index / (count - 1))) for index in range(count)})


def late(num_epochs: int, count: int) -> list[int]:
    """`count` epochs, half of them evenly spaced over the last nine tenths, where slow networks do all their learning.

    The others are on a logarithmic scale, from 1 to a tenth of all epochs.
    """
    first = max(num_epochs // 10, 1)
    half = count - count // 2
    evenly = {round(first + (num_epochs - first) * index / max(count // 2, 1)) for index in range(1, count // 2 + 1)}
    return logarithmic(num_epochs, 1) if count == 1 else sorted({*logarithmic(first, half), *evenly})


def titles(record: Record) -> list[str]:
    """The names of the data sets of a record, as they are written in pictures."""
    return [TITLES[name] for name in record.config["data"]]


def by_title(record: Record, values: np.ndarray) -> dict[str, float]:
    """One number for each data set."""
    return {name: float(value) for name, value in zip(titles(record), values, strict=True)}


def distance_to_minimum(loss: np.ndarray, rest: np.ndarray, rate: np.ndarray) -> str:
    """How far above the least loss training ended, and at which rate, for the worst that did not diverge."""
    excess, rate = np.ravel(loss / rest - 1), np.ravel(rate)
    sound = np.isfinite(excess)
    if not sound.any():
        return "All networks diverged."
    worst = int(np.argmax(np.where(sound, excess, -np.inf)))
    gone = "" if sound.all() else f" {int((~sound).sum())} of {sound.size} networks diverged."
    return (
        f"At the end of training the loss is up to {excess[worst]:.2g} of the least loss above it, at a "
        f"learning rate of {rate[worst]:.2g}.{gone}"
    )
