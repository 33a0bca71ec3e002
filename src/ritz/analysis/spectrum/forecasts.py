"""The forecast of what an analysis will cost."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from ...operators import Operator
from ...risk import Risk
from ...risk.risk import check_is_risk
from ...solvers import eigenpairs, memory_needed, spectral_density
from .measurement import layers_of
from .settings import Settings


@dataclass(frozen=True)
class Forecast:
    """What an analysis will cost, from one product that was made.

    >>> data = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1)
    >>> risk = ritz.Risk(torch.nn.Linear(2, 1, bias=False), torch.nn.MSELoss(), data)
    >>> cost = forecast(risk)
    >>> 0 < cost.product_seconds < cost.seconds
    True
    """

    seconds: float
    num_products: int
    product_seconds: float
    bytes: float
    path: str  # how products are computed


_PRODUCTS_PER_PAIR = 5  # seen on trained classifiers, whose largest eigenvalues are well separated


def forecast(risk: Risk, settings: Settings | None = None) -> Forecast:
    """Set the products up, time one, and say what the whole analysis will take. Nothing else is computed.

    >>> data = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1)
    >>> risk = ritz.Risk(torch.nn.Linear(2, 1, bias=False), torch.nn.MSELoss(), data)
    >>> forecast(risk, Settings(num_eigenpairs=1, num_probes=2, num_steps=2)).num_products
    6
    """
    check_is_risk(risk)
    settings = (settings or Settings()).for_size(risk.size)
    start = time.perf_counter()
    A = settings.operator(risk)
    V = torch.randn(risk.size, 1, generator=torch.Generator().manual_seed(settings.seed), dtype=risk.dtype)
    V = V.to(risk.device)
    _synchronised(A @ V)
    set_up = time.perf_counter() - start
    _synchronised(A @ V)
    product_seconds = time.perf_counter() - start - set_up
    blocks = 1 + (len(layers_of(risk)) if settings.per_layer else 0)
    pairs = min(risk.size, _PRODUCTS_PER_PAIR * (settings.num_eigenpairs or 0))
    count = blocks * (pairs + settings.num_probes * settings.num_steps)
    return Forecast(blocks * set_up + count * product_seconds, count, product_seconds, *_footprint(A, risk, settings))


def _footprint(A: Operator, risk: Risk, settings: Settings) -> tuple[float, str]:
    """Bytes: the kept linearisations, and the vectors of the larger of the two solvers."""
    probes = {"num_probes": settings.num_probes, "num_steps": settings.num_steps}
    search = memory_needed(eigenpairs, A, settings.num_eigenpairs) if settings.num_eigenpairs else 0.0
    solver = max(search, memory_needed(spectral_density, A, **probes))
    if A.info is None:
        return solver, "unknown"
    return solver + A.info.kept_bytes, A.info.path


def _synchronised(result: Tensor) -> float:
    return float(result[0, 0])  # reading a number waits for the device
