"""How a product with curvature is computed: fast, because the matrix does not change from one product to the next."""

from .path_choice import Trial
from .paths import Path, candidates
from .product import CurvatureProduct

__all__ = ["CurvatureProduct", "Path", "Trial", "candidates"]
