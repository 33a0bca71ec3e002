"""Ritz values that are eigenvalues count once, however often they stand in a quadrature."""

import pytest
import torch
from torch.testing import assert_close

from ritz.operators import Operator
from ritz.solvers import lanczos, spectral_density
from ritz.solvers.atoms import common_atoms, multiplicities, rows_of
from ritz.spectrum import Spectrum
from tests.seeds import seeded

from .spectra import linspace, rotated


def diagonal(values, dtype=torch.float64):
    d = values.to(dtype)[:, None]
    return Operator(lambda V: d * V, len(values), dtype, torch.device("cpu"))


OUTLIERS = torch.tensor([40.0, 31.0, 25.0, 12.0, -9.0], dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ghosts_are_one_eigenvalue_of_mass_one_nth(dtype):
    values = torch.cat([OUTLIERS, linspace(-1, 1, 1995)])
    A = diagonal(values, dtype)
    T = lanczos(A, torch.randn(2000, 1, generator=seeded(0), dtype=dtype), 100)
    copies = (T.eigh()[0][0] - 40).abs() < 1e-3
    assert int(copies.sum()) > 1  # the recursion has ghosts
    spectrum = spectral_density(A, num_steps=100, num_probes=2, generator=seeded(1))
    outliers, bulk = spectrum.split(5)
    assert_close(outliers, OUTLIERS, atol=1e-4, rtol=0)
    assert bulk.size == 1995 and max(map(abs, bulk.range)) < 1.001


def test_atoms_make_a_density_more_accurate_at_the_same_price():
    tail = 0.5 * torch.arange(1, 401, dtype=torch.float64) ** -1.0
    values = torch.cat([linspace(2, 10, 10), tail, 0.02 * linspace(-1, 1, 590), torch.zeros(1000).double()])
    truth, ratios = Spectrum.of_eigenvalues(values), []
    for seed in range(4):
        start = torch.randn(2000, 2, generator=seeded(seed))
        A = diagonal(values, torch.float32)
        nodes, weights = lanczos(A, start, 64).quadrature()
        plain = Spectrum(nodes, weights, 2000, resolution=0.1)
        ours = spectral_density(A, num_steps=64, num_probes=2, generator=seeded(seed))
        ratios.append(plain.wasserstein(truth) / ours.wasserstein(truth))
    assert sorted(ratios)[1] > 4, ratios


def test_a_narrow_cluster_is_no_eigenvalue():
    values = torch.cat([5 + 1e-4 * linspace(-1, 1, 30), linspace(-1, 1, 570)])
    spectrum = spectral_density(diagonal(values), num_steps=24, num_probes=4, generator=seeded(2))
    assert not bool((spectrum.nodes[0, : spectrum.num_atoms] > 4).any())
    lower, upper = spectrum.cdf_band(torch.tensor([5.0], dtype=torch.float64))
    assert float(lower) <= 585 / 600 <= float(upper) and float(upper - lower) > 0.02


def test_what_only_some_probes_have_found_is_no_atom():
    values = torch.cat([OUTLIERS, linspace(-1, 1, 495)])
    first, second = (torch.randn(500, 1, generator=seeded(s), dtype=torch.float64) for s in (0, 1))
    second[0] = 0  # has no component along the largest
    both = lanczos(diagonal(values), torch.cat([first, second], dim=1), 40)
    atoms = common_atoms(rows_of(both, 500, 1e-16), 500)
    assert not bool((atoms.values > 39).any()) and bool((atoms.values > 30).any())


def draws(dimensions, num_probes, size, seed=0):
    """The masses that random directions have in spaces of these dimensions."""
    rows = torch.randn(num_probes, sum(dimensions), generator=seeded(seed), dtype=torch.float64).square() / size
    return torch.stack([part.sum(1) for part in rows.split(dimensions, dim=1)], dim=1)


def test_simple_eigenvalues_are_taken_for_simple_and_doubled_ones_are_not():
    simple, double = (torch.cat([multiplicities(draws([r] * 20, 8, 3000, s), 3000) for s in range(10)]) for r in (1, 2))
    assert (simple == 1).double().mean() > 0.97 and (simple > 1).sum() == 0
    assert (double == 1).double().mean() < 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gap", [0.0, 1e-8])
@pytest.mark.parametrize("num_steps", [40, 64])
def test_a_multiple_eigenvalue_among_simple_ones_is_counted_as_often_as_it_is_there(dtype, gap, num_steps):
    outliers = torch.cat([linspace(9, 9 + gap, 2), linspace(7, 7, 3), linspace(-5, -5, 1), linspace(4, 4, 6)])
    A = rotated(torch.cat([outliers, linspace(-1, 1, 588)]), dtype=dtype)
    for seed in range(6):  # a product of Beta likelihoods, of the masses alone, took all four for simple ones
        spectrum = spectral_density(A, num_steps=num_steps, generator=seeded(seed))
        known = slice(spectrum.num_atoms)
        nodes, masses = spectrum.nodes[0, known], spectrum.weights[0, known]
        assert [round(600 * float(masses[(nodes - v).abs() < 1e-3].sum())) for v in (9, 7, -5, 4)] == [2, 3, 1, 6]


@pytest.mark.usefixtures("unchecked")
def test_means_are_covered_where_a_double_eigenvalue_stands_among_simple_ones():
    values = torch.cat([linspace(9, 9, 2), linspace(5, 8, 4), linspace(0, 1, 594)])
    for num_probes in (2, 8):
        runs = [spectral_density(rotated(values), num_steps=40, num_probes=num_probes, generator=seeded(s)).interval(2)
                for s in range(40)]  # fmt: skip
        assert sum(low <= values.square().mean() <= high for low, high in runs) >= 35  # of 40; none, counted once


def test_directions_that_no_mark_shows_leave_the_count_to_the_masses():
    """Of an eigenvector (1, -1) on coordinates that are summed alike, all marks are zero."""
    n, step = 700, 17 * 19
    values, u = torch.cat([linspace(9, 9, 1), linspace(-1, 1, n - 1)]), torch.zeros(n, dtype=torch.float64)
    u[0], u[step] = 1.0, -1.0
    axis = (u / 2**0.5 - torch.eye(n, dtype=torch.float64)[0])[:, None]
    axis = axis / axis.norm()
    turned = lambda V: V - 2 * axis * (axis.T @ V)  # takes the first coordinate to u
    A = Operator(lambda V: turned(values[:, None] * turned(V)), n, torch.float64, torch.device("cpu"))
    spectrum = spectral_density(A, num_steps=40, generator=seeded(0))
    assert_close(spectrum.nodes[0, 0], torch.tensor(9.0).double()) and spectrum.num_atoms == 1
    assert float(spectrum.weights[0, 0]) == pytest.approx(1 / n)


def test_a_space_of_many_dimensions_keeps_its_mass():
    counts = multiplicities(draws([1] * 10 + [6] + [300], 8, 3000), 3000)
    assert counts[:10].tolist() == [1] * 10 and counts[10:].tolist() == [0, 0]


def test_all_steps_give_the_exact_spectrum_with_its_zeros():
    values = torch.cat([linspace(1, 3, 40), torch.zeros(20, dtype=torch.float64)])
    spectrum = spectral_density(diagonal(values), generator=seeded(3))
    assert spectrum.is_exact and spectrum.zero_mass() == pytest.approx(1 / 3)
    assert spectrum.wasserstein(Spectrum.of_eigenvalues(values)) < 1e-12
    x = spectrum.grid(50)
    assert torch.equal(*spectrum.cdf_band(x - 1e-6)) and spectrum.wasserstein_bound() < 1e-12


def test_eigenvalues_that_different_probes_have_found_are_not_taken_for_one():
    values = torch.cat([torch.tensor([40.0, 39.0]).double(), linspace(-1, 1, 498)])
    starts = torch.randn(500, 2, generator=seeded(0), dtype=torch.float64)
    starts[1, 0] = starts[0, 1] = 0  # each has a component along one of the two largest alone
    atoms = common_atoms(rows_of(lanczos(diagonal(values), starts, 40), 500, 1e-16), 500)
    assert not bool((atoms.values > 2).any())


@pytest.mark.parametrize("eps", [1e-12, 1e-8])
def test_an_eigenvalue_is_known_no_better_than_products_round(eps):
    """Copies of it lie within 64 roundings of the largest, and one of them within an eighth of that."""
    values = torch.cat([OUTLIERS, linspace(-1, 1, 495)])
    T = lanczos(diagonal(values), torch.randn(500, 2, generator=seeded(0), dtype=torch.float64), 60)
    rows = rows_of(T, 500, eps)
    assert all(row.rounding == pytest.approx(64 * eps * 40) for row in rows)
    assert_close(common_atoms(rows, 500).radii, torch.full((5,), 8 * eps * 40, dtype=torch.float64), rtol=1e-3, atol=0)
