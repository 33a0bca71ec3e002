"""The article of a record of a paper's figure: what the paper says, what was measured, the figure itself."""

from __future__ import annotations

import io
from typing import Any

from ..progress import duration
from ..record import Record
from .articles import Article, Number, Section, Table

LONG = 200  # characters of a setting that a page shows


def article(record: Record) -> Article:
    """What the paper says beside what was measured."""
    counts = {verdict: sum(claim.verdict == verdict for claim in record.claims) for verdict in ("yes", "partly", "no")}
    proof = "Judged from the measured number alone, by a rule that stands beside the statement."
    numbers = [Number(verdict, str(count), proof, "claim") for verdict, count in counts.items() if count]
    facts = {name: "-" if value is None else str(value)[:LONG] for name, value in record.config.items()}
    return Article(
        f"{record.id}, {record.preset}",
        _finding(counts),
        "Counted among the statements below, each judged by its rule.",
        Section("What was analysed", facts=facts, certificate="The settings of the run, as its record has them."),
        numbers,
        [Section("Theory against measurement", tables=[_claims(record)], picture=_picture(record), certificate=proof)],
        _reproduction(record),
    )


def _finding(counts: dict[str, int]) -> str:
    total = sum(counts.values())
    if not total:
        return "A figure of a paper, measured again; nothing is claimed of it."
    held, in_part, failed = (counts[verdict] for verdict in ("yes", "partly", "no"))
    hold = [f"{count} hold{'s' * (count == 1)}" for count in (held, in_part)]
    not_held = f"{failed} do{'es' * (failed == 1)} not"
    return f"Of {total} statement{'s' * (total > 1)} of the paper, {hold[0]}, {hold[1]} in part, {not_held}."


def _claims(record: Record) -> Table:
    claims = record.claims
    columns: dict[str, list[str]] = {
        "statement": [claim.statement for claim in claims],
        "where": [claim.where for claim in claims],
        "rule": [claim.rule for claim in claims],
        "expected": [_short(claim.expected) for claim in claims],
        "measured": [_short(claim.measured) for claim in claims],
        "verdict": [str(claim.verdict) for claim in claims],
    }
    return Table("What the paper says, and what was measured", columns)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else str(value)[:LONG]


def _picture(record: Record) -> bytes | None:
    """The figure, drawn from the record; none where this version of ritz does not know it."""
    from ..papers.frame.registry import figures

    figure = figures([record.id]).get(record.id)
    if figure is None:
        return None
    stream = io.BytesIO()
    figure.draw(record).savefig(stream, format="png", dpi=110)
    return stream.getvalue()


def _reproduction(record: Record) -> Section:
    facts = {name: str(value) for name, value in record.provenance.items() if value is not None}
    if record.provenance.get("seconds"):
        facts["seconds"] = duration(float(record.provenance["seconds"]))
    code, proof = f"ritz run {record.id} --preset {record.preset}", "Written down by the run itself."
    return Section("How to reproduce it", facts=facts, code=code, certificate=proof)
