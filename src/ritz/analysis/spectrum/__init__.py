"""The spectrum of one model: its density, its largest eigenvalues, what they sum up to, as one record.

record = analysis.spectrum.run(risk, analysis.spectrum.Settings(per_layer=True))
analysis.spectrum.draw(record)  # in a notebook
analysis.spectrum.write(record, "out/mine")  # with the picture
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...arguments import guard
from .contents import (
    array_of,
    largest_of,
    num_outliers,
    num_products,
    spectrum_of,
    theory_of,
    title_of,
    widest_gap,
)
from .forecasts import Forecast, forecast
from .measurement import layers_of, run
from .settings import Settings

if TYPE_CHECKING:
    from .pictures import draw, write

__all__ = [
    "Forecast", "Settings", "array_of", "draw", "forecast", "largest_of", "layers_of", "num_outliers", "num_products",
    "run", "spectrum_of", "theory_of", "title_of", "widest_gap", "write",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import the pictures when they are first used, so that measuring needs no matplotlib."""
    if name in ("draw", "write"):
        return getattr(import_module(".pictures", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


guard(__name__)
