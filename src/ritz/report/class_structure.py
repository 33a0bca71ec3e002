"""The article on where spectral lines come from, from the record of a class analysis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..analysis.classes.contents import layer_columns, lines_of, shares_of, spectra_of
from ..plot.curves import one_per_decade, per_decade
from ..record import Record
from ..spectrum import Spectrum
from ..spectrum.estimate import digits_within
from . import guides
from .articles import Number, Section, Table
from .charts import Axis, Chart, Series
from .spectra import bounded, typed
from .spectral_charts import POINTS, counts_per_decade

LOWEST = 1e-8  # relative to the largest eigenvalue: below it float32 products say nothing
SHOWN = ("G", "G - G_class")  # at first; the others are a click away
FINENESS = 120  # widths in the logarithmic range
MATRICES = {"gauss_newton": ("G", "Gauss-Newton matrix"), "hessian": ("H", "Hessian")}  # in a symbol, in words
COUNTS = {
    "outliers": "Eigenvalues of G above everything that is left of it without G_class.",
    "mini-bulk": "Eigenvalues of G above the largest of G_within, the outliers left out.",
    "bulk": "The others that the examples can make, zeros for another reason among them.",
    "zero": "Parameters beyond those, so that at least as many eigenvalues are zero.",
}
HINTS = {
    "outliers": "above all that is left without the class means",
    "mini-bulk": "above all that differences within classes make",
    "bulk": "all others that the examples can make",
    "zero": "at least: more parameters than the examples reach",
}
BY_LAYER: dict[str, tuple[tuple[str, ...], str]] = {
    "class part of features": (("class_part_of_features",), ".1%"),
    "class part of errors": (("class_part_of_errors",), ".1%"),
    "largest λ of G": (("largest", "G"), ".4g"),
    "of KFAC": (("largest", "KFAC"), ".4g"),
    "of CFAC": (("largest", "CFAC"), ".4g"),
    "W₁ to KFAC": (("distances", "KFAC"), ".3f"),
    "W₁ to CFAC": (("distances", "CFAC"), ".3f"),
}


def finding(record: Record) -> str:
    """The finding in one sentence that the numbers support, without its full stop."""
    count, C = record.scalars["counts"]["outliers"], record.scalars["num_classes"]
    stand = "stands" if count == 1 else "stand"
    spectra = spectra_of(record)
    top, left = (spectra[name].range[1] for name in SHOWN)
    fall = max(0.0, 1 - left / top) if top > 0 else 0.0
    falls = f"without the class means the largest eigenvalue of G falls by {fall:.0%}"
    return f"{falls}, and {count} of its {C} largest {stand} above all that is left"


def proof(record: Record) -> str:
    """The evidence for the numbers in the finding."""
    return "Eigenvalues of G are counted above the largest of G - G_class; both have residuals, or are exact."


def numbers(record: Record) -> list[Number]:
    """The headline: the largest eigenvalue of each matrix, where its eigenvectors lie, how many lines there are."""
    scalars, numbers = record.scalars, []
    for name, (symbol, title) in MATRICES.items():
        value, residual = (float(record.arrays[f"{name}/{key}"][0]) for key in ("values", "residuals"))
        proof = f"Its residual, from a product of its own, is {residual:.1g}: the matrix has an eigenvalue that near."
        numbers.append(Number(f"λ_max of {symbol}", bounded(value, residual), proof, "λ_max", f"of the {title}"))
    return numbers + counts(scalars)


def counts(scalars: Mapping[str, Any]) -> list[Number]:
    """How many lines of each kind there are, and where the eigenvectors of the largest lie."""
    numbers = [Number(name, f"{scalars['counts'][name]:,}", COUNTS[name], hint=hint) for name, hint in HINTS.items()]
    if scalars["class_overlap"] is None:
        return numbers
    proof = "The mean squared length of the top eigenvectors of G within the span of the class means."
    return [Number("overlap with class means", f"{scalars['class_overlap']:.3f}", proof, hint="1 is all"), *numbers]


def sections(record: Record, *, counted: bool) -> list[Section]:
    """Sections: the findings in words, the spectra after knockouts, every line with its parts; `counted` lines too."""
    scalars = record.scalars
    facts = {number.label: number.text for number in counts(scalars)} if counted else {}
    proof = "Counted among certified eigenvalues, or exact ones of the Gram matrix."
    proof += "".join(f" {name.capitalize()}: {meaning}" for name, meaning in COUNTS.items()) if counted else ""
    charts = [_knockouts(record)]
    words = scalars["findings"]
    parts = [Section("Where the lines come from", words, facts, guide=guides.PARTS, charts=charts, certificate=proof)]
    parts += [_lines(record, name) for name in MATRICES]
    left = "Sizes and limits, which decide what is computed; nothing is estimated here."
    return parts + ([Section("What was left out", scalars["notes"], certificate=left)] if scalars["notes"] else [])


def _knockouts(record: Record) -> Chart:
    """The spectrum of G and of G without each part, in eigenvalues per decade."""
    spectra, title = spectra_of(record), "The spectrum of G with each part taken away"
    summary = "G, and G without each of its parts: what vanishes with a part is made by it."
    if not all(spectrum.is_exact for spectrum in spectra.values()):
        chart = counts_per_decade(title, spectra)
        series = tuple(replace(one, shown=one.name in SHOWN) for one in chart.series)
        return replace(chart, summary=f"{summary} {chart.summary}", series=series)
    top = spectra["G"].range[1] or 1.0
    low = LOWEST * top
    width = math.log(top / low) / FINENESS
    curves = [_counts(name, spectrum, low, top, width, rank) for rank, (name, spectrum) in enumerate(spectra.items())]
    across, up = Axis("eigenvalue λ", ("log",)), Axis("eigenvalues per decade", ("log", "linear"))
    return Chart(title, summary, across, up, tuple(curves))


def _counts(name: str, spectrum: Spectrum, low: float, top: float, width: float, rank: int) -> Series:
    u = torch.linspace(math.log(low), math.log(top) + 4 * width, POINTS, dtype=torch.float64)
    y = per_decade(spectrum, u, width=width, floor=1e-9 * low)
    heights = torch.where(y >= one_per_decade(width) / 10, y, torch.tensor(math.nan, dtype=y.dtype))
    return Series(name, "line", u.exp().tolist(), heights.tolist(), shown=name in SHOWN, colour=rank)


def _lines(record: Record, name: str) -> Section:
    """One row for each eigenvalue: how sure it is, what it is made of, where its eigenvector lies."""
    of = lines_of(record, name)
    columns: dict[str, Sequence[str]] = {
        "rank": [str(rank) for rank in range(1, len(of["values"]) + 1)],
        "eigenvalue": [digits_within(*map(float, row)) for row in zip(of["values"], of["residuals"], strict=True)],
        "residual": [f"{residual:.1e}" for residual in of["residuals"]],
    }
    columns |= {symbol: list(map(_share, row)) for symbol, row in shares_of(record, name).items()}
    if "in_class_means" in of:
        columns["in class means"] = [f"{x:.3f}" for x in of["in_class_means"]]
    if not of["converged"].all():
        columns[""] = ["" if good else "not converged" for good in of["converged"]]
    title = MATRICES[name][1]
    caption = f"The largest eigenvalues of the {title}, and the share of each part in them"
    proof = "A true eigenvalue lies no farther away than the residual; shares are vᵀ(part)v / λ for its eigenvector v."
    return Section(f"Lines of the {title}", guide=guides.SHARES, tables=[Table(caption, columns)], certificate=proof)


def _share(value: float) -> str:
    """A share in per cent; zero has no sign."""
    return f"{round(float(value), 3) + 0.0:.1%}"


def layers(record: Record) -> Section:
    """The section on layers: what was measured of each; a dash where it was left out."""
    proof = "Second moments over all data; spectra of blocks as far as they were decomposed, else by quadrature."
    tables = [Table("Distances in units of the mean eigenvalue", layer_columns(record, BY_LAYER))]
    return Section("Classes in the layers", tables=tables, certificate=proof)


def command(record: Record) -> str:
    """The command that makes this record again."""
    config = record.config
    options = {
        "--lines": config["num_lines"],
        "--exact-rows": config["exact_rows"],
        "--weight-decay": config["weight_decay"],
    }
    return typed("ritz classes", record, options)
