"""Densities cover the exact spectrum at the rate their error states."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from ritz.errors import ArgumentError
from ritz.operators import Operator
from ritz.solvers import eigenpairs, lanczos, spectral_density, spectral_range
from ritz.spectrum import Spectrum

from .spectra import counted, linspace, random, repeated, rotated, with_eigenvalues


def test_spectral_density_converges_to_the_exact_spectrum(generator):
    A = with_eigenvalues(torch.cat([linspace(0, 1, 190), linspace(3, 4, 10)]), generator)
    estimate = spectral_density(A, num_steps=50, num_probes=20, generator=generator)
    assert estimate.wasserstein(Spectrum.of_matrix(A.dense())) < 0.05
    assert estimate.size == 200 and estimate.num_probes == 20


@pytest.fixture(scope="module")
def sixty():
    """A matrix and sixty estimates of its spectrum."""
    generator = torch.Generator().manual_seed(0)
    A = with_eigenvalues(linspace(-1, 2, 100), generator)
    return A, repeated(lambda _: spectral_density(A, num_steps=5, num_probes=30, generator=generator), 60)


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_moments_lie_within_their_standard_error_at_the_stated_rate(degree, sixty):
    A, results = sixty
    truth = Spectrum.of_matrix(A.dense()).moment(degree)
    off = lambda result: abs(result.moment(degree) - truth)
    within = lambda i: off(results[i]) < 2 * float(results[i].standard_error(lambda s: s.moment(degree)))
    assert sum(repeated(within, 60)) >= 52  # 95 % of 60 are 57, with standard deviation 1.7


def test_the_density_lies_within_its_standard_error_at_the_stated_rate(generator):
    A = with_eigenvalues(torch.cat([linspace(0, 1, 140), linspace(2, 3, 10)]), generator)
    x = linspace(-0.5, 3.5, 21)
    exact = Spectrum.of_matrix(A.dense()).density(x, 0.3)

    def covered(_):
        result = spectral_density(A, num_steps=40, num_probes=30, generator=generator)
        return (result.density(x, 0.3) - exact).abs() < 2 * result.standard_error(lambda s: s.density(x, 0.3))

    assert 0.90 < float(torch.stack(repeated(covered, 40)).double().mean()) < 0.99


def test_the_error_falls_with_the_root_of_the_number_of_probes(generator):
    A = with_eigenvalues(linspace(0, 1, 100), generator)
    few, many = (
        float(
            spectral_density(A, num_steps=10, num_probes=p, generator=generator).standard_error(lambda s: s.moment(1))
        )
        for p in (50, 800)
    )
    assert few / many == pytest.approx(4, rel=0.4)


def test_outliers_are_exact_atoms_and_the_bulk_has_no_spurious_zeros(generator):
    eigenvalues = torch.cat([torch.tensor([-20.0, 15.0, 10.0]), linspace(1, 2, 97)])
    A = with_eigenvalues(eigenvalues, generator)
    result = spectral_density(A, num_steps=30, num_probes=6, outliers=3, generator=generator)
    outliers, bulk = result.split(3)
    assert_close(outliers, torch.tensor([-20.0, 15.0, 10.0], dtype=torch.float64), atol=1e-6, rtol=0)
    assert bulk.size == 97 and bulk.zero_mass() < 1e-12
    assert bulk.range[0] > 1 - 1e-6 and bulk.range[1] < 2 + 1e-6
    assert_close(result.weights.sum(1), torch.ones(6, dtype=torch.float64))
    assert float(result.cdf(torch.tensor([-19.0], dtype=torch.float64))) == pytest.approx(0.01, rel=1e-12)
    assert result.wasserstein(Spectrum.of_eigenvalues(eigenvalues)) < 0.05


def test_deflation_reduces_the_error_of_the_mean(generator):
    A = with_eigenvalues(torch.cat([torch.tensor([50.0, 40.0]), linspace(0, 1, 98)]), generator)
    plain, split = (
        float(spectral_density(A, num_steps=2, outliers=k, generator=generator).standard_error(lambda s: s.moment(1)))
        for k in (0, 2)
    )
    assert split < plain / 5


def test_all_eigenvalues_as_outliers_give_the_exact_spectrum(generator):
    eigenvalues = linspace(-1, 2, 12)
    result = spectral_density(with_eigenvalues(eigenvalues, generator), outliers=12, generator=generator)
    assert result.wasserstein(Spectrum.of_eigenvalues(eigenvalues)) < 1e-12


@given(st.integers(1, 12), st.integers(1, 300), st.integers(1, 3), st.integers(0, 12))
@settings(max_examples=30, deadline=None)
def test_any_small_problem_gives_a_measure_on_its_eigenvalues(size, num_steps, num_probes, outliers):
    generator = torch.Generator().manual_seed(size)
    A = with_eigenvalues(torch.arange(size).double() - 3, generator)
    outliers = min(outliers, size)
    result = spectral_density(A, num_steps=num_steps, num_probes=num_probes, outliers=outliers, generator=generator)
    assert_close(result.weights.sum(1), torch.ones(num_probes, dtype=torch.float64))
    assert result.range[0] > -3 - 1e-9 and result.range[1] < size - 4 + 1e-9
    if num_steps >= size:  # every node that carries mass is an eigenvalue
        carried = result.nodes[result.weights > 1e-9]
        assert_close(carried, carried.round(), atol=1e-6, rtol=0)


def test_more_steps_than_n_are_clipped(generator):
    A, calls = counted(with_eigenvalues(linspace(0, 1, 15), generator))
    result = spectral_density(A, num_steps=128, num_probes=2, generator=generator)
    assert len(calls) == 15
    assert_close(result.nodes[0], linspace(0, 1, 15), atol=1e-9, rtol=0)


def test_one_product_serves_all_probes_and_columns_are_contiguous(generator):
    A, strides = with_eigenvalues(linspace(0, 1, 60), generator), set()
    watched = Operator(lambda V: strides.add(V.stride()) or A @ V, 60, A.dtype, A.device)
    spectral_density(watched, num_steps=20, num_probes=4, generator=generator)
    assert strides == {(1, 60)}


def test_a_generator_decides_the_result_and_seeds_share_nothing():
    A = with_eigenvalues(linspace(0, 1, 50), torch.Generator().manual_seed(0))
    first, again, other = (
        spectral_density(A, num_steps=10, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(first.nodes, again.nodes)
    assert torch.equal(first.nodes, spectral_density(A, num_steps=10).nodes)
    assert not torch.isin(other.nodes, first.nodes).any()


def test_the_global_random_state_is_untouched():
    state = torch.get_rng_state()
    spectral_density(Operator.from_matrix(torch.eye(20)), outliers=1)
    assert torch.equal(state, torch.get_rng_state())


def test_float32_spectra_agree_with_float64_ones(generator):
    eigenvalues = torch.cat([torch.tensor([30.0, 20.0]), linspace(0, 1, 298)])
    result = spectral_density(with_eigenvalues(eigenvalues, generator, torch.float32), outliers=2, num_probes=20)
    assert result.wasserstein(Spectrum.of_eigenvalues(eigenvalues)) < 0.02
    assert result.nodes.dtype == torch.float64


def test_the_spectral_range_holds_the_spectrum(generator):
    for _ in range(10):
        eigenvalues = random(150, generator=generator)
        low, high = spectral_range(with_eigenvalues(eigenvalues, generator), generator=generator)
        assert low < float(eigenvalues.min()) and high > float(eigenvalues.max())
        assert high - low < 1.3 * float(eigenvalues.max() - eigenvalues.min())


def test_the_range_is_wider_than_its_ritz_values_by_their_true_residuals(generator):
    A, start = (
        with_eigenvalues(linspace(0, 1, 80), generator),
        random(1, 80, generator=torch.Generator().manual_seed(7)),
    )
    T = lanczos(A, start.T, 6, keep_basis=True)
    (theta,), (S,) = T.eigh()
    ritz = T.basis[0] @ S
    residuals = (A.dense() @ ritz - ritz * theta).norm(dim=0)
    assert_close(residuals, T.residual[0] * S[-1].abs())
    low, high = float((theta - residuals).min()), float((theta + residuals).max())
    assert low < float(theta.min()) - 1e-3 and high > float(theta.max()) + 1e-3
    tight, wide = (
        spectral_range(A, num_steps=6, margin=margin, generator=torch.Generator().manual_seed(7)) for margin in (0, 0.1)
    )
    assert tight == pytest.approx((low, high), rel=1e-9)
    assert wide == pytest.approx((low - 0.1 * (high - low), high + 0.1 * (high - low)), rel=1e-9)


@pytest.mark.parametrize("margin", [-5.0, float("nan"), float("inf")])
def test_a_margin_that_is_none_is_refused(margin):
    with pytest.raises(ArgumentError, match="margin"):
        spectral_range(Operator.from_matrix(torch.eye(10)), margin=margin)


@pytest.mark.parametrize("wrong", [{"num_steps": 0}, {"num_probes": 0}, {"outliers": -1}, {"outliers": 11}])
def test_counts_that_cannot_be_are_refused(wrong):
    with pytest.raises(ArgumentError):
        spectral_density(Operator.from_matrix(torch.eye(10)), **wrong)


def test_eigenpairs_that_are_known_serve_as_outliers(generator):
    values = torch.cat([torch.tensor([9.0, -8.0, 7.0]), torch.linspace(0, 1, 197)]).double()
    A = Operator.from_matrix(torch.diag(values))
    pairs = eigenpairs(A, 3, which="magnitude", generator=generator)
    given = spectral_density(A, num_steps=10, num_probes=2, outliers=pairs, generator=generator)
    atoms, bulk = given.split(3)
    assert_close(atoms, torch.tensor([9.0, -8.0, 7.0], dtype=torch.float64))
    assert bulk.range[1] <= 1.0 + 1e-9 and bulk.range[0] >= -1e-9


def test_outliers_of_another_space_are_refused_in_three_parts(generator):
    A, half = with_eigenvalues(linspace(0, 1, 40), generator), with_eigenvalues(linspace(0, 1, 30), generator)
    single = with_eigenvalues(linspace(0, 1, 40), generator, torch.float32)
    pairs = eigenpairs(A, 3)
    for wrong in (eigenpairs(half, 3), eigenpairs(single, 3), replace(pairs, vectors=1.01 * pairs.vectors)):
        with pytest.raises(ArgumentError) as caught:
            spectral_density(A, outliers=wrong)
        assert caught.value.seen and caught.value.why and caught.value.ways_out


@pytest.mark.parametrize("wrong", [{"num_steps": 8.0}, {"num_probes": 2.0}, {"outliers": 1.0}, {"generator": 0}])
@pytest.mark.usefixtures("unchecked")
def test_counts_that_are_no_integers_and_seeds_that_are_no_generators_are_refused(wrong):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        spectral_density(Operator.from_matrix(torch.eye(10)), **wrong)


@pytest.mark.parametrize("seed", range(6))
def test_a_bulk_that_stands_apart_is_not_one_eigenvalue(seed):
    values = torch.cat([torch.linspace(0, 0.1, 1488), torch.linspace(0.6, 1, 12)]).double()
    A, exact = rotated(values, dtype=torch.float32), Spectrum.of_eigenvalues(values)
    spectrum = spectral_density(A, num_steps=64, num_probes=2, generator=torch.Generator().manual_seed(seed))
    assert spectrum.wasserstein(exact) < 0.004
    assert bool(((spectrum.weights > 1e-4).sum(1) > 30).all())


@pytest.mark.parametrize("num_steps", [2, 3, 16])
def test_the_distance_of_narrow_bulks_is_within_its_bound(num_steps):
    values = torch.cat([torch.linspace(-1.02, -0.98, 1000), torch.linspace(0.98, 1.02, 1000)]).double()
    A, exact = rotated(values, dtype=torch.float32), Spectrum.of_eigenvalues(values)
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        spectrum = spectral_density(A, num_steps=num_steps, num_probes=32, generator=generator)
        assert spectrum.wasserstein(exact) <= spectrum.wasserstein_bound()


@pytest.mark.parametrize("values", [linspace(-1, 1, 1000), torch.special.ndtri(linspace(5e-4, 1 - 5e-4, 1000))])
def test_the_default_width_is_the_narrowest_that_the_quadrature_resolves(values):
    """Half of it shows the nodes of the quadrature: the error more than doubles."""
    A = Operator.from_matrix(torch.diag(values))
    spectrum = spectral_density(A, num_probes=8, num_steps=128, generator=torch.Generator().manual_seed(41))
    exact, x = Spectrum.of_matrix(torch.diag(values)), spectrum.grid(400)

    def error(width):
        return float((spectrum.density(x, width) - exact.density(x, width)).abs().mean() / exact.density(x).mean())

    assert error(spectrum.width) < 0.12
    assert error(spectrum.width / 2) > 2 * error(spectrum.width)


@pytest.mark.parametrize("num_probes", [2, 8])
def test_the_resolution_is_where_the_error_of_the_quadrature_is_half_of_that_of_the_probes(num_probes):
    """m steps on an even spectrum are a comb of nodes, blurred to 2 exp(-8c²) by a width of c spacings."""
    n, m = 8000, 128
    A, generator = rotated(linspace(0, 1, n)), torch.Generator().manual_seed(0)
    spectrum = spectral_density(A, num_probes=num_probes, num_steps=m, generator=generator)
    c = spectrum.resolution * (m - 1)
    eigenvalues = 2 * math.sqrt(math.pi) * n / m  # under a Gaussian as wide as a spacing
    assert 2 * math.exp(-8 * c**2) == pytest.approx(math.sqrt(2 / (eigenvalues * num_probes)) / 2, rel=0.1)


@pytest.mark.parametrize("eigenvalue", [0.0, 1.0])
def test_outliers_that_are_exactly_equal_leave_finite_intervals(eigenvalue):
    A = Operator(lambda V: eigenvalue * V, 60, torch.float64, torch.device("cpu"))
    spectrum = spectral_density(A, num_steps=10, outliers=3)
    assert spectrum.interval(1) == pytest.approx((eigenvalue, eigenvalue), abs=1e-12)
    assert spectrum.wasserstein_bound() < 1e-12 and bool(spectrum.density(spectrum.grid(5)).isfinite().all())
