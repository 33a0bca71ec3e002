"""How a product with curvature is computed: fast, because the matrix does not change from one product to the next."""

from .paths import Path, candidates
from .product import CurvatureProduct
from .trial import Trial

__all__ = ["CurvatureProduct", "Path", "Trial", "candidates"]
