"""A claim: a sentence of a paper, judged on what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["yes", "partly", "no"]


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper held against a measurement; `rule` is what `verdict` follows from.

    >>> claim = Claim("As many outliers as classes", "Papyan 2020", "Fig. 2", "equal", 10, 10, 0.0, "yes")
    >>> claim.verdict
    'yes'
    """

    statement: str
    paper: str
    where: str
    rule: str
    expected: Any
    measured: Any
    error: float | None
    verdict: Verdict
    why: str = ""
