"""Spectroscopy for neural networks: the spectrum of a network's curvature, with every number certified.

>>> import torch
>>> x, y = torch.eye(6).repeat(3, 1), torch.arange(18) % 3
>>> model = torch.nn.Linear(6, 3)
>>> risk = ritz.Risk(model.eval(), torch.nn.CrossEntropyLoss(), (x, y))
>>> H = ritz.hessian(risk)
>>> top = ritz.eigenpairs(H, 5)
>>> bool(top.converged.all())  # each with a certified residual
True
>>> spectrum = ritz.spectral_density(H, num_steps=10, outliers=5)
>>> figure, (ax,) = ritz.plot.panels()
>>> picture = ritz.plot.density(ax, spectrum, outliers=5)
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import analysis, classes, errors, lab, plot, report, solvers, theory
    from .classes import attribution, class_decomposition
    from .errors import RitzError
    from .factored import cfac, ekfac, gram_spectrum, kfac
    from .operators import (
        Operator,
        deflated,
        empirical_fisher,
        functional_hessian,
        gauss_newton,
        gradient_covariance,
        hessian,
        low_rank,
        monte_carlo_fisher,
        ntk,
        preconditioned,
    )
    from .record import Claim, Record
    from .risk import BinaryCrossEntropy, CrossEntropy, Loss, Risk, SquaredError
    from .solvers import (
        diagonal,
        effective_rank,
        eigenpairs,
        lanczos,
        log_determinant,
        negative_mass,
        solve,
        spectral_density,
        trace,
    )
    from .spectrum import Eigenpairs, Estimate, Spectrum

__version__ = "0.1.0"

__all__ = [
    # a model, a loss and data
    "Risk", "Loss", "CrossEntropy", "SquaredError", "BinaryCrossEntropy",
    # curvature as an operator
    "Operator", "hessian", "gauss_newton", "functional_hessian", "empirical_fisher",
    "monte_carlo_fisher", "gradient_covariance", "ntk",
    "deflated", "low_rank", "preconditioned",
    # what is measured
    "eigenpairs", "spectral_density", "lanczos", "trace", "log_determinant", "effective_rank", "negative_mass",
    "solve", "diagonal",
    # the Gauss-Newton matrix in ways of its own
    "gram_spectrum", "kfac", "ekfac", "cfac",
    # where lines come from
    "class_decomposition", "attribution",
    # results
    "Spectrum", "Eigenpairs", "Estimate", "Record", "Claim", "RitzError",
    # modules
    "analysis", "classes", "errors", "lab", "plot", "report", "solvers", "theory",
]  # fmt: skip

_HOMES = {  # for __getattr__; type checkers read the imports above
    "risk": "Risk Loss CrossEntropy SquaredError BinaryCrossEntropy",
    "operators": "Operator hessian gauss_newton functional_hessian empirical_fisher monte_carlo_fisher "
    "gradient_covariance ntk deflated low_rank preconditioned",
    "solvers": "eigenpairs spectral_density lanczos trace log_determinant effective_rank negative_mass solve diagonal",
    "factored": "gram_spectrum kfac ekfac cfac",
    "classes": "class_decomposition attribution",
    "spectrum": "Spectrum Eigenpairs Estimate",
    "record": "Record Claim",
    "errors": "RitzError",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """A public name or a module, imported when it is first used: the command's help needs no PyTorch."""
    if name in _HOME:
        value = getattr(import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    modules = (module.name for module in iter_modules(__path__))
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__, *modules})
