"""What needs only products A @ V: eigenpairs, densities, traces and other functions of a spectrum."""

from ..arguments import guard
from .conditioning import condition_number
from .densities import spectral_density, spectral_range
from .determinants import log_determinant
from .diagonals import Diagonal, diagonal
from .eigen import eigenpairs, subspace_iteration
from .footprints import memory_needed
from .lanczos_recursion import Tridiagonal, lanczos
from .linear_systems import Solution, solve
from .masses import negative_mass
from .operator_functions import FunctionProduct, function
from .operator_norms import norm
from .quadratures import LanczosQuadrature
from .ranks import effective_rank
from .traces import hutchinson, trace

__all__ = [
    "Diagonal", "FunctionProduct", "LanczosQuadrature", "Solution", "Tridiagonal", "condition_number", "diagonal",
    "effective_rank", "eigenpairs", "function", "hutchinson", "lanczos", "log_determinant", "memory_needed",
    "negative_mass", "norm", "solve", "spectral_density", "spectral_range", "subspace_iteration", "trace",
]  # fmt: skip

guard(__name__)
