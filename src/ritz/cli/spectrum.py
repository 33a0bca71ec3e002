"""`ritz spectrum`: the analysis of one model on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from .. import operators
from ..analysis import spectrum as analysis
from ..analysis.spectrum import Settings
from ..record import Record, discard
from ..risk import Risk
from . import reports
from .tables import cost, show, summary
from .target import Subject

UNFINISHED = "unfinished"  # the folder of what a killed analysis goes on from
OPERATORS = {
    "hessian": operators.hessian,
    "gauss-newton": operators.gauss_newton,
    "functional": operators.functional_hessian,
}  # by their names on the command line


def settings(operator: str, **options: Any) -> Settings:
    """The settings of an analysis of the operator of this name."""
    return Settings(operator=OPERATORS[operator], **options)


def forecast(risk: Risk, settings: Settings) -> None:
    """Print what the analysis would take."""
    show(cost(analysis.forecast(risk, settings)))


def run(subject: Subject, settings: Settings) -> None:
    """Analyse, write and print; an analysis that was killed goes on from what it left in the folder."""
    unfinished = subject.results / UNFINISHED
    record = analysis.run(subject.risk, settings, name=subject.name, source=subject.source, checkpoint=unfinished)
    analysis.write(record, subject.results)
    discard(unfinished)
    show_record(record, subject.results, subject.folder)


def show_record(record: Record, folder: Path, page: Path) -> None:
    """Print a record, write the page of all records in its folder, and say where everything is."""
    show(summary(record))
    written = reports.write(page)
    name = written if page == folder else page / written
    typer.echo(f"Written to {folder}: record.json, arrays.npz, spectrum.png, {name}")
