"""The forecast of what a class analysis will cost."""

from __future__ import annotations

import time

import torch

from ...classes.lines.knockout_spectra import PROBES, PROJECTED, STEPS, SUBTRACTED
from ...operators import gauss_newton
from ...risk import Risk
from ...solvers import eigenpairs, memory_needed
from ...solvers.eigen import kept_basis
from ..spectrum.forecasts import Forecast, product_seconds
from .measurement import ClassSettings

PER_PAIR = 8  # products of a search, for each of its pairs
SAMPLE = 300  # rows of the matrix whose decomposition is timed
DECOMPOSITIONS = len(SUBTRACTED) + len(PROJECTED) + 2  # of the Gram matrix: its spectra, its vectors, one edge


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
    G, count = gauss_newton(risk), min(risk.size, settings.num_lines or risk.num_classes + 2)
    start = time.perf_counter()
    product_seconds(G, settings.seed, 1, repeats=1)
    set_up, one = time.perf_counter() - start, product_seconds(G, settings.seed, 1)
    rows = risk.num_terms * (risk.num_classes - 1)
    by_gram = rows <= settings.exact_rows and risk.group is None and risk.separable
    products = 2 * PER_PAIR * count + risk.num_classes  # the class means are made of about C products' gradients
    products += rows if by_gram else (DECOMPOSITIONS - 2) * STEPS * PROBES + PER_PAIR
    seconds = set_up + products * one + (DECOMPOSITIONS * _decomposition_seconds(rows) if by_gram else 0.0)
    number, vector = risk.theta.element_size(), risk.size * risk.theta.element_size()
    gram = 8 * rows**2 if by_gram else 0
    held = 2.0 * risk.num_classes**2 * vector
    memory = (held if held <= risk.memory else 0.0) + 3 * gram + memory_needed(eigenpairs, G, count)
    written = gram + (kept_basis(count) + 2 * count) * vector + number * rows * risk.num_classes
    return Forecast(seconds, products, one, memory, G.info.path if G.info is not None else "unknown", written)


def _decomposition_seconds(rows: int) -> float:
    """That of all eigenvalues of a matrix: a small one is timed, and the time grows as the cube."""
    matrix = torch.eye(SAMPLE, dtype=torch.float64) + 1.0 / SAMPLE
    start = time.perf_counter()
    torch.linalg.eigvalsh(matrix)
    return (time.perf_counter() - start) * (rows / SAMPLE) ** 3
