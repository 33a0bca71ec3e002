"""What was changed for a while is put back, whatever interrupts."""

from __future__ import annotations

from collections.abc import Callable


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
