"""What needs only products A @ V: eigenpairs, densities, traces and other functions of a spectrum."""

# Where to begin reading, from what users call down to what it is made of.
# - Eigenpairs: `eigen` decomposes `small_matrices`; in others, `thick_restart` leads a `search`. It has `goals`, a
#   `basis`, `requested_pairs` and possibly `missed_pairs`; with cheaper products, `mixed_precision` has `corrections`.
# - Densities: `densities`, and `quadratures` that can grow. Both run a `lanczos_recursion` from random probes
#   (`probe_runs`), whose results are `tridiagonal`, find the `atoms` among its nodes, and leave the rest to the
#   `assembly` of a spectrum. The same recursions serve `masses`, `determinants`, `operator_norms` and
#   `operator_functions`.
# - Traces: `traces` grows `sketches` as far as that pays (`split_traces`); what can be resumed is in `deflated_traces`.
#   `ranks` and `diagonals` take sketches, too.
# - Linear systems: `linear_systems`, by `conjugate_gradients` and `minres`.
# - For all of them: rows as in `vectors`, random `probes`, files to go on from (`resumption`, `stages`), and the memory
#   that each will take (`footprints`).

from ..arguments import guard
from .conditioning import condition_number
from .densities import spectral_density, spectral_range
from .determinants import log_determinant
from .diagonals import Diagonal, diagonal
from .eigen import eigenpairs, subspace_iteration
from .footprints import memory_needed
from .lanczos_recursion import lanczos
from .linear_systems import Solution, solve
from .masses import negative_mass
from .operator_functions import FunctionProduct, function
from .operator_norms import norm
from .quadratures import LanczosQuadrature
from .ranks import effective_rank
from .traces import hutchinson, trace
from .tridiagonal import Tridiagonal

__all__ = [
    "Diagonal", "FunctionProduct", "LanczosQuadrature", "Solution", "Tridiagonal", "condition_number", "diagonal",
    "effective_rank", "eigenpairs", "function", "hutchinson", "lanczos", "log_determinant", "memory_needed",
    "negative_mass", "norm", "solve", "spectral_density", "spectral_range", "subspace_iteration", "trace",
]  # fmt: skip

guard(__name__)
