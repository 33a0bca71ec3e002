"""Messages of the command in place of tracebacks."""

from __future__ import annotations

import errno
import signal
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from ..errors import RitzError
from .messages import note


@contextmanager
def report_errors(debug: bool) -> Iterator[None]:
    """End with a message instead of a traceback: exit code 2 for what users can fix, 1 for what they cannot."""
    with _interruptions() as interruptions, warnings.catch_warnings():
        warnings.showwarning = _note_warning
        warnings.filterwarnings("ignore", message="Attempting to run cuBLAS, but there was no current CUDA context")
        try:
            yield
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if interruptions:
                raise KeyboardInterrupt from error
            if isinstance(error, RitzError):
                note(traceback.format_exc() if debug else str(error))
                raise typer.Exit(2) from None
            if debug:
                raise
            note(str(_full(error) if _is_full(error) else _unexpected(error)))
            raise typer.Exit(1) from None


@contextmanager
def _interruptions() -> Iterator[list[int]]:
    """Every Ctrl-C so far: what is being imported when it comes may turn it into an error of its own."""
    seen, usual = list[int](), signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield seen
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, usual)


@contextmanager
def resumable(unfinished: Path) -> Iterator[None]:
    """Where a command is interrupted (Ctrl-C), say that the same one goes on from what is in this folder."""
    try:
        yield
    except KeyboardInterrupt:
        if any(unfinished.glob("*")):
            note(f"Interrupted. Run the same command again: it resumes from what is in {unfinished}.")
        raise


def _is_full(error: Exception) -> bool:
    """Whether it is the output that could not be printed; files that cannot be written are a FileError."""
    return isinstance(error, OSError) and error.errno == errno.ENOSPC


def _full(error: Exception) -> RitzError:
    return RitzError(
        f"The output cannot be printed: {error}.",
        "It goes to a file on a disk that is full. Records that were written before are whole.",
        "Make room, or let the output go elsewhere.",
    )


def _unexpected(error: Exception) -> RitzError:
    return RitzError(
        f"Unexpected {type(error).__name__}: {error}",
        "ritz did not foresee this: it may be a bug in ritz.",
        "Run the same command with --debug to see where it comes from.",
    )


def _note_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    note(f"Note: {message}")
