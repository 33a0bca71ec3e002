"""What the command says in place of a traceback."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from ..errors import RitzError


@contextmanager
def report_errors(debug: bool) -> Iterator[None]:
    """End with a message instead of a traceback: exit code 2 for what the user can mend, 1 for what they cannot."""
    with warnings.catch_warnings():
        warnings.showwarning = _say_warning
        warnings.filterwarnings("ignore", message="Attempting to run cuBLAS, but there was no current CUDA context")
        try:
            yield
        except RitzError as error:
            _say(traceback.format_exc() if debug else str(error))
            raise typer.Exit(2) from None
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if debug:
                raise
            _say(str(_unexpected(error)))
            raise typer.Exit(1) from None


def _unexpected(error: Exception) -> RitzError:
    return RitzError(
        f"Unexpected {type(error).__name__}: {error}",
        "ritz did not foresee this: it may be a fault of its own.",
        "Run the same command with --debug to see where it comes from.",
    )


def _say_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _say(f"Note: {message}")


def _say(text: str) -> None:
    """To the terminal, which the names of other people's files must not steer."""
    from ..record.json_values import printable  # here: help and the version come without PyTorch

    typer.secho(printable(text), err=True)
