"""One model in, one Record out: its spectrum, or where the lines of that come from."""

from . import classes, spectrum

__all__ = ["classes", "spectrum"]
