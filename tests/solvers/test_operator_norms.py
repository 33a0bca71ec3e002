"""Norms are those of the eigenvalues, within their errors."""

import math

import pytest
import torch

from ritz.errors import ArgumentError
from ritz.solvers import norm

from .memory import with_room
from .spectra import KINDS, kinds, linspace, rotated, runs, with_eigenvalues

TRUTH = {
    "fro": lambda eigenvalues: float(eigenvalues.norm()),
    2: lambda eigenvalues: float(eigenvalues.abs().max()),
    "nuc": lambda eigenvalues: float(eigenvalues.abs().sum()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_small_norms_are_exact(kind):
    eigenvalues = kinds(60)[kind]
    A = with_eigenvalues(eigenvalues)
    for ord, truth in TRUTH.items():
        assert norm(A, ord).value == pytest.approx(truth(eigenvalues), rel=1e-7)
        assert norm(A, ord).num_products == 60
    assert norm(A).value == norm(A, "fro").value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vectors", [math.inf, 8.0])
@pytest.mark.usefixtures("unchecked")
def test_frobenius_norms_lie_within_their_error(kind, vectors):
    eigenvalues = kinds(200)[kind]
    A = with_room(with_eigenvalues(eigenvalues), vectors)
    values, errors = runs(lambda generator: norm(A, num_products=30, generator=generator), 50)
    misses = (values - TRUTH["fro"](eigenvalues)).abs()
    assert float((misses <= 2 * errors).double().mean()) >= 0.86  # 95 %, less three standard deviations


@pytest.mark.parametrize("kind", KINDS)
def test_the_spectral_norm_is_that_of_a_certified_eigenvalue(kind):
    eigenvalues = kinds(600)[kind]
    result = norm(rotated(eigenvalues), 2)
    assert abs(result.value - TRUTH[2](eigenvalues)) <= result.standard_error + 1e-12
    assert result.standard_error <= 1e-4 * result.value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("unchecked")
def test_nuclear_norms_lie_within_their_error(kind):
    eigenvalues = kinds(600)[kind]
    A = rotated(eigenvalues)
    values, errors = runs(lambda generator: norm(A, "nuc", num_products=160, generator=generator), 30)
    misses = (values - TRUTH["nuc"](eigenvalues)).abs()
    assert float((misses <= 2 * errors).double().mean()) >= 0.83


@pytest.mark.usefixtures("unchecked")
def test_other_norms_are_refused():
    for ord in (1, math.inf, "two"):
        with pytest.raises(ArgumentError, match="ord"):
            norm(with_eigenvalues(linspace(0, 1, 5)), ord)
    with pytest.raises(ArgumentError, match="num_products"):
        norm(with_eigenvalues(linspace(0, 1, 5)), num_products=0)


def test_a_zero_operator_has_norm_zero():
    A = rotated(torch.zeros(600, dtype=torch.float64))
    assert all(norm(A, ord).value == 0.0 for ord in TRUTH)


@pytest.mark.usefixtures("unchecked")
def test_the_error_of_a_nuclear_norm_knows_its_kink():
    eigenvalues = torch.randn(1000, generator=torch.Generator().manual_seed(1234), dtype=torch.float64)
    A = rotated(eigenvalues)
    values, errors = runs(lambda generator: norm(A, "nuc", num_products=160, generator=generator), 16)
    misses = values - TRUTH["nuc"](eigenvalues)
    assert abs(float(misses.mean())) > 5  # all rules of so few steps are wrong in the same direction
    assert float((misses.abs() <= 2 * errors).double().mean()) >= 0.93
    assert float(errors.mean()) < 2 * float(misses.square().mean().sqrt())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("num_steps", [3, 4, 5, 8, 9, 12])
@pytest.mark.parametrize("eigenvalues", [linspace(-1, 1, 600), linspace(-1, 1, 600) ** 3])
def test_a_nuclear_norm_is_covered_wherever_zero_lies_between_its_few_nodes(eigenvalues, num_steps):
    A = rotated(eigenvalues)
    values, errors = runs(lambda generator: norm(A, "nuc", num_products=8 * num_steps, generator=generator), 40)
    misses = values - TRUTH["nuc"](eigenvalues)
    assert float((misses.abs() <= 2 * errors).double().mean()) >= 0.85  # 0.02 with an even number of steps


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("num_products", [4, 8, 16, 24])
@pytest.mark.parametrize("eigenvalues", [torch.kron(linspace(-1, 1, 25), linspace(-1, 1, 24)), linspace(1, 2, 600)])
def test_a_nuclear_norm_by_few_products_is_covered_too(eigenvalues, num_products):
    A = rotated(eigenvalues)
    values, errors = runs(lambda generator: norm(A, "nuc", num_products=num_products, generator=generator), 40)
    misses = values - TRUTH["nuc"](eigenvalues)
    assert float((misses.abs() <= 2 * errors).double().mean()) >= 0.85  # of a probe with one or two steps: 0 to 0.33


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("num_products", [1, 2, 3])
def test_a_nuclear_norm_says_that_its_error_is_unknown_where_it_has_no_steps_to_tell(num_products):
    estimate = norm(rotated(linspace(-1, 1, 600)), "nuc", num_products=num_products)
    assert estimate.num_products == num_products and not estimate.has_error
    with pytest.raises(ArgumentError, match="Allow more probes, steps or products"):
        _ = estimate.standard_error


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", ["1/k²", "many zeros"])
def test_eigenvalues_that_end_at_zero_have_no_kink_there(kind):
    eigenvalues = kinds(1000)[kind]
    A = rotated(eigenvalues)
    values, errors = runs(lambda generator: norm(A, "nuc", num_products=160, generator=generator), 12)
    misses = values - TRUTH["nuc"](eigenvalues)
    assert float(errors.mean()) < 2.5 * float(misses.square().mean().sqrt())


@pytest.mark.parametrize("outliers", [linspace(5, 5, 1), linspace(-5, 5, 3)])
def test_zeros_that_are_known_leave_nothing_open_in_a_nuclear_norm(outliers):
    A, truth = rotated(torch.cat([outliers, linspace(0, 0, 1199)])), float(outliers.abs().sum())
    found = [norm(A, "nuc", num_products=160, generator=torch.Generator().manual_seed(seed)) for seed in range(20)]
    assert all(abs(one.value - truth) <= 2 * one.standard_error for one in found)
    assert all(one.standard_error <= 2 * one.value for one in found)  # 350 times, when zeros might lie half-way to 5


def test_a_frobenius_norm_costs_a_hundred_products_unless_given():
    small, larger = (norm(rotated(linspace(1, 2, n))) for n in (100, 101))
    assert (small.num_products, small.standard_error) == (100, 0.0)
    assert larger.num_products == 100 and larger.standard_error > 0


def test_a_matrix_that_just_has_room_is_computed_as_a_whole():
    A = rotated(linspace(1, 2, 60))
    fits, does_not = (norm(with_room(A, vectors), "nuc") for vectors in (180.0, 179.0))
    assert fits.standard_error < 1e-12 < does_not.standard_error
