"""Quadratures that go on: what is added in pieces is what one run makes, within the operator's room."""

import math
import re
import warnings
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from ritz.errors import ArgumentError, ConvergenceWarning
from ritz.operators import Operator
from ritz.solvers import LanczosQuadrature, eigenpairs, spectral_density
from ritz.solvers.probe_runs import random_recursions
from ritz.spectrum import Spectrum

from .memory import diagonal, peak_vectors, with_room
from .spectra import counted, linspace, network_like, rotated, with_eigenvalues

NAMES = ("diagonal", "off_diagonal", "residual")
LARGE = torch.cat([linspace(3, 10, 20), linspace(-1, 1, 49_980)])


def seeded():
    return torch.Generator().manual_seed(7)


def quadrature(A, *stages, **options):
    result = LanczosQuadrature(A, generator=seeded(), **options)
    for num_probes, num_steps in stages:
        result.extend(num_probes=num_probes, num_steps=num_steps)
    return result


def assert_same(first, second, **tolerances):
    a, b = first.tridiagonal(), second.tridiagonal()
    for name in NAMES:
        assert_close(getattr(a, name), getattr(b, name), **(tolerances or {"atol": 0.0, "rtol": 0.0}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("outliers", [0, 3])
def test_steps_added_are_those_of_one_run_to_the_bit(dtype, outliers):
    A = rotated(network_like(), dtype=dtype)
    pieces = quadrature(A, (3, 10), (3, 11), (3, 40), outliers=outliers)
    assert_same(pieces, quadrature(A, (3, 40), outliers=outliers))


def test_probes_added_are_those_of_one_run():
    A = rotated(network_like())
    pieces = quadrature(A, (1, 8), (4, 20), (6, 20))
    assert_same(pieces, quadrature(A, (6, 20)), atol=1e-8, rtol=1e-8)  # rounding grows along a recursion


def test_one_run_is_that_of_a_density(generator):
    A = rotated(network_like())
    T = random_recursions(A, 3, 30, seeded())
    assert all(torch.equal(getattr(T, name), getattr(quadrature(A, (3, 30)).tridiagonal(), name)) for name in NAMES)


@pytest.mark.parametrize("outliers", [0, 4])
def test_nothing_is_multiplied_twice_and_all_is_counted(outliers):
    A, calls = counted(rotated(network_like()))
    result = quadrature(A, (2, 10), (5, 25), outliers=outliers)
    assert result.num_products == sum(calls)
    assert result.num_products - 5 * 25 == (eigenpairs(A, outliers, which="magnitude").num_products if outliers else 0)
    assert (result.num_probes, result.num_steps) == (5, 25)


def test_pairs_that_are_given_cost_nothing():
    A, calls = counted(rotated(network_like()))
    pairs = eigenpairs(A, 3, which="magnitude")
    calls.clear()
    assert quadrature(A, (2, 10), outliers=pairs).num_products == sum(calls) == 20


def test_small_matrices_can_be_exhausted_in_pieces():
    values = torch.cat([linspace(0, 1, 50), torch.tensor([3.0, 3.0, 9.0]).double()])
    nodes, weights = quadrature(with_eigenvalues(values), (2, 5), (2, 60)).tridiagonal().quadrature()
    distinct = values.unique()
    for row, mass in zip(nodes, weights, strict=True):
        assert_close(row[mass > 1e-12], distinct, atol=1e-10, rtol=0)  # each once: no copies


def test_a_space_that_is_invariant_takes_no_more_products():
    A, calls = counted(rotated(torch.cat([torch.ones(800), 2 * torch.ones(200)]).double()))
    result = quadrature(A, (2, 1), (2, 30))
    made = sum(calls)
    result.extend(num_steps=60)
    assert made == sum(calls) == result.num_products < 10


def test_probes_that_do_not_fit_run_one_after_the_other_within_the_room():
    A = with_room(diagonal(LARGE), 9)
    run = lambda: quadrature(A, (3, 6), (8, 6))
    assert peak_vectors(run, len(LARGE)) <= 9.2
    assert_same(run(), quadrature(diagonal(LARGE), (8, 6)), atol=1e-4, rtol=1e-3)  # float32, other columns


def test_steps_of_vectors_that_were_dropped_are_refused_and_the_ways_out_work():
    A = with_room(diagonal(LARGE), 9)
    result = quadrature(A, (5, 6))
    with pytest.raises(ArgumentError, match="no memory to keep the vectors"):
        result.extend(num_steps=12)
    result.extend(num_probes=6)
    assert (result.num_probes, result.num_steps, result.num_products) == (6, 6, 36)
    assert quadrature(A, (5, 12)).num_products == 60


def test_all_probes_go_on_where_they_cannot_all_run_beside_the_vectors_of_others():
    A, calls = counted(rotated(network_like()))
    result = quadrature(with_room(A, 16), (4, 5), (5, 5), (5, 20))
    assert sum(calls) == result.num_products == 100 and max(calls[:5]) == 4 > max(calls[10:])
    assert_same(result, quadrature(rotated(network_like()), (5, 20)), atol=1e-8, rtol=1e-8)


def test_those_that_go_on_in_parts_stay_within_the_room():
    A = with_room(diagonal(LARGE), 16)
    assert peak_vectors(lambda: quadrature(A, (4, 3), (5, 3), (5, 6)), len(LARGE)) <= 16.2


def test_a_quadrature_that_was_interrupted_is_what_it_was_and_goes_on():
    A, left = with_room(rotated(network_like()), 9), [math.inf]

    def product(V):
        left[0] -= V.shape[1]
        if left[0] < 0:
            raise KeyboardInterrupt
        return A.matmat(V)

    result = quadrature(replace(A, matmat=product), (2, 5), (3, 5))
    before, left[0] = result.spectrum(), 9
    with pytest.raises(KeyboardInterrupt):
        result.extend(num_steps=12)
    assert torch.equal(result.spectrum().nodes, before.nodes) and torch.equal(result.spectrum().weights, before.weights)
    left[0] = math.inf
    result.extend(num_steps=12)
    assert_same(result, quadrature(rotated(network_like()), (3, 12)), atol=1e-8, rtol=1e-8)


def test_vectors_in_another_place_come_back_and_go_on(monkeypatch):
    A = with_room(rotated(network_like()), 9)
    monkeypatch.setattr(LanczosQuadrature, "_have_another_place", lambda self, runs: True)  # as beside a GPU
    assert_same(quadrature(A, (5, 6), (5, 20)), quadrature(A, (5, 20)))


@pytest.mark.parametrize("probes, steps", [(2, 10), (3, 9), (0, 10), (3, 0)])
def test_a_quadrature_cannot_be_extended_to_fewer_probes_or_steps(probes, steps):
    result = quadrature(rotated(network_like()), (3, 10))
    with pytest.raises(ArgumentError, match="Ask for num_probes=3 and num_steps=10"):
        result.extend(num_probes=probes, num_steps=steps)
    result.extend(num_probes=3, num_steps=10)
    assert result.num_products == 30


def test_a_quadrature_begins_with_a_probe_and_a_step():
    result = LanczosQuadrature(rotated(network_like()))
    with pytest.raises(ArgumentError, match="num_probes=1 and num_steps=1"):
        result.extend(num_probes=3)
    result.extend(num_probes=1, num_steps=1)


KINDS = {
    "uniform": linspace(0, 1, 1500),
    "squares": torch.arange(1, 1501, dtype=torch.float64) ** -2,
    "network": network_like(1500),
    "zeros": torch.cat([torch.zeros(750), torch.linspace(0, 1, 750)]).double(),
    "gapped": torch.cat([linspace(-1.3, -0.7, 750), linspace(1.5, 2.5, 750)]),
    "multiple": torch.cat([3 * torch.ones(400), torch.ones(400), torch.linspace(0, 0.5, 700)]).double(),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_tolerance_is_reached_at_its_rate(name):
    A, exact = rotated(KINDS[name]), Spectrum.of_eigenvalues(KINDS[name])
    scale, misses = float(KINDS[name].abs().max()), 0
    for seed in range(8):
        result = LanczosQuadrature(A, generator=torch.Generator().manual_seed(seed))
        spectrum = result.refine(0.04)
        assert spectrum.wasserstein_bound() <= 0.04 * scale
        assert spectrum.num_products == result.num_products < 1500
        misses += spectrum.wasserstein(exact) > 0.04 * scale
    assert misses == 0


def test_a_refined_spectrum_is_that_of_its_numbers():
    A = rotated(network_like())
    spectrum = (result := LanczosQuadrature(A)).refine(0.02)
    same = spectral_density(A, num_probes=result.num_probes, num_steps=result.num_steps)
    assert spectrum.num_probes == result.num_probes > 1 and spectrum.wasserstein(same) < 1e-6


def test_a_refined_quadrature_keeps_its_earlier_products():
    A, calls = counted(rotated(KINDS["uniform"]))
    result = quadrature(A, (2, 64))
    coarse = result.refine(0.1)
    assert sum(calls) == 128 == coarse.num_products
    assert result.refine(0.03).num_products == sum(calls) > 128


def test_columns_are_multiplied_where_that_is_cheaper():
    A, calls = counted(with_eigenvalues(linspace(0, 1, 300)))
    spectrum = LanczosQuadrature(A).refine(1e-4)
    assert spectrum.is_exact and spectrum.num_products == sum(calls) < 2 * 300
    assert spectrum.wasserstein(Spectrum.of_eigenvalues(linspace(0, 1, 300))) < 1e-12


def test_a_limit_that_does_not_suffice_is_warned_of_with_remedies_that_work():
    A = rotated(KINDS["uniform"])
    with pytest.warns(ConvergenceWarning, match="not to the requested 0.02, after") as caught:
        spectrum = LanczosQuadrature(A).refine(0.02, max_products=200)
    assert spectrum.num_products <= 200 and spectrum.wasserstein_bound() > 0.02
    products, tolerance = re.search(r"max_products=(\d+), or tolerance=([\d.e-]+)\.", str(caught[0].message)).groups()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        assert LanczosQuadrature(A).refine(0.02, max_products=int(products)).wasserstein_bound() <= 0.02
        assert LanczosQuadrature(A).refine(float(tolerance), max_products=200).num_products <= 200


def test_a_limit_below_the_first_look_is_refused():
    A = rotated(KINDS["uniform"])
    with pytest.raises(ArgumentError, match="Allow max_products=32"):
        LanczosQuadrature(A).refine(0.5, max_products=31)
    assert LanczosQuadrature(A).refine(0.5, max_products=32).num_products == 32


@pytest.mark.parametrize("tolerance", [0.0, -1.0, float("nan")])
def test_a_tolerance_is_positive(tolerance):
    with pytest.raises(ArgumentError):
        LanczosQuadrature(rotated(KINDS["uniform"])).refine(tolerance)


def test_little_room_gives_steps_first_and_then_probes():
    A = with_room(diagonal(LARGE), 9)
    result = LanczosQuadrature(A)
    spectrum = result.refine(0.03)
    assert spectrum.wasserstein_bound() <= 0.03 * 10
    assert_close(spectrum.wasserstein(Spectrum.of_eigenvalues(LARGE)), 0.0, atol=0.3, rtol=0)


def test_a_density_to_a_tolerance_says_what_it_took():
    A, calls = counted(rotated(KINDS["network"]))
    spectrum = spectral_density(A, tolerance=0.05, outliers=2)
    assert spectrum.num_products == sum(calls) and spectrum.wasserstein_bound() <= 0.05 * 10
    calls.clear()
    assert spectral_density(A, num_probes=2, num_steps=9, outliers=2).num_products == sum(calls)


@pytest.mark.parametrize(
    "wish", [{"tolerance": 0.1, "num_steps": 9}, {"tolerance": 0.1, "num_probes": 9}, {"max_products": 99}]
)
def test_a_tolerance_and_numbers_exclude_each_other(wish):
    A = rotated(KINDS["network"])
    with pytest.raises(ArgumentError, match="Pass tolerance, with or without max_products, or num_steps"):
        spectral_density(A, **wish)
    assert spectral_density(A, tolerance=0.5, max_products=50).num_products <= 50
    assert spectral_density(A, num_steps=3, num_probes=2).num_products == 6


def test_a_spectrum_keeps_what_it_took(tmp_path):
    spectrum = spectral_density(rotated(KINDS["network"]), num_steps=3, num_probes=2)
    assert Spectrum.load(spectrum.save(tmp_path / "spectrum.npz")).num_products == 6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_spectrum_of_nothing_is_known_exactly(dtype):
    A = Operator(torch.zeros_like, 600, dtype, torch.device("cpu"))
    for spectrum in (spectral_density(A), spectral_density(A, tolerance=0.01)):
        assert spectrum.wasserstein_bound() == 0.0 and spectrum.zero_mass() == 1.0
        assert spectrum.mass(-1.0, -1e-300).value == spectrum.mass(-1.0, -1e-300).standard_error == 0.0
        assert spectrum.mass(-1.0, 0.0).value == pytest.approx(1.0)
