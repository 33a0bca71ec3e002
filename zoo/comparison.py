"""The comparison of one network: the results of ritz against those of the oracle."""

from __future__ import annotations

import time
import traceback
import warnings
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

import ritz
from ritz.errors import PrecisionWarning

from .network import Network
from .oracle import ORACLES, Float32, InDouble, Truth, slope_error
from .untouched import Snapshot

TOLERANCES = {"double backward": 1e-10, "central differences": 1e-6}
SLOPE = 1e-5  # where a difference may step over the kink of a ReLU
ALLOWANCE = 10  # times the effect of a model's own float32, in which two orders of computation may differ
OPERATORS = {"H": ritz.hessian, "G": ritz.gauss_newton, "E": ritz.functional_hessian}


@dataclass
class Result:
    """What was seen of one network."""

    library: str
    network: Network
    size: int = 0
    paths: dict[str, str] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)  # of "gradient", "H", "G", "E", relative
    float32: float | None = None  # the effect of a model's own float32 on its curvature, where it has some
    said: bool = False  # whether ritz warned of it
    seconds: float = 0.0  # of ritz alone: the risk and all products
    changes: list[str] = field(default_factory=list)  # of the user's model
    failure: str = ""
    trace: str = ""

    @property
    def tolerance(self) -> float:
        """What the errors may be."""
        return max(TOLERANCES[self.network.oracle], ALLOWANCE * (self.float32 or 0.0))

    def by_rules(self, name: str) -> bool:
        """Whether H, G or E took the efficient rules."""
        return self.paths[name] == "rules"

    @property
    def complaints(self) -> list[str]:
        """Why the network does not pass; empty if it does."""
        wrong = [f"{n}: {e:.1e} > {self.tolerance:.1e}" for n, e in self.errors.items() if not e <= self.tolerance]
        plain = [name for name in self.paths if not self.by_rules(name)]
        missed = [f"without the rules: {', '.join(plain)}"] if plain and self.network.rules else []
        silent = ["float32 inside, not said"] if self.float32 is not None and not self.said else []
        changed = [f"changed: {', '.join(self.changes[:3])}"] if self.changes else []
        return ([self.failure] if self.failure else []) + wrong + missed + silent + changed


def compare(library: str, network: Network) -> Result:
    """Build a network twice, hand one to ritz and one to the oracle, and compare."""
    result = Result(library, network)
    try:
        model, twin = network.model(), network.model()
        result.size = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        V = torch.randn(result.size, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        V /= V.norm(dim=0)
        products = _by_ritz(model, V, result)
        truth = _by_oracle(twin, V, result)
        result.errors = {name: max(_distance(p, truth[name]) for p in products[name]) for name in truth}
    except Exception as error:  # the next network is to be looked at all the same
        result.failure = f"{type(error).__name__}: {error}".replace("\n", " ")
        result.trace = traceback.format_exc()
    return result


def _by_ritz(model: nn.Module, V: Tensor, result: Result) -> dict[str, list[Tensor]]:
    """What ritz says of a user's model; products with one vector at a time, and with both together."""
    network, before, start = result.network, Snapshot(model), time.perf_counter()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        risk = ritz.Risk(model, network.loss.for_ritz(), network.data())
        products = {"gradient": [risk.gradient()]}
        for name, operator in OPERATORS.items():
            A = operator(risk)
            products[name] = [torch.stack([A @ v for v in V.T], dim=1), A @ V]
            result.paths[name] = A.info.path
    result.seconds = time.perf_counter() - start
    result.said = any(issubclass(warning.category, PrecisionWarning) for warning in seen)
    result.changes = before.differences()
    return products


def _by_oracle(model: nn.Module, V: Tensor, result: Result) -> Truth:
    """The truth, which must add up; and where the model computes in float32, how much of it that blurs."""
    network, data = result.network, result.network.data()
    oracle = ORACLES[network.oracle]
    with Float32() as mode:
        truth = sharp = oracle(model, network.loss, data, V)
    with InDouble():
        if mode.seen:
            sharp = oracle(model, network.loss, data, V)
            result.float32 = max(_distance(truth[name], sharp[name]) for name in truth)
        _check_oracle(model, network, V, sharp)
    return truth


def _check_oracle(model: nn.Module, network: Network, V: Tensor, truth: Truth) -> None:
    """H = G + E, and the gradient is the slope of the risk: PyTorch's derivatives may be wrong themselves."""
    gap = _distance(truth["G"] + truth["E"], truth["H"])
    slope = slope_error(model, network.loss, network.data(), truth["gradient"], V[:, 0]) if network.slope else 0.0
    if not (gap <= TOLERANCES[network.oracle] and slope <= SLOPE):
        raise ArithmeticError(f"The oracle errs: H - G - E is {gap:.1e} of H, the slope off by {slope:.1e}.")


def _distance(value: Tensor, truth: Tensor) -> float:
    return float((value - truth).norm() / truth.norm())
