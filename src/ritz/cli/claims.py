"""`ritz claims` and `ritz pages`: what the papers say about their figures, alone or beside what was measured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from shlex import quote

from rich.text import Text

from ..errors import FileError
from ..papers.frame.pages import counts, settings, value_in_words, write_pages
from ..papers.frame.registry import counting_order, selection
from ..papers.frame.results import folders
from ..papers.frame.statements import Statement
from ..record import Claim
from .messages import say
from .records import note_source, readable_record, record_folders
from .tables import prose_table, show

_MEASURE = re.compile(r"(?: \((?:[^()]|\([^()]*\))*\))?\.$")  # behind a sentence: how it is measured
COLOURS = {"yes": "green", "partly": "yellow", "no": "red"}


def show_statements(ids: Sequence[str]) -> None:
    """Print what the papers say about figures, where, and by which rule it is judged; no record is read."""
    table = prose_table("where", "what is said, and the rule by which it is judged")
    for figure in selection(ids):
        table.add_row("", Text(f"\n{figure.id}: {figure.title}", style="bold"))
        for statement in figure.statements:
            table.add_row(f"{statement.paper}, {statement.where}", _statement(statement))
    show(table)


def show_claims(ids: Sequence[str], out: Path, *, full: bool = False) -> None:
    """Print the claims of all records: a line for each, or everything known about it."""
    table = prose_table("verdict", "what is said, and what was measured")
    table.columns[0].no_wrap = True  # a long text takes no room of the verdict
    claims = list[Claim]()
    for folder in _folders(ids, out):
        record = readable_record(folder)
        if record is None or not record.claims:
            continue
        claims += record.claims
        heading = ", ".join([folder.parent.name, folder.name, *settings(record)])
        table.add_row("", Text("\n" * full + heading, style="bold"))
        for claim in record.claims:
            table.add_row(Text(claim.verdict, style=COLOURS[claim.verdict]), _claim(claim) if full else _line(claim))
    if not claims:
        raise _no_claims(ids, out)
    show(table)
    say(f"{len(claims)} claims{verdict_counts(claims)}")
    if not full:
        named = "".join(f"{quote(one)} " for one in ids if one != "*")
        say(f"Numbers and reasons: ritz claims {named}--full")


def make_pages(ids: Sequence[str], out: Path, to: Path) -> None:
    """Write the pages of the papers that the ids name."""
    chosen = selection(ids)
    papers = dict.fromkeys(figure.id.partition(".")[0] for figure in chosen)
    if not any(folders(out, f"{paper}.*") for paper in papers):
        raise FileError(
            f"{out} holds no record of {', '.join(papers)}.",
            "A page is made of the records of its figures; without any, it would replace what it said before.",
            f"Compute one: ritz run {chosen[0].id}",
            "Name the folder of the records with --out.",
        )
    for path in write_pages(list(papers), out, to):
        say(f"{path}")


def verdict_counts(claims: Sequence[Claim]) -> str:
    """The number of each verdict behind a dot: " · 3 yes · 1 no; of ours: 2 yes"."""
    return f" · {counts(claims)}" if claims else ""


def _folders(ids: Sequence[str], out: Path) -> list[Path]:
    read = [one for one in record_folders(out) if any(fnmatchcase(one.parent.name, pattern) for pattern in ids)]
    note_source(read)
    return sorted(read, key=lambda folder: (counting_order(folder.parent.name), folder.name))


def _no_claims(ids: Sequence[str], out: Path) -> FileError:
    """Why there are no claims to show; refuses unknown ids first."""
    figure = selection(ids)[0]
    return FileError(
        f"{out} holds no claims of {', '.join(ids)}.",
        "Claims come with the records of figures.",
        f"Compute one: ritz run {figure.id}",
        "Name the folder of the records with --out.",
        "Read what the papers say, without records: ritz claims --statements",
    )


def _statement(statement: Statement) -> Text:
    """Cells for a statement: the sentence, how it is judged, and known reasons why it may fail."""
    rule = f"{statement.rule}; expected {value_in_words(statement.expected)}"
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


def _line(claim: Claim) -> Text:
    """A claim in one line: what is said and where, without how it was measured."""
    sentence = _MEASURE.sub("", claim.statement)
    text = Text("ours: " if claim.ours else "", no_wrap=True, overflow="ellipsis")
    return text.append(sentence).append(f" ({claim.where})", style="dim")


def _claim(claim: Claim) -> Text:
    """Cells for a claim: the sentence, what was measured by this reading and by others, and the reason."""
    reading = f" by {claim.reading}" if claim.reading else ""
    measured = f"measured{reading} {value_in_words(claim.measured)}"
    expected = f"expected {value_in_words(claim.expected)} ({claim.rule})"
    source = f"{'ours' if claim.ours else claim.paper}, {claim.where}"
    text = Text(claim.statement).append(f"\n{measured}; {expected}. {source}", style="dim")
    for words, one in claim.beside.items():
        text.append(f"\n{words}: {value_in_words(one['measured'])} ({one['verdict']})", style="dim")
    return text.append(f"\n{claim.why}", style="italic") if claim.why else text
