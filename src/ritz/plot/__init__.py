"""Pictures: axes in, axes out. Nothing heavy is computed, and nothing is saved."""

from ..arguments import guard
from .density_plots import comparison, counts, density, log_spectrum, stems
from .figures import COLOURS, ShownFigure, empty, panels, small_multiples, style
from .scatter_plots import eigenvalues, knockout
from .scree_plots import scree, screes

__all__ = [
    "COLOURS", "ShownFigure", "comparison", "counts", "density", "eigenvalues", "empty", "knockout", "log_spectrum",
    "panels", "scree", "screes", "small_multiples", "stems", "style",
]  # fmt: skip

guard(__name__, finite=True)
