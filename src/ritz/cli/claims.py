"""`ritz claims`: what the papers say about their figures, alone or beside what was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from .. import progress
from ..errors import FileError
from ..papers.frame.overrides import differences
from ..papers.frame.registry import counting_order, figures, selection
from ..papers.frame.results import folders
from ..papers.frame.statements import Statement
from ..record import Claim, Record
from .tables import show

COLOURS = {"yes": "green", "partly": "yellow", "no": "red"}


def show_statements(ids: Sequence[str]) -> None:
    """Print what the papers say about figures, where, and by which rule it is judged; no record is read."""
    table = headed_table("where", "what is said, and the rule by which it is judged")
    for figure in selection(ids):
        table.add_row("", Text(f"\n{figure.id}: {figure.title}", style="bold"))
        for statement in figure.statements:
            table.add_row(f"{statement.paper}, {statement.where}", _statement(statement))
    show(table)


def show_claims(ids: Sequence[str], out: Path) -> None:
    """Print the ledger of all records."""
    table = headed_table("verdict", "what is said, and what was measured")
    claims = list[Claim]()
    for folder in _folders(ids, out):
        record = readable_record(folder)
        if record is None or not record.claims:
            continue
        claims += record.claims
        table.add_row("", Text(f"\n{folder.parent.name}, {folder.name}", style="bold"))
        for claim in record.claims:
            table.add_row(Text(claim.verdict, style=COLOURS[claim.verdict]), _claim(claim))
    if not claims:
        raise _no_claims(ids, out)
    show(table)
    typer.echo(f"{len(claims)} claims{verdict_counts(claims)}")


def show_markdown(ids: Sequence[str], out: Path, *, brief: bool = False) -> None:
    """Print the ledger as a table for a document: a row for each claim, or for each figure with its first claim."""
    records = [(record, folder) for folder in _folders(ids, out) if (record := readable_record(folder)) is not None]
    if not any(record.claims for record, _ in records):
        raise _no_claims(ids, out)
    headings = ["figure", "command", "computed in", "claim", "expected", "measured", "verdict"]
    _say_row(headings + ["all claims"] * brief)
    _say_row(["---"] * (len(headings) + brief))
    for record, folder in records:
        for row in _rows(record, folder, brief=brief):
            _say_row(row)


def readable_record(folder: Path) -> Record | None:
    """The record, or None and a word about it: one damaged file must not hide the others."""
    try:
        return Record.load(folder)
    except FileError as error:
        typer.secho(f"Note: {error.seen}", err=True)
        return None


def verdict_counts(claims: Sequence[Claim]) -> str:
    """How many of each, such as: 3 yes, 1 no."""
    counts = Counter[str](claim.verdict for claim in claims)
    return "".join(f" · {counts[verdict]} {verdict}" for verdict in COLOURS if counts[verdict])


def computing_time(record: Record) -> str:
    """Of a run that was interrupted only the last part is known."""
    time = progress.duration(float(record.provenance.get("seconds") or 0))
    return f"more than {time}" if record.provenance.get("resumed") else time


def headed_table(*headings: str) -> Table:
    """Columns without lines, in which long texts are folded."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _folders(ids: Sequence[str], out: Path) -> list[Path]:
    in_order = sorted(folders(out), key=lambda folder: (counting_order(folder.parent.name), folder.name))
    return [folder for folder in in_order if any(fnmatchcase(folder.parent.name, pattern) for pattern in ids)]


def _no_claims(ids: Sequence[str], out: Path) -> FileError:
    """Why there is no ledger; an id that nobody has is refused first."""
    selection(ids)
    return FileError(
        f"{out} holds no claims of {', '.join(ids)}.",
        "Claims come with the records of figures.",
        "Compute one: ritz run linear2026.fig1a",
        "Name the folder of the records with --out.",
        "Read what the papers say without any: ritz claims --statements",
    )


def _statement(statement: Statement) -> Text:
    """What is said; how it is judged; what is to be said where it fails, unless that needs a record."""
    rule = f"{statement.rule}; expected {_value(statement.expected)}"
    text = Text(statement.statement).append(f"\n{rule}", style="dim")
    for reason in _reasons(statement):
        text.append(f"\n{reason}", style="italic")
    return text


def _reasons(statement: Statement) -> list[str]:
    if callable(statement.why) or not statement.why:
        return []
    if isinstance(statement.why, str):
        return [f"if not yes: {statement.why}"]
    return [f"if {verdict}: {reason}" for verdict, reason in statement.why.items()]


def _claim(claim: Claim) -> Text:
    """In three lines at most: what is said; what was measured; why, where that needs a word."""
    measured = f"measured {_value(claim.measured)}; expected {_value(claim.expected)} ({claim.rule})"
    text = Text(claim.statement).append(f"\n{measured}. {claim.paper}, {claim.where}", style="dim")
    return text.append(f"\n{claim.why}", style="italic") if claim.why else text


def _rows(record: Record, folder: Path, *, brief: bool) -> Iterator[list[str]]:
    """The claims of one record; what they come from is said in the first row alone."""
    source = _source(record, folder)
    for claim in record.claims[:1] if brief else record.claims:
        cells = [claim.statement, _value(claim.expected), _value(claim.measured), claim.verdict]
        yield [*source, *cells, *([verdict_counts(record.claims).removeprefix(" · ")] if brief else [])]
        source = ("", "", "")


def _say_row(cells: Sequence[str]) -> None:
    typer.echo("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")


def _source(record: Record, folder: Path) -> tuple[str, str, str]:
    """Which figure, how it is computed, and how long that took on what."""
    origin = record.provenance
    place = (
        f"{threads} CPU thread{'s' * (threads != 1)}" if (threads := _threads(origin)) else str(origin.get("device"))
    )
    shared = f" (with {origin['shared_with']})" if "shared_with" in origin else ""
    picture = f"[{record.id}]({(folder / 'figure.png').as_posix()})"
    return picture, f"`{_command(record)}`", f"{computing_time(record)}, {place}{shared}"


def _threads(provenance: Mapping[str, Any]) -> int | None:
    return provenance.get("threads") if provenance.get("device") == "cpu" else None


def _command(record: Record) -> str:
    """What computes this record."""
    figure = figures([record.id]).get(record.id)
    preset = figure.presets.get(record.preset) if figure is not None else None
    settings = [] if preset is None else differences(record.config, preset)
    return " ".join([f"ritz run {record.id} --preset {record.preset}", *(f"--set {text}" for text in settings)])


def _value(value: Any) -> str:
    """A number to three digits; several of them with their names."""
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_value(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    return f"{value:.3g}" if isinstance(value, float) else "-" if value is None else str(value)
