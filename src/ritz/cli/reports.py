"""`ritz report`: the page of what was measured."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import report
from ..errors import FileError
from ..record import Record

NAME = "report.html"


def run(places: Sequence[Path], out: Path) -> Path:
    """Write the page of all records at these places."""
    return report.write(records(places), out)


def write(folder: Path) -> str:
    """Write the page of all records in a folder beside them; returns its name."""
    return run([folder], folder / NAME).name


def records(places: Sequence[Path]) -> list[Record]:
    """All records at these places: each a record.json, its folder, or a folder of such folders."""
    folders = [folder for place in places for folder in _folders(place)]
    return [Record.load(folder) for folder in dict.fromkeys(folders)]


def _folders(place: Path) -> list[Path]:
    if place.name == "record.json":
        return [place.parent]
    inside = sorted(folder for folder in _all_folders(place) if (folder / "record.json").exists())
    if not inside:
        raise FileError(
            f"{place} holds no record.",
            "A page is made of records: folders with a record.json and an arrays.npz.",
            "Check the path; --out of the command that wrote the record named its folder.",
            "Make one: ritz demo",
        )
    return inside


def _all_folders(place: Path) -> Iterator[Path]:
    """A folder and all folders in it, each once: links are followed, and may lead around in a circle."""
    seen = set[str]()
    for folder, inner, _ in os.walk(place, followlinks=True):
        if (real := os.path.realpath(folder)) in seen:
            inner.clear()
        else:
            seen.add(real)
            yield Path(folder)
