"""What needs only products A @ V: eigenpairs, densities, traces and other functions of a spectrum."""

from .conditioning import condition_number
from .densities import spectral_density, spectral_range
from .determinants import log_determinant
from .eigen import eigenpairs, subspace_iteration
from .footprints import memory_needed
from .lanczos_recursion import Tridiagonal, lanczos
from .linear_systems import Solution, solve
from .masses import negative_mass
from .quadratures import LanczosQuadrature
from .ranks import effective_rank
from .traces import hutchinson, trace

__all__ = [
    "LanczosQuadrature", "Solution", "Tridiagonal", "condition_number", "effective_rank", "eigenpairs", "hutchinson",
    "lanczos", "log_determinant", "memory_needed", "negative_mass", "solve", "spectral_density", "spectral_range",
    "subspace_iteration", "trace",
]  # fmt: skip
