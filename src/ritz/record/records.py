"""What a computation leaves behind: its configuration, its numbers, what they say, where they come from.

The only module below `lab` that touches files. Every file appears whole or not at all, and none is a pickle.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import tokenize
import uuid
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol, get_args, runtime_checkable

import numpy as np
import torch

from ..errors import ArgumentError, FileError
from .origin import provenance

Verdict = Literal["yes", "partly", "no"]

_FORMAT = 1  # of record.json; a reader refuses what it does not know
_FIELDS = {"id": str, "preset": str, "config": dict, "scalars": dict, "provenance": dict}  # of a Record, as JSON
_HEADER = "header"  # the entry of an array file that holds its JSON header
_FLOAT = "float"  # {"float": "nan"} stands for what JSON cannot write as a number
_DAMAGED = (  # what numpy and zipfile raise at a file that is cut short, foreign, packed otherwise or full of nonsense
    *(OSError, ValueError, TypeError, AttributeError, EOFError, MemoryError, RuntimeError, SyntaxError),
    *(OverflowError, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)


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
    verdict: Verdict
    why: str = ""


@dataclass(frozen=True, eq=False)
class Record:
    """The result of one computation: everything its figure and its report need, and no code.

    `config` and `scalars` hold what JSON holds, NaN and infinities included; `arrays` may be given as tensors and
    come back as numpy arrays. Nobody needs ritz to read one:

        header = json.load(open("record.json"))  # id, preset, config, scalars, claims, provenance
        arrays = numpy.load("arrays.npz")  # header["arrays"] has the name and the SHA-256 of this file

    NaN and infinities stand in the JSON as {"float": "nan"}, {"float": "inf"}, {"float": "-inf"}.
    """

    id: str
    preset: str
    config: Mapping[str, Any]
    scalars: Mapping[str, Any]
    arrays: Mapping[str, Any]
    claims: Sequence[Claim] = ()
    provenance: Mapping[str, Any] = field(default_factory=provenance)

    def save(self, folder: str | Path) -> Path:
        """Write `record.json` and `arrays.npz` into the folder, made if need be; returns the folder.

        The arrays come first and the JSON carries their checksum, so a run killed in between cannot
        leave a record whose numbers and arrays disagree unnoticed.
        """
        folder = check_writable(folder)
        header = plain(  # before anything is written: it may refuse a value
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
        if _checksum(folder / "arrays.npz") != header["arrays"].get("sha256"):
            raise FileError(
                f"{folder / 'arrays.npz'} is not the file that record.json was written with.",
                "The numbers and the arrays of this record come from different runs, or one of them was damaged.",
                "Run the analysis again: a run that was killed while it wrote leaves this behind.",
            )
        return cls(
            **{name: header[name] for name in _FIELDS},
            arrays=read_arrays(folder / "arrays.npz")[0],
            claims=_claims(header["claims"], folder / "record.json"),
        )

    def detached(self) -> Record:
        """The same record in the types of JSON and numpy: it depends on no device and can go to another process."""
        return replace(
            self,
            arrays=_entries(self.arrays),
            **{name: plain(getattr(self, name)) for name in ("config", "scalars", "provenance")},
        )

    def place(self, folder: str | Path) -> Path:
        """Let the folder appear with the whole record in it, in place of what was there; returns the folder.

        Unlike `save`, it never leaves one file of two: a run killed on the way leaves a hidden neighbour `.*.tmp`.
        """
        folder = Path(folder)
        part = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.tmp")
        try:
            self.save(part)
            discard(folder)
            os.replace(part, folder)
        except OSError as error:
            raise error if isinstance(error, FileError) else _unwritable(folder, error) from error
        finally:
            discard(part)  # nothing to do after the rename
        return folder


def canonical(value: Any) -> str:
    """The value as JSON in one spelling: equal configs have equal texts in every process and version of Python."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def key(config: Any) -> str:
    """The name a config is filed under: 32 hexadecimal digits of the SHA-256 of its canonical text."""
    return hashlib.sha256(canonical(config).encode()).hexdigest()[:32]


def discard(path: str | Path) -> None:
    """Remove a file, or a folder and all that is in it, if it is there."""
    path = Path(path)
    try:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    except FileNotFoundError:
        pass  # gone meanwhile
    except OSError as error:
        raise _unwritable(path, error) from error


def write_arrays(path: str | Path, arrays: Mapping[str, Any], header: Mapping[str, Any] | None = None) -> Path:
    """Write arrays (or tensors) and a header of JSON values as one `.npz` file; returns its path.

    Tensors in bfloat16, which numpy does not know, become float32, without rounding.
    """
    path = Path(path)
    check_writable(path.parent)
    return _write_entries(path, {**_entries(arrays), _HEADER: np.array(_dumps(header or {}))})


def read_arrays(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the header of a file that `write_arrays` wrote; any other `.npz` has an empty header."""
    path = Path(path)
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except _DAMAGED as error:
        raise _unreadable(path, error, "an .npz file of numbers, without pickled objects") from error
    header = _loads(str(arrays.pop(_HEADER, "{}")), path)
    if not isinstance(header, dict):
        raise _unreadable(path, TypeError("its header is no mapping"), "an .npz file that ritz wrote")
    return arrays, header


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


def read_bytes(path: str | Path, wanted: str = "a file that can be read") -> bytes:
    """The whole of a file, whoever wrote it; `wanted` tells the user what should have been there."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(Path(path), error, wanted) from error


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
        with suppress(OSError):  # nothing to do after the rename; and a parent that is a file has been told above
            part.unlink(missing_ok=True)
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
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    array = np.asarray(value)
    if name == _HEADER or array.dtype.hasobject:
        raise ArgumentError(
            f"The array {name!r} of dtype {array.dtype} was to be saved.",
            f"Files hold plain numbers and text (nothing is pickled), and {_HEADER!r} is the name of their own header.",
            "Convert it to a numeric array, or give it another name.",
        )
    return array


def _dumps(value: Any, indent: int | None = None) -> str:
    return json.dumps(plain(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _loads(text: str | bytes, path: Path) -> Any:
    def revived(item: dict[str, Any]) -> Any:
        return float(item[_FLOAT]) if item.keys() == {_FLOAT} and isinstance(item[_FLOAT], str) else item

    try:
        return json.loads(text, object_hook=revived)
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, error, "a JSON file that ritz wrote") from error


def plain(value: Any) -> Any:
    """The value in the types JSON knows; what has no counterpart there is refused rather than stringified."""
    if isinstance(value, torch.Tensor | np.generic | np.ndarray):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.dtype | torch.device):
        return str(value).removeprefix("torch.")
    if is_dataclass(value) and not isinstance(value, type):
        return {entry.name: plain(getattr(value, entry.name)) for entry in fields(value)}
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    raise ArgumentError(
        f"A value of type {type(value).__name__} was to be saved: {value!r:.80}.",
        "A record holds numbers, text, lists and mappings with text keys, which every reader understands.",
        "Convert it, or put it among the arrays.",
    )


def _parsed(path: Path) -> dict[str, Any]:
    header = _loads(read_bytes(path, "a file that ritz wrote"), path)
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        found = header.get("format") if isinstance(header, dict) else None
        raise FileError(
            f"{path} has format {found!r}.",
            f"This version of ritz reads format {_FORMAT}.",
            "Check that the file is a record of ritz, or use the version of ritz that wrote it.",
        )
    expected = {**_FIELDS, "claims": list, "arrays": dict}
    wrong = [name for name, kind in expected.items() if not isinstance(header.get(name), kind)]
    if wrong:
        raise _no_record(path, f"without a readable {', '.join(wrong)}")
    return header


def _claims(entries: Sequence[Any], path: Path) -> tuple[Claim, ...]:
    try:
        claims = tuple(Claim(**entry) for entry in entries)
    except TypeError as error:
        raise _no_record(path, "with a claim that has other fields") from error
    if any(claim.verdict not in get_args(Verdict) for claim in claims):
        raise _no_record(path, "with a claim whose verdict is none of yes, partly, no")
    return claims


def _checksum(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error, "a file that ritz wrote") from error


def _unreadable(path: Path, error: Exception, wanted: str) -> FileError:
    reason = getattr(error, "strerror", None) or (str(error) or type(error).__name__).splitlines()[0]
    return FileError(
        f"{path} cannot be read: {reason}.",
        f"It was expected to be {wanted}.",
        "Check the path, or run the analysis that writes it again.",
    )


def _no_record(path: Path, seen: str) -> FileError:
    return FileError(
        f"{path} is a JSON file {seen}.",
        "It is no record of ritz, or it was changed by hand.",
        "Check the path, or run the analysis that writes it again.",
    )


def _unwritable(path: Path, error: OSError) -> FileError:
    return FileError(
        f"{path} cannot be written: {error.strerror or error}.",
        "The result would be lost, so nothing was written.",
        "Name another folder (--out on the command line).",
        "Check that the folder is yours, that it is no file, and that the disk has room.",
    )
