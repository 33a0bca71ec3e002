"""A claim: a sentence of a paper, judged on what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["yes", "partly", "no"]
OURS = "ritz"  # the `paper` of a claim that no paper makes


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper held against a measurement; `rule` is what `verdict` follows from.

    Where the paper can be read in several ways, `reading` says which one was judged, and `beside` has what was measured
    by the others, each with the verdict that it would have.

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
    reading: str = ""
    beside: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ours(self) -> bool:
        """Whether this project says it, and no paper."""
        return self.paper == OURS
