"""The forecast of what a class analysis will cost."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from ...classes.lines.knockout_spectra import PROBES, PROJECTED, STEPS, SUBTRACTED
from ...factored.kronecker_products import DENSE
from ...operators import Operator, gauss_newton, low_rank
from ...risk import Risk
from ...solvers import eigenpairs, memory_needed, spectral_density
from ...solvers.eigen import kept_basis
from ..spectrum.forecasts import FILE, WITH_VECTORS, Forecast, decomposition_seconds, product_bytes, product_seconds
from ..spectrum.measurement import layers_of
from ..spectrum.settings import PER_PAIR
from .measurement import ClassSettings

COPIES = 6  # of a matrix that is formed and decomposed
PROJECTIONS = 5  # times as long as its eigenvalues takes the singular value decomposition of a matrix
FACTORS = 5  # matrices as large as all means that are there while these are projected out
SAMPLE = 2**16, 64  # rows and columns of the factor whose product is timed
SPECTRA = len(SUBTRACTED) + len(PROJECTED)  # and of a Gram matrix its vectors and one edge


def forecast(risk: Risk, settings: ClassSettings | None = None) -> Forecast:
    """Time some products and a decomposition, and say what the analysis will take, its layers apart.

    >>> data = torch.eye(2).double(), torch.tensor([0, 1])
    >>> risk = ritz.Risk(torch.nn.Linear(2, 2).double(), torch.nn.CrossEntropyLoss(), data)
    >>> cost = forecast(risk)
    >>> 0 < cost.seconds, 0 < cost.file_bytes
    (True, True)
    """
    settings = settings or ClassSettings()
    settings.check()
    plan, G = Plan.of(risk, settings), gauss_newton(risk)
    start = time.perf_counter()
    product_seconds(G, settings.seed, 1, repeats=1)
    set_up, one = time.perf_counter() - start, product_seconds(G, settings.seed, 1)
    seconds = set_up + plan.products * one + plan.matrix_seconds(one) + plan.means_seconds()
    whole = plan.bytes_held() + memory_needed(eigenpairs, G, plan.num_pairs)
    memory = max(whole + product_bytes(G, plan.num_pairs), _layers_bytes(risk))
    path = G.info.path if G.info is not None else "unknown"
    return Forecast(seconds, plan.products, one, memory, path, plan.file_bytes())


@dataclass(frozen=True)
class Plan:
    """The way that an analysis takes, and the work on it: by a Gram matrix, by a small dense G, or by quadratures."""

    risk: Risk
    num_pairs: int
    rows: int  # of a Gram matrix
    by_gram: bool
    is_small: bool  # G itself is formed and decomposed

    @classmethod
    def of(cls, risk: Risk, settings: ClassSettings) -> Plan:
        """The way for a risk of this size."""
        num_pairs = min(risk.size, settings.num_lines or risk.num_classes + 2)
        rows = risk.num_targets * (risk.num_classes - 1)
        by_gram = rows <= settings.exact_rows and risk.group is None and risk.separable
        return cls(risk, num_pairs, rows, by_gram, not by_gram and risk.size <= settings.exact_rows)

    @property
    def products(self) -> int:
        """How many products with one vector the analysis takes in all."""
        pairs = 2 * PER_PAIR * self.num_pairs + self.risk.num_classes  # class means take about C products' gradients
        if self.by_gram:
            return pairs
        spectra = self.risk.size if self.is_small else SPECTRA * STEPS * PROBES  # a small G is formed once
        return pairs + spectra + PER_PAIR

    def matrix_seconds(self, product: float) -> float:
        """The time to form the Gram matrix, a row of which costs a product, and to decompose matrices."""
        if self.by_gram:
            return self.rows * product + (SPECTRA + 2) * decomposition_seconds(self.rows)
        return SPECTRA * decomposition_seconds(self.risk.size) if self.is_small else 0.0

    def means_seconds(self) -> float:
        """The time for what is done with the C² means, where they are held: their span is found, and multiplied with.

        It is found for the lines of G and of H, with vectors, for the eigenvalues of two sums of parts, and for the
        spectrum off all means. Half of the spectra are those of matrices with as many columns.
        """
        if not self._means_are_held:
            return 0.0
        C, n = self.risk.num_classes, self.risk.size
        decompositions = 2 * WITH_VECTORS + 2 + (0 if self.by_gram else PROJECTIONS)
        seconds = decompositions * decomposition_seconds(min(n, C**2))
        if self.by_gram or self.is_small:
            return seconds
        rows, columns = min(n, SAMPLE[0]), min(C**2, SAMPLE[1])
        factor = low_rank(torch.ones(rows, columns, dtype=self.risk.dtype, device=self.risk.device))
        one = product_seconds(factor, 0, PROBES) * (n / rows) * (C**2 / columns)
        return seconds + SPECTRA / 2 * STEPS * one

    def bytes_held(self) -> float:
        """Memory for the class means, where they fit, and for dense matrices."""
        copies = 2.0 if self.by_gram else 2.0 + FACTORS
        means = copies * self.risk.num_classes**2 * self._vector_bytes if self._means_are_held else 0.0
        gram = 8 * self.rows**2 if self.by_gram else 0
        formed = 8 * COPIES * self.risk.size**2 if self.is_small else 0
        return means + 3 * gram + formed

    def file_bytes(self) -> float:
        """The files of the Gram matrix with its labels, of the search, and of every spectrum and layer."""
        gram = 8 * self.rows**2 if self.by_gram else 0
        vectors = (kept_basis(self.num_pairs) + 2 * self.num_pairs) * self._vector_bytes
        labels = self.risk.theta.element_size() * self.rows * self.risk.num_classes
        return gram + vectors + labels + FILE * (SPECTRA + 2 + len(layers_of(self.risk)))

    @property
    def _means_are_held(self) -> bool:
        return 2.0 * self.risk.num_classes**2 * self._vector_bytes <= self.risk.memory

    @property
    def _vector_bytes(self) -> int:
        """The bytes of a vector of parameters."""
        return self.risk.size * self.risk.theta.element_size()


def _layers_bytes(risk: Risk) -> float:
    """The bytes for the spectrum of a layer's factorisation, for the layer that takes most."""
    sizes = [sum(risk.shapes[name].numel() for name in names) for names in layers_of(risk).values()]
    return max(_spectrum_bytes(size, risk) for size in sizes)


def _spectrum_bytes(size: int, risk: Risk) -> float:
    """The bytes for the spectrum of one matrix: copies of a small one to decompose, or the vectors of a quadrature."""
    if size <= DENSE:
        return 8.0 * COPIES * size**2
    block = Operator(lambda V: V, size, torch.float64, risk.device)
    return memory_needed(spectral_density, block, num_probes=PROBES, num_steps=STEPS)
