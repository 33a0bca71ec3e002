"""Which records a command reads: those in the folder of results, or the ones shipped with ritz where it has none."""

from __future__ import annotations

from pathlib import Path

from ..errors import FileError
from ..papers.frame.results import folders
from ..record import Record
from .folders import RESULTS, SHIPPED
from .messages import note


def record_folders(out: Path, id: str = "*", preset: str = "*") -> list[Path]:
    """The folders to read from, one for each figure and preset. An --out that was named is taken as it is."""
    own = folders(out, id, preset)
    if out != RESULTS or not SHIPPED.is_dir():
        return own
    names = {(folder.parent.name, folder.name) for folder in own}
    return own + [one for one in folders(SHIPPED, id, preset) if (one.parent.name, one.name) not in names]


def note_source(read: list[Path]) -> None:
    """Say if records come from elsewhere than this folder."""
    count = sum(folder.is_relative_to(SHIPPED) for folder in read)
    if count:
        which = "these" if count == len(read) else f"{count} of these {len(read)}"
        note(f"Note: {which} records came with ritz, and are not from the folder results.")


def readable_record(folder: Path) -> Record | None:
    """The record, or None with a message: one damaged file must not hide the others."""
    try:
        return Record.load(folder)
    except FileError as error:
        note(f"Note: {error.seen}")
        return None
