"""Many configs, one function: every result becomes a record on disk, so that none is lost or computed twice.

    records = sweep(measurement, [Config(width=w) for w in (10, 100, 1000)], "out/widths", workers="processes")

A sweep can be stopped or killed at any moment and started again: what is in the folder is not computed again. Delete
the folder when the function has changed, since results are filed by their config alone: a warning says where it has.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import progress
from ..arguments import guard
from ..errors import ArgumentError, FileError, RitzError
from ..record import Record, canonical, key, lock, plain
from ..record.identities import text_digest
from .tasks import Failure, Task, name_of, unbound
from .workers import WORKERS, InProcess, Processes, Ray, SweepWarning, Workers, warn

__all__ = ["Failure", "InProcess", "Processes", "Ray", "SweepError", "SweepWarning", "sweep"]

_NAMED = 3  # failures that a message quotes; all are in the exception


class SweepError(RitzError):
    """Some tasks failed. `records` has the results in the order of the configs, or None where `failures` says why.

    >>> import tempfile, warnings
    >>> with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
    ...     try:
    ...         sweep(lambda config: {"y": 1 / config["x"]}, [{"x": 0}, {"x": 1}], folder)
    ...     except SweepError as error:
    ...         print(error.failures[0].error)
    ZeroDivisionError: division by zero
    """

    failures: tuple[Failure, ...] = ()
    records: tuple[Record | None, ...] = ()


def sweep(
    task: Task,
    configs: Iterable[Any],
    folder: str | Path,
    *,
    workers: Workers | str = "in-process",
    name: str | None = None,
) -> list[Record]:
    """One record for each config: from the folder if it is there, else by calling the task and putting it there.

    A config is a frozen dataclass or a mapping of JSON values. The task returns a Record, or a mapping: tensors and
    arrays with a dimension become the record's arrays, the rest its scalars. The record's id and config are those of
    the sweep, `name` (the function's own, unless given) and the config. Arguments that do not belong to the identity of
    a result, such as the device, are best bound with `functools.partial`.

    A result that is there is taken though the function has changed since, with a warning; what it calls is not looked
    at. A task that raises is reported with its config at the end (SweepError), when all others have their result.
    Workers: "in-process", "processes" (one per core), "ray" (`pip install ritz[ray]`; starts or joins a cluster), or an
    instance of InProcess, Processes, Ray. Only the process that sweeps writes.

    >>> from tempfile import TemporaryDirectory
    >>> def square(config):
    ...     return {"y": config["x"] ** 2}
    >>> with TemporaryDirectory() as folder:
    ...     records = sweep(square, [{"x": 1}, {"x": 3}], folder)
    >>> [record.scalars["y"] for record in records]
    [1, 9]
    """
    configs, workers = _listed(configs), _workers(workers)
    _check_task(task)
    for config in configs:
        key(_mapping(config))  # refuses what has no name before anything is written
    with lock(folder) as folder:
        place = folder.absolute()  # a task may change the current folder
        return unlocked_sweep(task, configs, place, workers=workers, name=name, code=_code_of(task))


def unlocked_sweep(
    task: Task,
    configs: Iterable[Any],
    folder: Path,
    *,
    workers: Workers | str = "in-process",
    name: str | None = None,
    code: str | None = None,
) -> list[Record]:
    """A sweep in a folder that only the caller writes to, such as one inside a folder that it has locked.

    With a fingerprint of the function's code, results of another version are warned of.
    """
    configs = list(configs)
    name, runner = name or name_of(task), _workers(workers)
    by_file = {key(_mapping(config)): config for config in configs}
    records = {file: _stored(folder / file, config, name) for file, config in by_file.items()}
    _warn_of_changes([record for record in records.values() if record], code, name, folder)
    missing = {file: by_file[file] for file, record in records.items() if record is None}
    failures = dict[str, Failure]()
    with progress.bar(name, total=len(missing)) as bar, closing(runner.outcomes(task, missing)) as outcomes:
        for file, outcome in outcomes if missing else ():
            if isinstance(outcome, Failure):
                failures[file] = replace(outcome, config=by_file[file])
                warn(f"{by_file[file]} failed: {outcome.error}")
            else:
                origin = outcome.provenance if code is None else {**outcome.provenance, "code": code}
                result = replace(outcome, id=name, config=_mapping(by_file[file]), provenance=origin)
                records[file] = Record.load(result.place(folder / file))
            bar.advance(failed=len(failures))
    in_order = [records[key(config)] for config in configs]
    if failures:
        raise _failure(tuple(failures.values()), tuple(in_order), folder)
    return [record for record in in_order if record is not None]


def _stored(folder: Path, config: Any, name: str) -> Record | None:
    """The existing result, if it is intact and has this config."""
    if not folder.exists():
        return None
    try:
        record = Record.load(folder)
    except FileError as error:
        warn(f"{error.seen} It is computed again.")
        return None
    if record.id != name:
        raise ArgumentError(
            f"{folder.parent} holds results of {record.id!r}, and this is a sweep of {name!r}.",
            "Results are filed by their config: those of two functions would be confused.",
            "Name another folder, or give the sweep its old name.",
        )
    if canonical(record.config) != canonical(config):
        warn(f"{folder} holds the result of another config. It is computed again.")
        return None
    return record


def _warn_of_changes(found: list[Record], code: str | None, name: str, folder: Path) -> None:
    """Warn of results that another version of the function left."""
    earlier = [record for record in found if code is not None and record.provenance.get("code", code) != code]
    if earlier:
        warn(
            f"The code of {name} has changed since it gave {len(earlier)} of the {len(found)} results in {folder}. "
            "They are taken as they are: results are filed by their config alone. Remove the folder, or name another "
            "one, to compute them anew."
        )


def _code_of(task: Task) -> str | None:
    """A fingerprint of the function's own code, but for comments and layout; None where its source is not known."""
    function = unbound(task)
    if not inspect.isfunction(function) or function.__name__ == "<lambda>":
        return None
    try:
        return text_digest(ast.dump(ast.parse(textwrap.dedent(inspect.getsource(function)))))
    except (OSError, TypeError, SyntaxError):
        return None


def _listed(configs: Any) -> list[Any]:
    if isinstance(configs, (str, bytes, Mapping)) or not isinstance(configs, Iterable):
        raise ArgumentError(
            f"The configs are a {type(configs).__name__}.",
            "A sweep calls its function once for each of several configs.",
            "Pass a list of them: [{'width': 10}, {'width': 20}].",
        )
    return list(configs)


def _check_task(task: Any) -> None:
    if not callable(task):
        raise ArgumentError(
            f"The task is a {type(task).__name__}.",
            "A task must be something that can be called with each config.",
            "Pass a function that takes a config and returns a Record or a mapping.",
        )


def _mapping(config: Any) -> dict[str, Any]:
    values = plain(config)
    if not isinstance(values, dict):
        raise ArgumentError(
            f"A config of type {type(config).__name__} was to be swept: {config!r:.80}.",
            "A record keeps its config as named fields.",
            "Use a frozen dataclass or a mapping, such as {'width': 10}.",
        )
    return values


def _workers(workers: Workers | str) -> Workers:
    if not isinstance(workers, str | type):
        return workers
    if not isinstance(workers, str) or workers not in WORKERS:
        raise ArgumentError(
            f"The workers {workers!r} were requested.",
            "There are no workers of this name.",
            f"Use one of {', '.join(WORKERS)}, or an instance such as Processes(count=4).",
        )
    return WORKERS[workers]()


def _failure(failures: tuple[Failure, ...], records: tuple[Record | None, ...], folder: Path) -> SweepError:
    first = "".join(f"\n  {failure.config}: {failure.error.splitlines()[0]}" for failure in failures[:_NAMED])
    rest = f"\n  and {len(failures) - _NAMED} more" if len(failures) > _NAMED else ""
    error = SweepError(
        f"{len(failures)} of {len(records)} tasks failed:{first}{rest}",
        f"The results of the others are kept in {folder}." if any(records) else f"{folder} holds no result yet.",
        "Mend the cause and run the same sweep again: only what is missing is computed.",
        "For the traceback of each, see `failures` of this exception.",
    )
    error.failures, error.records = failures, records
    return error


guard(__name__)
