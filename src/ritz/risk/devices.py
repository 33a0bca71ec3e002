"""Devices by name, found out to work before anything is moved there."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import ArgumentError, first_line


def usable_device(place: Any, given: str) -> torch.device:
    """The device of this name; refuses one that is missing, or that has no float64, in which sums are kept.

    Args:
        place: What `torch.device` takes.
        given: What the user wrote, for the message.
    """
    try:
        return torch.empty(0, device=place, dtype=torch.float64).device  # with its index: "cuda" is the current one
    except (RuntimeError, TypeError, AssertionError, NotImplementedError) as error:
        raise unusable(given, first_line(error).partition(". ")[0]) from error


def unusable(given: str, reason: str) -> ArgumentError:
    """The error for a device that nothing can be computed on."""
    return ArgumentError(
        f"{given} cannot be used: {reason}.",
        "The model and the data would have to be moved there.",
        "Use cpu, or cuda where torch.cuda.is_available().",
    )
