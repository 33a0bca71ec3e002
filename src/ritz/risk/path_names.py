"""The names of the ways to differentiate that a user may pin."""

from __future__ import annotations

from ..errors import ArgumentError

PATHS = ("rules", "plain", "forward")


def checked_path(path: str | None) -> str | None:
    """The name of a path, or none."""
    if path is not None and path not in PATHS:
        raise ArgumentError(
            f"path={path!r} was given.",
            "A path is a way to compute products with curvature.",
            '"rules" has fast derivatives of common layers, "plain" PyTorch\'s own, "forward" forward differentiation.',
            "Leave it out: then ritz takes the first of these that proves right.",
        )
    return path
