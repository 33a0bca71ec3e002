"""A task of a sweep, and what comes of it: a record, or the reason why there is none."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import torch

from ..errors import ArgumentError, first_line
from ..record import Record, provenance

Task = Callable[[Any], Record | Mapping[str, Any]]


@dataclass(frozen=True)
class Failure:
    """Why a task has no result.

    >>> outcome_of(lambda config: 1 / config, 0).error
    'ZeroDivisionError: division by zero'
    """

    error: str
    traceback: str = ""
    config: Any = None


def record_of(
    result: Record | Mapping[str, Any], *, seconds: float, device: torch.device | str | None = None
) -> Record:
    """The result of a task as a record with the time it took; the caller sets its id and config."""
    if isinstance(result, Record):
        return replace(result, provenance={"seconds": seconds, **result.provenance}).detached()
    if not isinstance(result, Mapping):
        raise ArgumentError(
            f"A task returned a value of type {type(result).__name__}.",
            "Results are kept by name, and this one has none.",
            "Return a Record, or a mapping such as {'loss': 0.1, 'eigenvalues': tensor}.",
        )
    arrays = {name: value for name, value in result.items() if _is_array(value)}
    scalars = {name: value for name, value in result.items() if name not in arrays}
    if device is None:
        device = "cuda" if torch.cuda.is_initialized() else "cpu"  # as far as one can tell from outside
    return Record("", "sweep", {}, scalars, arrays, (), provenance(device, seconds=seconds)).detached()


def _is_array(value: Any) -> bool:
    return isinstance(value, torch.Tensor | np.ndarray) and value.ndim > 0


def outcome_of(task: Task, config: Any) -> Record | Failure:
    """The outcome of a task: a record or a failure, never an exception, since not all can be sent between processes."""
    start = perf_counter()
    try:
        return record_of(task(config), seconds=perf_counter() - start)
    except (Exception, SystemExit) as error:
        return Failure(_described(error), traceback.format_exc())


def _described(error: BaseException) -> str:
    """The kind of an exception and its text, which is somebody else's code."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def name_of(task: Task) -> str:
    """The name of a function, whatever is bound to it."""
    task = unbound(task)
    return getattr(task, "__qualname__", type(task).__qualname__)


def unbound(task: Task) -> Task:
    """The function without what is bound to it."""
    while isinstance(task, partial):
        task = task.func
    return task


def check_importable(task: Task) -> None:
    """Refuse a function that other processes cannot import by its name."""
    try:
        pickle.dumps(task)
    except Exception as error:  # pickle raises whatever it likes
        raise not_importable(task, error) from error


def not_importable(task: Task, error: Exception) -> ArgumentError:
    """The error for a function that other processes cannot import."""
    return ArgumentError(
        f"{name_of(task)} cannot be called in another process: {first_line(error)}",
        "Other processes import the function by its name, and run a script once more from its top.",
        "Define it at the top level of a file, not in a notebook, and not as a lambda or inside a function.",
        "In a script, put what starts the sweep under: if __name__ == '__main__':",
        "Or sweep in this process: workers='in-process'.",
    )
