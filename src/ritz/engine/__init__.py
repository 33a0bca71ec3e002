"""How a product with curvature is computed: fast, because the matrix does not change from one product to the next."""

from .info import Info
from .path_choice import Trial
from .paths import Path, candidates
from .product import CurvatureProduct

__all__ = ["CurvatureProduct", "Info", "Path", "Trial", "candidates"]
