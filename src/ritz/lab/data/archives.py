"""The contents of a data set's files, however they are packed."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ... import progress, record
from ...errors import FileError
from . import sources
from .sources import Source

MOST_BYTES = 2**31  # of a file when it is unpacked: no data set of ours has so many
_PACKED: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ": lzma.open}
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, tarfile.TarError)


def file_content(source: Source, name: str, folder: str | Path | None) -> bytes:
    """The content of a file: from the user's folder, the cache, or a download, packed or not."""
    content = _local_content(source, name, folder)
    if content is not None:
        return content
    return _unpack(sources.fetch(source, name if name in source.files else f"{name}.gz"))


def archive_contents(source: Source, names: Sequence[str], folder: str | Path | None) -> dict[str, bytes]:
    """The contents of the named files: from a folder, from an archive in a folder, or from a downloaded archive."""
    if (contents := _local_contents(source, names, folder)) is not None:
        return contents
    archive = next(iter(source.files))
    own = sources.user_folder(folder)
    for place in [*([] if own is None else [own]), *sources.places(source, folder)]:
        if (place / archive).is_file():
            return _unpack_archive(place / archive, names)
    home = sources.writable_home(source)
    members = _members(sources.download(source, archive), names, archive)
    for name, content in members.items():
        record.write_bytes(home / name, content)
    return members


def _local_contents(source: Source, names: Sequence[str], folder: str | Path | None) -> dict[str, bytes] | None:
    """All named files from the user's folder or the cache; None if one is in neither."""
    contents = dict[str, bytes]()
    with progress.bar(f"Reading {source.title}", total=len(names)) as bar:
        for name in names:
            content = _local_content(source, name, folder)
            if content is None:
                return None
            contents[name] = content
            bar.advance()
    return contents


def _local_content(source: Source, name: str, folder: str | Path | None) -> bytes | None:
    """A file from the user's folder or the cache, packed or not; None if it is in neither."""
    for place in sources.places(source, folder):
        for path in (place / name, place / f"{name}.gz", place / f"{name}.xz"):
            if path.is_file():
                return _unpack(path)
    return None


def _unpack(path: Path) -> bytes:
    """A file's content, unpacked as its first bytes indicate; as xz takes seconds, its output is cached."""
    copy = _copy(path, path.stem)
    if copy.is_file():
        return record.read_bytes(copy)
    packed = record.read_bytes(path, "a data file")
    unpack = next((unpack for magic, unpack in _PACKED.items() if packed.startswith(magic)), None)
    if unpack is None:
        return packed
    try:
        with unpack(io.BytesIO(packed)) as stream:
            content = _bounded(stream)
    except _DAMAGED as error:
        raise _refusal(path, error) from error
    if unpack is lzma.open:
        _keep(copy, content)
    return content


def _unpack_archive(path: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Members of an archive, which are cached, as unpacking takes seconds."""
    copies = {name: _copy(path, name) for name in names}
    if all(copy.is_file() for copy in copies.values()):
        return {name: record.read_bytes(copy) for name, copy in copies.items()}
    members = _members(record.read_bytes(path, "a tar.gz archive"), names, path)
    for name, content in members.items():
        _keep(copies[name], content)
    return members


def _members(archive: bytes, names: Sequence[str], path: Path | str) -> dict[str, bytes]:
    """Files of an archive by their base name; no link is followed, and nothing is extracted to a path of its choice."""
    contents = dict[str, bytes]()
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:*") as members:
            for member in members:
                name = Path(member.name).name
                if name in names and member.isreg() and (stream := members.extractfile(member)) is not None:
                    contents[name] = _bounded(stream)
    except _DAMAGED as error:
        raise _refusal(path, error) from error
    if missing := [name for name in names if name not in contents]:
        raise _refusal(path, f"it lacks {', '.join(missing)}")
    return contents


def _bounded(stream: Any) -> bytes:
    """The whole of a stream; refuses one that is longer than any file of ours."""
    content: bytes = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise EOFError(f"it holds more than {MOST_BYTES:,} bytes")
    return content


def _copy(path: Path, name: str) -> Path:
    """The path of a file's unpacked content in the cache; its name changes with the file."""
    state = path.stat()
    key = hashlib.sha256(f"{path.resolve()} {state.st_size} {state.st_mtime_ns}".encode()).hexdigest()[:16]
    return sources.cache_folder() / "unpacked" / key / name


def _keep(copy: Path, content: bytes) -> None:
    with suppress(OSError):  # a cache that cannot be written costs seconds, not the result
        record.write_bytes(copy, content)


def _refusal(path: Path | str, reason: object) -> FileError:
    return FileError(
        f"{path} cannot be unpacked: {reason}.",
        "It is damaged, or its download was cut short.",
        "Delete it and run again: ritz downloads what it does not find. Or put an intact copy in its place.",
    )


def content_error(source: Source, seen: str) -> FileError:
    """The error for an intact file that holds something else."""
    return FileError(
        f"The files of {source.title} are not what they should be: {seen}.",
        "They belong to another data set, or are damaged.",
        f"Put the original files ({', '.join(source.files)}) into the folder {source.folders[0]}, or remove them: ritz "
        "downloads what it does not find.",
    )
