"""The options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from . import completions


class MatrixName(StrEnum):
    """The matrices that `ritz spectrum` knows: the names of `analysis.spectrum.settings.MATRICES`, without PyTorch."""

    HESSIAN = "hessian"
    GAUSS_NEWTON = "gauss-newton"
    FUNCTIONAL = "functional"


class Precision(StrEnum):
    """The precisions in which curvature makes sense."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"


class WorkerKind(StrEnum):
    """Who runs the many small computations of a figure."""

    IN_PROCESS = "in-process"
    PROCESSES = "processes"
    RAY = "ray"


Factory = Annotated[
    str, typer.Argument(metavar="FILE.py:FACTORY", help="A file and a function in it; or package.module:factory.")
]
Layer = Annotated[
    list[str] | None,
    typer.Option(
        metavar="GLOB", help="Take only the parameters whose names match this, such as 'layer4.*'; repeatable."
    ),
]
Examples = Annotated[int | None, typer.Option(min=1, help="Take only this many examples, the first ones.")]
Dtype = Annotated[Precision | None, typer.Option(help="Compute in this precision, on a copy of the model.")]
Device = Annotated[str | None, typer.Option(help="Where to compute: cpu, cuda or cuda:1.")]
Ids = Annotated[
    list[str],
    typer.Argument(
        metavar="ID", help="Ids of figures, or globs such as 'linear2026.*'.", autocompletion=completions.ids
    ),
]
SomeIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="Take only these figures, by ids or globs.", autocompletion=completions.ids),
]
Results = Annotated[Path, typer.Option("--out", help="Folder of the records.")]
Out = Annotated[Path | None, typer.Option(help="Folder for the results.", show_default="out/NAME")]
Records = Annotated[
    list[Path], typer.Argument(metavar="RECORD", help="Folders of records, or folders that hold several.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print how much time, memory and disk it would take.")]
Seed = Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="Seed of all random numbers.", show_default="0")]
