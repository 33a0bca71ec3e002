"""Laws against their known moments, against large random matrices, and a power law against itself."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from torch.testing import assert_close

from ritz.checks.draws import normal
from ritz.errors import ArgumentError
from ritz.spectrum import Spectrum
from ritz.theory import laws
from tests.draws import patient
from tests.seeds import seeded


def wigner(n, variance=1.0, seed=0):
    A = normal(seeded(seed), n, n, scale=(variance / (2 * n)) ** 0.5)
    return A + A.T


@patient
@given(st.floats(0.02, 0.95) | st.floats(1.05, 20) | st.just(1.0), st.floats(1e-3, 1e3))
def test_marchenko_pastur_moments_are_those_of_narayana(c, s):
    mu = laws.marchenko_pastur(c, s).spectrum()
    expected = [1.0, s, s**2 * (1 + c), s**3 * (1 + 3 * c + c**2)]
    assert [mu.moment(k) for k in range(4)] == approx(expected, rel=1e-9)
    assert mu.zero_mass(1e-12 * s) == approx(max(0.0, 1 - 1 / c))


@pytest.mark.parametrize(
    "gap, few, many", [(0.03, 1e-13, 1e-13), (0.01, 3e-11, 1e-13), (0.005, 3e-7, 1e-13), (0.001, 2e-4, 3e-12)]
)
def test_a_ratio_close_to_one_takes_more_nodes(gap, few, many):
    """What the docstring says."""
    for c in (1 - gap, 1 + gap):
        found = {n: laws.marchenko_pastur(c).spectrum(n).moment(2) for n in (2000, 20_000)}
        assert found[2000] == approx(1 + c, rel=few) and found[20_000] == approx(1 + c, rel=many)


@patient
@given(st.floats(1e-3, 1e3))
def test_semicircle_moments_are_those_of_catalan(s):
    mu = laws.semicircle(s).spectrum()
    assert [mu.moment(k) for k in (0, 2, 4, 6)] == approx([1.0, s, 2 * s**2, 5 * s**3], rel=1e-12)
    assert abs(mu.moment(3)) < 1e-12 * s**1.5


@pytest.mark.parametrize(
    "law", [laws.marchenko_pastur(0.3, 2.0), laws.marchenko_pastur(3.0), laws.semicircle(2.0)], ids=repr
)
def test_a_density_and_its_atoms_have_mass_one(law):
    x = torch.linspace(*law.support, 200_001, dtype=torch.float64)
    assert float(torch.trapezoid(law.density(x), x)) + sum(mass for _, mass in law.atoms) == approx(1, abs=1e-5)


@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0])
def test_there_is_no_density_outside_of_the_support(ratio):
    law = laws.marchenko_pastur(ratio)
    low, high = law.support
    outside = torch.tensor([-1.0, -0.0, 0.0, low / 2, low, high, 2 * high], dtype=torch.float64)
    assert law.density(outside).tolist() == [0.0] * 7
    assert law.density(torch.tensor([(low + high) / 2], dtype=torch.float64)) > 0


@pytest.mark.parametrize("ratio", [0.25, 1.0, 2.0])
def test_a_sample_covariance_follows_marchenko_pastur(ratio):
    D = 300
    N = round(D / ratio)
    X = normal(seeded(), N, D, scale=1.5)
    law = laws.marchenko_pastur(ratio, 1.5**2).spectrum(size=D)
    assert Spectrum.of_matrix(X.T @ X / N).wasserstein(law) < 0.02 * 1.5**2
    assert Spectrum.of_matrix(X.T @ X / N).wasserstein(laws.marchenko_pastur(ratio, 2.5**2).spectrum()) > 1


def test_a_wigner_matrix_follows_the_semicircle():
    assert Spectrum.of_matrix(wigner(400, 2.0)).wasserstein(laws.semicircle(2.0).spectrum(size=400)) < 0.02


def assert_spike(matrix, at, spike, draws=16):
    """Place and overlap within four standard errors of the mean over the draws, and 1/n for what n = ∞ leaves out."""
    found = [torch.linalg.eigh(matrix(seed)) for seed in range(draws)]
    places, overlaps = (torch.stack(t) for t in zip(*[(v[at], Z[0, at] ** 2) for v, Z in found], strict=True))
    for sample, expected in ((places, spike.place), (overlaps, spike.overlap)):
        assert float(sample.mean()) == approx(expected, abs=4 * float(sample.std()) / draws**0.5 + 0.01 * abs(expected))


@pytest.mark.parametrize("strength", [6.0, 3.0, 0.1])
def test_a_strong_covariance_spike_is_seen_where_bbp_puts_it(strength):
    D, N, at = 150, 600, -1 if strength > 1 else 0

    def matrix(seed):
        X = normal(seeded(seed), N, D)
        X[:, 0] *= strength**0.5
        return X.T @ X / N

    assert_spike(matrix, at, laws.covariance_spike(strength, D / N))


def test_a_weak_spike_is_lost_in_the_bulk():
    assert laws.covariance_spike(1.4, 0.25) == laws.Spike(1.4, None, 0.0)
    assert laws.wigner_spike(-0.9) == laws.Spike(-0.9, None, 0.0)
    law = laws.spiked_covariance(0.25, [1.4, 4.0], 100)
    assert [place for place, _ in law.atoms] == [approx(4 * (1 + 0.25 / 3))]


@pytest.mark.parametrize("strength", [2.5, -1.8])
def test_a_wigner_spike_is_seen_where_bbp_puts_it(strength):
    def matrix(seed):
        A = wigner(200, seed=seed)
        A[0, 0] += strength
        return A

    assert_spike(matrix, -1 if strength > 0 else 0, laws.wigner_spike(strength))


def test_a_spike_may_be_as_large_as_a_float():
    assert laws.wigner_spike(1e308) == laws.Spike(1e308, 1e308, 1.0)
    assert laws.wigner_spike(0.0) == laws.Spike(0.0, None, 0.0)


def test_spikes_leave_the_bulk_at_the_threshold():
    edge = laws.marchenko_pastur(0.25, 2.0).support[1]
    assert laws.covariance_spike(2 * 1.5 + 1e-9, 0.25, 2.0).place == approx(edge)
    assert laws.covariance_spike(2 * 1.5 + 1e-9, 0.25, 2.0).overlap == approx(0, abs=1e-6)
    assert laws.wigner_spike(2**0.5 + 1e-9, 2.0).place == approx(laws.semicircle(2.0).support[1])


def test_a_spiked_law_is_a_spectrum_with_outliers_of_mass_one_over_n():
    spectrum = laws.spiked_wigner([3.0, 2.0], 1000).spectrum(size=1000)
    outliers, bulk = spectrum.split(2)
    assert_close(outliers, torch.tensor([3 + 1 / 3, 2.5], dtype=torch.float64))
    assert bulk.range[1] < 2 and bulk.moment(2) == approx(1, rel=1e-9)


def test_spikes_of_a_matrix_without_full_rank_leave_its_zeros_alone():
    """100 inputs and 25 examples: 75 zeros, however many of the others stand apart."""
    X = normal(seeded(0), 25, 100)
    X[:, :3] *= 10**0.5
    measured = Spectrum.of_matrix(X.T @ X / 25)
    spectrum = laws.spiked_covariance(4.0, [10.0, 10.0, 10.0], 100).spectrum(size=100)
    assert measured.zero_mass() == approx(0.75)
    assert spectrum.zero_mass() == approx(0.75)
    assert spectrum.split(3)[0].tolist() == [approx(10 * (1 + 4 / 9))] * 3


@patient
@given(st.floats(1.5, 4.0), st.floats(0.1, 10))
def test_a_power_law_is_found_with_its_exponent_and_scale(exponent, start):
    """Quantiles of ρ = (b-1) x₀^(b-1) x^(-b) on x > x₀."""
    u = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    values = start * (1 - u) ** (-1 / (exponent - 1))
    top = start * 100 ** (1 / (exponent - 1))  # the largest hundredth is too thin to smooth
    fit = laws.power_law_tail(Spectrum.of_eigenvalues(values), start * (top / start) ** 0.2, top, width=0.05)
    assert fit.exponent == approx(exponent, abs=0.05) and fit.r_squared > 0.99
    assert fit.scale == approx((exponent - 1) * start ** (exponent - 1), rel=0.15)
    assert float(fit.density(torch.tensor([2 * start]))) == approx(fit.scale * (2 * start) ** -fit.exponent, rel=1e-5)


def test_signs_do_not_matter_to_a_tail():
    values = torch.linspace(0.001, 0.999, 5000, dtype=torch.float64) ** -0.5
    signs = torch.arange(5000) % 2 * 2 - 1
    both = [laws.power_law_tail(Spectrum.of_eigenvalues(v), 2.0, 8.0, width=0.1) for v in (values, values * signs)]
    assert both[0].exponent == approx(both[1].exponent, abs=1e-9) and both[0].exponent == approx(3, abs=0.1)


def test_a_semicircle_is_no_power_law():
    fit = laws.power_law_tail(laws.semicircle().spectrum(), 0.05, 1.99, width=0.05)
    assert fit.r_squared < 0.9


REFUSED = {
    "negative ratio": lambda: laws.marchenko_pastur(-1.0),
    "zero variance": lambda: laws.semicircle(0.0),
    "infinite strength": lambda: laws.covariance_spike(math.inf, 0.5),
    "more spikes than rows": lambda: laws.spiked_wigner([3.0, 4.0], 2),
    "spikes in a matrix without rows": lambda: laws.spiked_covariance(1.0, [4.0], 0),
    "an empty interval": lambda: laws.power_law_tail(laws.semicircle().spectrum(), 2.0, 1.0),
    "an interval outside": lambda: laws.power_law_tail(laws.semicircle().spectrum(), 1e3, 1e4, width=0.01),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=list(REFUSED))
def test_bad_input_says_what_was_seen_why_and_the_ways_out(call):
    with pytest.raises(ArgumentError) as caught:
        call()
    assert caught.value.seen and caught.value.why and caught.value.ways_out
