"""Rules for how accurate closed forms and eigenvalues have to be, the same in every paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ...record import Record
from .statements import Statement, at_most, each

CLOSED_FORM = at_most(1e-9, partly=1e-6)  # float64: anything more is no closed form
LARGE_CLOSED_FORM = at_most(1e-8, partly=1e-4)  # the same after thousands of operations, or a search for an eigenvalue
EIGENVALUE = at_most(1e-3, partly=1e-2)  # a residual: a tenth of what the strictest rule on sharpness allows
DISAGREE = {
    "no": "The closed form and the measured spectrum disagree.",
    "partly": "The closed form and the measured spectrum agree to some digits only, or not for all networks.",
}


def eigenvalue_statement(
    residuals: Callable[[Record], Mapping[str, float]],
    *,
    paper: str,
    where: str,
    why: str | Callable[[Record], str],
    what: str = "is an eigenvalue of the Hessian",
    when: str = "",
    scale: str = "λ",
) -> Statement:
    """The statement that all others rest on: accurate eigenvalues, by their relative residuals ‖Hv - λv‖."""

    def reason(record: Record) -> str:
        if not residuals(record):
            return "No network was left to be measured."
        return why(record) if callable(why) else why

    return Statement(
        f"What is measured {what} (largest residual ‖Hv - λv‖{when}, relative to {scale}).",
        paper,
        where,
        measured=lambda record: dict(residuals(record)),
        rule=each(EIGENVALUE),
        expected=0.0,
        why=reason,
    )


def largest_finite(residuals: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The largest finite value of each array, without arrays that have none: divergence is judged elsewhere."""
    finite = {name: values[np.isfinite(values)] for name, values in residuals.items()}
    return {name: float(values.max()) for name, values in finite.items() if values.size}
