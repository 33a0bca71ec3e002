"""Where a risk can be moved: devices by name, found out to work before anything is moved, and precisions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..errors import ArgumentError, ModelError, first_line

Place = torch.dtype | torch.device | str


def destination(
    place: Place, device: torch.device | str | None, now: tuple[torch.dtype, torch.device]
) -> tuple[torch.dtype, torch.device]:
    """The precision and the device that `risk.to(place, device=device)` names; what is not named stays as `now`."""
    if not isinstance(place, torch.dtype):
        if device is not None:
            raise ArgumentError(
                f"Two devices were given: {place!r} and device={device!r}.",
                "A risk lies on one.",
                "Name a precision first, or nothing else: risk.to(torch.float64, device='cuda'), risk.to('cuda').",
            )
        return now[0], usable_device(place, repr(str(place)))
    if place not in (torch.float32, torch.float64):
        raise ArgumentError(
            f"A risk was to be converted to {place}.",
            "Risks are computed in float32 or float64; in less, second derivatives are mostly rounding.",
            "Pass torch.float32 or torch.float64.",
        )
    return place, now[1] if device is None else usable_device(device, f"device={str(device)!r}")


@contextmanager
def naming_conversion(before: torch.dtype, after: torch.dtype) -> Iterator[None]:
    """Say of a model that works in one precision and fails in another that it is the conversion that it cannot bear."""
    try:
        yield
    except ModelError as error:
        if before == after:
            raise
        raise ModelError(
            f"In {after}, to which the risk was converted: {error.seen}",
            f"In {before} it does not: something in it has a precision of its own, as after x.float() or x.double().",
            "Let it take the precision of the parameters: x.to(self.weight.dtype).",
            f"Stay in {before}: gram_spectrum(risk, dtype={before}), for example.",
        ) from error


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
