"""Four pieces of work as each of the compared libraries does them, from construction to result."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import ritz

from .problems import Problem

NUM_PROBES, NUM_STEPS, NUM_PAIRS, TOLERANCE = 8, 64, 10, 1e-4


class Ritz:
    """ritz in its default setting, or with TF32 in the linear maps."""

    def __init__(self, problem: Problem, tangent_precision: str = "highest") -> None:
        self.problem, self.precision = problem, tangent_precision
        self.last_risk: ritz.Risk | None = None

    def risk(self) -> ritz.Risk:
        problem, loss = self.problem, ritz.CrossEntropy()
        self.last_risk = ritz.Risk(problem.model, loss, problem.batches, tangent_precision=self.precision)
        return self.last_risk

    def hessian(self) -> ritz.Operator:
        return ritz.hessian(self.risk())

    def gauss_newton(self) -> ritz.Operator:
        return ritz.gauss_newton(self.risk())

    def density(self, num_steps: int = NUM_STEPS) -> Any:
        spectrum = ritz.spectral_density(self.hessian(), num_steps=num_steps, num_probes=NUM_PROBES)
        return spectrum.density(spectrum.grid())

    def eigenpairs(self) -> tuple[np.ndarray, float, int]:
        """Values, largest relative residual by fresh products, products used."""
        pairs = ritz.eigenpairs(self.hessian(), NUM_PAIRS, tolerance=TOLERANCE)
        values = pairs.values.cpu().numpy()
        return values, float(pairs.residuals.max()) / np.abs(values).max(), pairs.num_products


class Curvlinops:
    """curvlinops, eager or compiled, without its own determinism checks; ARPACK in float32."""

    def __init__(self, problem: Problem, compiled: bool = False) -> None:
        self.problem, self.compiled = problem, compiled
        write_hardsigmoid_out(problem.model)

    def hessian(self) -> Any:
        from curvlinops import HessianLinearOperator

        return self._operator(HessianLinearOperator)

    def gauss_newton(self) -> Any:
        from curvlinops import GGNLinearOperator

        return self._operator(GGNLinearOperator)

    def _operator(self, kind: Any) -> Any:
        problem = self.problem
        parameters = list(problem.model.parameters())
        operator = kind(problem.model, problem.loss, parameters, problem.batches, check_deterministic=False)
        if self.compiled:  # the instance's product, so that all that curvlinops does around it stays
            operator._matmat = torch.compile(operator._matmat)
        return operator

    def density(self, num_steps: int = NUM_STEPS) -> Any:
        from curvlinops.papyan2020traces.spectrum import lanczos_approximate_spectrum

        return lanczos_approximate_spectrum(self.hessian(), num_steps, num_repeats=NUM_PROBES)

    def eigenpairs(self) -> tuple[np.ndarray, float, int]:
        """ARPACK, then the residuals by fresh products, as ritz does them."""
        operator = _single_precision(self.hessian())
        counted = Counted(operator)
        values, vectors = eigsh(counted.operator, k=NUM_PAIRS, which="LA", tol=TOLERANCE)
        residuals = np.linalg.norm(counted.operator @ vectors - vectors * values, axis=0)
        return values[::-1], residuals.max() / np.abs(values).max(), counted.count


class PyHessian:
    """PyHessian on the data loader path; its power iteration to its own tolerance."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        write_hardsigmoid_out(problem.model)

    def hessian(self) -> Any:
        from pyhessian import hessian

        with contextlib.redirect_stdout(io.StringIO()):
            return hessian(self.problem.model, self.problem.loss, dataloader=self.problem.batches, cuda=False)

    def eigenpairs(self) -> tuple[np.ndarray, float, int]:
        values, _ = self.hessian().eigenvalues(top_n=NUM_PAIRS, maxIter=100, tol=1e-3)
        return np.array(values), float("nan"), 0


class Counted:
    """A SciPy operator that counts its products."""

    def __init__(self, wrapped: LinearOperator) -> None:
        self.count = 0

        def product(v: np.ndarray) -> np.ndarray:
            self.count += 1 if v.ndim == 1 else v.shape[1]
            return wrapped @ v

        self.operator = LinearOperator(wrapped.shape, matvec=product, matmat=product, dtype=wrapped.dtype)


def _single_precision(operator: Any) -> LinearOperator:
    """The operator for SciPy in float32: curvlinops' own export asks ARPACK for float64 from float32 products."""
    scipy_operator = operator.to_scipy()
    product = lambda v: (scipy_operator @ v).astype(np.float32)
    return LinearOperator(scipy_operator.shape, matvec=product, matmat=product, dtype=np.float32)


class WrittenOutHardsigmoid(nn.Module):
    """relu6(x + 3) / 6: PyTorch's own hardsigmoid cannot be differentiated twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu6(x + 3) / 6


def write_hardsigmoid_out(model: nn.Module) -> None:
    """Put the written-out form in the place of every hardsigmoid, for libraries that need a second derivative."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Hardsigmoid):
                setattr(module, name, WrittenOutHardsigmoid())


@contextlib.contextmanager
def fair(*, search: bool) -> Iterator[None]:
    """Settings for every library: attention that can be differentiated twice, and float32 without TF32.

    `search` lets cuDNN look for its fastest convolutions, which is not PyTorch's default; ritz asks for it itself.
    They hold for the rest of the process, which is the library's own.
    """
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = False, search
    torch.backends.mha.set_fastpath_enabled(False)
    with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
        warnings.simplefilter("ignore")
        yield


def product_with(operator: Any, problem: Problem) -> Callable[[], Any]:
    """One product with a vector in the library's own form."""
    generator = torch.Generator().manual_seed(0)
    parameters = [p for p in problem.model.parameters() if p.requires_grad]
    pieces = [torch.randn(p.shape, generator=generator).to(p) for p in parameters]
    if hasattr(operator, "dataloader_hv_product"):
        return lambda: operator.dataloader_hv_product(pieces)
    flat = torch.cat([piece.reshape(-1) for piece in pieces])
    return lambda: operator @ flat
