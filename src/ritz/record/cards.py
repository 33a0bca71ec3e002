"""Cards that show results in notebooks: a title, facts, sentences and a table, as HTML with all names escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import islice

ROWS = 20  # of a table, before it says how many more there are
_CELL = "padding:0.1em 1em 0.1em 0;text-align:{};font-variant-numeric:tabular-nums"


def card(
    title: str,
    facts: Mapping[str, object] | None = None,
    columns: Mapping[str, Sequence[object]] | None = None,
    *,
    sentences: Sequence[str] = (),
    picture: str = "",
) -> str:
    """The card as HTML; only `picture` is taken as markup."""
    parts = [f"<b>{_text(title)}</b>", picture, *(f"<div>{_text(sentence)}</div>" for sentence in sentences)]
    if facts:
        rows = ((f"{_cell(name, 'left')}{_cell(fact, 'left')}") for name, fact in facts.items())
        parts.append(f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>")
    if columns:
        parts.append(_table(columns))
    return f"<div>{''.join(parts)}</div>"


def _table(columns: Mapping[str, Sequence[object]]) -> str:
    total = min(map(len, columns.values()))
    head = "".join(_cell(name, "right", "th") for name in columns)
    body = ("".join(_cell(cell, "right") for cell in row) for row in islice(zip(*columns.values(), strict=False), ROWS))
    more = f"<div>… and {total - ROWS:,} more</div>" if total > ROWS else ""
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in body)}</table>{more}"


def _cell(content: object, align: str, tag: str = "td") -> str:
    return f'<{tag} style="{_CELL.format(align)}">{_text(content)}</{tag}>'


def _text(content: object) -> str:
    return escape(str(content))
