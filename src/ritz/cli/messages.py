"""Lines that the command prints, with names escaped that might contain control characters."""

from __future__ import annotations

import typer


def say(text: str) -> None:
    """Print a result to standard output."""
    typer.echo(_printable(text))


def note(text: str) -> None:
    """Print a remark beside the results to standard error."""
    typer.echo(_printable(text), err=True)


def _printable(text: str) -> str:
    from ..record.json_values import printable  # here: help and the version come without PyTorch

    return str(printable(text))
