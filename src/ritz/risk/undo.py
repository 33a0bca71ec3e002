"""What was changed for a while is put back, whatever interrupts, and by one thread at a time."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable

LOCK = threading.RLock()  # held while settings of the process, or modules of a user, are not as they were


class Hold:
    """The lock, taken and given back once each, whenever Ctrl-C strikes.

    Between a call and the line that remembers it an interrupt can strike; a call from inside of an iterator, which
    is remembered with it, cannot be torn apart.
    """

    def __init__(self) -> None:
        self._taken: list[bool] = []
        self._release = map(operator.call, [LOCK.release])

    def take(self) -> None:
        """Wait for the lock."""
        self._taken.extend(map(operator.call, [LOCK.acquire]))

    def give_back(self) -> None:
        """Release it, if it is held; to call this again does nothing."""
        if self._taken:
            next(self._release, None)


def surely(restore: Callable[[], object]) -> None:
    """Call what restores, again if Ctrl-C strikes within, and only then pass that on."""
    interrupt: KeyboardInterrupt | None = None
    while True:
        try:
            restore()
            break
        except KeyboardInterrupt as struck:
            interrupt = struck
    if interrupt is not None:
        raise interrupt
