"""Lines that the command prints, with names escaped that might contain control characters."""

from __future__ import annotations

import codecs
import os
import sys
from io import TextIOWrapper

import typer


def accept_all_text() -> None:
    """Let every line be printed: a ? stands for what the encoding lacks, such as λ in that of a pipe on Windows.

    A process without an output, as a service may be, prints into nothing.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - as long as the process lives
        elif isinstance(stream, TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(errors="replace")


def say(text: str) -> None:
    """Print a result to standard output."""
    typer.echo(_printable(text))


def note(text: str) -> None:
    """Print a remark beside the results to standard error."""
    typer.echo(_printable(text), err=True)


def _printable(text: str) -> str:
    from ..record.json_values import printable  # here: help and the version come without PyTorch

    return str(printable(text))
