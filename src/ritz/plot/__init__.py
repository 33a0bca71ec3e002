"""Pictures: axes in, axes out. They compute nothing heavy and save nothing."""

from .spectra import (
    COLOURS,
    ShownFigure,
    comparison,
    counts,
    density,
    eigenvalues,
    empty,
    knockout,
    log_spectrum,
    panels,
    scree,
    screes,
)

__all__ = [
    "COLOURS",
    "ShownFigure",
    "comparison",
    "counts",
    "density",
    "eigenvalues",
    "empty",
    "knockout",
    "log_spectrum",
    "panels",
    "scree",
    "screes",
]
