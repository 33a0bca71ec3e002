"""Temporary changes, undone whatever interrupts them, and made by one thread at a time."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable

LOCK = threading.RLock()  # held while settings of the process, or modules of a user, are not as they were


class Hold:
    """A lock that is taken and released exactly once, even if Ctrl-C interrupts.

    An interrupt can strike between a call and the line that remembers it, but not inside an iterator's step, where
    taking the lock and remembering that are one.
    """

    def __init__(self) -> None:
        self._taken: list[bool] = []
        self._release = map(operator.call, [LOCK.release])

    def take(self) -> None:
        """Wait for the lock."""
        self._taken.extend(map(operator.call, [LOCK.acquire]))

    def give_back(self) -> None:
        """Release the lock if it is held; calling this again does nothing."""
        if self._taken:
            next(self._release, None)


def surely(restore: Callable[[], object]) -> None:
    """Call a function that restores something, again if Ctrl-C interrupts it, and only then pass the interrupt on."""
    interrupt: KeyboardInterrupt | None = None
    while True:
        try:
            restore()
            break
        except KeyboardInterrupt as struck:
            interrupt = struck
    if interrupt is not None:
        raise interrupt
