"""The forecast of what a class analysis will cost."""

from __future__ import annotations

import time

import torch

from ...classes.lines.knockout_spectra import PROBES, PROJECTED, STEPS, SUBTRACTED
from ...factored.kronecker_products import DENSE
from ...operators import Operator, gauss_newton
from ...risk import Risk
from ...solvers import eigenpairs, memory_needed, spectral_density
from ...solvers.eigen import kept_basis
from ..spectrum.forecasts import FILE, Forecast, decomposition_seconds, product_bytes, product_seconds
from ..spectrum.measurement import layers_of
from ..spectrum.settings import PER_PAIR
from .measurement import ClassSettings

COPIES = 6  # of a matrix that is formed and decomposed
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
    G, count = gauss_newton(risk), min(risk.size, settings.num_lines or risk.num_classes + 2)
    start = time.perf_counter()
    product_seconds(G, settings.seed, 1, repeats=1)
    set_up, one = time.perf_counter() - start, product_seconds(G, settings.seed, 1)
    rows = risk.num_targets * (risk.num_classes - 1)
    by_gram = rows <= settings.exact_rows and risk.group is None and risk.separable
    products = 2 * PER_PAIR * count + risk.num_classes  # the class means are made of about C products' gradients
    is_small = not by_gram and risk.size <= settings.exact_rows
    quadratures = 0 if by_gram or is_small else SPECTRA * STEPS * PROBES
    products += 0 if by_gram else quadratures + is_small * risk.size + PER_PAIR  # a small G is formed once
    by_rows = rows * one + (SPECTRA + 2) * decomposition_seconds(rows) if by_gram else 0.0  # a row costs a product
    dense = SPECTRA * decomposition_seconds(risk.size) if is_small else 0.0
    seconds = set_up + products * one + by_rows + dense
    number, vector = risk.theta.element_size(), risk.size * risk.theta.element_size()
    gram = 8 * rows**2 if by_gram else 0
    formed = 8 * COPIES * risk.size**2 if is_small else 0
    held = 2.0 * risk.num_classes**2 * vector
    whole = (held if held <= risk.memory else 0.0) + 3 * gram + formed + memory_needed(eigenpairs, G, count)
    memory = max(whole + product_bytes(G, count), _layers_bytes(risk))
    written = gram + (kept_basis(count) + 2 * count) * vector + number * rows * risk.num_classes
    written += FILE * (SPECTRA + 2 + len(layers_of(risk)))
    return Forecast(seconds, products, one, memory, G.info.path if G.info is not None else "unknown", written)


def _layers_bytes(risk: Risk) -> float:
    """The bytes for the spectrum of a layer's factorisation, for the layer that takes most."""
    sizes = [sum(risk.shapes[name].numel() for name in names) for names in layers_of(risk).values()]
    return max(_spectrum_bytes(size, risk) for size in sizes)


def _spectrum_bytes(size: int, risk: Risk) -> float:
    """A small matrix is decomposed, in copies of it; of a large one there is a quadrature."""
    if size <= DENSE:
        return 8.0 * COPIES * size**2
    block = Operator(lambda V: V, size, torch.float64, risk.device)
    return memory_needed(spectral_density, block, num_probes=PROBES, num_steps=STEPS)
