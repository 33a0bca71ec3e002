"""One model in, one Record out: its spectrum, or where the lines of that come from; and two of them side by side."""

from . import classes, comparison, spectrum

__all__ = ["classes", "comparison", "spectrum"]
