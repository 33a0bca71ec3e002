"""A page for each paper: for every figure, what is printed, what ours is and why, the picture and the claims.

All of it is generated from the figures' Configs and records, except what people write above the mark, which is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from os.path import relpath
from pathlib import Path
from typing import Any

from ... import progress
from ...record import Claim, Record, write_bytes
from .figure import Figure
from .overrides import differences
from .registry import figures, first_sentence
from .results import fits, folders
from .sources import sources

MARK = "<!-- from here on made by `ritz pages` -->"
VERDICTS = ("yes", "partly", "no")
_BEST = ("paper", "laptop", "smoke")  # the order in which records of a figure are preferred


def write_pages(papers: Sequence[str], out: Path, to: Path) -> list[Path]:
    """Write the pages of papers from the records under `out`; returns the paths written."""
    return [_write_page(paper, out, to / f"{paper}.md") for paper in papers]


def counts(claims: Sequence[Claim]) -> str:
    """How often each verdict occurs, for the papers' claims and for ours: "3 yes · 1 no; of ours: 2 yes"."""
    ours = [claim for claim in claims if claim.ours]
    parts = [_counts([claim for claim in claims if not claim.ours]), f"of ours: {_counts(ours)}" if ours else ""]
    return "; ".join(filter(None, parts))


def command(record: Record) -> str:
    """The command that computes this record."""
    return " ".join([f"ritz run {record.id} --preset {record.preset}", *(f"--set {text}" for text in settings(record))])


def settings(record: Record) -> list[str]:
    """What differs from the preset, as `field=value`."""
    figure = figures([record.id]).get(record.id)
    preset = figure.presets.get(record.preset) if figure is not None else None
    return [] if preset is None else differences(record.config, preset)


def computing_time(record: Record) -> str:
    """How long the computation took; for an interrupted run, only its last part is known."""
    time = progress.duration(float(record.provenance.get("seconds") or 0))
    return f"more than {time}" if record.provenance.get("resumed") else time


def place(record: Record) -> str:
    """On which device a record was computed, and which other figure it was shared with."""
    origin = record.provenance
    threads = origin.get("threads") if origin.get("device") == "cpu" else None
    device = f"{threads} CPU thread{'s' * (threads != 1)}" if threads else str(origin.get("device"))
    return device + (f" (with {origin['shared_with']})" if "shared_with" in origin else "")


def value_in_words(value: Any) -> str:
    """A number to three digits; several of them with their names."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {value_in_words(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(value_in_words, value))
    return f"{value:.3g}" if isinstance(value, float) else "-" if value is None else str(value)


def _write_page(paper: str, out: Path, path: Path) -> Path:
    text = path.read_text() if path.exists() else f"# {paper}: {first_sentence(paper)}"
    records = {figure.id: _record(figure, out) for figure in figures([f"{paper}.*"]).values()}
    written, sections = text.partition(MARK)[0].rstrip(), list(_sections(paper, records, path.parent))
    write_bytes(path, "\n\n".join([written, MARK, *sections, ""]).encode())
    return path


def _record(figure: Figure, out: Path) -> tuple[Record, Path] | None:
    """The record at the preset nearest to the paper."""
    for preset in _BEST:
        for folder in folders(out, figure.id, preset):  # the preset itself comes before variants of it
            if fits(figure, record := Record.load(folder)):
                return record, folder
    return None


def _sections(paper: str, records: Mapping[str, tuple[Record, Path] | None], here: Path) -> Iterator[str]:
    there = [entry for entry in records.values() if entry is not None]
    claims = [claim for record, _ in there for claim in record.claims]
    yield f"{len(there)} of {len(records)} figures have a record. Claims: {counts(claims) or 'none'}."
    yield _table(
        ["figure", "what it shows", "record", "claims"], [_row(name, entry) for name, entry in records.items()]
    )
    for name, figure in figures([f"{paper}.*"]).items():
        if (entry := records[name]) is not None:
            yield from _figure(figure, *entry, here)


def _row(name: str, entry: tuple[Record, Path] | None) -> list[str]:
    figure = figures([name])[name]
    if entry is None:
        return [name, figure.title, "not run", ""]
    return [f"[{name}](#{name.replace('.', '')})", figure.title, _preset(figure, entry[0]), counts(entry[0].claims)]


def _preset(figure: Figure, record: Record) -> str:
    """The preset of a record, and the fields set beyond it."""
    preset = figure.presets.get(record.preset)
    return ", ".join([record.preset, *([] if preset is None else differences(record.config, preset))])


def _figure(figure: Figure, record: Record, folder: Path, here: Path) -> Iterator[str]:
    picture = Path(relpath(folder, here)).as_posix()
    yield f"## {figure.id}\n\n{figure.title}."
    yield f"![{figure.id}]({picture}/figure.png)"
    yield f"`{command(record)}`: {computing_time(record)}, {place(record)}."
    rows = [[one.field, one.printed, one.ours, one.why] for one in sources(figure, record.config)]
    yield _folded("Printed / ours / why", _table(["", "printed", "ours", "why"], rows))
    if figure.readings:
        yield _table(["open", "reading", "source"], [[one.field, one.words, one.source] for one in figure.readings])
    yield _table(["verdict", "claim", "where", "measured"], [_claim(claim) for claim in record.claims])


def _claim(claim: Claim) -> list[str]:
    """A row: the sentence, marked if it is ours, with why it is not yes; the numbers, and those of other readings."""
    says = f"{'*Ours:* ' if claim.ours else ''}{claim.statement}" + (f"<br>*{claim.why}*" if claim.why else "")
    lead = f"{claim.reading}: " if claim.reading else ""
    others = [f"{words}: {value_in_words(one['measured'])} ({one['verdict']})" for words, one in claim.beside.items()]
    return [f"**{claim.verdict}**", says, claim.where, "<br>".join([lead + value_in_words(claim.measured), *others])]


def _counts(claims: Sequence[Claim]) -> str:
    number = Counter[str](claim.verdict for claim in claims)
    return " · ".join(f"{number[verdict]} {verdict}" for verdict in VERDICTS if number[verdict])


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{content}\n\n</details>"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [headings, ["---"] * len(headings), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in cells
    )
