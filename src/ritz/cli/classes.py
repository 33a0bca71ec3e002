"""`ritz classes`: where the lines of a classifier's spectrum come from, as tables and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ..analysis import classes as analysis
from ..analysis.classes import ClassSettings
from ..analysis.classes.contents import layer_columns, lines_of, shares_of
from ..progress import duration
from ..record import Record, discard
from ..risk import Risk
from . import reports
from .failures import resumable
from .messages import say
from .tables import columns_table, cost, facts_table, show
from .target import Subject

LINES = 24  # that a table in a terminal shows at most; the page has all
BY_LAYER: dict[str, tuple[tuple[str, ...], str]] = {
    "Φ_class in Φ": (("class_part_of_features",), ".1%"),
    "Δ_class in Δ": (("class_part_of_errors",), ".1%"),
    "W off": (("weight_residual",), ".2g"),
    "λ₁(Gˡ)": (("largest", "G"), ".4g"),
    "KFAC": (("largest", "KFAC"), ".4g"),
    "CFAC": (("largest", "CFAC"), ".4g"),
    "W₁ KFAC": (("distances", "KFAC"), ".3f"),
    "W₁ CFAC": (("distances", "CFAC"), ".3f"),
}  # a heading, the place of its number, and the format
LEGEND = {
    "Φ_class in Φ": "Φ, Δ: the second moments of what enters a layer and of the errors that come back to it.",
    "W off": "W off: ‖W + ∇R/η‖ / ‖W‖; the classes' part of W is right only where this is near zero.",
    "λ₁(Gˡ)": "λ₁(Gˡ): the largest eigenvalue of the layer's block of G, and those of its factorisations.",
    "W₁ KFAC": "W₁: how far the spectra of these are from that of Gˡ, in units of its mean eigenvalue.",
}  # by the heading of the layers' table


def forecast(risk: Risk, settings: ClassSettings) -> None:
    """Print what the analysis would take."""
    show(cost(analysis.forecast(risk, settings)))


def run(subject: Subject, settings: ClassSettings) -> None:
    """Analyse, write and print; an analysis that was killed goes on from what it left in the folder."""
    options: dict[str, Any] = {"name": subject.name, "source": subject.source, "checkpoint": subject.unfinished}
    with resumable(subject.unfinished):
        record = analysis.run(subject.risk, settings, **options)
    files = analysis.write(record, subject.results)
    discard(subject.unfinished)
    show(summary(record.detached()))
    say(f"Written to {subject.results}: {', '.join([*files, reports.write(subject.folder)])}")


def summary(record: Record) -> RenderableType:
    """Everything worth reading in a record, in the order one asks for it."""
    scalars = record.scalars
    parts = [_facts(record), _overlap(scalars), _lines(record, "G"), _lines(record, "H"), _counts(scalars)]
    parts.append(_sentences("Findings", scalars["findings"]))
    parts += [_layers(record)] if scalars["layers"] else []
    parts += [_sentences("Notes", scalars["notes"])] if scalars["notes"] else []
    cost = Text(f"{duration(scalars['seconds'])} in all", style="dim")
    return Group(*(Padding(part, (0, 0, 1, 0), expand=False) for part in parts), cost)


def _facts(record: Record) -> RenderableType:
    scalars, table = record.scalars, facts_table()
    device = record.provenance["device"]
    table.add_row("parameters", f"n = {scalars['num_parameters']:,}, {record.config['dtype']} on {device}")
    table.add_row("terms", f"N = {scalars['num_terms']:,} in C = {scalars['num_classes']:,} classes")
    table.add_row("loss", f"{scalars['loss']:.6g}")
    table.add_row("gradient norm", f"{scalars['gradient_norm']:.4g}")
    return table


def _overlap(scalars: Mapping[str, Any]) -> RenderableType:
    overlap, count = scalars["class_overlap"], min(scalars["num_classes"], scalars["num_lines"])
    if overlap is None:
        return Text("The class means do not fit into memory, so overlaps with their span are not known.", "bold")
    return Text(f"Overlap of the top {count} eigenvectors of G with the span of the class means: {overlap:.3f}", "bold")


def _lines(record: Record, symbol: str) -> RenderableType:
    """One row for each eigenvalue of G or H: how sure it is, what it is made of, where its eigenvector lies."""
    matrix = {"G": "gauss_newton", "H": "hessian"}[symbol]
    of = lines_of(record, matrix)
    columns = {
        "rank": [str(rank) for rank in range(1, len(of["values"]) + 1)],
        f"λ({symbol})": [f"{value:.6g}" for value in of["values"]],
        "residual": [f"{residual:.1e}" for residual in of["residuals"]],
    }
    columns |= {
        symbol: [f"{round(float(x), 3) + 0.0:.1%}" for x in row] for symbol, row in shares_of(record, matrix).items()
    }
    if "in_class_means" in of:
        columns["in class means"] = [f"{x:.3f}" for x in of["in_class_means"]]
    if symbol == "H":
        nearest = zip(record.arrays["matches"], record.arrays["overlaps"], strict=True)
        columns["nearest in G (overlap)"] = [f"{match + 1} ({row[match]:.2f})" for match, row in nearest]
    columns[""] = ["" if good else "not converged" for good in of["converged"]]
    shown = {heading: cells[:LINES] for heading, cells in columns.items()}
    table = columns_table(f"The largest eigenvalues of {symbol}, and the share of each part in them", shown)
    more = len(of["values"]) - LINES
    return Group(table, Text(f"{more} more are in report.html.", "dim")) if more > 0 else table


def _counts(scalars: Mapping[str, Any]) -> RenderableType:
    C, counts, table = scalars["num_classes"], scalars["counts"], facts_table()
    meanings = {
        "outliers": f"of at most C = {C}: above everything that is left without G_class",
        "mini-bulk": f"of at most C(C - 2) = {C * (C - 2):,}: above G_within, by the means of the cross-classes",
        "bulk": "all others that the examples can make",
        "zero": "at least: there are more parameters than the examples reach",
    }
    for name, count in counts.items():
        table.add_row(name, f"{count:,}", meanings[name])
    return table


def _sentences(title: str, sentences: Sequence[str]) -> RenderableType:
    return Group(Text(title, "italic"), *(Padding(Text(sentence), (0, 0, 0, 2)) for sentence in sentences))


def _layers(record: Record) -> RenderableType:
    """A table of the measurements of every layer."""
    columns = layer_columns(record, BY_LAYER)
    legend = [sentence for heading, sentence in LEGEND.items() if heading in columns]
    table = columns_table("Layer by layer", columns, left=("layer",))
    return Group(table, *(Text(sentence, "dim") for sentence in legend))
