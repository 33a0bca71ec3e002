"""Files that appear whole or not at all, and refusals of those that cannot be read or written."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import FileError
from .parts import part_of

NAME_BYTES = 255
NONSENSE = (  # what code may raise that makes something of the contents of a damaged file
    *(KeyError, ValueError, TypeError, RuntimeError),
    *(AttributeError, IndexError, OverflowError),
)


def path_of(place: Any) -> Path:
    """A path from anything that names one; refuses what does not."""
    if not isinstance(place, (str, os.PathLike)) or "\0" in os.fsdecode(place):
        raise FileError(
            f"{place!r} was given for a path.",
            "A file or folder has a name.",
            "Pass a string or a pathlib.Path.",
        )
    path = Path(os.fsdecode(place))
    for name in path.parts:
        if len(os.fsencode(name)) > NAME_BYTES:
            raise FileError(
                f"A name of {len(os.fsencode(name))} bytes was given: {name[:40]}…",
                f"File systems have room for {NAME_BYTES} bytes in one name.",
                "Pass a shorter one.",
            )
    return path


def read_bytes(path: str | Path, expected: str = "a file that can be read") -> bytes:
    """The content of any file; `expected` says what it should hold."""
    try:
        return path_of(path).read_bytes()
    except OSError as error:
        raise error if isinstance(error, FileError) else unreadable(Path(path), error, expected) from error


def write_bytes(path: str | Path, content: bytes) -> Path:
    """Write a whole file, or leave the old one; returns its path."""
    return write_whole(Path(path), lambda stream: stream.write(content))


def write_whole(path: Path, write: Callable[[BinaryIO], Any]) -> Path:
    """Write to a neighbouring file, flush it to disk, then atomically rename it to the path."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with part_of(path) as part:
            write_flushed(part, write)
            os.replace(part, path)
    return path


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Refuse, in the words of ritz, a path that cannot be written to."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise unwritable(path, error) from error


def write_flushed(part: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write to an existing file, and flush it to the disk."""
    with part.open("wb") as stream:
        write(stream)
        stream.flush()
        os.fsync(stream.fileno())


def discard(path: str | Path) -> None:
    """Remove a file, or a folder and all that is in it, if it is there."""
    path = path_of(path)
    with writing(path), suppress(FileNotFoundError):  # gone meanwhile
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def check_writable(folder: str | Path) -> Path:
    """The folder as a path, checked to be writable, even if it does not exist yet, before a long run starts."""
    folder = path_of(folder)
    with writing(folder):
        nearest = next(at for at in (folder, *folder.absolute().parents) if at.exists() or at.is_symlink())
        with part_of(nearest / "writable"):
            pass
    return folder


def checksum(path: Path) -> str:
    """The SHA-256 of a file."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error, "a file that ritz wrote") from error


def unreadable(path: Path, error: Exception, expected: str) -> FileError:
    """The error for a file that cannot be read, or is not what was expected."""
    reason = getattr(error, "strerror", None) or (str(error) or type(error).__name__).splitlines()[0]
    return FileError(
        f"{path} cannot be read: {reason}.",
        f"It was expected to be {expected}.",
        "Check the path, or run the analysis that writes it once more.",
    )


def unwritable(path: Path, error: OSError) -> FileError:
    """The error for a file that cannot be written."""
    return FileError(
        f"{path} cannot be written: {error.strerror or error}.",
        "The file is as it was before: files are written whole or not at all.",
        "Name another folder (--out on the command line).",
        "Check that you may write to the folder, that it is not a file, and that the disk has room.",
    )
