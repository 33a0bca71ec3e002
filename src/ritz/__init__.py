"""Spectroscopy for neural networks: the spectrum of a network's curvature, with every number certified.

risk = ritz.Risk(model.eval(), torch.nn.CrossEntropyLoss(), (x, y))
H = ritz.hessian(risk)
top = ritz.eigenpairs(H, 10)
spectrum = ritz.spectral_density(H, outliers=10)
ritz.plot.density(ax, spectrum)
"""

from importlib import import_module
from typing import Any

from . import analysis, classes, knockout, losses, plot, progress, testing, theory
from .attribution import Attribution, attribution
from .classes import ClassDecomposition, class_decomposition
from .eigen import eigenpairs, subspace_iteration
from .errors import ArgumentError, DataError, FileError, ModelError, NumericalError, RitzError
from .estimates import condition_number, effective_rank, hutchinson, log_determinant, negative_mass, trace
from .gram import Gram, gram_spectrum
from .kronecker import cfac, kfac, khatri_rao_cfac, khatri_rao_kfac
from .krylov import Tridiagonal, lanczos, spectral_density, spectral_range
from .losses import BinaryCrossEntropy, CrossEntropy, Loss, SquaredError
from .operators import (
    Operator,
    deflated,
    empirical_fisher,
    functional_hessian,
    gauss_newton,
    hessian,
    low_rank,
    preconditioned,
)
from .record import Claim, Record
from .risk import Risk
from .spectrum import ConvergenceWarning, Eigenpairs, Estimate, Spectrum

__version__ = "0.1.0"
_ON_DEMAND = ("class_analysis", "experiments", "integrations", "lab", "verify")  # imported when they are first used

__all__ = [
    # a model, a loss and data
    "Risk", "Loss", "CrossEntropy", "SquaredError", "BinaryCrossEntropy", "losses",
    # curvature as an operator
    "Operator", "hessian", "gauss_newton", "functional_hessian", "empirical_fisher",
    "deflated", "low_rank", "preconditioned", "testing",
    # what is measured
    "eigenpairs", "subspace_iteration", "lanczos", "spectral_density", "spectral_range",
    "trace", "hutchinson", "log_determinant", "condition_number", "effective_rank", "negative_mass",
    # where it comes from
    "class_decomposition", "ClassDecomposition", "classes", "knockout", "attribution", "Attribution",
    "gram_spectrum", "Gram", "kfac", "cfac", "khatri_rao_kfac", "khatri_rao_cfac",
    # results
    "Spectrum", "Eigenpairs", "Estimate", "Tridiagonal", "Record", "Claim", "analysis", "plot", "progress",
    # what theory predicts
    "theory",
    # what can go wrong
    "RitzError", "DataError", "ModelError", "ArgumentError", "NumericalError", "FileError", "ConvergenceWarning",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _ON_DEMAND:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_DEMAND})
