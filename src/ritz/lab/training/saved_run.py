"""A training run as its file holds it, checked before anything is used from it.

The optimiser's state is left to the trainee. Wrong values of a weight, a moment or a random state cannot be detected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...record.arrays import under
from ...record.checkpoints import Arrays
from ...record.layouts import check_arrays, check_facts
from .series import Series

KINDS = ("epochs", "values")  # the arrays of a curve of notes


@dataclass(frozen=True)
class SavedRun:
    """The arrays and the header of a run's file."""

    arrays: Mapping[str, np.ndarray]
    header: Mapping[str, Any]

    def under(self, prefix: str) -> dict[str, np.ndarray]:
        """The arrays below a prefix, without it."""
        return under(prefix, self.arrays)

    def notes(self, name: str) -> Series:
        """The curve of what was noted under this name."""
        return Series(*(self.arrays[f"notes/{name}/{kind}"] for kind in KINDS))

    def check(self, fresh: Arrays, num_epochs: int) -> None:
        """Refuse a state that no epoch of a run of so many can leave; `fresh` are the arrays before its start."""
        check_facts(self.header, epoch=range(1, num_epochs + 1), over=bool, notes=list)
        check_arrays(self.under("run/"), under("run/", fresh), finite=False)
        self._check_end(num_epochs)
        self._check_numbers()
        for source in ("trainee/", "random/"):
            self._check_source(source, under(source, fresh))
        self._check_listing()
        for name in self.header["notes"]:
            self._check_curve(name)
        for name, last in self._last_facts().items():
            self._check_last(name, last)

    def _check_end(self, num_epochs: int) -> None:
        """Refuse a run that is over too early, or not over after its end."""
        epoch, over = self.header["epoch"], self.header["over"]
        ended = self.arrays["run/done"] | self.arrays["run/diverged"]
        if over is not bool(epoch >= num_epochs or ended.all()):
            raise ValueError(f"it is after epoch {epoch}, and its end is {over}")

    def _check_numbers(self) -> None:
        """Refuse a loss that is not finite where the run has not diverged, and a rate that is not."""
        losses, factors = (np.isfinite(self.arrays[f"run/{name}"]) for name in ("loss", "factor"))
        if not bool((losses | self.arrays["run/diverged"]).all() & factors.all()):
            raise ValueError("its loss or its rate is not finite, and it has not diverged")

    def _check_source(self, source: str, fresh: dict[str, Any]) -> None:
        """Refuse arrays unlike the fresh ones; those of an optimiser, or of a source not here, may come on top."""
        kept = self.under(source)
        fresh = {name: array for name, array in fresh.items() if name != "cuda"}
        further = {name: kept[name] for name in kept.keys() - fresh.keys()}
        check_arrays(kept, fresh | further, finite=not bool(self.arrays["run/diverged"].any()))

    def _check_listing(self) -> None:
        """Refuse notes that the header does not list, or lists twice."""
        names: list[str] = self.header["notes"]
        listed = {f"notes/{name}/{kind}" for name in names for kind in KINDS}
        if len({*names}) < len(names) or listed != {name for name in self.arrays if name.startswith("notes/")}:
            raise ValueError(f"it has other notes than {names!r:.80}")

    def _check_curve(self, name: str) -> None:
        """Refuse notes that are not one row for each epoch, and notes of epochs that have not been."""
        when, values = self.notes(name).epochs, self.notes(name).values
        if when.dtype != np.int64 or values.dtype != np.float64 or when.shape != values.shape[:1]:
            raise ValueError(f"its notes of {name} are {values.dtype} {values.shape}")
        epochs = when.tolist()
        if not {*epochs} <= {*self._epochs} or len({*epochs}) < len(epochs):
            raise ValueError(f"it has notes of {name} for epochs that were not, or twice")

    def _last_facts(self) -> dict[str, Any]:
        """The run's own numbers after its last epoch, with which its notes must end."""
        facts: dict[str, Any] = {"loss": self.arrays["run/loss"], "learning_rate": self.arrays["run/rate"]}
        if self.header["accuracy"] is not None or "accuracy" in self.header["notes"]:
            check_facts(self.header, accuracy=float)
            facts["accuracy"] = self.header["accuracy"]
        return facts

    def _check_last(self, name: str, last: Any) -> None:
        """Refuse a curve of the run's own numbers that misses an epoch, ends with another number, or is not finite."""
        own = self.notes(name)
        if own.epochs.tolist() != [*self._epochs] or not np.array_equal(own.values[-1], last, equal_nan=True):
            raise ValueError(f"its notes of {name} do not end with its own")
        may_be_infinite = self.arrays["run/diverged"] if name == "loss" else False
        if not (np.isfinite(own.values) | may_be_infinite).all():
            raise ValueError(f"its notes of {name} hold NaN or infinity")

    @property
    def _epochs(self) -> range:
        return range(1, self.header["epoch"] + 1)
