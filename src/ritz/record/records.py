"""A record: what a computation leaves behind, with its configuration, numbers, claims and provenance."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, FileError, MissingFactError
from .arrays import numpy_arrays, read_arrays, write_npz
from .cards import card
from .claims import Claim
from .files import check_writable, checksum, discard, path_of, read_bytes, write_flushed, writing
from .json_values import json_text, json_value, plain, printable, reread
from .origin import provenance
from .parts import part_of

_ARRAYS = re.compile(r"(\.\./\.\./\w[\w.+-]*/\w[\w.+-]*/)?arrays\.npz")  # of the record, or of another one beside it
_FORMAT = 1  # of record.json; a reader refuses what it does not know
_FIELDS = {"id": str, "preset": str, "config": dict, "scalars": dict, "provenance": dict}  # of a Record, as JSON


@dataclass(frozen=True, repr=False, eq=False)
class Record:
    """The result of one computation: everything its figure and its report need, and no code.

    `config` and `scalars` hold what JSON holds, NaN and infinities included; `arrays` may be given as tensors and
    come back as numpy arrays. Nobody needs ritz to read one:

        header = json.load(open("record.json"))  # id, preset, config, scalars, claims, provenance
        arrays = numpy.load("arrays.npz")  # header["arrays"] has the name and the SHA-256 of this file

    NaN and infinities stand in the JSON as {"float": "nan"}, {"float": "inf"}, {"float": "-inf"}.

    >>> import torch
    >>> from tempfile import TemporaryDirectory
    >>> record = Record("widths", "smoke", {"width": 8}, {"loss": 0.25}, {"eigenvalues": torch.ones(3)})
    >>> with TemporaryDirectory() as folder:
    ...     same = Record.load(record.save(folder))
    >>> same
    Record(widths, smoke: 1 scalar, 1 array, 0 claims)
    >>> same.scalars, same.arrays["eigenvalues"].tolist()
    ({'loss': 0.25}, [1.0, 1.0, 1.0])
    """

    id: str
    preset: str
    config: Mapping[str, Any]
    scalars: Mapping[str, Any]
    arrays: Mapping[str, Any]
    claims: Sequence[Claim] = ()
    provenance: Mapping[str, Any] = field(default_factory=provenance)

    def __repr__(self) -> str:
        parts = {"scalar": self.scalars, "array": self.arrays, "claim": self.claims}
        held = ", ".join(f"{len(part)} {name}{'s' * (len(part) != 1)}" for name, part in parts.items())
        return f"Record({self.id}, {self.preset}: {held})"

    def _repr_html_(self) -> str:
        """HTML for a notebook: its numbers, and what they say."""
        numbers = {
            name: f"{value:.6g}" if isinstance(value, float) else value
            for name, value in self.scalars.items()
            if isinstance(value, int | float | str)
        }
        claims: dict[str, list[str]] = {
            "verdict": [str(claim.verdict) for claim in self.claims],
            "statement": [claim.statement for claim in self.claims],
        }
        return card(f"{self.id}, {self.preset}", numbers, claims if self.claims else None)

    def save(self, folder: str | Path) -> Path:
        """Write `record.json` and `arrays.npz` into the folder, made if need be; returns the folder.

        Both are on disk before either gets its name, so that a full disk leaves the old record. The JSON holds the
        checksum of the arrays: a run killed between the two renames cannot leave an inconsistent record unnoticed.
        """
        folder = check_writable(folder)
        fields = {name: getattr(self, name) for name in _FIELDS}
        header = plain({"format": _FORMAT, **fields, "claims": list(self.claims)})  # first: it may refuse a value
        arrays = numpy_arrays(self.arrays)
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with part_of(folder / "arrays.npz") as numbers, part_of(folder / "record.json") as text:
                write_flushed(numbers, lambda stream: write_npz(stream, arrays))
                header["arrays"] = {"file": "arrays.npz", "sha256": checksum(numbers)}
                write_flushed(text, lambda stream: stream.write((json_text(header, indent=2) + "\n").encode()))
                os.replace(numbers, folder / "arrays.npz")
                os.replace(text, folder / "record.json")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Record:
        """Read back what `save` wrote, and check that both files belong together; `record.json` names its folder.

        Of several figures that share one computation, the records that come with ritz have the arrays once.
        """
        folder = path_of(folder)
        folder = folder.parent if folder.name == "record.json" else folder
        header = _header(folder / "record.json")
        file = folder / header["arrays"].get("file", "arrays.npz")
        if checksum(file) != header["arrays"].get("sha256"):
            raise FileError(
                f"{file} is not the file that record.json was written with.",
                "The numbers and the arrays of this record come from different runs, or one of them was damaged.",
                "Run the analysis again: a run that was killed while it wrote leaves this behind.",
            )
        facts = {name: header[name] for name in _FIELDS}
        return cls(
            **{name: _Facts.within(value, facts["id"]) for name, value in facts.items()},
            arrays=read_arrays(file)[0],
            claims=_claims(header["claims"], folder / "record.json"),
        )

    def detached(self) -> Record:
        """The same record in the types of JSON and numpy: it depends on no device and can go to another process."""
        names = ("config", "scalars", "provenance")
        return replace(
            self,
            arrays=numpy_arrays(self.arrays),
            claims=tuple(Claim(**reread(claim)) for claim in self.claims),
            **{name: _Facts.within(reread(getattr(self, name)), self.id) for name in names},
        )

    def place(self, folder: str | Path) -> Path:
        """Make the folder appear with the whole record, in place of what was there; returns the folder.

        Unlike `save`, it never leaves one file of two: a run killed on the way leaves a hidden neighbour `.*.tmp`,
        which the next run removes.
        """
        folder = Path(folder)
        with writing(folder):
            check_writable(folder.parent).mkdir(parents=True, exist_ok=True)
            with part_of(folder, folder=True) as part:
                self.save(part)
                discard(folder)
                os.replace(part, folder)
        return folder


class _Facts(dict[str, Any]):
    """The entries of a record by name; asking for one that it lacks means that it is a record of something else."""

    record = ""

    @classmethod
    def within(cls, value: Any, record: str) -> Any:
        """The value with all mappings inside it as facts of this record."""
        if not isinstance(value, dict):
            return value
        facts = cls({name: cls.within(entry, record) for name, entry in value.items()})
        facts.record = record
        return facts

    def __missing__(self, name: str) -> Any:
        raise MissingFactError(
            f"The record {self.record!r} has no {name!r}.",
            "It is a record of something else, comes from another version of ritz, or was changed.",
            "Make the record again, or name another one.",
        )


def _header(path: Path) -> dict[str, Any]:
    header = printable(json_value(read_bytes(path, "a file that ritz wrote"), path))
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        seen = header.get("format") if isinstance(header, dict) else None
        raise FileError(
            f"{path} has format {seen!r}.",
            f"This version of ritz reads format {_FORMAT}.",
            "Check that the file is a record of ritz, or use the version of ritz that wrote it.",
        )
    expected = {**_FIELDS, "claims": list, "arrays": dict}
    wrong = [name for name, kind in expected.items() if not isinstance(header.get(name), kind)]
    if wrong:
        raise _no_record(path, f"without a readable {', '.join(wrong)}")
    if not _ARRAYS.fullmatch(str(file := header["arrays"].get("file", "arrays.npz"))):
        raise _no_record(path, f"whose arrays would be in {file!r}")
    return header


def _claims(entries: Sequence[Any], path: Path) -> tuple[Claim, ...]:
    try:
        return tuple(Claim(**entry) for entry in entries)
    except TypeError as error:
        raise _no_record(path, "with a claim that has other fields") from error
    except ArgumentError as error:
        raise _no_record(path, f"with a claim in which {error.seen.rstrip('.')}") from error


def _no_record(path: Path, seen: str) -> FileError:
    return FileError(
        f"{path} is a JSON file {seen}.",
        "It is not a record of ritz, or it was changed by hand.",
        "Check the path, or run the analysis that writes it once more.",
    )
