"""The article of a record of a paper's figure: what the paper says, what was measured, the figure itself."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from ..record import Claim, Record
from .articles import Article, Number, Section, Statement

LONG = 200  # characters of a setting that a page shows
VERDICTS = {"yes": "hold", "partly": "hold in part", "no": "do not hold"}
ALONE = {"yes": "holds", "partly": "holds in part", "no": "does not hold"}  # of one statement
THEIRS, OURS = "statements of the paper", "statements beside the paper's"
PROOF = "Judged from the measured number alone, by a rule that stands beside the statement."


def article(record: Record) -> Article:
    """The article on a figure: what the paper says beside what was measured."""
    figure = _figure(record)
    return Article(
        _title(record),
        _finding(record),
        "Counted among the statements below, each judged by its rule.",
        _analysed(record, figure),
        _numbers(record),
        [*([_drawn(record, figure)] if figure else []), *([_judged(record)] if record.claims else [])],
        _reproduction(record),
    )


def _figure(record: Record) -> Any:
    """The figure of a record; none where this version of ritz does not know it."""
    from ..papers.frame.registry import figures

    return figures([record.id]).get(record.id)


def _analysed(record: Record, figure: Any) -> Section:
    from ..papers.frame.overrides import flat

    proof = "The settings of the run, by the names under which --set takes them."
    words = [f"{figure.title}."] if figure else []
    facts = {name: _words(value) for name, value in flat(record.config)}
    return Section("What was analysed", words, facts, certificate=proof, own_names=True)


def _words(value: Any) -> str:
    """A setting as one would write it; a long one is cut."""
    if isinstance(value, list | tuple):
        text = ", ".join(map(_words, value)) or "none"
    elif isinstance(value, bool):
        text = str(value).lower()
    else:
        text = "-" if value is None else str(value)
    return text if len(text) <= LONG else f"{text[:LONG].rstrip(', ')} …"


def _counts(record: Record, *, ours: bool = False) -> dict[str, int]:
    verdicts = [claim.verdict for claim in record.claims if claim.ours == ours]
    return {verdict: verdicts.count(verdict) for verdict in VERDICTS if verdict in verdicts}


def _finding(record: Record) -> str:
    """How many statements of the paper hold, and how many of ours beside them."""
    parts = [
        f"Of {sum(counts.values())} statement{'s' * (sum(counts.values()) > 1)} {whose}, {_shares(counts)}."
        for whose, counts in (("of the paper", _counts(record)), ("of ours beside it", _counts(record, ours=True)))
        if counts
    ]
    return " ".join(parts) or "A figure of a paper, measured again; nothing is claimed of it."


def _shares(counts: Mapping[str, int]) -> str:
    words = VERDICTS | {f"1 {verdict}": one for verdict, one in ALONE.items()}
    return ", ".join(f"{n} {words.get(f'{n} {verdict}', words[verdict])}" for verdict, n in counts.items())


def _numbers(record: Record) -> list[Number]:
    theirs, ours = _counts(record), _counts(record, ours=True)
    return [
        *(Number(VERDICTS[verdict], f"{n}", PROOF, "claim", THEIRS) for verdict, n in theirs.items()),
        *(Number(f"ours that {VERDICTS[verdict]}", f"{n}", PROOF, "claim", OURS) for verdict, n in ours.items()),
    ]


def _drawn(record: Record, figure: Any) -> Section:
    stream = io.BytesIO()
    figure.draw(record).savefig(stream, format="png", dpi=150)
    words = f"{figure.title}. What it shows in numbers is in the statements, and in the record."
    proof = "Drawn from the record, as ritz draw does."
    return Section("The figure", picture=stream.getvalue(), picture_words=words, certificate=proof)


def _judged(record: Record) -> Section:
    return Section("Theory against measurement", statements=list(map(_statement, record.claims)), certificate=PROOF)


def _statement(claim: Claim) -> Statement:
    from ..papers.frame.pages import value_in_words

    others = [f"{words}: {value_in_words(one['measured'])} ({one['verdict']})" for words, one in claim.beside.items()]
    facts = {
        "measured": value_in_words(claim.measured),
        "expected": value_in_words(claim.expected),
        "rule": claim.rule,
        "reading": claim.reading,
        "other readings": "; ".join(others),
        "why": claim.why,
    }
    where = f"{'ours' if claim.ours else claim.paper}, {claim.where}"
    return Statement(claim.verdict, claim.statement, where, {name: words for name, words in facts.items() if words})


def _title(record: Record) -> str:
    """The figure, its preset and what differs from it: there may be several records of one figure."""
    from ..papers.frame.pages import settings

    return ", ".join([record.id, record.preset, *settings(record)])


def _reproduction(record: Record) -> Section:
    from ..papers.frame.pages import command, computing_time

    names = {"seconds": "time"}
    facts = {names.get(name, name): str(value) for name, value in record.provenance.items() if value is not None}
    if record.provenance.get("seconds"):
        facts["time"] = computing_time(record)
    proof = "Written down by the run itself."
    return Section("How to reproduce it", facts=facts, code=command(record), certificate=proof)
