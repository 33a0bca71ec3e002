"""How a product with curvature is computed: fast, because the matrix does not change from one product to the next."""

# Where to begin reading.
# - One batch: `linearized` has the derivatives of a network on it, with `rules` for layers that are slow in PyTorch;
#   `curvatures` says what it contributes to each matrix.
# - Which derivatives: `paths` are the ways to linearise, of which `path_choice` takes the first that is right.
# - All batches: `linearized_risk` goes over them within memory, with several `columns` at a time; `product` is what an
#   operator multiplies with.

from .curvatures import Curvature
from .info import Info
from .linearized import Linearized
from .linearized_risk import LinearizedRisk
from .paths import PATHS, Path
from .product import CurvatureProduct

__all__ = ["PATHS", "Curvature", "CurvatureProduct", "Info", "Linearized", "LinearizedRisk", "Path"]
