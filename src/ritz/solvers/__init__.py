"""What needs only products A @ V: eigenpairs, densities, traces and other functions of a spectrum."""

from .eigen import eigenpairs, subspace_iteration
from .estimates import condition_number, effective_rank, hutchinson, log_determinant, negative_mass, trace
from .krylov import Tridiagonal, lanczos, spectral_density, spectral_range

__all__ = [
    "Tridiagonal", "condition_number", "effective_rank", "eigenpairs", "hutchinson", "lanczos", "log_determinant",
    "negative_mass", "spectral_density", "spectral_range", "subspace_iteration", "trace",
]  # fmt: skip
