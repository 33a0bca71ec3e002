"""How many bytes a risk may keep."""

from __future__ import annotations

import os

import torch

from ..errors import ArgumentError


def memory_budget(memory: int | float | None, device: torch.device) -> float:
    """The bytes that a user allows; without a word, half of what is free."""
    if memory is not None and not memory >= 0:
        raise ArgumentError(
            f"memory={memory} was given.",
            "It is the number of bytes that the engine may keep between products.",
            "Pass 0 to keep nothing, or None for half of what is free.",
        )
    return free_memory(device) / 2 if memory is None else float(memory)


def free_memory(device: torch.device) -> float:
    """Bytes that are free on a device, as far as it tells."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    names = os.sysconf_names if hasattr(os, "sysconf_names") else {}
    pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in names else "SC_PHYS_PAGES"
    return float(os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")) if pages in names else 8e9


def check_memory(needed: float, memory: float, what: str) -> None:
    """Refuse results that take more than the memory of a risk."""
    if needed > memory:
        raise ArgumentError(
            f"{what} take {needed / 2**30:.3g} GiB; the risk's memory is {memory / 2**30:.3g} GiB.",
            "They are kept whole, in float64.",
            "Take fewer layers at a time: risk.restricted_to('features.0.*').",
            "Raise Risk(..., memory=...), if there is more.",
        )
