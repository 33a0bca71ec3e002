"""`ritz list`, `run`, `draw`, `claims`: the figures of the papers on the command line."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
import typer
from rich.table import Table
from rich.text import Text

from .. import progress
from ..errors import ArgumentError, FileError, RitzError
from ..lab.workers import WORKERS, Processes, Ray, Workers
from ..papers.frame.figure import Context, Figure
from ..papers.frame.overrides import differences
from ..papers.frame.registry import counted, figures, matching
from ..papers.frame.results import Order, finish, folders, order, present
from ..papers.frame.results import run as run_order
from ..record import Claim, Record
from .tables import printed

PACKAGE = "ritz.papers"  # where the papers' packages are
COLOURS = {"yes": "green", "partly": "yellow", "no": "red"}


@dataclass(frozen=True)
class Wishes:
    """How figures are to be run."""

    device: torch.device | None
    data_dir: Path | None
    workers: str
    processes: int | None
    force: bool
    debug: bool


def show_list(out: Path) -> None:
    """Print a table of all figures."""
    table = _table("id", "title", "presets", "records")
    for figure in figures(PACKAGE).values():
        there = [folder.name for folder in folders(out, figure.id)]
        table.add_row(figure.id, figure.title, ", ".join(figure.presets), ", ".join(there) or "-")
    printed(table)


def run(ids: Sequence[str], preset: str, settings: Sequence[str], out: Path, wishes: Wishes) -> bool:
    """Run figures one after the other; one that fails does not stop the others. Whether all have their record."""
    known = figures(PACKAGE)
    orders = [order(figure, preset, settings, out) for figure in matching(list(ids), known)]
    context = _context(wishes)
    if len(orders) == 1:
        _run_one(orders[0], known.values(), context, force=wishes.force)
        return True
    failed = []
    with progress.bar("Figures", total=len(orders)) as bar:
        for one in orders:
            bar.advance(0, figure=one.figure.id)
            try:
                _run_one(one, known.values(), context, force=wishes.force)
            except Exception as error:
                failed.append(one.figure.id)
                _say_failure(one, error, debug=wishes.debug)
            bar.advance()
    if failed:
        typer.secho(f"{len(failed)} of {len(orders)} figures failed: {', '.join(failed)}", err=True)
    return not failed


def draw(ids: Sequence[str], preset: str | None, out: Path) -> bool:
    """Draw and judge again what is there; whether all could be read."""
    chosen = matching(list(ids), figures(PACKAGE))
    if preset is not None:
        order(chosen[0], preset, [], out)  # refuses a preset that nobody has
    found = [(figure, folder) for figure in chosen for folder in folders(out, figure.id, preset or "*")]
    if not found:
        wanted = "" if preset is None else f" of preset {preset}"
        raise FileError(
            f"{out} holds no record{wanted} of {', '.join(figure.id for figure in chosen)}.",
            "A figure is drawn from its record.",
            f"Compute it: ritz run {chosen[0].id} --preset {preset or 'laptop'}",
            "Name the folder of the records with --out.",
        )
    drawn = [_drawn(figure, folder) for figure, folder in found]
    return all(drawn)


def _drawn(figure: Figure, folder: Path) -> bool:
    """Whether it could be: one damaged record must not hide the others."""
    record = _readable(folder)
    if record is not None:
        record = finish(figure, record, folder)
        typer.echo(f"{figure.id} {folder.name}: drawn again{_verdicts(record.claims)} · {folder / 'figure.png'}")
    return record is not None


def show_claims(ids: Sequence[str], out: Path) -> None:
    """Print the ledger of all records."""
    table = _table("verdict", "what is said, and what was measured")
    claims = list[Claim]()
    for folder in _folders(ids, out):
        record = _readable(folder)
        found = record.claims if record is not None else ()
        claims += found
        if found:
            table.add_row("", Text(f"\n{folder.parent.name}, {folder.name}", style="bold"))
        for claim in found:
            table.add_row(Text(claim.verdict, style=COLOURS[claim.verdict]), _told(claim))
    if not claims:
        raise _no_claims(ids, out)
    printed(table)
    typer.echo(f"{len(claims)} claims{_verdicts(claims)}")


def markdown(ids: Sequence[str], out: Path, *, brief: bool = False) -> None:
    """Print the ledger as a table for a document: a row for each claim, or for each figure with its first claim."""
    records = [(record, folder) for folder in _folders(ids, out) if (record := _readable(folder)) is not None]
    if not any(record.claims for record, _ in records):
        raise _no_claims(ids, out)
    headings = ["figure", "command", "computed in", "claim", "expected", "measured", "verdict"]
    _say_row(headings + ["all claims"] * brief)
    _say_row(["---"] * (len(headings) + brief))
    for record, folder in records:
        for row in _rows(record, folder, brief=brief):
            _say_row(row)


def _rows(record: Record, folder: Path, *, brief: bool) -> Iterator[list[str]]:
    """The claims of one record; what they come from is said in the first row alone."""
    source = _source(record, folder)
    for claim in record.claims[:1] if brief else record.claims:
        told = [claim.statement, _value(claim.expected), _value(claim.measured), claim.verdict]
        yield [*source, *told, *([_verdicts(record.claims).removeprefix(" · ")] if brief else [])]
        source = ("", "", "")


def _say_row(cells: Sequence[str]) -> None:
    typer.echo("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")


def _source(record: Record, folder: Path) -> tuple[str, str, str]:
    """Which figure, how it is computed, and how long that took on what."""
    told = record.provenance
    place = f"{threads} CPU thread{'s' * (threads != 1)}" if (threads := _threads(told)) else str(told.get("device"))
    shared = f" (with {told['shared_with']})" if "shared_with" in told else ""
    picture = f"[{record.id}]({(folder / 'figure.png').as_posix()})"
    return picture, f"`{_command(record)}`", f"{_time(record)}, {place}{shared}"


def _threads(provenance: Mapping[str, Any]) -> int | None:
    return provenance.get("threads") if provenance.get("device") == "cpu" else None


def _command(record: Record) -> str:
    """What computes this record."""
    figure = figures(PACKAGE).get(record.id)
    preset = figure.presets.get(record.preset) if figure is not None else None
    settings = [] if preset is None else differences(record.config, preset)
    return " ".join([f"ritz run {record.id} --preset {record.preset}", *(f"--set {text}" for text in settings)])


def _time(record: Record) -> str:
    """Of a run that was interrupted only the last part is known."""
    time = progress.duration(float(record.provenance.get("seconds") or 0))
    return f"more than {time}" if record.provenance.get("resumed") else time


def _no_claims(ids: Sequence[str], out: Path) -> FileError:
    """Why there is no ledger; an id that nobody has is refused first."""
    matching(list(ids), figures(PACKAGE))
    return FileError(
        f"{out} holds no claims of {', '.join(ids)}.",
        "Claims come with the records of figures.",
        "Compute one: ritz run linear2026.fig1a",
        "Name the folder of the records with --out.",
    )


def _folders(ids: Sequence[str], out: Path) -> list[Path]:
    found = sorted(folders(out), key=lambda folder: (counted(folder.parent.name), folder.name))
    return [folder for folder in found if any(fnmatchcase(folder.parent.name, pattern) for pattern in ids)]


def _run_one(one: Order, known: Iterable[Figure], context: Context, *, force: bool) -> None:
    there = None if force else present(one)
    if there is not None and (one.folder / "figure.png").exists():
        typer.echo(f"{_title(one)}: is there already (--force computes it again){_verdicts(there.claims)}")
        return
    record = run_order(one, known, context, force=force) if there is None else finish(one.figure, there, one.folder)
    lender = record.provenance.get("shared_with")
    how = f"computed in {_time(record)}" if lender is None else f"computed with {lender}"
    typer.echo(f"{_title(one)}: {how}{_verdicts(record.claims)} · {one.folder}")


def _say_failure(one: Order, error: Exception, *, debug: bool) -> None:
    told = str(error) if isinstance(error, RitzError) else f"Unexpected {type(error).__name__}: {error}"
    typer.secho(f"{_title(one)} failed: {traceback.format_exc() if debug else told}", err=True)


def _context(wishes: Wishes) -> Context:
    if wishes.data_dir is not None and not wishes.data_dir.is_dir():
        raise FileError(
            f"--data-dir {wishes.data_dir} is no folder.",
            "The data sets would be read from it.",
            "Name the folder that holds them, or leave the option out.",
        )
    device = wishes.device or torch.device("cpu")
    return Context(device, wishes.data_dir, workers=_workers(wishes.workers, wishes.processes, device))


def _workers(name: str, processes: int | None, device: torch.device) -> Workers:
    if processes is not None and name != "processes":
        raise ArgumentError(
            f"--processes {processes} was given with --workers {name}.",
            "Only processes of this machine are counted.",
            "Add --workers processes, or leave --processes out.",
        )
    if name == "ray":
        return Ray(gpus_per_task=1 if device.type == "cuda" else 0)
    return Processes(processes) if name == "processes" else WORKERS[name]()


def _readable(folder: Path) -> Record | None:
    """The record, or None and a word about it: one damaged file must not hide the others."""
    try:
        return Record.load(folder)
    except FileError as error:
        typer.secho(f"Note: {error.seen}", err=True)
        return None


def _told(claim: Claim) -> Text:
    """A claim in three lines at most: what is said; what was measured; why, where that needs a word."""
    measured = f"measured {_value(claim.measured)}; expected {_value(claim.expected)} ({claim.rule})"
    told = Text(claim.statement).append(f"\n{measured}. {claim.paper}, {claim.where}", style="dim")
    return told.append(f"\n{claim.why}", style="italic") if claim.why else told


def _value(value: Any) -> str:
    """A number to three digits; several of them with their names."""
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_value(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    return f"{value:.3g}" if isinstance(value, float) else "-" if value is None else str(value)


def _verdicts(claims: Sequence[Claim]) -> str:
    """How many of each, such as: 3 yes, 1 no."""
    counts = Counter[str](claim.verdict for claim in claims)
    return "".join(f" · {counts[verdict]} {verdict}" for verdict in COLOURS if counts[verdict])


def _title(one: Order) -> str:
    return f"{one.figure.id} {one.folder.name}"


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
