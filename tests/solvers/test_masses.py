"""Masses below zero cover the truth at the rate their error states."""

from dataclasses import replace

import pytest
import torch

from ritz.operators import Operator
from ritz.solvers import negative_mass, spectral_density

from .spectra import INDEFINITE, counted, coverage, linspace, rotated, runs, with_eigenvalues

CROWDED = 0.1 * torch.randn(400, generator=torch.Generator().manual_seed(4), dtype=torch.float64) ** 3


@pytest.mark.parametrize(
    "eigenvalues", [torch.cat([linspace(-2, -0.5, 90), linspace(0.5, 3, 210)]), INDEFINITE, CROWDED]
)
@pytest.mark.parametrize("num_steps", [10, 60])
@pytest.mark.usefixtures("unchecked")
def test_negative_mass_lies_within_its_error(eigenvalues, num_steps):
    A, truth = with_eigenvalues(eigenvalues), float((eigenvalues < 0).double().mean())
    estimate = lambda generator: negative_mass(A, num_steps=num_steps, num_probes=12, generator=generator)
    assert coverage(estimate, truth, 40) >= 0.82


def test_negative_mass_is_exact_where_the_krylov_space_is_exhausted(generator):
    eigenvalues = torch.cat([torch.full((30,), -1.0), torch.full((70,), 2.0)])
    runs = [negative_mass(with_eigenvalues(eigenvalues), num_probes=50, generator=generator) for _ in range(5)]
    assert all(abs(run.value - 0.3) < 4 * run.standard_error and run.standard_error < 0.02 for run in runs)


@pytest.mark.parametrize("values", [[-1.0, 2.0, 5.0], [2.0]])
def test_a_negative_mass_says_how_many_products_were_made(values):
    A, calls = counted(rotated(torch.tensor(values).repeat(200).double()))
    assert negative_mass(A).num_products == sum(calls) < 8 * 128


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zeros_of_a_rank_deficient_operator_are_not_negative(dtype, generator):
    eigenvalues = torch.cat([linspace(1, 2, 20), torch.zeros(280)])
    assert negative_mass(with_eigenvalues(eigenvalues, dtype=dtype), generator=generator).value == 0.0
    result = negative_mass(with_eigenvalues(-eigenvalues, dtype=dtype), num_probes=40, generator=generator)
    assert abs(result.value - 20 / 300) <= 4 * result.standard_error


@pytest.mark.parametrize("quantile", [0.1, 0.3, 0.5])
def test_the_error_of_a_mass_knows_what_lies_beyond_all_nodes(quantile):
    eigenvalues = torch.arange(1, 601, dtype=torch.float64) ** -2  # most of them below every Ritz value
    A, end = rotated(eigenvalues), float(torch.quantile(eigenvalues, quantile))
    mass = lambda generator: spectral_density(A, num_steps=24, num_probes=4, generator=generator).mass(-1.0, end)
    assert coverage(mass, quantile, 10) == 1.0


def test_negative_eigenvalues_too_small_to_be_seen_are_in_doubt(generator):
    eigenvalues = torch.arange(1, 601, dtype=torch.float64) ** -3
    eigenvalues[300::2] *= -1
    result = negative_mass(rotated(eigenvalues), num_steps=16, generator=generator)
    assert abs(result.value - 0.25) <= 2 * result.standard_error


@pytest.mark.usefixtures("unchecked")
def test_the_error_of_a_mass_is_not_far_too_large_in_a_smooth_spectrum():
    A = rotated(linspace(-1, 2, 900))
    values, errors = runs(lambda generator: negative_mass(A, num_steps=24, generator=generator), 24)
    true = float((values - 1 / 3).square().mean().sqrt())
    assert float(errors.square().mean().sqrt()) < 2.5 * true  # six times as large, if all of a node were in doubt
    assert float(((values - 1 / 3).abs() <= 2 * errors).double().mean()) >= 0.9


def test_no_mass_reaches_below_zero_where_no_eigenvalue_can():
    """Twenty steps leave open how far the mass at the smallest node reaches; that G is a sum of squares does not."""
    values = torch.cat([torch.zeros(100), torch.logspace(-6, 0, 100)]).double()
    A = Operator.from_matrix(torch.diag(values))
    assert negative_mass(A, num_steps=20).standard_error > 0
    assert negative_mass(replace(A, semidefinite=True), num_steps=20).standard_error == 0
    assert negative_mass(replace(A - 0.5, semidefinite=True), num_steps=20).value > 0.5, "not against what is seen"
