"""The file from which a killed computation goes on, and the identity of that computation.

A checkpoint is one `.npz` file: arrays, and a header with their layout, its format, the versions that wrote it and the
identity of its computation. It is written whole or not at all, at most every so many seconds. A file of another
computation is refused with what differs, a damaged one with what is wrong; both are left as they are.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from ..errors import ArgumentError, FileError, VersionWarning, warn_user
from .arrays import numpy_arrays, read_arrays, write_arrays
from .files import NONSENSE, check_writable, discard, path_of
from .layouts import check_layout, layout_of
from .origin import version_of
from .parts import remove_dead_parts

Arrays = dict[str, Any]
State = tuple[Arrays, dict[str, Any]]
FORMAT = 3  # of the file; a reader refuses what it does not know
SAVE_SECONDS = 30.0  # between two writings of the file: what a kill can cost
SHARE = 20  # times its duration: the pause after a writing, so that at most a twentieth of the time is spent on it


class Checkpoint:
    """The file of one computation."""

    def __init__(self, path: str | Path, identity: Mapping[str, str], seconds: float = SAVE_SECONDS) -> None:
        if not (isinstance(seconds, (int, float)) and 0 <= seconds < math.inf):
            raise ArgumentError(
                f"save_seconds={seconds!r} was given.",
                "It is the least time between two writes of the file, and thus the most work that a kill can lose.",
                "Pass 30, or 0 to write whenever there is something new.",
            )
        self.path = path_of(path).absolute()  # the current folder may change before it is written
        self.identity, self.seconds = dict(identity), seconds
        self.due = monotonic() + seconds
        check_writable(self.path.parent)
        remove_dead_parts(self.path)

    def keep(self, state: Callable[[], State], *, last: bool = False) -> None:
        """Write the state if it is time to do so."""
        if last or (started := monotonic()) >= self.due:
            tensors, header = _checked(state())
            arrays = numpy_arrays(tensors)
            facts = {"format": FORMAT, "versions": versions(), "identity": self.identity, "layout": layout_of(arrays)}
            write_arrays(self.path, arrays, {**header, **facts})
            if not last:
                self.due = monotonic() + max(self.seconds, SHARE * (monotonic() - started) * (self.seconds > 0))

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """The state saved last; None if there is no file; refuses that of another computation."""
        if not self.path.exists():
            return None
        arrays, header = read_arrays(self.path)
        if header.get("format") != FORMAT:
            raise self._refusal(
                f"has format {header.get('format')!r}", f"This version of ritz goes on from files of format {FORMAT}."
            )
        self._check_identity(header.get("identity"))
        with self.reading():
            check_layout(arrays, header.get("layout"))
        self._note_versions(header.get("versions"))
        return arrays, header

    def damaged(self, what: str) -> FileError:
        """The error for a file that claims to be of this computation and has other content."""
        return self._refusal(f"is damaged: {what}", "Nothing was read from it, and the file is unchanged.")

    def of_another(self, *differing: str) -> FileError:
        """The error for a file of another computation, which differs in these respects."""
        return self._refusal(
            f"is of another computation: different {', '.join(differing)}",
            "Going on from it would give neither the old result nor this one.",
            "To go on with the old computation, give the same model, data and settings as then.",
        )

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Inside, any failure to use the file's contents counts as damage."""
        try:
            yield
        except FileError:
            raise
        except NONSENSE as error:
            what = str(error).splitlines()[0] if str(error) else ""
            raise self.damaged(f"{type(error).__name__} {what}".rstrip()) from error

    def remove(self) -> None:
        """Remove the file, once the computation is over and its result is elsewhere."""
        discard(self.path)

    def _check_identity(self, identity: Any) -> None:
        then = identity if isinstance(identity, dict) else {}
        differing = sorted(name for name in {*self.identity, *then} if then.get(name) != self.identity.get(name))
        if differing:
            raise self.of_another(*differing)

    def _note_versions(self, then: Any) -> None:
        now, before = versions(), then if isinstance(then, dict) else {}
        changes = [f"{name} {before.get(name)}, now {now[name]}" for name in now if before.get(name) != now[name]]
        if changes:
            warn_user(
                f"{self.path} was written with other versions ({'; '.join(changes)}): "
                "the result may differ in its last digits from one that was computed in one go.",
                VersionWarning,
            )

    def _refusal(self, seen: str, why: str, *ways_out: str) -> FileError:
        return FileError(
            f"{self.path} {seen}.", why, "Name another file, or remove this one to start afresh.", *ways_out
        )


def _checked(state: Any) -> State:
    if not (isinstance(state, tuple) and len(state) == 2 and all(isinstance(part, Mapping) for part in state)):
        raise ArgumentError(
            f"The state to keep is a {type(state).__name__}.",
            "It is a pair: arrays by their names, and facts that go into a header.",
            "Return a pair such as ({'weights': tensor}, {'epoch': 3}).",
        )
    return state


def versions() -> dict[str, str]:
    """The versions of the software that computes: with others, the last digits of a result may differ."""
    return {**{name: version_of(name) for name in ("ritz", "torch", "numpy")}, "python": platform.python_version()}
