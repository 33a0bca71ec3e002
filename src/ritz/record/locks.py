"""A folder for one writer at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import FileError
from .files import check_writable
from .parts import remove_all_dead_parts

try:
    import fcntl
except ImportError:  # Windows: there, two writers in one folder are not noticed
    fcntl = None  # type: ignore[assignment]


@contextmanager
def lock(folder: str | Path) -> Iterator[Path]:
    """Lock a folder for one writer at a time, and remove what a killed writer left half-written in it.

    The lock goes with the process that holds it, however it ends.
    """
    folder = check_writable(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("ab") as stream:
        if fcntl is not None:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise FileError(
                    f"Another process is writing to {folder}.",
                    "Two writers would do the same work twice and replace each other's results.",
                    "Wait for the other one, or name another folder.",
                ) from error
        remove_all_dead_parts(folder)
        yield folder
