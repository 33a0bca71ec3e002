"""Whatever the unit of an operator: results follow it as far as float64 reaches, and are refused beyond."""

import math

import pytest
import torch
from torch.testing import assert_close

import ritz
from ritz.solvers import (
    condition_number,
    diagonal,
    effective_rank,
    eigenpairs,
    function,
    hutchinson,
    lanczos,
    log_determinant,
    negative_mass,
    norm,
    solve,
    spectral_density,
    spectral_range,
    subspace_iteration,
    trace,
)
from tests.solvers.spectra import OUTLIERS, with_eigenvalues

A = with_eigenvalues(OUTLIERS + 0.1)
ONES = torch.ones(A.size, dtype=torch.float64)
SOLVERS = {
    "eigenpairs": lambda A: eigenpairs(A, 3, basis_size=30),
    "exact eigenpairs": lambda A: eigenpairs(A, 3),
    "subspace_iteration": lambda A: subspace_iteration(A, 3, 5),
    "spectral_density": lambda A: spectral_density(A, num_steps=8, num_probes=2),
    "spectral_density with outliers": lambda A: spectral_density(A, num_steps=8, num_probes=2, outliers=2),
    "spectral_range": spectral_range,
    "lanczos": lambda A: lanczos(A, ONES, 8),
    "trace": lambda A: trace(A, num_products=40),
    "hutchinson": lambda A: hutchinson(A, num_products=10),
    "effective_rank": lambda A: effective_rank(A, num_products=40),
    "exact effective_rank": lambda A: effective_rank(A, num_products=300),
    "negative_mass": lambda A: negative_mass(A, num_steps=8, num_probes=2),
    "Frobenius norm": lambda A: norm(A, "fro", num_products=40),
    "exact Frobenius norm": lambda A: norm(A, "fro", num_products=300),
    "norm": lambda A: norm(A, 2),
    "diagonal": lambda A: diagonal(A, num_products=40),
    "condition_number": condition_number,
    "function": lambda A: function(A, torch.square, ONES),
    "solve": lambda A: solve(A, ONES),
}


@pytest.mark.parametrize("scale", [1e-200, 1e200])
@pytest.mark.parametrize("name", SOLVERS)
def test_products_whose_squares_float64_does_not_hold_are_refused(name, scale):
    with pytest.raises(ritz.errors.NumericalError, match=r"entries of .* at most"):
        SOLVERS[name](scale * A)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_right_hand_sides_whose_squares_float64_does_not_hold_are_refused(scale):
    with pytest.raises(ritz.errors.NumericalError, match="right-hand sides have entries of"):
        solve(A, scale * ONES)


def test_a_trace_that_goes_on_from_a_file_is_refused_alike(tmp_path):
    for name, products in (("few", 3), ("many", 40)):
        with pytest.raises(ritz.errors.NumericalError, match=r"entries of .* at most"):
            trace(1e-200 * A, num_products=products, checkpoint=tmp_path / name)


@pytest.mark.parametrize("scale", [2.0**-150, 2.0**150])
@pytest.mark.parametrize("name", ["trace", "Frobenius norm", "norm"])
def test_estimates_follow_the_unit_with_their_errors(name, scale):
    plain, scaled = SOLVERS[name](A), SOLVERS[name](scale * A)
    assert scaled.value == pytest.approx(scale * plain.value, rel=1e-12)
    assert scaled.standard_error == pytest.approx(scale * plain.standard_error, rel=1e-9)


@pytest.mark.parametrize("scale", [2.0**-600, 2.0**600])
def test_what_needs_no_squares_is_right_in_every_unit(scale):
    total, known = trace(scale * A, num_products=300), float((OUTLIERS + 0.1).sum())
    assert total.value == pytest.approx(scale * known, rel=1e-12)
    logs = log_determinant(scale * A)
    plain = log_determinant(A)
    assert logs.value == pytest.approx(plain.value + 300 * math.log(scale), rel=1e-12)
    assert logs.standard_error == pytest.approx(plain.standard_error, rel=1e-6)


@pytest.mark.parametrize("scale", [2.0**-120, 2.0**120])
def test_intervals_of_a_spectrum_follow_its_unit(scale):
    plain, scaled = (spectral_density(s * A, num_steps=8, num_probes=2) for s in (1.0, scale))
    for degree in (1, 2):
        expected = torch.tensor(plain.interval(degree)) * scale**degree
        assert_close(torch.tensor(scaled.interval(degree)), expected, rtol=1e-9, atol=0)


def test_the_log_band_of_an_exact_spectrum_follows_its_unit():
    plain, scaled = (ritz.Spectrum.of_eigenvalues(s * OUTLIERS) for s in (1.0, 2.0**-600))
    bands = [spectrum.log_band(spectrum.log_grid(50)) for spectrum in (plain, scaled)]
    for before, after in zip(*bands, strict=True):
        assert_close(after, before, rtol=1e-6, atol=1e-9)


def test_float32_is_used_as_far_as_it_reaches():
    matrix = 1e38 * torch.diag(torch.tensor([0.0, 1.0, 2.0]))
    A = ritz.Operator.from_matrix(matrix)
    pairs = eigenpairs(A, 3)
    assert bool(pairs.converged.all())
    assert_close(pairs.values / 1e38, torch.tensor([2.0, 1.0, 0.0]))
    assert norm(A, 2).value == pytest.approx(2e38)


def test_what_float32_does_not_hold_is_refused():
    with pytest.raises(ritz.errors.NumericalError, match="NaN or infinite"):
        eigenpairs(ritz.Operator.from_matrix(torch.full((5, 5), 1e38)), 1)  # five times as large
    with pytest.raises(ritz.errors.NumericalError, match="x has entries beyond"):
        solve(ritz.Operator.from_matrix(1e-38 * torch.diag(torch.tensor([0.5, 1.0]))), torch.tensor([3.0, 2.0]))
