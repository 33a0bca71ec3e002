"""How many bytes a risk may hold: one budget, which all of its operators share."""

from __future__ import annotations

import math
import os
import re
import weakref
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import torch

from ..errors import ArgumentError

SHARE = {"cuda": 0.75, "cpu": 0.5}  # of what is free, unless given: main memory has other users
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class _Group(NamedTuple):
    """The files in which the control group of this process states its limit and its use."""

    limit: str
    used: str
    statistics: str
    cached: str  # the entry of the statistics that says how much of it are files that nobody has read twice


GROUPS = (
    _Group("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat", "inactive_file"),
    _Group(
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
        "total_inactive_file",
    ),
)


@runtime_checkable
class Holder(Protocol):
    """An object that holds memory it can give up."""

    def drop(self) -> None:
        """Give back all that is held."""


class Budget:
    """The bytes that may be held between products. What a holder takes is given back when it is garbage collected."""

    def __init__(self, total: float) -> None:
        self.total = total
        self._taken: weakref.WeakKeyDictionary[Holder, float] = weakref.WeakKeyDictionary()
        self._used: weakref.WeakKeyDictionary[Holder, int] = weakref.WeakKeyDictionary()
        self._clock = 0

    def __getstate__(self) -> float:
        """The total alone: what was taken is held by this process."""
        return self.total

    def __setstate__(self, total: float) -> None:
        self.__init__(total)  # type: ignore[misc]

    @property
    def left(self) -> float:
        """The bytes that are not taken."""
        return max(0.0, self.total - sum(self._taken.values()))

    def begin(self, holder: Holder) -> None:
        """Begin a product: holders that were not used since this one's last product make room for it."""
        last, self._clock = self._used.get(holder), self._clock + 1
        self._used[holder] = self._clock
        if last is not None:
            for other in [other for other, used in self._used.items() if used < last]:
                other.drop()

    def take(self, holder: Holder, size: float) -> bool:
        """Take this many bytes more if they are left; returns whether they were."""
        if size > self.left:
            return False
        self._taken[holder] = self._taken.get(holder, 0.0) + size
        return True

    def taken(self, holder: Holder) -> float:
        """The bytes that one holder has."""
        return self._taken.get(holder, 0.0)

    def give_back(self, holder: Holder) -> None:
        """Give back all that a holder has taken."""
        self._taken.pop(holder, None)

    def shrink(self) -> bool:
        """After memory has run out: make every holder drop what it has, and allow half; returns whether any had."""
        taken, holders = sum(self._taken.values()), list(self._taken)
        for holder in holders:
            holder.drop()
        if taken:
            self.total = taken / 2
        return taken > 0


def memory_budget(memory: int | float | str | None, device: torch.device) -> float:
    """The bytes that a user allows, given as a number or like "8G"; by default a share of what is free."""
    if memory is None:
        return SHARE.get(device.type, 0.5) * free_memory(device)
    size = _parsed(memory) if isinstance(memory, str) else memory
    size = float(size) if isinstance(size, (int, float)) else math.nan
    if not size >= 0:
        raise ArgumentError(
            f"memory={memory!r} was given.",
            "It is the number of bytes that all operators of a risk may hold between products, together.",
            'Pass bytes, or a string such as "8G" or "500MB".',
            "Pass 0 to hold nothing, or None for a share of what is free.",
        )
    return size


def _parsed(text: str) -> float:
    """The bytes that "8G", "1.5 GiB" or "500MB" stand for, in powers of 1024; NaN for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    return float(match[1]) * UNITS[match[2].upper()] if match else float("nan")


def free_memory(device: torch.device) -> float:
    """Bytes that can be allocated on a device, as far as is known."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device)[0] + unused)
    free = [_available(), *(limit - used for limit, used in _limits())]
    return max(0.0, min(free))


def _available() -> float:
    """The bytes that the machine has left, including what it could reclaim from its caches."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith("MemAvailable"))) * 1024
    except (OSError, StopIteration, ValueError):
        names = os.sysconf_names if hasattr(os, "sysconf_names") else {}
        pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in names else "SC_PHYS_PAGES"
        return float(os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")) if pages in names else 8e9


def _limits() -> list[tuple[float, float]]:
    """Limit and use of the control group, if it has a limit; reclaimable memory does not count as used."""
    limits = []
    for group in GROUPS:
        try:
            limit, used = float(Path(group.limit).read_text()), float(Path(group.used).read_text())
        except (OSError, ValueError):  # no such group, or "max"
            continue
        limits.append((limit, used - _page_cache(group)))
    return limits


def _page_cache(group: _Group) -> float:
    """Bytes of the page cache: files kept in memory as long as there is room."""
    try:
        lines = Path(group.statistics).read_text().splitlines()
        return next(float(line.split()[1]) for line in lines if line.split()[:1] == [group.cached])
    except (OSError, ValueError, IndexError, StopIteration):  # nothing is said of them
        return 0.0


def forget_unused(device: torch.device) -> None:
    """Return the GPU memory that PyTorch has reserved and does not use."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def check_memory(needed: float, memory: float, what: str) -> None:
    """Refuse results that take more than the memory of a risk."""
    if needed > memory:
        raise ArgumentError(
            f"{what} take {needed / 2**30:.3g} GiB; the risk's memory is {memory / 2**30:.3g} GiB.",
            "They are kept whole, in float64.",
            "Take fewer layers at a time: risk.restricted_to('features.0.*').",
            "Raise Risk(..., memory=...), if the machine has more.",
        )
