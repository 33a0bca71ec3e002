"""What a page is made of: articles of sections, and in them numbers, facts, tables and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .charts import Chart


@dataclass(frozen=True)
class Number:
    """A number with its error in words, the term that explains it, and what it rests on."""

    label: str
    text: str
    certificate: str
    term: str | None = None


@dataclass(frozen=True)
class Table:
    """Columns of text by their headings; a heading that is a term is explained."""

    caption: str
    columns: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Section:
    """A heading and whatever stands under it, in this order; its numbers lead to its certificate."""

    title: str
    sentences: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    code: str | None = None
    picture: bytes | None = None  # a PNG
    certificate: str | None = None


@dataclass(frozen=True)
class Article:
    """All about one model: the finding in one sentence, what was analysed, the headline numbers, all the rest."""

    title: str
    finding: str
    proof: str  # what the numbers of the finding rest on
    analysed: Section
    numbers: Sequence[Number]
    sections: Sequence[Section]
    reproduction: Section
