"""`ritz spectrum`: the analysis of one model on the command line, and its record as tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ..analysis import spectrum as analysis
from ..analysis.spectrum import Settings, array_of, num_products, title_of
from ..progress import duration
from ..record import Record, discard
from ..risk import Risk
from ..spectrum.estimate import digits_within, end_in_brief, value_in_brief
from . import reports
from .failures import resumable
from .messages import say
from .tables import columns_table, cost, facts_table, show
from .target import Subject


def forecast(risk: Risk, settings: Settings) -> None:
    """Print what the analysis would take."""
    show(cost(analysis.forecast(risk, settings)))


def run(subject: Subject, settings: Settings) -> None:
    """Analyse, write and print; an analysis that was killed goes on from what it left in the folder."""
    options: dict[str, Any] = {"name": subject.name, "source": subject.source, "checkpoint": subject.unfinished}
    with resumable(subject.unfinished):
        record = analysis.run(subject.risk, settings, **options)
    analysis.write(record, subject.results)
    discard(subject.unfinished)
    show_record(record, subject.results, subject.folder)


def show_record(record: Record, folder: Path, page: Path) -> None:
    """Print a record, write the page of all records in its folder, and say where everything is."""
    show(summary(record))
    written = reports.write(page)
    name = written if page == folder else page / written
    say(f"Written to {folder}: record.json, arrays.npz, spectrum.png, {name}")


def summary(record: Record) -> RenderableType:
    """Everything worth reading in a record, in the order one asks for it."""
    parts = [_facts(record), _eigenvalues(record), _statistics(record.scalars)]
    if record.scalars["layers"]:
        parts.append(_layers(record.scalars["layers"]))
    count = num_products(record)
    cost = f"{count:,} product{'s' * (count != 1)}, {duration(record.scalars['seconds'])} in all"
    return Group(*(Padding(part, (0, 0, 1, 0), expand=False) for part in parts), Text(cost, style="dim"))


def _facts(record: Record) -> RenderableType:
    scalars, config = record.scalars, record.config
    table = facts_table()
    table.add_row("matrix", title_of(record))
    table.add_row(
        "parameters", f"n = {scalars['num_parameters']:,}, {config['dtype']} on {record.provenance['device']}"
    )
    table.add_row("terms", f"N = {scalars['num_terms']:,}")
    table.add_row("spectrum", _kind(scalars, config))
    table.add_row("loss", f"{scalars['loss']:.6g}")
    table.add_row("gradient norm", f"{scalars['gradient_norm']:.4g}")
    return table


def _kind(scalars: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Whether all eigenvalues were computed."""
    if scalars["resolution"] is None:
        n = scalars["num_parameters"]
        return f"exact: all {n:,} eigenvalues, to rounding" if n > 1 else "exact, to rounding"
    probes, steps = config["num_probes"], config["num_steps"]
    return f"estimated: {probes} probe{'s' * (probes != 1)} of {steps} step{'s' * (steps != 1)}"


def _eigenvalues(record: Record) -> RenderableType:
    values, residuals, converged = (array_of(record, key).tolist() for key in ("eigenvalues", "residuals", "converged"))
    if not values:
        return Text("no eigenpairs were requested", style="dim")
    columns = {
        "rank": [str(rank) for rank in range(1, len(values) + 1)],
        "λ": [digits_within(value, residual) for value, residual in zip(values, residuals, strict=True)],
        "residual ‖Av - λv‖": [f"{residual:.1e}" for residual in residuals],
        "": ["" if good else "not converged" for good in converged],
    }
    return columns_table("Eigenvalues of largest magnitude", columns, left=("",))


def _statistics(scalars: Mapping[str, Any]) -> RenderableType:
    table = facts_table()
    table.add_row("range of λ", f"{_end(scalars, 0)} to {_end(scalars, 1)}")
    table.add_row("trace", _with_error(scalars, "trace"))
    table.add_row("effective rank", _with_error(scalars, "effective_rank"), "(tr A)² / tr A²")
    below = f"the share of all eigenvalues below {-scalars['resolved_zero'] or 0:.1e}".replace(" 0.0e+00", " 0")
    table.add_row("negative mass", _with_error(scalars, "negative_mass"), below)
    return table


def _layers(layers: Mapping[str, Mapping[str, Any]]) -> RenderableType:
    blocks = layers.values()
    columns = {
        "layer": list(layers),
        "n": [f"{scalars['num_parameters']:,}" for scalars in blocks],
        "spectrum": ["exact" if scalars["resolution"] is None else "estimated" for scalars in blocks],
        "largest λ": [_end(scalars, 1) for scalars in blocks],
        "smallest λ": [_end(scalars, 0) for scalars in blocks],
        "trace": [_with_error(scalars, "trace") for scalars in blocks],
        "eff. rank": [_with_error(scalars, "effective_rank") for scalars in blocks],
        "neg. mass": [_with_error(scalars, "negative_mass") for scalars in blocks],
    }
    return columns_table("Layer by layer (diagonal blocks)", columns, left=("layer",))


def _end(scalars: Mapping[str, Any], which: int) -> str:
    return end_in_brief(scalars["range"][which], scalars["resolved_zero"])


def _with_error(scalars: Mapping[str, Any], name: str) -> str:
    error = scalars[f"{name}_error"]
    return value_in_brief(scalars[name], error) + (" (error unknown)" if error is None else "")
