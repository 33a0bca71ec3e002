"""How a product with curvature is computed: fast, because the matrix does not change from one product to the next."""

from .curvatures import Curvature
from .info import Info
from .linearized import Linearized
from .linearized_risk import LinearizedRisk
from .paths import PATHS, Path
from .product import CurvatureProduct

__all__ = ["PATHS", "Curvature", "CurvatureProduct", "Info", "Linearized", "LinearizedRisk", "Path"]
