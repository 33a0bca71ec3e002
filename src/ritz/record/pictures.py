"""Pictures as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ..errors import ArgumentError
from .files import check_writable, write_whole

LEAST_DPI, MOST_DPI = 20, 2400
FORMATS = ("png", "pdf", "svg", "jpg", "jpeg", "eps", "ps", "webp", "tif", "tiff")


@runtime_checkable
class Picture(Protocol):
    """Anything that can draw itself into a stream, such as a matplotlib figure."""

    @property
    def savefig(self) -> Callable[..., Any]:
        """Write the picture to a stream in a format and resolution."""


def write_picture(path: str | Path, figure: Picture, *, dpi: int = 200) -> Path:
    """Write a figure in the format that the file's ending names (.png, .pdf, .svg); returns its path."""
    path = Path(path)
    check_writable(path.parent)
    ending = path.suffix.lstrip(".").lower() or "png"
    if ending not in FORMATS:
        raise ArgumentError(
            f"A picture was to be written to {path.name}.",
            f"Pictures cannot be written as {ending!r}.",
            f"End the name with one of {', '.join(FORMATS)}.",
        )
    if not LEAST_DPI <= dpi <= MOST_DPI:
        raise ArgumentError(
            f"dpi={dpi} was given.",
            "With fewer dots per inch letters cannot be drawn; with more, the picture grows too large.",
            f"Pass {LEAST_DPI} to {MOST_DPI}, such as 200.",
        )
    return write_whole(path, lambda stream: figure.savefig(stream, format=ending, dpi=dpi))
