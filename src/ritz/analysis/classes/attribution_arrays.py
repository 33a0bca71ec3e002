"""An attribution in the form that a record can hold: scalars, arrays."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...classes.lines.attributions import Attribution
from ...classes.lines.shares import Lines
from ..risk_facts import scalars_of
from .results import Results


def results_of(attribution: Attribution) -> tuple[dict[str, Any], Results]:
    """The scalars of an attribution, and its arrays."""
    risk = attribution.classes.risk
    scalars = {
        **scalars_of(risk),
        "num_classes": attribution.num_classes,
        "num_lines": len(attribution.gauss_newton),
        "class_overlap": attribution.class_overlap,
        "hessian_overlap": attribution.hessian_overlap,
        "within_edge": attribution.within_edge,
        "counts": attribution.counts,
        "findings": list(attribution.findings),
        "shares": list(attribution.hessian.shares),
        "spectra": {name: spectrum.state()[1] for name, spectrum in attribution.spectra.items()},
    }
    arrays = _lines("hessian", attribution.hessian) | _lines("gauss_newton", attribution.gauss_newton)
    arrays |= {"matches": attribution.matches, "overlaps": attribution.overlaps}
    arrays |= {f"parts/{name}": values for name, values in attribution.part_eigenvalues.items()}
    for name, spectrum in attribution.spectra.items():
        arrays |= {f"spectra/{name}/{key}": array for key, array in spectrum.state()[0].items()}
    return scalars, Results(arrays=arrays)


def _lines(name: str, lines: Lines) -> dict[str, Tensor]:
    """Arrays of the lines; shares have a row for each part in `scalars["shares"]`, of which G lacks the last."""
    pairs = lines.pairs
    arrays = {"values": pairs.values, "residuals": pairs.residuals, "converged": pairs.converged}
    arrays["shares"] = torch.stack(list(lines.shares.values()))
    if lines.in_class_means is not None:
        arrays["in_class_means"] = lines.in_class_means
    return {f"{name}/{key}": values for key, values in arrays.items()}
