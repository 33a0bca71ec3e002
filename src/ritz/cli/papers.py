"""`ritz list`, `run`, `draw`: the figures of the papers on the command line."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path

import torch

from .. import progress
from ..errors import ArgumentError, FileError, RitzError, first_line
from ..lab.workers import WORKERS, Processes, Ray, Workers
from ..papers.frame.figure import Context, Figure
from ..papers.frame.pages import computing_time
from ..papers.frame.registry import figures, relatives, selection
from ..papers.frame.results import Order, finish, fits, order, usable_record
from ..papers.frame.results import run as run_order
from ..record import Record
from .claims import verdict_counts
from .messages import note, say
from .records import note_source, readable_record, record_folders
from .tables import prose_table, show


def show_list(out: Path) -> None:
    """Print a table of all figures."""
    table = prose_table("id", "title", "presets", "records")
    every = record_folders(out)
    note_source(every)
    for figure in figures().values():
        records = [folder.name for folder in every if folder.parent.name == figure.id]
        table.add_row(figure.id, figure.title, ", ".join(figure.presets), ", ".join(records) or "-")
    show(table)


def run(
    ids: Sequence[str],
    preset: str,
    settings: Sequence[str],
    out: Path,
    context: Context,
    *,
    force: bool = False,
    debug: bool = False,
) -> bool:
    """Run figures one after the other; one that fails does not stop the others. Returns whether all succeeded."""
    orders = [order(figure, preset, settings, out) for figure in _lenders_first(selection(ids))]
    if len(orders) == 1:
        _run(orders[0], context, force=force)
        return True
    failed = []
    with progress.bar("Figures", total=len(orders)) as bar:
        for one in orders:
            bar.advance(0, figure=one.figure.id)
            try:
                _run(one, context, force=force)
            except Exception as error:
                failed.append(one.figure.id)
                _note_failure(one, error, debug=debug)
            bar.advance()
    if failed:
        note(f"{len(failed)} of {len(orders)} figures failed: {', '.join(failed)}")
    return not failed


def _lenders_first(chosen: Sequence[Figure]) -> list[Figure]:
    """Figures of the paper that a computation is named after before those of others, which then borrow its numbers."""
    return sorted(chosen, key=lambda figure: figure.id.partition(".")[0] != figure.shared.partition(".")[0])


def draw(ids: Sequence[str], preset: str | None, out: Path) -> bool:
    """Draw and judge again what is there; returns whether all could be read."""
    chosen = selection(ids)
    if preset is not None:
        order(chosen[0], preset, [], out)  # refuses a preset that nobody has
    read = [(figure, folder) for figure in chosen for folder in record_folders(out, figure.id, preset or "*")]
    if not read:
        of_preset = "" if preset is None else f" of preset {preset}"
        raise FileError(
            f"{out} holds no record{of_preset} of {', '.join(figure.id for figure in chosen)}.",
            "A figure is drawn from its record.",
            f"Compute it: ritz run {chosen[0].id} --preset {preset or 'laptop'}",
            "Name the folder of the records with --out.",
        )
    note_source([folder for _, folder in read])
    outcomes = [_draw(figure, folder, out / figure.id / folder.name) for figure, folder in read]
    return all(outcomes)


def context(device: torch.device | None, data_dir: Path | None, workers: str, processes: int | None) -> Context:
    """The context in which figures are computed, from the options of the command line."""
    if data_dir is not None and not data_dir.is_dir():
        raise FileError(
            f"--data-dir {data_dir} is not a folder.",
            "The data sets would be read from it.",
            "Name the folder that holds them, or leave the option out.",
        )
    device = device or torch.device("cpu")
    return Context(device, data_dir, workers=workers_by_name(workers, processes, device))


def workers_by_name(name: str, processes: int | None, device: torch.device) -> Workers:
    """The workers that --workers and --processes ask for."""
    if processes is not None and name != "processes":
        raise ArgumentError(
            f"--processes {processes} was given with --workers {name}.",
            "It is the number of processes of --workers processes, and of nothing else.",
            "Add --workers processes, or leave --processes out.",
        )
    if name == "ray":
        return Ray(gpus_per_task=1 if device.type == "cuda" else 0)
    return Processes(processes) if name == "processes" else WORKERS[name]()


def _run(one: Order, context: Context, *, force: bool) -> None:
    record = None if force else usable_record(one)
    if record is not None and (one.folder / "figure.png").exists():
        say(f"{_title(one)}: already there (--force computes it again){verdict_counts(record.claims)}")
        return
    record = _complete(one, record, context, force=force)
    lender = record.provenance.get("shared_with")
    how = f"computed in {computing_time(record)}" if lender is None else f"computed with {lender}"
    if lender is None and (lent := record.provenance.get("lent")):
        how += f" ({lent} measurement{'s' * (lent > 1)} from records of other settings; --force makes them again)"
    say(f"{_title(one)}: {how}{verdict_counts(record.claims)} · {one.folder}")


def _complete(one: Order, record: Record | None, context: Context, *, force: bool) -> Record:
    """The record of a figure, drawn; what fails with values that the user set is refused, as not all make sense."""
    try:
        if record is not None:
            return finish(one.figure, record, one.folder)
        return run_order(one, relatives(one.figure), context, force=force)
    except RitzError:
        raise
    except Exception as error:
        if not one.settings:
            raise
        raise ArgumentError(
            f"{one.figure.id} cannot be computed with --set {' --set '.join(one.settings)}: "
            f"{type(error).__name__}: {first_line(error)}",
            "A field takes every value of its type, but a figure need not be defined for it, as with -1 units.",
            "Choose values nearer to those of a preset; any wrong --set shows them all.",
            "If it should be defined, --debug shows where it fails.",
        ) from error


def _note_failure(one: Order, error: Exception, *, debug: bool) -> None:
    message = str(error) if isinstance(error, RitzError) else f"Unexpected {type(error).__name__}: {error}"
    note(f"{_title(one)} failed: {traceback.format_exc() if debug else message}")


def _draw(figure: Figure, folder: Path, to: Path) -> bool:
    """Draw one record again; returns whether it could be read, as one that is damaged must not hide the others."""
    record = readable_record(folder)
    if record is not None and not fits(figure, record):
        note(f"{figure.id} {folder.name}: its config has other fields than today's; run it again")
        return False
    if record is not None:
        record = finish(figure, record, to)
        counts = verdict_counts(record.claims)
        say(f"{figure.id} {folder.name}: drawn again{counts} · {to / 'figure.png'}")
    return record is not None


def _title(one: Order) -> str:
    return f"{one.figure.id} {one.folder.name}"
