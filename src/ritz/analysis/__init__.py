"""One model in, one Record out: its spectrum, or where the spectral lines come from; and comparisons of two."""

from . import classes, comparison, spectrum

__all__ = ["classes", "comparison", "spectrum"]
