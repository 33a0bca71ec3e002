"""What a computation leaves behind: its configuration, its numbers, what they say, where they come from.

The only module that touches files. Every file appears whole or not at all, and none is a pickle.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import uuid
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol, runtime_checkable

import numpy as np
import torch

from .errors import ArgumentError, FileError

_FORMAT = 1  # of record.json; a reader refuses what it does not know
_FIELDS = ("id", "preset", "config", "scalars", "provenance")  # of a Record, kept in record.json as they are
_HEADER = "header"  # the entry of an array file that holds its JSON header
_FLOAT = "float"  # {"float": "nan"} stands for what JSON cannot write as a number


def provenance(device: torch.device | str = "cpu") -> dict[str, str]:
    """The versions, platform, device and UTC date behind a result. It names no machine, user or folder."""
    place = torch.device(device)
    return {
        **{package: _version(package) for package in ("ritz", "torch", "numpy")},
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name(place) if place.type == "cuda" else place.type,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper held against a measurement; `rule` is what `verdict` follows from."""

    statement: str
    paper: str
    where: str
    rule: str
    expected: Any
    measured: Any
    error: float | None
    verdict: Literal["yes", "partly", "no"]
    why: str = ""


@dataclass(frozen=True, eq=False)
class Record:
    """The result of one computation: everything its figure and its report need, and no code.

    `config` and `scalars` hold what JSON holds, NaN and infinities included; `arrays` may be given as tensors and
    come back as numpy arrays.
    """

    id: str
    preset: str
    config: Mapping[str, Any]
    scalars: Mapping[str, Any]
    arrays: Mapping[str, Any]
    claims: Sequence[Claim] = ()
    provenance: Mapping[str, str] = field(default_factory=provenance)

    def save(self, folder: str | Path) -> Path:
        """Write `record.json` and `arrays.npz` into the folder, made if need be; returns the folder.

        The arrays come first and the JSON carries their checksum, so a run killed in between cannot
        leave a record whose numbers and arrays disagree unnoticed.
        """
        folder = check_writable(folder)
        header = _plain(  # before anything is written: it may refuse a value
            {
                "format": _FORMAT,
                **{name: getattr(self, name) for name in _FIELDS},
                "claims": [asdict(claim) for claim in self.claims],
            }
        )
        arrays = _write_entries(folder / "arrays.npz", _entries(self.arrays))
        header["arrays"] = {"file": arrays.name, "sha256": _checksum(arrays)}
        write_bytes(folder / "record.json", (_dumps(header, indent=2) + "\n").encode())
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Record:
        """Read back what `save` wrote, and check that both files belong together."""
        folder = Path(folder)
        header = _parsed(folder / "record.json")
        if _checksum(folder / "arrays.npz") != header["arrays"]["sha256"]:
            raise FileError(
                f"{folder / 'arrays.npz'} is not the file that record.json was written with.",
                "The numbers and the arrays of this record come from different runs, or one of them was damaged.",
                "Run the analysis again: a run that was killed while it wrote leaves this behind.",
            )
        return cls(
            **{name: header[name] for name in _FIELDS},
            arrays=read_arrays(folder / "arrays.npz")[0],
            claims=tuple(Claim(**claim) for claim in header["claims"]),
        )


def write_arrays(path: str | Path, arrays: Mapping[str, Any], header: Mapping[str, Any] | None = None) -> Path:
    """Write arrays (or tensors) and a header of JSON values as one `.npz` file; returns its path."""
    path = Path(path)
    check_writable(path.parent)
    return _write_entries(path, {**_entries(arrays), _HEADER: np.array(_dumps(header or {}))})


def read_arrays(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the header of a file that `write_arrays` wrote; any other `.npz` has an empty header."""
    path = Path(path)
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise _unreadable(path, error, "an .npz file of numbers, without pickled objects") from error
    header = arrays.pop(_HEADER, None)
    return arrays, {} if header is None else _loads(str(header), path)


@runtime_checkable
class Picture(Protocol):
    """Whatever can draw itself into a stream, such as a matplotlib figure."""

    @property
    def savefig(self) -> Callable[..., Any]:
        """Takes the stream, the format and the resolution."""


def write_picture(path: str | Path, figure: Picture, *, dpi: int = 200) -> Path:
    """Write a figure in the format that the file's ending names (.png, .pdf, .svg); returns its path."""
    path = Path(path)
    check_writable(path.parent)
    return _write(path, lambda stream: figure.savefig(stream, format=path.suffix.lstrip(".") or "png", dpi=dpi))


def write_bytes(path: str | Path, content: bytes) -> Path:
    """Write a whole file, or leave what was there; returns its path."""
    return _write(Path(path), lambda stream: stream.write(content))


def check_writable(folder: str | Path) -> Path:
    """The folder as a path, known to be writable although it need not exist yet: a long run asks before it starts."""
    folder = Path(folder)
    nearest = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists() or parent.is_symlink())
    probe = nearest / f".{uuid.uuid4().hex}.tmp"
    try:
        probe.open("xb").close()
        probe.unlink()
    except OSError as error:
        raise _unwritable(folder, error) from error
    return folder


def _write(path: Path, write: Callable[[BinaryIO], Any]) -> Path:
    """Write to a neighbour, flush it to the disk, then rename it over the path, which is atomic."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("xb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        part.unlink(missing_ok=True)  # nothing to do after the rename
    return path


def _write_entries(path: Path, entries: Mapping[str, np.ndarray]) -> Path:
    """Write an `.npz` file; `np.savez` would not take an array called `file`."""

    def write(stream: BinaryIO) -> None:
        with zipfile.ZipFile(stream, "w") as archive:
            for name, array in entries.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, array, allow_pickle=False)

    return _write(path, write)


def _entries(arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: _array(name, value) for name, value in arrays.items()}


def _array(name: str, value: Any) -> np.ndarray:
    array = np.asarray(value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value)
    if name == _HEADER or array.dtype.hasobject:
        raise ArgumentError(
            f"The array {name!r} of dtype {array.dtype} was to be saved.",
            f"Files hold plain numbers and text (nothing is pickled), and {_HEADER!r} is the name of their own header.",
            "Convert it to a numeric array, or give it another name.",
        )
    return array


def _dumps(value: Any, indent: int | None = None) -> str:
    return json.dumps(_plain(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _loads(text: str | bytes, path: Path) -> Any:
    def revived(item: dict[str, Any]) -> Any:
        return float(item[_FLOAT]) if item.keys() == {_FLOAT} and isinstance(item[_FLOAT], str) else item

    try:
        return json.loads(text, object_hook=revived)
    except ValueError as error:
        raise _unreadable(path, error, "a JSON file that ritz wrote") from error


def _plain(value: Any) -> Any:
    """The value in the types JSON knows; what has no counterpart there is refused rather than stringified."""
    if isinstance(value, torch.Tensor | np.generic | np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.dtype | torch.device):
        return str(value).removeprefix("torch.")
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    raise ArgumentError(
        f"A value of type {type(value).__name__} was to be saved: {value!r:.80}.",
        "A record holds numbers, text, lists and mappings with text keys, which every reader understands.",
        "Convert it, or put it among the arrays.",
    )


def _parsed(path: Path) -> dict[str, Any]:
    header = _loads(_read(path), path)
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        found = header.get("format") if isinstance(header, dict) else None
        raise FileError(
            f"{path} has format {found!r}.",
            f"This version of ritz reads format {_FORMAT}.",
            "Check that the file is a record of ritz, or use the version of ritz that wrote it.",
        )
    return header


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error, "a file that ritz wrote") from error


def _checksum(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error, "a file that ritz wrote") from error


def _unreadable(path: Path, error: Exception, wanted: str) -> FileError:
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    return FileError(
        f"{path} cannot be read: {reason}.",
        f"It was expected to be {wanted}.",
        "Check the path, or run the analysis that writes it again.",
    )


def _unwritable(path: Path, error: OSError) -> FileError:
    return FileError(
        f"{path} cannot be written: {error.strerror or error}.",
        "The result would be lost, so nothing was written.",
        "Name another folder (--out on the command line).",
        "Check that the folder is yours, that it is no file, and that the disk has room.",
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from the source tree, not installed
        return "unknown"
