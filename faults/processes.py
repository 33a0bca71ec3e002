"""Processes that are killed when they have computed for a while, however busy the machine is."""

from __future__ import annotations

import math
import os
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path

FOREVER = 600.0  # seconds of the wall clock after which a process is said to hang


def outcome(compute: Callable[[], str], answer: Path, seconds: float = math.inf) -> tuple[str, float]:
    """What became of a computation in a process of its own, with the seconds it computed for.

    "killed", "hung", or what it returned; a traceback where it raised.
    """
    answer.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        _live(compute, answer)
    clock, flags = (~child << 3) | 2, os.WEXITED | os.WNOHANG | os.WNOWAIT  # the processor time of the child
    deadline = time.monotonic() + FOREVER
    while os.waitid(os.P_PID, child, flags) is None and time.clock_gettime(clock) < seconds:
        if time.monotonic() > deadline:
            break
        time.sleep(0.0005)
    hung = time.monotonic() > deadline
    os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    used = usage.ru_utime + usage.ru_stime
    if os.waitstatus_to_exitcode(status) == -signal.SIGKILL:
        return ("hung" if hung else "killed"), used
    return answer.read_text(), used


def _live(compute: Callable[[], str], answer: Path) -> None:
    """The life of the child: its answer appears whole or not at all."""
    try:
        text = compute()
    except BaseException:
        text = traceback.format_exc()
    part = answer.with_suffix(".part")
    part.write_text(text)
    part.rename(answer)
    os._exit(0)
