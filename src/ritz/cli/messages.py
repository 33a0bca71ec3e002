"""Lines that the command prints, to a terminal that the names of other people's files must not steer."""

from __future__ import annotations

import typer


def say(text: str) -> None:
    """To standard output: what came of it."""
    typer.echo(_printable(text))


def note(text: str) -> None:
    """To standard error: what is to be known beside the results."""
    typer.echo(_printable(text), err=True)


def _printable(text: str) -> str:
    from ..record.json_values import printable  # here: help and the version come without PyTorch

    return str(printable(text))
