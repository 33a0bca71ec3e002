"""Forecasts of the cost of an analysis."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch

from ...operators import Operator
from ...operators.operator import COLUMNS
from ...risk import Risk
from ...solvers import eigenpairs, memory_needed, spectral_density
from ...solvers.eigen import SMALL, kept_basis
from ...solvers.small_matrices import COPIES
from ..peak_bytes import peak_bytes
from .measurement import is_solved, layers_of
from .settings import Settings


@dataclass(frozen=True)
class Forecast:
    """The cost of an analysis, estimated from a few products.

    >>> data = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1)
    >>> risk = ritz.Risk(torch.nn.Linear(2, 1, bias=False), torch.nn.MSELoss(), data)
    >>> cost = forecast(risk)
    >>> cost.seconds == cost.num_products * cost.product_seconds + cost.other_seconds
    True
    """

    seconds: float  # of all products, and of what there is beside them
    num_products: int
    product_seconds: float  # of one product on average: several that go together take less each
    bytes: float
    path: str  # how products are computed
    file_bytes: float  # of what it writes on its way, to go on from if it is killed

    @property
    def other_seconds(self) -> float:
        """Seconds other than for products: their set-up for every matrix, and the solvers' own work."""
        return self.seconds - self.num_products * self.product_seconds


LONG = 1.0  # seconds, after which a time is not taken once more
FILE = 2**14  # what else a file holds, at most
SAMPLE = 300  # rows of the matrix whose decomposition is timed
WITH_VECTORS = 3  # times as long as that of eigenvalues takes the decomposition of a matrix with its vectors
_LARGEST_OVERHEAD = 600  # the size of the matrix on which what solvers do beside the products is timed


def forecast(risk: Risk, settings: Settings | None = None) -> Forecast:
    """Set up the products, time some, and predict the cost of the whole analysis; nothing else is computed.

    The prediction is for a run with a checkpoint, as by the command; without one, a search keeps more vectors.

    >>> data = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1)
    >>> risk = ritz.Risk(torch.nn.Linear(2, 1, bias=False), torch.nn.MSELoss(), data)
    >>> forecast(risk, Settings(num_eigenpairs=1, num_probes=2, num_steps=2)).num_products
    2
    """
    settings = settings or Settings()
    settings.check()
    settings = settings.for_size(risk.size)
    start = time.perf_counter()
    A = settings.matrix(risk)
    product_seconds(A, settings.seed, 1, repeats=1)
    set_up, sizes = time.perf_counter() - start, _sizes(risk, settings)
    solved = [size for size in sizes if is_solved(A, settings.for_layer(size), size)]
    estimated = [size for size in sizes if size not in solved]
    counts = [settings.for_layer(size).estimate(size) for size in estimated]
    searches, steps = sum(search for search, _ in counts), sum(steps for _, steps in counts)
    columns = min(COLUMNS, A.size) if A.size in solved else settings.num_probes
    one, together = (product_seconds(A, settings.seed, count) for count in (1, columns))
    products = searches + settings.num_probes * steps + sum(solved)
    seconds = searches * one + (products - searches) * together / columns
    beside = set_up * len(sizes) + sum(WITH_VECTORS * decomposition_seconds(size) for size in solved)
    beside += len(estimated) * _overhead_seconds(risk, settings) if estimated else 0.0
    footprint, written = _footprint(A, settings, solved), _file_bytes(risk, settings, solved, estimated)
    return Forecast(seconds + beside, products, seconds / products, *footprint, written)


def _sizes(risk: Risk, settings: Settings) -> list[int]:
    """The sizes of all matrices: of the whole, and of every layer where these are measured."""
    layers = layers_of(risk).values() if settings.per_layer else ()
    return [risk.size, *(sum(risk.shapes[name].numel() for name in names) for names in layers)]


def _file_bytes(risk: Risk, settings: Settings, solved: list[int], estimated: list[int]) -> float:
    """Bytes of all files: the columns of matrices that are decomposed, vectors of searches, a header each."""
    number, k = risk.theta.element_size(), settings.num_eigenpairs or 0
    vectors = (kept_basis(k) + k * settings.per_layer) * risk.size if estimated else 0
    return number * (vectors + sum(size**2 for size in solved)) + FILE * (len(solved) + len(estimated))


def product_seconds(A: Operator, seed: int, columns: int, repeats: int = 5) -> float:
    """The median time of a product with this many columns, from fewer samples if products are slow."""
    V = torch.randn(A.size, columns, generator=torch.Generator().manual_seed(seed), dtype=A.dtype).to(A.device)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        float((A @ V)[0, 0])  # reading a number waits for the device
        times.append(time.perf_counter() - start)
        if sum(times) > LONG:
            break
    return statistics.median(times)


def product_bytes(A: Operator, columns: int) -> float:
    """Bytes that a product with this many columns holds internally, besides its argument and its result.

    Columns beyond those that go through a batch together hold one vector more each: they need not be multiplied.
    """
    together = A.info.columns if A.info is not None else None  # None also before several were tried
    few = columns if together is None else min(columns, together + 1)
    V = torch.ones(A.size, few, dtype=A.dtype, device=A.device)
    more = (columns - few) * A.size * V.element_size()
    return max(0.0, peak_bytes(lambda: A @ V, A.device) - V.numel() * V.element_size()) + more


def decomposition_seconds(rows: int) -> float:
    """The seconds to decompose a matrix, extrapolated as the cube of its size from a small one."""
    matrix = torch.eye(SAMPLE, dtype=torch.float64) + 1.0 / SAMPLE
    start = time.perf_counter()
    torch.linalg.eigvalsh(matrix)
    return (time.perf_counter() - start) * (rows / SAMPLE) ** 3


def _overhead_seconds(risk: Risk, settings: Settings) -> float:
    """Seconds of the solvers' own work, timed on a small matrix, whose products cost next to nothing."""
    size = min(risk.size, _LARGEST_OVERHEAD)
    small = settings.for_layer(size)
    D = Operator.from_matrix(torch.diag(1 / torch.arange(1, size + 1).to(risk.dtype)))
    start = time.perf_counter()
    pairs = (
        eigenpairs(D, small.num_eigenpairs, which="magnitude", tolerance=small.tolerance) if small.num_eigenpairs else 0
    )
    spectral_density(D, num_steps=small.num_steps, num_probes=small.num_probes, outliers=pairs)
    return time.perf_counter() - start


def _footprint(A: Operator, settings: Settings, solved: list[int]) -> tuple[float, str]:
    """Bytes: the kept linearisations, and the larger of the solvers: its vectors, and what its products hold."""
    whole = COPIES * max(solved, default=0) ** 2 * torch.finfo(A.dtype).bits / 8
    if A.size in solved:
        solver = whole + product_bytes(A, min(COLUMNS, A.size))
    else:
        solver = max(whole, _estimate_bytes(A, settings))
    if A.info is None:
        return solver, "unknown"
    return solver + A.info.kept_bytes, A.info.path


def _estimate_bytes(A: Operator, settings: Settings) -> float:
    """The bytes of the search for eigenpairs or of the density, whichever are more."""
    probes = {"num_probes": settings.num_probes, "num_steps": settings.num_steps}
    k = settings.num_eigenpairs or 0
    basis = kept_basis(k) if A.size > SMALL else None  # that of a search which writes to a file
    search = memory_needed(eigenpairs, A, k, basis_size=basis) + product_bytes(A, k) if k else 0.0
    return max(search, memory_needed(spectral_density, A, **probes) + product_bytes(A, settings.num_probes))
