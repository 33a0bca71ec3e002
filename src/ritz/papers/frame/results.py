"""Where the figures' records are stored, and how a run gets one there.

    results/<id>/<preset>/{record.json, arrays.npz, figure.png}

A config that differs from its preset goes beside it, to <preset>+<eight digits of its key>, so that it cannot be taken
for the preset. What records of other configs already hold is not measured again (`loans`).

What an interrupted run needs to resume is in results/.cache/<computation>/<key of the config>, which git ignores, and
is removed once the record is written. What several computations share, such as trained networks, is kept in
results/.cache/shelf. Deleting .cache by hand costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from ...errors import ArgumentError, FileError
from ...lab.tasks import record_of
from ...lab.workers import warn
from ...record import Record, canonical, check_writable, discard, key, lock, plain, write_bytes, write_picture
from .figure import Context, Figure, Origins
from .loans import Filed, lent
from .overrides import differences, with_settings, with_values

_CACHE = ".cache"
_SHELF = "shelf"


@dataclass(frozen=True)
class Order:
    """A figure to be computed at a preset, with its settings, and the folder for its record."""

    figure: Figure
    preset: str
    config: Any
    out: Path

    @property
    def folder(self) -> Path:
        """The folder of the record."""
        return self.out / self.figure.id / self._name

    @property
    def settings(self) -> list[str]:
        """What differs from the preset, as `field=value`."""
        return differences(plain(self.config), self.figure.presets[self.preset])

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
        """The existing record, if it has this config; FileError if it is damaged."""
        if not (self.folder / "record.json").exists():
            return None
        record = Record.load(self.folder)
        return record if canonical(record.config) == canonical(self.config) else None


def order(figure: Figure, preset: str, settings: Iterable[str], out: str | Path) -> Order:
    """The order given on the command line, checked before any work."""
    if preset not in figure.presets:
        raise ArgumentError(
            f"{figure.id} has no preset {preset}.",
            "A preset sets all fields of a figure's config.",
            f"Use one of {', '.join(figure.presets)}, and --set for single fields.",
        )
    return Order(figure, preset, with_settings(figure.presets[preset], list(settings)), Path(out))


def run(order: Order, relatives: Iterable[Figure], context: Context, *, force: bool = False) -> Record:
    """Compute, judge, write and draw a figure, taking numbers from the records of its relatives where they have them.

    The record is written once, with its claims; until then, results are in the cache.
    """
    check_writable(order.folder)
    record = None if force else _copy(order, relatives)
    if record is not None:
        record = _write(order, record)
    else:
        write_bytes(order.out / _CACHE / ".gitignore", b"*\n")
        with lock(order.cache) as cache:  # the only lock: the sweeps of this run take none
            loans = {} if force else _loans(order, relatives)
            place = replace(context, folder=cache, shelf=order.out / _CACHE / _SHELF, lent=loans, origins=Origins())
            record = _write(order, _compute(order, place, force=force), cache)
        with suppress(OSError):  # not empty: it holds the cache of another config
            order.cache.parent.rmdir()
    return _draw(order.figure, record, order.folder)


def usable_record(order: Order) -> Record | None:
    """The existing record that makes a run unnecessary; warns if there is one that does not."""
    try:
        record = order.record()
    except FileError as error:
        warn(f"{error.seen} It is computed again.")
        return None
    if record is None and (order.folder / "record.json").exists():
        warn(f"{order.folder} holds a record of another config. It is computed again.")
    return record


def finish(figure: Figure, record: Record, folder: Path) -> Record:
    """Judge and draw an existing record again, and write both; returns the record."""
    record = _with_claims(figure, record)
    record.save(folder)
    return _draw(figure, record, folder)


def fits(figure: Figure, record: Record) -> bool:
    """Whether a record has the fields of the figure's configs, without which it can be neither judged nor drawn."""
    preset = figure.presets.get(record.preset, next(iter(figure.presets.values())))
    return set(record.config) == set(plain(preset))


def folders(out: str | Path, figure: str = "*", preset: str = "*") -> list[Path]:
    """The folders under `out` that hold a record, for a figure and a preset, including variants of the preset."""
    files = (file for name in (preset, f"{preset}+*") for file in Path(out).glob(f"{figure}/{name}/record.json"))
    return sorted({file.parent for file in files if file.parent.parent.name != _CACHE})


def _copy(order: Order, relatives: Iterable[Figure]) -> Record | None:
    """The record of another figure with the same computation, preset and config, if there is one."""
    for other in relatives:
        if other.shared == order.figure.shared and other.id != order.figure.id:
            with suppress(FileError):  # a damaged record
                record = replace(order, figure=other).record()
                if record is not None:
                    return replace(record, provenance={**record.provenance, "shared_with": other.id})
    return None


def _loans(order: Order, relatives: Iterable[Figure]) -> dict[Filed, Record]:
    """The results this figure needs that records of other configs or of other computations hold."""
    requested, found = order.figure.loans(order.config), dict[Filed, Record]()
    for lender in (order.figure, *relatives) if requested else ():
        for folder in folders(order.out, lender.id) if lender.loans(_some_config(lender)) else ():
            with suppress(FileError, KeyError):  # damaged, or of a config with other fields
                record = Record.load(folder)
                config = with_values(_some_config(lender), record.config)
                if canonical(config) == canonical(record.config):
                    found = lent(requested, lender.loans(config), record) | found  # nearer relatives take precedence
    return found


def _some_config(figure: Figure) -> Any:
    """Any config of the figure."""
    return next(iter(figure.presets.values()))


def _compute(order: Order, context: Context, *, force: bool) -> Record:
    """Run the computation, which resumes from what an interrupted run left in the context's folder."""
    cache = [path for path in (context.folder or Path()).iterdir() if path.name != ".lock"]
    for path in cache if force else ():
        discard(path)
    start = perf_counter()
    result = order.figure.run(order.config, context)
    record = record_of(result, seconds=perf_counter() - start, device=context.device)
    origin = _with_earlier(record.provenance, context.origins)
    resumed = {"resumed": True} if cache and not force else {}  # the seconds are then not complete
    lent = {"lent": len(context.lent)} if context.lent else {}
    return replace(record, config=plain(order.config), provenance={**origin, **resumed, **lent})


def _with_earlier(own: Mapping[str, Any], origins: Origins) -> dict[str, Any]:
    """The origin of a record, with the devices and the total time of all runs that its numbers come from."""
    runs = [one for origin in origins.earlier for one in origin.get("made_of", [_run_of(origin)])]
    runs = list({canonical(one): one for one in runs}.values())  # however often a run was lent on, it counts once
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
    """The date, device and duration that identify a run."""
    return {name: origin.get(name) for name in ("date", "device", "seconds")}


def _write(order: Order, record: Record, cache: Path | None = None) -> Record:
    """Write the record with its claims; if a rule raises, without them, so that no computation is lost."""
    record = replace(record, id=order.figure.id, preset=order.preset, claims=())
    discard(order.folder / "figure.png")  # it shows the numbers of an earlier record
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
    """Draw the picture. It is written last, so that a folder with a picture is complete."""
    write_picture(folder / "figure.png", figure.draw(record))
    return record
