"""Messages of the command in place of tracebacks."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from ..errors import RitzError
from .messages import note


@contextmanager
def report_errors(debug: bool) -> Iterator[None]:
    """End with a message instead of a traceback: exit code 2 for what users can fix, 1 for what they cannot."""
    with warnings.catch_warnings():
        warnings.showwarning = _note_warning
        warnings.filterwarnings("ignore", message="Attempting to run cuBLAS, but there was no current CUDA context")
        try:
            yield
        except RitzError as error:
            note(traceback.format_exc() if debug else str(error))
            raise typer.Exit(2) from None
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if debug:
                raise
            note(str(_unexpected(error)))
            raise typer.Exit(1) from None


@contextmanager
def resumable(unfinished: Path) -> Iterator[None]:
    """Where a command is interrupted (Ctrl-C), say that the same one goes on from what is in this folder."""
    try:
        yield
    except KeyboardInterrupt:
        if any(unfinished.glob("*")):
            note(f"Interrupted. Run the same command again: it resumes from what is in {unfinished}.")
        raise


def _unexpected(error: Exception) -> RitzError:
    return RitzError(
        f"Unexpected {type(error).__name__}: {error}",
        "ritz did not foresee this: it may be a bug in ritz.",
        "Run the same command with --debug to see where it comes from.",
    )


def _note_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    note(f"Note: {message}")
