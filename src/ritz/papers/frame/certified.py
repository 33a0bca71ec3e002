"""Rules that do not depend on a paper: when a closed form is exact, and when an eigenvalue is one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...record import Claim
from .claims import at_most, claim, each

CLOSED_FORM = at_most(1e-9, partly=1e-6)  # float64: anything more is no closed form
LARGE_CLOSED_FORM = at_most(1e-8, partly=1e-4)  # the same after thousands of operations, or a search for an eigenvalue
EIGENVALUE = at_most(1e-3, partly=1e-2)  # a residual: a tenth of what the strictest rule on sharpness allows
DISAGREE = {
    "no": "The closed form and the measured spectrum disagree.",
    "partly": "The closed form and the measured spectrum agree to some digits only, or not for all networks.",
}


def well_measured(
    residuals: Mapping[str, float],
    *,
    paper: str,
    where: str,
    why: str,
    what: str = "is an eigenvalue of the Hessian",
    when: str = "",
    scale: str = "λ",
) -> Claim:
    """The claim that all others rest on, by the residuals ‖Hv - λv‖ that came with the eigenvalues, relative."""
    return claim(
        f"What is measured {what} (largest residual ‖Hv - λv‖{when}, relative to {scale}).",
        paper=paper, where=where, rule=each(EIGENVALUE), measured=dict(residuals), expected=0.0,
        why=why if residuals else "No network was left to be measured.", name_against=True,
    )  # fmt: skip


def worst(residuals: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The largest of each that are numbers, without those that have none: what diverged is judged elsewhere."""
    known = {name: values[np.isfinite(values)] for name, values in residuals.items()}
    return {name: float(values.max()) for name, values in known.items() if values.size}
