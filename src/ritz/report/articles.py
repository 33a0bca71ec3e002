"""The parts of a page: articles, and their sections of numbers, facts, tables and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .charts import Chart


@dataclass(frozen=True)
class Number:
    """A number with its error in words, the term that explains it, and the evidence behind it."""

    label: str
    text: str
    certificate: str
    term: str | None = None
    hint: str = ""  # what it says, in a few words that are always there


@dataclass(frozen=True)
class Table:
    """Columns of text by their headings; a heading that is a term is explained."""

    caption: str
    columns: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Statement:
    """A judged sentence: the verdict, the sentence, its source, and what decided it."""

    verdict: str
    sentence: str
    where: str
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Section:
    """A heading and whatever stands under it, in this order; its numbers lead to its certificate."""

    title: str
    sentences: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    statements: Sequence[Statement] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    code: str | None = None
    picture: bytes | None = None  # a PNG
    picture_words: str = ""  # a description, for readers who cannot see it
    certificate: str | None = None
    own_names: bool = False  # whether facts and curves are named by the reader, so that no name is a term of ours
    guide: str = ""  # how to read all of it, before anything else


@dataclass(frozen=True)
class Article:
    """All about one model: the finding in one sentence, what was analysed, the headline numbers and all sections."""

    title: str
    finding: str
    proof: str  # what the numbers of the finding rest on
    analysed: Section
    numbers: Sequence[Number]
    sections: Sequence[Section]
    reproduction: Section
    trust: str = ""  # what the certificates mean
