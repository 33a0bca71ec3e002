"""An attribution as numbers and arrays that a record can hold."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...classes.attributions import Attribution, Lines
from ...record import Record
from ...spectrum import Spectrum
from .layers import Measured


def measured(found: Attribution) -> tuple[dict[str, Any], Measured]:
    """The scalars of an attribution, and its arrays."""
    risk = found.classes.risk
    scalars = {
        "num_parameters": risk.size,
        "num_terms": risk.num_terms,
        "num_classes": found.num_classes,
        "num_lines": len(found.gauss_newton),
        "loss": risk.loss_value(),
        "gradient_norm": float(risk.gradient().norm()),
        "class_overlap": found.class_overlap,
        "hessian_overlap": found.hessian_overlap,
        "within_edge": found.within_edge,
        "counts": found.counts,
        "findings": list(found.findings),
        "shares": list(found.hessian.shares),
        "spectra": {name: {"size": s.size, "resolution": s.resolution} for name, s in found.spectra.items()},
    }
    arrays = _lines("hessian", found.hessian) | _lines("gauss_newton", found.gauss_newton)
    arrays |= {"matches": found.matches, "overlaps": found.overlaps}
    arrays |= {f"parts/{name}": values for name, values in found.part_eigenvalues.items()}
    for name, spectrum in found.spectra.items():
        arrays |= {f"spectra/{name}/nodes": spectrum.nodes, f"spectra/{name}/weights": spectrum.weights}
    return scalars, Measured(arrays=arrays)


def _lines(name: str, lines: Lines) -> dict[str, Tensor]:
    """The shares are one row for each part, in the order of `scalars["shares"]`, which G lacks the last of."""
    pairs = lines.pairs
    arrays = {"values": pairs.values, "residuals": pairs.residuals, "converged": pairs.converged}
    arrays["shares"] = torch.stack(list(lines.shares.values()))
    inside = {"in_class_means": lines.in_class_means, "in_cross_means": lines.in_cross_means}
    arrays |= {key: values for key, values in inside.items() if values is not None}
    return {f"{name}/{key}": values for key, values in arrays.items()}


def spectra_of(record: Record) -> dict[str, Spectrum]:
    """The spectra of G, whole and knocked out, in a record."""
    array = lambda key: torch.as_tensor(record.arrays[key])
    return {
        name: Spectrum(array(f"spectra/{name}/nodes"), array(f"spectra/{name}/weights"), **facts)
        for name, facts in record.scalars["spectra"].items()
    }
