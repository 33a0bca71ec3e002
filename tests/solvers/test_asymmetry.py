"""An operator that is not symmetric is refused, not answered with numbers that are far from any eigenvalue."""

import pytest
import torch

from ritz import solvers
from ritz.errors import ArgumentError, ConvergenceWarning
from ritz.operators import Operator

from .spectra import linspace, random, rotated

N = 600  # beyond what is decomposed whole
SOLVERS = {
    "spectral_density": solvers.spectral_density,
    "log_determinant": solvers.log_determinant,
    "negative_mass": solvers.negative_mass,
    "function": lambda A: solvers.function(A, torch.exp, torch.ones(A.size, dtype=A.dtype)),
    "nuclear norm": lambda A: solvers.norm(A, "nuc"),
    "one eigenpair": lambda A: solvers.eigenpairs(A, 1, tolerance=0.1),
}


def skewed(size, share):
    """A positive matrix, and a skew-symmetric one with about this share of its norm."""
    B = random(size, size, generator=torch.Generator().manual_seed(0))
    skew = share * (B - B.T) / size**0.5
    A = rotated(linspace(1, 3, size))
    return Operator(lambda V: A @ V + skew @ V, size, torch.float64, torch.device("cpu"))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("size", [40, N])
def test_an_operator_that_is_not_symmetric_is_refused(solver, size):
    with pytest.raises(ArgumentError, match="not symmetric"):
        SOLVERS[solver](skewed(size, 0.3))


@pytest.mark.parametrize("block_size", [1, 3])
@pytest.mark.parametrize("size", [40, N])
def test_a_search_for_eigenpairs_sees_an_asymmetry_of_a_twentieth(size, block_size):
    with pytest.raises(ArgumentError, match="not symmetric"):
        solvers.eigenpairs(skewed(size, 0.05), 2, block_size=block_size, tolerance=0.05)


@pytest.mark.parametrize("block_size", [1, 3])
@pytest.mark.parametrize("which", ["largest", "both", "magnitude"])
def test_restarts_and_copies_of_a_symmetric_operator_are_not_called_asymmetric(which, block_size):
    """Rows that are locked, to a coarse tolerance, have products with all that follow."""
    A = rotated(torch.cat([linspace(3, 3, 3), linspace(-4, -4, 3), linspace(-1, 1, N)]))
    found = solvers.eigenpairs(A, 5, which=which, block_size=block_size, basis_size=24, tolerance=0.05)
    assert found.converged.all() and found.num_products > 20


@pytest.mark.parametrize("which", ["both", "magnitude"])
def test_blocks_stay_orthogonal_where_they_exhaust_an_operator_of_low_rank(which):
    """A row that others of its block shrink has its rounding along earlier rows enlarged as much."""
    generator = torch.Generator().manual_seed(1)
    A = rotated(torch.cat([linspace(1, 10, 10), linspace(0, 0, 3 * N)]), dtype=torch.float32)
    noise = lambda V: 1e-6 * V.norm(dim=0) * torch.randn(V.shape, generator=generator)
    noisy = Operator(lambda V: A @ V + noise(A @ V) / A.size**0.5, A.size, torch.float32, torch.device("cpu"))
    found = solvers.eigenpairs(noisy, 5, which=which, block_size=4, generator=torch.Generator().manual_seed(0))
    assert float((found.vectors.T @ found.vectors - torch.eye(5)).abs().max()) < 1e-4


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("size", [1, 2, 40, N])
def test_products_in_bfloat16_are_symmetric_enough(solver, size):
    A = rotated(linspace(1, 3, size), dtype=torch.float32)
    rounded = lambda V: (A @ V.bfloat16().float()).bfloat16().float()
    SOLVERS[solver](Operator(rounded, size, torch.float32, torch.device("cpu")))


@pytest.mark.parametrize("solver", ["log_determinant", "nuclear norm"])
def test_noise_in_the_products_of_a_small_operator_is_in_the_error_of_its_eigenvalues(solver):
    generator, exact = torch.Generator().manual_seed(0), linspace(1, 3, 40)
    A = rotated(exact)
    noisy = lambda V: A @ V + 1e-4 * random(*V.shape, generator=generator)
    result = SOLVERS[solver](Operator(noisy, 40, torch.float64, torch.device("cpu")))
    truth = float(exact.log().sum() if solver == "log_determinant" else exact.sum())
    assert 1e-5 < abs(result.value - truth) < 2 * result.standard_error < 0.1


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("size", [40, N])
def test_products_that_are_nothing_but_rounding_are_not_called_asymmetric(solver, size):
    A, B = rotated(linspace(1, 3, size)), rotated(linspace(1, 3, size)).dense()
    left = Operator(lambda V: (A @ V - B @ V) + 1e-20 * V, size, torch.float64, torch.device("cpu"))
    damped = left if solver != "log_determinant" else left + 1.0
    if solver != "one eigenpair":
        SOLVERS[solver](damped)
    elif size == N:
        with pytest.warns(ConvergenceWarning):  # the residuals are as large as all products
            SOLVERS[solver](damped)
