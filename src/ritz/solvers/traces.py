"""The trace of an operator as an Estimate, by XTrace or Hutchinson's mean over random signs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import ConvergenceWarning, check_positive, check_whole, warn_user
from ..operators import Operator
from ..record.checkpoints import State
from ..record.layouts import check_arrays, check_facts
from ..spectrum import Estimate
from .deflated_traces import deflated_trace, exact_trace
from .probes import is_settled, mean_of, quadratic_forms, source
from .resumption import Resumption
from .split_traces import split_trace
from .vectors import inner, room

KEPT = 6  # vectors that XTrace takes for each of its probes, of which there are half as many as products
DEFAULT_TOLERANCE = 0.01
DEFAULT_PRODUCTS = 256  # where a tolerance alone is given: XTrace keeps one vector for each product


def trace(
    A: Operator,
    *,
    tolerance: float | None = None,
    num_products: int | None = None,
    generator: torch.Generator | None = None,
    checkpoint: str | Path | None = None,
) -> Estimate:
    """tr A by XTrace: exact on a random subspace, stochastic on the rest, averaged over which probe is left out.

    The subspace grows as long as that lowers the error: it takes a sixth of the products where the spectrum is flat and
    half of them where it decays, and the others are samples of the rest. n products give the exact trace. The error is
    the Monte Carlo error. If there is no room for six vectors a probe, `hutchinson` takes all the products, which keeps
    nothing. Epperly, Tropp and Webber (2024), with their normalisation.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.arange(1.0, 301.0)))
    >>> estimate = ritz.trace(A, num_products=40)
    >>> abs(estimate.value - 45150) < 3 * estimate.standard_error
    True
    >>> ritz.trace(A, num_products=300)
    45150 ± 0 (300 products)

    Args:
        A: Symmetric operator.
        tolerance: The standard error at which to stop, relative to the trace; 0.01 if neither this nor `num_products`
            is given.
        num_products: With a tolerance, the most products; without one, the number of products. By default at most 256,
            with a ConvergenceWarning if these do not suffice for the tolerance.
        generator: Source of the probes; without it, a new generator with seed 0.
        checkpoint: A file from which a computation that was killed goes on to the same bits; started again when it is
            over, it reads its result there. It belongs to this operator and these arguments. So that it stays small, at
            most twelve vectors are kept: the trace is exact on these and by random signs on the rest, with a larger
            error than XTrace where the spectrum decays.
    """
    check_positive(tolerance=tolerance, num_products=num_products)
    check_whole(num_products=num_products)
    generator, budget = source(generator), num_products or DEFAULT_PRODUCTS
    goal = 0.0 if tolerance is None and num_products else tolerance or DEFAULT_TOLERANCE
    file = Resumption.of(checkpoint, A, "trace", generator, settings=(goal, budget))
    estimate = _trace(A, goal, budget, generator) if file is None else _kept_trace(A, goal, budget, generator, file)
    if not is_settled(estimate, goal) and num_products is None:
        warn_user(
            f"The trace is known only as {estimate}.\n  - Pass num_products to allow more, or a larger tolerance.",
            ConvergenceWarning,
        )
    return estimate


def _trace(A: Operator, goal: float, budget: int, generator: torch.Generator) -> Estimate:
    if budget >= A.size:
        return exact_trace(A, generator)
    if budget < 2 or KEPT * (budget // 2) > room(A):
        return hutchinson(A, num_products=budget, generator=generator)
    return split_trace(A, goal, budget, generator)


def _kept_trace(A: Operator, goal: float, budget: int, generator: torch.Generator, file: Resumption) -> Estimate:
    """The result in the file, or one that is computed with it."""
    if file.is_over:
        return file.read(partial(_read_estimate, budget, generator))
    is_exact = budget >= A.size
    estimate = exact_trace(A, generator, file) if is_exact else deflated_trace(A, goal, budget, generator, file)
    file.keep(partial(_written_estimate, estimate, generator), over=True)
    return estimate


def _written_estimate(estimate: Estimate, generator: torch.Generator) -> State:
    return {"generator": generator.get_state()}, {
        "value": estimate.value,
        "standard_error": estimate.standard_error if estimate.has_error else None,
        "num_products": estimate.num_products,
    }


def _read_estimate(
    budget: int, generator: torch.Generator, arrays: Mapping[str, Tensor], header: Mapping[str, Any]
) -> Estimate:
    """A result from its file."""
    check_facts(header, num_products=range(1, budget + 1))
    if header["standard_error"] is not None or header["num_products"] > 1:  # two probes have an error
        check_facts(header, standard_error=float)
    if type(header["value"]) is not float or not math.isfinite(header["value"]):
        raise ValueError(f"its value is {header['value']!r:.80}")
    check_arrays(arrays, {"generator": generator.get_state()})
    generator.set_state(arrays["generator"])
    return Estimate(header["value"], header["standard_error"], header["num_products"])


def hutchinson(A: Operator, *, num_products: int = 100, generator: torch.Generator | None = None) -> Estimate:
    """tr A = E zᵀAz for random signs z: one product a probe, and nothing kept. Hutchinson (1990).

    The error is the Monte Carlo error; `trace` has a far smaller one where the spectrum decays.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.arange(1.0, 301.0)))
    >>> ritz.solvers.hutchinson(A, num_products=10)  # of a diagonal matrix, random signs see the trace itself
    45150 ± 0 (10 products)
    """
    check_positive(num_products=num_products)
    check_whole(num_products=num_products)
    samples = quadratic_forms(A, num_products, source(generator), lambda Z, AZ: inner(Z, AZ).diagonal())
    return mean_of(samples[0], num_products)
