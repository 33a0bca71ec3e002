"""The class structure of one classifier: which eigenvalues come from what, layer by layer too, as one record.

record = analysis.classes.run(risk, analysis.classes.ClassSettings(weight_decay=5e-4))
analysis.classes.draw(record)["knockouts"]  # in a notebook
analysis.classes.write(record, "out/mine")  # with all pictures
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...arguments import guard
from .forecasts import forecast
from .measurement import ClassSettings, run

if TYPE_CHECKING:
    from .pictures import draw, write

__all__ = ["ClassSettings", "draw", "forecast", "run", "write"]


def __getattr__(name: str) -> Any:
    """Import the pictures when they are first used, so that measuring needs no matplotlib."""
    if name in ("draw", "write"):
        return getattr(import_module(".pictures", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


guard(__name__)
