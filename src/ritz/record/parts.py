"""Half-written files and folders, locked by their writers, so that those of killed writers are found and removed."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import FileError

try:
    import fcntl
except ImportError:  # Windows: there, nobody can tell whose writer is dead
    fcntl = None  # type: ignore[assignment]

DIGITS = 32  # by which the parts of one path differ, hexadecimal


@contextmanager
def part_of(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """A hidden neighbour of the path to write to, removed afterwards unless renamed; those of killed writers first."""
    if not path.name or "\0" in str(path):
        raise FileError(
            f"{str(path)!r} does not name a file.", "A result is to be written there.", "Pass a path: out/result"
        )
    remove_dead_parts(path)
    part, held = _new_part(path, folder)
    try:
        yield part
    finally:
        with suppress(OSError):  # nothing to do after the rename
            shutil.rmtree(part) if folder else part.unlink(missing_ok=True)
        os.close(held)


def remove_dead_parts(path: Path) -> None:
    """Remove what killed writers of this path left behind; parts of living writers stay."""
    _remove_dead(path.parent, re.escape(path.name))


def remove_all_dead_parts(folder: Path) -> None:
    """Remove what killed writers of any path in the folder left behind; other hidden files stay."""
    _remove_dead(folder, ".+")


def _remove_dead(folder: Path, name: str) -> None:
    """Remove parts of killed writers whose names match this pattern and are as `_new_part` makes them."""
    ours = re.compile(rf"\.{name}\.[0-9a-f]{{{DIGITS}}}\.tmp", re.DOTALL)
    with suppress(OSError):  # a folder that is gone or not ours is no obstacle
        for part in folder.iterdir():
            if ours.fullmatch(part.name) and _is_dead(part):
                shutil.rmtree(part, ignore_errors=True) if part.is_dir() else part.unlink(missing_ok=True)


def _new_part(path: Path, folder: bool) -> tuple[Path, int]:
    """A new part, locked before anyone could take it for abandoned, and the holder of its lock."""
    while True:
        part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        part.mkdir() if folder else part.open("xb").close()
        try:
            held = os.open(part, os.O_RDONLY)
        except FileNotFoundError:  # another process has cleaned up at this very moment
            continue
        if fcntl is not None:
            fcntl.flock(held, fcntl.LOCK_EX)
        if part.exists():
            return part, held
        os.close(held)


def _is_dead(part: Path) -> bool:
    """Whether nobody holds the lock of a part."""
    if fcntl is None:
        return False
    try:
        held = os.open(part, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(held)
    return True
