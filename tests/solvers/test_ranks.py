"""Effective ranks cover the truth at the rate their error states."""

import pytest
import torch

from ritz.solvers import (
    effective_rank,
)

from .spectra import (
    DECAY,
    FLAT,
    INDEFINITE,
    coverage,
    with_eigenvalues,
)


@pytest.mark.parametrize("eigenvalues", [DECAY, FLAT, INDEFINITE])
def test_effective_rank_lies_within_its_error(eigenvalues):
    A, truth = with_eigenvalues(eigenvalues), float(eigenvalues.sum() ** 2 / eigenvalues.square().sum())
    assert coverage(lambda generator: effective_rank(A, num_products=200, generator=generator), truth) >= 0.87


def test_effective_rank_counts_equal_eigenvalues(generator):
    eigenvalues = torch.cat([torch.full((30,), 2.0), torch.zeros(170)])
    found = effective_rank(with_eigenvalues(eigenvalues), num_products=2000, generator=generator)
    assert abs(found.value - 30) < 4 * found.standard_error and found.standard_error < 1
    assert effective_rank(with_eigenvalues(torch.zeros(50)), generator=generator).value == 0.0
