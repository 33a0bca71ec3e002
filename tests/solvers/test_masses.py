"""Masses below zero cover the truth at the rate their error states."""

import pytest
import torch

from ritz.solvers import negative_mass

from .spectra import INDEFINITE, coverage, linspace, with_eigenvalues

CROWDED = 0.1 * torch.randn(400, generator=torch.Generator().manual_seed(4), dtype=torch.float64) ** 3


@pytest.mark.parametrize(
    "eigenvalues", [torch.cat([linspace(-2, -0.5, 90), linspace(0.5, 3, 210)]), INDEFINITE, CROWDED]
)
@pytest.mark.parametrize("num_steps", [10, 60])
def test_negative_mass_lies_within_its_error(eigenvalues, num_steps):
    A, truth = with_eigenvalues(eigenvalues), float((eigenvalues < 0).double().mean())
    estimate = lambda generator: negative_mass(A, num_steps=num_steps, num_probes=12, generator=generator)
    assert coverage(estimate, truth, 40) >= 0.82


def test_negative_mass_is_exact_where_the_krylov_space_is_exhausted(generator):
    eigenvalues = torch.cat([torch.full((30,), -1.0), torch.full((70,), 2.0)])
    runs = [negative_mass(with_eigenvalues(eigenvalues), num_probes=50, generator=generator) for _ in range(5)]
    assert all(abs(run.value - 0.3) < 4 * run.standard_error and run.standard_error < 0.02 for run in runs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zeros_of_a_rank_deficient_operator_are_not_negative(dtype, generator):
    eigenvalues = torch.cat([linspace(1, 2, 20), torch.zeros(280)])
    assert negative_mass(with_eigenvalues(eigenvalues, dtype=dtype), generator=generator).value == 0.0
    result = negative_mass(with_eigenvalues(-eigenvalues, dtype=dtype), num_probes=40, generator=generator)
    assert abs(result.value - 20 / 300) <= 4 * result.standard_error
