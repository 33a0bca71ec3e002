"""Where the figures' records lie, and how one gets there.

    results/<id>/<preset>/{record.json, arrays.npz, figure.png}

A config that differs from its preset goes beside it, to <preset>+<eight digits of its key>, so that nobody takes it for
the preset. What an interrupted run needs to go on lies in results/.cache/<computation>/<key of the config>, which git
does not see, and is removed once the record is written; deleting .cache by hand costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from ...errors import ArgumentError, FileError
from ...lab.workers import record_of, warn
from ...record import Record, canonical, check_writable, discard, key, lock, plain, write_bytes, write_picture
from .figure import Context, Figure
from .overrides import overridden

_CACHE = ".cache"


@dataclass(frozen=True)
class Order:
    """A figure to be computed at a preset, with the settings that differ from it, and where its record lies."""

    figure: Figure
    preset: str
    config: Any
    out: Path

    @property
    def folder(self) -> Path:
        """The folder of the record."""
        return self.out / self.figure.id / self._name

    @property
    def cache(self) -> Path:
        """The folder of intermediate results, the same for all figures of one computation."""
        return self.out / _CACHE / self.figure.shared / key(self.config)

    @property
    def _name(self) -> str:
        preset = self.figure.presets[self.preset]
        same = canonical(self.config) == canonical(preset)
        return self.preset if same else f"{self.preset}+{key(self.config)[:8]}"

    def stored(self) -> Record | None:
        """The record that is there, if it is that of this config; FileError if it is damaged."""
        if not (self.folder / "record.json").exists():
            return None
        record = Record.load(self.folder)
        return record if canonical(record.config) == canonical(self.config) else None


def order(figure: Figure, preset: str, settings: Iterable[str], out: str | Path) -> Order:
    """What the command line asks for, checked before any work."""
    if preset not in figure.presets:
        raise ArgumentError(
            f"{figure.id} has no preset {preset}.",
            "A preset is a whole setting of its config.",
            f"Use one of {', '.join(figure.presets)}, and --set for single fields.",
        )
    return Order(figure, preset, overridden(figure.presets[preset], list(settings)), Path(out))


def run(order: Order, known: Iterable[Figure], context: Context, *, force: bool = False) -> Record:
    """Compute, judge, draw and write a figure; one of the same computation that is there lends its numbers.

    The numbers are written before they are judged and drawn: a fault there costs no computation.
    """
    check_writable(order.folder)
    record = None if force else _borrowed(order, known)
    if record is None:
        record = _computed(order, context, force=force)
    record = replace(record, id=order.figure.id, preset=order.preset, claims=())
    discard(order.folder / "figure.png")  # the picture of other numbers
    record.save(order.folder)
    discard(order.cache)
    with suppress(OSError):  # the cache of another config is in it
        order.cache.parent.rmdir()
    return finish(order.figure, record, order.folder)


def present(order: Order) -> Record | None:
    """The record that makes a run needless; why one that is there does not, is said."""
    try:
        record = order.stored()
    except FileError as error:
        warn(f"{error.seen} It is computed again.")
        return None
    if record is None and (order.folder / "record.json").exists():
        warn(f"{order.folder} holds a record of another config. It is computed again.")
    return record


def finish(figure: Figure, record: Record, folder: Path) -> Record:
    """Judge and draw a record that is in the folder, and write both; returns what was written."""
    if figure.paper_cost and record.preset != "paper":
        record = replace(record, scalars={**record.scalars, "paper_cost": figure.paper_cost})
    record = replace(record, claims=figure.judged(record))
    record.save(folder)
    write_picture(folder / "figure.png", figure.draw(record))  # last: where it is, nothing is missing
    return Record.load(folder)


def folders(out: str | Path, figure: str = "*", preset: str = "*") -> list[Path]:
    """The folders under `out` that hold a record, of one figure, of one preset and what was set beside it."""
    found = {path.parent for name in (preset, f"{preset}+*") for path in Path(out).glob(f"{figure}/{name}/record.json")}
    return sorted(folder for folder in found if folder.parent.name != _CACHE)


def _borrowed(order: Order, known: Iterable[Figure]) -> Record | None:
    """The record of another figure of the same computation, preset and config."""
    for other in known:
        if other.shared == order.figure.shared and other.id != order.figure.id:
            with suppress(FileError):  # damaged: no help
                record = replace(order, figure=other).stored()
                if record is not None:
                    return replace(record, provenance={**record.provenance, "shared_with": other.id})
    return None


def _computed(order: Order, context: Context, *, force: bool) -> Record:
    if force:
        discard(order.cache)
    write_bytes(order.out / _CACHE / ".gitignore", b"*\n")
    with lock(order.cache) as folder:
        resumed = any(path.name != ".lock" for path in folder.iterdir())
        start = perf_counter()
        result = order.figure.run(order.config, replace(context, folder=folder))
        record = record_of(result, seconds=perf_counter() - start, device=context.device)
    told = {**record.provenance, **({"resumed": True} if resumed else {})}  # then the seconds are not all
    return replace(record, config=plain(order.config), provenance=told)
