"""One model in, one Record out: its spectrum, and where its lines come from."""

from . import classes, spectrum

__all__ = ["classes", "spectrum"]
