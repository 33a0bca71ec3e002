"""Which records a command reads: those in the folder of results, or where there are none those that came with ritz."""

from __future__ import annotations

from pathlib import Path

import typer

from ..papers.frame.results import folders

RESULTS = Path("results")  # the folder of records, unless another is named
SHIPPED = Path(__file__).parents[1] / "papers" / "records"  # in the wheel; a clone has them in results


def source(out: Path) -> Path:
    """The folder to read from. One that was named is taken as it is."""
    if out != RESULTS or not SHIPPED.is_dir() or folders(out):
        return out
    typer.secho("Note: there are no results in this folder: these are the records that came with ritz.", err=True)
    return SHIPPED
