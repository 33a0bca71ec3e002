"""Log-determinants cover the truth at the rate their error states."""

import pytest
import torch

from ritz.operators import Operator
from ritz.solvers import log_determinant
from ritz.solvers.probes import gaussian

from .spectra import FLAT, coverage, linspace, with_eigenvalues


@pytest.mark.parametrize("damping", [0.0, 2.0])
def test_log_determinant_lies_within_its_error(damping):
    A, truth = with_eigenvalues(FLAT), float((FLAT + damping).log().sum())
    estimate = lambda generator: log_determinant(A, damping=damping, num_steps=20, num_probes=20, generator=generator)
    assert coverage(estimate, truth, 40) >= 0.82


@pytest.mark.parametrize("num_steps", [4, 10, 30, 60])
@pytest.mark.parametrize("spectrum", ["logarithmic", "linear", "cubic"])
def test_log_determinant_lies_within_its_error_where_the_quadrature_is_far_from_done(spectrum, num_steps):
    t = linspace(0, 1, 300)
    eigenvalues = {"logarithmic": 10 ** (6 * t - 6), "linear": t + 1e-6, "cubic": t**3 + 1e-6}[spectrum]  # κ = 10⁶
    A, truth = with_eigenvalues(eigenvalues), float(eigenvalues.log().sum())
    estimate = lambda generator: log_determinant(A, num_steps=num_steps, generator=generator)
    assert coverage(estimate, truth, 30) >= 0.83


def test_a_quadrature_that_is_done_adds_nothing_to_the_error(generator):
    A, probes = with_eigenvalues(FLAT), gaussian(with_eigenvalues(FLAT), 8, torch.Generator().manual_seed(0))
    result = log_determinant(A, num_steps=60, generator=generator)
    V = probes / probes.norm(dim=1, keepdim=True)
    values, U = torch.linalg.eigh(A.dense())
    samples = 300 * ((V @ U).square() * values.log()).sum(1)
    assert result.standard_error == pytest.approx(float(samples.std()) / 8**0.5, rel=1e-6)
    identity = log_determinant(Operator.from_matrix(2 * torch.eye(300, dtype=torch.float64)), num_steps=1)
    assert identity.standard_error == pytest.approx(0, abs=1e-9)
    assert log_determinant(A, num_steps=1).standard_error > 5  # one node sees the mean alone


def test_log_determinant_counts_its_products(generator):
    A, columns = with_eigenvalues(FLAT), []
    watched = Operator(lambda V: columns.append(V.shape[1]) or A @ V, A.size, A.dtype, A.device)
    assert log_determinant(watched, num_steps=15, generator=generator).num_products == sum(columns)
