"""Where the figures' records lie, and how one gets there.

    results/<id>/<preset>/{record.json, arrays.npz, figure.png}

A config that differs from its preset goes beside it, to <preset>+<eight digits of its key>, so that nobody takes it for
the preset. What records of other configs have measured of a figure is not measured again (`loans`).

What an interrupted run needs to go on lies in results/.cache/<computation>/<key of the config>, which git does not see,
and is removed once the record is written. What several computations need, such as trained networks, lies in
results/.cache/shelf and stays; deleting .cache by hand costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from ...errors import ArgumentError, FileError
from ...lab.workers import record_of, warn
from ...record import Record, canonical, check_writable, discard, key, lock, plain, write_bytes, write_picture
from .figure import Context, Figure, Origins
from .loans import Filed, lent
from .overrides import with_settings, with_values

_CACHE = ".cache"
_SHELF = "shelf"


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

    def record(self) -> Record | None:
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
    return Order(figure, preset, with_settings(figure.presets[preset], list(settings)), Path(out))


def run(order: Order, relatives: Iterable[Figure], context: Context, *, force: bool = False) -> Record:
    """Compute, judge, write and draw a figure; a relative, of the same computation, that is there lends its numbers.

    The record is written once, with its claims; what was computed is in the cache until then.
    """
    check_writable(order.folder)
    record = None if force else _copy(order, relatives)
    if record is not None:
        record = _write(order, record)
    else:
        write_bytes(order.out / _CACHE / ".gitignore", b"*\n")
        with lock(order.cache) as cache:  # the only one: sweeps of this run take none
            loans = {} if force else _loans(order, relatives)
            place = replace(context, folder=cache, shelf=order.out / _CACHE / _SHELF, lent=loans, origins=Origins())
            record = _write(order, _compute(order, place, force=force), cache)
        with suppress(OSError):  # the cache of another config is in it
            order.cache.parent.rmdir()
    return _draw(order.figure, record, order.folder)


def usable_record(order: Order) -> Record | None:
    """The record that makes a run needless; why one that is there does not, is said."""
    try:
        record = order.record()
    except FileError as error:
        warn(f"{error.seen} It is computed again.")
        return None
    if record is None and (order.folder / "record.json").exists():
        warn(f"{order.folder} holds a record of another config. It is computed again.")
    return record


def finish(figure: Figure, record: Record, folder: Path) -> Record:
    """Judge and draw a record that is in the folder, and write both; returns what was written."""
    record = _with_claims(figure, record)
    record.save(folder)
    return _draw(figure, record, folder)


def fits(figure: Figure, record: Record) -> bool:
    """Whether a record has the fields that the figure's configs have: else its rules and its picture do not know it."""
    preset = figure.presets.get(record.preset, next(iter(figure.presets.values())))
    return set(record.config) == set(plain(preset))


def folders(out: str | Path, figure: str = "*", preset: str = "*") -> list[Path]:
    """The folders under `out` that hold a record, of one figure, of one preset and what was set beside it."""
    files = (file for name in (preset, f"{preset}+*") for file in Path(out).glob(f"{figure}/{name}/record.json"))
    return sorted({file.parent for file in files if file.parent.parent.name != _CACHE})


def _copy(order: Order, relatives: Iterable[Figure]) -> Record | None:
    """The record of another figure of the same computation, preset and config."""
    for other in relatives:
        if other.shared == order.figure.shared and other.id != order.figure.id:
            with suppress(FileError):  # damaged: no help
                record = replace(order, figure=other).record()
                if record is not None:
                    return replace(record, provenance={**record.provenance, "shared_with": other.id})
    return None


def _loans(order: Order, relatives: Iterable[Figure]) -> dict[Filed, Record]:
    """What other records have measured of what this one needs: of other configs, or of other computations."""
    requested, found = order.figure.loans(order.config), dict[Filed, Record]()
    for lender in (order.figure, *relatives) if requested else ():
        for folder in folders(order.out, lender.id) if lender.loans(_some_config(lender)) else ():
            with suppress(FileError, KeyError):  # damaged, or of a config with other fields: no help
                record = Record.load(folder)
                config = with_values(_some_config(lender), record.config)
                if canonical(config) == canonical(record.config):
                    found = lent(requested, lender.loans(config), record) | found  # nearer relatives come first
    return found


def _some_config(figure: Figure) -> Any:
    """A config of the figure, whichever."""
    return next(iter(figure.presets.values()))


def _compute(order: Order, context: Context, *, force: bool) -> Record:
    """The numbers, by what is in the context's folder of an interrupted run."""
    cache = [path for path in (context.folder or Path()).iterdir() if path.name != ".lock"]
    for path in cache if force else ():
        discard(path)
    start = perf_counter()
    result = order.figure.run(order.config, context)
    record = record_of(result, seconds=perf_counter() - start, device=context.device)
    origin = _with_earlier(record.provenance, context.origins)
    resumed = {"resumed": True} if cache and not force else {}  # then the seconds are not all
    lent = {"lent": len(context.lent)} if context.lent else {}
    return replace(record, config=plain(order.config), provenance={**origin, **resumed, **lent})


def _with_earlier(own: Mapping[str, Any], origins: Origins) -> dict[str, Any]:
    """The origin of a record: where its measurements were made, and how long all of these took, not this run alone."""
    runs = [one for origin in origins.earlier for one in origin.get("made_of", [_run_of(origin)])]
    runs = list({canonical(one): one for one in runs}.values())  # a lender that has borrowed is counted once
    if not runs:
        return dict(own)
    here = [_run_of(own)] if origins.num_made else []
    return {
        **own,
        "device": " and ".join(dict.fromkeys(filter(None, (one["device"] for one in (*runs, *here))))),
        "seconds": own["seconds"] + sum(one["seconds"] or 0.0 for one in runs),
        "made_of": [*runs, *here],
        **({"resumed": True} if any(one.get("resumed") for one in origins.earlier) else {}),
    }


def _run_of(origin: Mapping[str, Any]) -> dict[str, Any]:
    """What tells one run from another: when it was, where, and how long it took."""
    return {name: origin.get(name) for name in ("date", "device", "seconds")}


def _write(order: Order, record: Record, cache: Path | None = None) -> Record:
    """The numbers with their claims, written; without claims where a rule fails, so that no computation is lost."""
    record = replace(record, id=order.figure.id, preset=order.preset, claims=())
    discard(order.folder / "figure.png")  # the picture of other numbers
    try:
        record = _with_claims(order.figure, record)
    finally:
        record.save(order.folder)
        if cache is not None:
            discard(cache)
    return record


def _with_claims(figure: Figure, record: Record) -> Record:
    if figure.paper_cost and record.preset != "paper":
        record = replace(record, scalars={**record.scalars, "paper_cost": figure.paper_cost})
    return replace(record, claims=figure.claims(record))


def _draw(figure: Figure, record: Record, folder: Path) -> Record:
    """Last: where the picture is, nothing is missing."""
    write_picture(folder / "figure.png", figure.draw(record))
    return record
