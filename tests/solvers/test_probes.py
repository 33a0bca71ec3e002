"""Estimates from random probes: the generator, the errors and the refusals that they share."""

import math

import pytest
import torch

from ritz.errors import ArgumentError, NumericalError
from ritz.operators import Operator
from ritz.solvers import condition_number, effective_rank, hutchinson, log_determinant, negative_mass, trace
from ritz.solvers.probes import interval_factor, student_factor

from .spectra import DECAY, FLAT, linspace, rotated, with_eigenvalues


def test_one_probe_has_no_error(generator):
    A = with_eigenvalues(FLAT)
    few = [hutchinson(A, num_products=1, generator=generator), effective_rank(A, num_products=1, generator=generator)]
    few += [trace(A, num_products=p, generator=generator) for p in (1, 2, 3)]
    few += [log_determinant(rotated(linspace(0.5, 1.5, 600)), num_probes=1, generator=generator)]
    for estimate in few:
        with pytest.raises(ArgumentError, match="one probe"):
            estimate.standard_error


@pytest.mark.parametrize("estimate", [trace, hutchinson, effective_rank])
def test_nan_products_and_senseless_budgets_are_refused(estimate, generator):
    A = Operator(lambda V: V * math.nan, 300, torch.float64, torch.device("cpu"))
    with pytest.raises(NumericalError, match="NaN"):
        estimate(A, num_products=20, generator=generator)
    with pytest.raises(ArgumentError, match="num_products=0"):
        estimate(A, num_products=0, generator=generator)


def test_estimates_repeat_with_their_generator():
    A = with_eigenvalues(DECAY)
    for estimate in (trace, hutchinson, effective_rank, negative_mass):
        first, again, other = (estimate(A, generator=torch.Generator().manual_seed(s)).value for s in (0, 0, 1))
        assert first == again and (first != other or estimate is negative_mass)


@pytest.mark.parametrize("estimate", [trace, hutchinson, effective_rank, log_determinant, negative_mass])
def test_without_a_generator_the_seed_is_zero(estimate):
    A = with_eigenvalues(FLAT)
    assert estimate(A).value == estimate(A, generator=torch.Generator().manual_seed(0)).value


@pytest.mark.parametrize(
    "estimate, wrong",
    [
        *((f, {"generator": 0}) for f in (trace, hutchinson, effective_rank, log_determinant, negative_mass)),
        *((f, {"num_products": 8.0}) for f in (trace, hutchinson, effective_rank)),
        *((f, {name: 8.0}) for f in (log_determinant, negative_mass) for name in ("num_steps", "num_probes")),
        *((f, {"damping": bad}) for f in (log_determinant, condition_number) for bad in (math.nan, math.inf)),
        *((f, {"tolerance": bad}) for f in (trace, negative_mass, condition_number) for bad in (-1.0, math.nan)),
        *((condition_number, {"max_products": 100.0}), (condition_number, {"generator": 0})),
        *((log_determinant, {"num_steps": 0}), (log_determinant, {"num_probes": 0})),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_arguments_that_make_no_sense_are_refused_by_name(estimate, wrong):
    with pytest.raises(ArgumentError, match=next(iter(wrong))) as caught:
        estimate(with_eigenvalues(FLAT), **wrong)
    assert caught.value.seen and caught.value.why and caught.value.ways_out


@pytest.mark.parametrize("count", [10, 20, 50])
def test_two_errors_of_a_mean_from_skewed_samples_reach_further(count, generator):
    """Squares of normal numbers, as one large eigenvalue makes them: 0.86, 0.90 and 0.94 by Student's factor alone."""
    draws = torch.randn(2000, count, generator=generator, dtype=torch.float64)
    held = {"skewed": [0, 0], "normal": [0, 0]}
    for kind, truth, samples in (("skewed", 1.0, draws.square()), ("normal", 0.0, draws)):
        for row in samples:
            miss, error = abs(float(row.mean()) - truth), 2 * float(row.std()) / math.sqrt(count)
            held[kind][0] += miss <= student_factor(count) * error
            held[kind][1] += miss <= interval_factor(row) * error
    assert held["skewed"][1] >= held["skewed"][0] + 30 and held["skewed"][1] >= 2000 * (0.95 - 0.6 / count)
    assert held["normal"][1] <= 2000 * 0.98
