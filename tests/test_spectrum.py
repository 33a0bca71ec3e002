"""Spectra are probability measures; estimates and eigenpairs say what they know."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from ritz import record
from ritz.errors import ArgumentError, FileError, NumericalError, RitzError
from ritz.operators import Operator
from ritz.solvers import LanczosQuadrature, eigenpairs, spectral_density
from ritz.spectrum import Eigenpairs, Estimate, Spectrum
from ritz.spectrum.estimate import digits_within
from tests.seeds import real
from tests.solvers.spectra import with_eigenvalues

moderate = st.floats(-1e6, 1e6).map(lambda x: x if abs(x) > 1e-100 else 0.0)
values = st.lists(moderate, min_size=1, max_size=30)


def quadrature(num_probes=8, num_nodes=50, seed=0):
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.randn(num_probes, num_nodes, generator=generator, dtype=torch.float64)
    weights = torch.rand(num_probes, num_nodes, generator=generator, dtype=torch.float64)
    return Spectrum(nodes, weights / weights.sum(1, keepdim=True), 1000, resolution=0.1)


@given(values)
@settings(max_examples=50, deadline=None)
def test_a_density_integrates_to_one_in_its_own_variable(eigenvalues):
    spectrum = Spectrum.of_eigenvalues(real(*eigenvalues))
    x, u = spectrum.grid(), spectrum.log_grid()
    assert float(torch.trapezoid(spectrum.density(x), x)) == pytest.approx(1, abs=1e-3)
    assert float(torch.trapezoid(spectrum.log_density(u), u)) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("width, floor", [(0.3, 1e-3), (0.05, 1.0), (1.0, None)])
def test_given_widths_and_floors_keep_the_mass(width, floor):
    spectrum = quadrature()
    u = spectrum.log_grid(width=width, floor=floor)
    q = spectrum.log_density(u, width=width, floor=floor)
    assert float(torch.trapezoid(q, u)) == pytest.approx(1, abs=1e-4)


def test_the_density_of_one_atom_is_its_gaussian():
    spectrum, x = Spectrum.of_eigenvalues(real(2.0)), torch.linspace(0, 4, 9, dtype=torch.float64)
    expected = torch.distributions.Normal(real(2.0), real(0.5)).log_prob(x).exp()
    assert_close(spectrum.density(x, 0.5), expected)


def test_the_log_density_of_one_atom_sits_at_its_logarithm_whatever_its_sign():
    for eigenvalue in (3.0, -3.0):
        u = torch.linspace(-2, 4, 601, dtype=torch.float64)
        q = Spectrum.of_eigenvalues(real(eigenvalue)).log_density(u, width=0.2, floor=0.5)
        assert float(u[q.argmax()]) == pytest.approx(math.log(3.5), abs=0.01)


def test_log_density_is_the_density_of_the_logarithm():
    generator = torch.Generator().manual_seed(0)
    logs = torch.randn(20000, generator=generator, dtype=torch.float64)
    spectrum = Spectrum.of_eigenvalues(logs.exp())
    u = torch.linspace(-3, 3, 121, dtype=torch.float64)
    q = spectrum.log_density(u, width=0.1, floor=1e-9)
    normal = torch.distributions.Normal(real(0.0), real(math.sqrt(1.01))).log_prob(u).exp()
    assert float((q - normal).abs().max()) < 0.02


def test_the_default_width_is_what_the_quadrature_resolves_or_that_of_128_nodes():
    assert quadrature().width == quadrature().resolution
    spectrum = Spectrum.of_eigenvalues(real(0, 127))
    assert math.exp(-0.5 * (0.5 / spectrum.width) ** 2) == pytest.approx(1 / 3)  # half a spacing away


def test_eigenvalues_that_are_equal_but_for_rounding_have_widths_that_float64_resolves():
    values = 1 + 2.5e-16 * torch.arange(10, dtype=torch.float64)
    spectrum = Spectrum.of_eigenvalues(values * torch.tensor([1.0, -1.0]).double().repeat(5))
    assert float(values[-1]) > 1 and spectrum.log_width() >= 1e-13
    u = spectrum.log_grid(2001)
    assert float(torch.trapezoid(spectrum.log_density(u), u)) == pytest.approx(1, abs=1e-3)


def test_chunks_do_not_change_a_density(monkeypatch):
    spectrum = quadrature()
    x = spectrum.grid(301)
    whole = spectrum.density(x)
    monkeypatch.setattr("ritz.spectrum.measure.CHUNK", 1000)
    assert_close(spectrum.density(x), whole)


def test_a_density_scales_with_its_eigenvalues():
    for scale in (1e-12, 1e12):
        small, plain = (Spectrum.of_eigenvalues(s * real(-1, 0, 2, 5)) for s in (scale, 1.0))
        assert_close(small.density(scale * plain.grid()) * scale, plain.density(plain.grid()))


def test_all_zero_eigenvalues_have_densities_and_mass_at_zero():
    spectrum = Spectrum.of_eigenvalues(torch.zeros(5, dtype=torch.float64))
    x, u = spectrum.grid(), spectrum.log_grid()
    assert float(torch.trapezoid(spectrum.density(x), x)) == pytest.approx(1, abs=1e-4)
    assert float(torch.trapezoid(spectrum.log_density(u), u)) == pytest.approx(1, abs=1e-4)
    assert spectrum.zero_mass() == 1.0


@given(values)
@settings(max_examples=50, deadline=None)
def test_moments_and_cdf_are_those_of_the_eigenvalues(eigenvalues):
    spectrum, x = Spectrum.of_eigenvalues(real(*eigenvalues)), real(*eigenvalues).sort().values
    assert spectrum.moment(1) == pytest.approx(float(x.mean()), rel=1e-9, abs=1e-9)
    assert spectrum.moment(2) == pytest.approx(float(x.square().mean()), rel=1e-9)
    empirical = torch.stack([(x <= t).double().mean() for t in x])
    assert_close(spectrum.cdf(x), empirical)


@given(values, values)
@settings(max_examples=50, deadline=None)
def test_wasserstein_distance_matches_scipy(first, second):
    from scipy.stats import wasserstein_distance  # here, for it takes a second

    ours = Spectrum.of_eigenvalues(real(*first)).wasserstein(Spectrum.of_eigenvalues(real(*second)))
    assert ours == pytest.approx(wasserstein_distance(first, second), rel=1e-9, abs=1e-9)


def test_wasserstein_distance_of_a_shift_is_the_shift():
    spectrum = quadrature()
    shifted = Spectrum(spectrum.nodes + 0.25, spectrum.weights, spectrum.size)
    assert spectrum.wasserstein(shifted) == pytest.approx(0.25)
    assert spectrum.wasserstein(spectrum) == 0.0


def test_a_matrix_has_the_spectrum_of_its_eigenvalues():
    matrix = torch.diag(real(3, -1, 0)) @ torch.eye(3, dtype=torch.float64)
    spectrum = Spectrum.of_matrix(matrix)
    assert spectrum.range == (-1.0, 3.0) and spectrum.size == 3
    assert spectrum.zero_mass() == pytest.approx(1 / 3)


def test_the_mass_below_nan_is_nan():
    x = real(math.nan, -1.0, 1.0, math.inf)
    for spectrum in (quadrature(), Spectrum.of_eigenvalues(real(0, 1))):
        assert spectrum.cdf(x).isnan().tolist() == [True, False, False, False] and spectrum.cdf(x)[-1] == 1.0
        for end in spectrum.cdf_band(x):
            assert end.isnan().tolist() == [True, False, False, False]


@pytest.mark.parametrize("count", [0, -1])
def test_a_spectrum_of_eigenvalues_has_as_many_rows_as_probes(count):
    assert Spectrum.of_eigenvalues(real(1, 2), num_probes=3).num_probes == 3
    with pytest.raises(ArgumentError, match="num_probes="):
        Spectrum.of_eigenvalues(real(1, 2), num_probes=count)


def test_multiplicities_are_weights():
    spectrum = Spectrum.of_eigenvalues(real(2, 5), torch.tensor([3, 1]))
    assert spectrum.size == 4 and spectrum.moment(1) == pytest.approx(11 / 4)


def test_standard_error_is_the_scatter_over_probes():
    spectrum = quadrature(num_probes=20)
    means = (spectrum.nodes * spectrum.weights).sum(1)
    assert_close(spectrum.standard_error(lambda s: s.moment(1)), means.std() / 20**0.5)
    x = spectrum.grid(50)
    assert spectrum.standard_error(lambda s: s.density(x, 0.2)).shape == (50,)


def test_one_probe_has_no_standard_error():
    with pytest.raises(RitzError, match="one probe"):
        quadrature(num_probes=1).standard_error(lambda s: s.moment(1))


def test_split_takes_the_largest_magnitudes_and_leaves_the_rest():
    outliers, bulk = Spectrum.of_eigenvalues(real(1, -7, 0.5, 3, 0)).split(2)
    assert_close(outliers, real(-7, 3))
    assert bulk.size == 3 and bulk.moment(1) == pytest.approx(0.5) and bulk.range == (0.0, 1.0)


def test_split_divides_a_multiple_eigenvalue():
    outliers, bulk = Spectrum.of_eigenvalues(real(2, 5), torch.tensor([3, 2])).split(1)
    assert_close(outliers, real(5))
    assert bulk.size == 4 and bulk.moment(1) == pytest.approx((5 + 6) / 4)


def test_split_of_a_plain_quadrature_is_refused():
    with pytest.raises(ArgumentError, match="outliers=2"):
        quadrature().split(2)
    with pytest.raises(ArgumentError, match="bulk must be left"):
        Spectrum.of_eigenvalues(real(1, 2)).split(2)


@pytest.mark.parametrize("size", [0, -3])
def test_a_spectrum_counts_its_eigenvalues(size):
    with pytest.raises(ArgumentError, match=f"size={size}"):
        Spectrum(torch.ones(1, 1), torch.ones(1, 1), size)


def test_a_spectrum_survives_its_file(tmp_path):
    spectrum = quadrature()
    loaded = Spectrum.load(spectrum.save(tmp_path / "spectrum.npz"))
    assert torch.equal(loaded.nodes, spectrum.nodes) and torch.equal(loaded.weights, spectrum.weights)
    assert (loaded.size, loaded.resolution) == (spectrum.size, spectrum.resolution)
    assert torch.equal(loaded.ends, spectrum.ends) and loaded.precision == spectrum.precision
    x = spectrum.grid(20)
    assert torch.equal(torch.stack(loaded.band(x)), torch.stack(spectrum.band(x)))


def test_a_spectrum_whose_eigenvalues_are_all_found_keeps_how_sure_each_is(tmp_path):
    eigenvalues = torch.cat([real(9, 8), torch.linspace(0, 1, 18, dtype=torch.float64)])
    A = with_eigenvalues(eigenvalues)
    for options in ({}, {"outliers": eigenpairs(A, 1, tolerance=0.05)}):
        spectrum = spectral_density(A, num_steps=30, num_probes=2, **options)
        loaded = Spectrum.load(spectrum.save(tmp_path / "spectrum.npz"))
        assert spectrum.is_exact and float((spectrum.ends - spectrum.nodes).abs().max()) > 0
        assert torch.equal(loaded.ends, spectrum.ends) and loaded.interval(2) == spectrum.interval(2)


def test_a_file_from_before_atoms_were_counted_still_loads(tmp_path):
    nodes = torch.tensor([[9.0, 1.0, 2.0], [9.0, 1.5, 2.5]], dtype=torch.float64)
    weights = torch.tensor([[0.01, 0.5, 0.49], [0.01, 0.4, 0.59]], dtype=torch.float64)
    header = {"kind": "Spectrum", "size": 100, "resolution": 0.3}
    path = record.write_arrays(tmp_path / "old.npz", {"nodes": nodes.numpy(), "weights": weights.numpy()}, header)
    loaded = Spectrum.load(path)
    outliers, bulk = loaded.split(1)
    assert outliers.tolist() == [9.0] and bulk.size == 99 and loaded.num_atoms == 1


def test_zero_is_what_the_products_cannot_tell_from_it():
    graded = torch.logspace(-12, 12, 400, dtype=torch.float64)
    A = Operator(lambda V: graded[:, None] * V, 400, torch.float64, torch.device("cpu"))
    assert spectral_density(A, num_steps=64, generator=torch.Generator().manual_seed(0)).zero_mass() < 0.01
    nodes, weights = torch.tensor([[1e-6, 1.0]]), torch.tensor([[0.5, 0.5]])
    single, double = (
        Spectrum(nodes, weights, 10, 0.1, precision=torch.finfo(d).eps) for d in (torch.float32, torch.float64)
    )
    assert single.zero_mass() == 0.5 and double.zero_mass() == 0.0


def of_rank_three(dtype):
    U = torch.randn(100, 3, generator=torch.Generator().manual_seed(0), dtype=dtype)
    return U @ U.T


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exact_zeros_are_zero_to_the_precision_of_their_matrix(dtype):
    A = Operator.from_matrix(of_rank_three(dtype))
    pairs = eigenpairs(A, 100, which="magnitude")
    quadrature = LanczosQuadrature(A, outliers=pairs)
    spectra = [
        Spectrum.of_matrix(A.dense()),
        Spectrum.of_eigenvalues(torch.linalg.eigvalsh(A.dense())),
        Spectrum.of_eigenvalues(pairs.values.double(), precision=torch.finfo(dtype).eps),
        spectral_density(A, tolerance=1e-9),
        spectral_density(A, outliers=pairs),
        spectral_density(A, num_steps=100),
        quadrature.spectrum(),
    ]
    for spectrum in spectra:
        assert spectrum.zero_mass() == pytest.approx(0.97) and spectrum.precision == torch.finfo(dtype).eps
    assert "zeros 0.97" in repr(spectra[0])


@pytest.mark.parametrize("precision", [-1e-7, 2.0, float("inf")])
def test_a_precision_is_a_share_of_the_largest_eigenvalue(precision):
    with pytest.raises(ArgumentError, match="precision="):
        Spectrum.of_eigenvalues(real(1, 2), precision=precision)


def test_one_probe_has_intervals_and_an_exact_spectrum_has_none_to_speak_of():
    spectrum, x = quadrature(num_probes=1), real(0.0, 0.5)
    for lower, upper in (spectrum.band(x), spectrum.cdf_band(x), spectrum.log_band(x)):
        assert bool((lower < upper).all())
    assert spectrum.interval(1)[0] < spectrum.moment(1) < spectrum.interval(1)[1]
    exact = Spectrum.of_eigenvalues(real(0, 1, 2))
    assert torch.equal(*exact.band(x)) and exact.interval(2) == (exact.moment(2), exact.moment(2))
    assert exact.wasserstein_bound() == 0.0 and exact.mass(0.5, 3.0).standard_error == 0.0


def test_an_interval_of_a_function_holds_its_integral():
    inside = 0
    for seed in range(20):
        nodes = torch.linspace(-1, 1, 40, dtype=torch.float64)
        w = torch.distributions.Dirichlet(torch.full((40,), 12.5, dtype=torch.float64))
        torch.manual_seed(seed)
        spectrum = Spectrum(nodes.expand(4, -1), w.sample((4,)), 1000, 0.1)  # 25 eigenvalues at each node
        low, high = spectrum.interval(torch.exp)
        inside += low <= float(nodes.exp().mean()) <= high
    assert inside >= 17


@pytest.mark.parametrize("rate", [0.0, 1.0, -1.0])
def test_a_rate_that_is_not_a_probability_is_refused(rate):
    for call in (quadrature().wasserstein_bound, lambda rate: quadrature().band(real(0.0), rate=rate)):
        with pytest.raises(ArgumentError, match="rate="):
            call(rate=rate)


def test_the_mass_of_an_interval_says_what_it_leaves_open():
    spectrum = Spectrum(real(-2, -1, 1, 2)[None], torch.full((1, 4), 0.25), 10**9, resolution=0.1)
    mass = spectrum.mass(-math.inf, 0.0)
    uneven = 2 / 3  # the outer nodes are three times as dense as those next to zero
    assert mass.value == pytest.approx(0.5)
    assert mass.standard_error == pytest.approx(uneven * 0.25 / math.sqrt(3), rel=1e-3)
    alone = Spectrum(real(-1, 1)[None], torch.full((1, 2), 0.5), 10**9, resolution=0.1).mass(-math.inf, 0.0)
    assert alone.value == pytest.approx(0.5) and alone.standard_error == pytest.approx(0.5 / math.sqrt(3), rel=1e-3)
    atoms = Spectrum(real(-2, -1, 1, 2)[None], torch.full((1, 4), 0.25), 4, resolution=0.1, num_atoms=4)
    assert atoms.mass(-math.inf, 0.0).standard_error == 0.0


def test_eigenpairs_survive_their_file_and_are_no_spectrum(tmp_path):
    pairs = Eigenpairs(real(2, 1), torch.eye(5, 2), real(1e-9, 0.1), torch.tensor([True, False]), 17, 12)
    path = pairs.save(tmp_path / "pairs.npz")
    loaded = Eigenpairs.load(path)
    for name in ("values", "vectors", "residuals", "converged"):
        assert torch.equal(getattr(loaded, name), getattr(pairs, name))
    assert loaded.num_products == 17 and "not converged" in repr(loaded) and len(loaded) == 2
    with pytest.raises(FileError, match="Eigenpairs, not Spectrum"):
        Spectrum.load(path)


def gone(name):
    return lambda arrays, facts: (arrays if name in arrays else facts).pop(name)


def shorter(name):
    return lambda arrays, _: arrays.update({name: arrays[name][..., :-1]})


def nan(name):
    return lambda arrays, _: arrays.update({name: arrays[name] * math.nan})


def longer(name):
    return lambda arrays, _: arrays.update({name: np.concatenate([arrays[name], arrays[name]])})


def single(name):
    return lambda arrays, _: arrays.update({name: arrays[name].astype(np.float32)})


def fact(name, value):
    return lambda _, facts: facts.update({name: value})


DAMAGE = {
    "spectrum": [gone("weights"), gone("num_atoms"), shorter("nodes"), shorter("reach"), nan("weights"), nan("reach"),
                 fact("size", -5), fact("num_atoms", 10**6), fact("resolution", None), fact("precision", "text"),
                 fact("num_products", math.nan), gone("reach"), single("weights"), fact("resolution", 10**30),
                 fact("resolution", 0.0), fact("num_atoms", 8), fact("precision", 1.5)],
    "pairs": [gone("residuals"), gone("basis_size"), shorter("values"), shorter("vectors"), nan("vectors"),
              nan("values"), fact("num_products", -1), fact("num_rough_products", "text"), longer("vectors"),
              gone("doubts"), fact("has_doubts", False), fact("basis_size", []), longer("converged")],
}  # fmt: skip


@pytest.mark.parametrize("kind, damage", [(kind, damage) for kind, ways in DAMAGE.items() for damage in ways])
def test_a_damaged_file_is_refused_and_left_alone(tmp_path, kind, damage):
    doubts, converged = real(0, 1), torch.tensor([True, False])
    pairs = Eigenpairs(real(2, 1), torch.eye(5, 2), real(1e-9, 0.1), converged, 17, 12, doubts=doubts)
    path = (quadrature() if kind == "spectrum" else pairs).save(tmp_path / "x.npz")
    arrays, header = record.read_arrays(path)
    damage(arrays, header)
    record.write_arrays(path, arrays, header)
    before = path.read_bytes()
    with pytest.raises(FileError, match="is damaged"):
        (Spectrum if kind == "spectrum" else Eigenpairs).load(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "nodes, weights, error",
    [
        ([[1.0, 2.0]], [[0.7, 0.7]], ArgumentError),
        ([[1.0, 2.0]], [[1.5, -0.5]], ArgumentError),
        ([[1.0, math.nan]], [[0.5, 0.5]], NumericalError),
        ([[1.0, 2.0]], [[math.nan, 0.5]], NumericalError),
    ],
)
def test_atoms_that_do_not_make_a_measure_are_refused(nodes, weights, error):
    with pytest.raises(error):
        Spectrum(torch.tensor(nodes), torch.tensor(weights), 2)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
def test_a_width_or_floor_that_is_not_positive_is_refused(bad):
    spectrum = quadrature()
    with pytest.raises(ArgumentError, match="width"):
        spectrum.density(spectrum.grid(), bad)
    with pytest.raises(ArgumentError, match="floor"):
        spectrum.log_density(spectrum.log_grid(), floor=bad)


def test_a_spectrum_prints_what_people_ask_first():
    text = repr(quadrature())
    assert all(word in text for word in ("1000 eigenvalues", "8 probes × 50 nodes", "λ from", "mean"))
    assert "exact" in repr(Spectrum.of_eigenvalues(real(1, 2)))


@pytest.mark.parametrize(
    "value, error, text",
    [
        (3.6123, 0.041, "3.61 ± 0.04 (99 products)"),
        (1234.6, 20.0, "1235 ± 20 (99 products)"),
        (1.234e-8, 3e-10, "(1.23 ± 0.03)e-08 (99 products)"),
        (-5.1e9, 2e8, "(-5.1 ± 0.2)e+09 (99 products)"),
        (15.0, 0.0, "15 ± 0 (99 products)"),
        (24.03, 0.97, "24 ± 1 (99 products)"),
    ],
)
def test_an_estimate_prints_to_the_digit_it_knows(value, error, text):
    assert str(Estimate(value, error, 99)) == text


def test_an_estimate_without_error_says_so_when_asked():
    estimate = Estimate(3.0, None, 1)
    assert float(estimate) == 3.0 and not estimate.has_error and "error unknown" in str(estimate)
    with pytest.raises(RitzError, match="one probe"):
        estimate.standard_error


def test_an_interval_is_wider_where_one_eigenvalue_decides():
    """Half of the directions see little of it, and take its share of the variance for less than it is."""
    generator = torch.Generator().manual_seed(0)
    nodes = torch.cat([torch.rand(199, generator=generator, dtype=torch.float64), real(20)])
    masses = torch.randn(300, 4, 200, generator=generator, dtype=torch.float64).square()
    spectra = [Spectrum(nodes.expand(4, -1), w / w.sum(1, keepdim=True), 200, 0.01) for w in masses]
    covered = [ends[0] <= float(nodes.mean()) <= ends[1] for ends in (s.interval(1) for s in spectra)]
    assert sum(covered) / 300 > 0.93  # 0.89, had the variance been known


@pytest.mark.parametrize("width", [1e-3, 0.3])
def test_a_density_is_the_sum_of_its_gaussians_at_points_in_any_order(generator, width):
    values = torch.randn(300, generator=generator, dtype=torch.float64)
    x = 8 * torch.rand(500, generator=generator, dtype=torch.float64) - 4
    expected = torch.distributions.Normal(values, width).log_prob(x[:, None]).exp().mean(1)
    assert_close(Spectrum.of_eigenvalues(values).density(x, width), expected, rtol=1e-10, atol=1e-300)
    x[7] = torch.nan
    assert Spectrum.of_eigenvalues(values).density(x, width).isnan().nonzero().tolist() == [[7]]


@pytest.mark.parametrize("value", [112.99985504, -16.03787, 3.1e-7, 1.0, 24.252, 4.2e8])
@pytest.mark.parametrize("error", [1e-8, 3e-7, 9.9e-7, 2e-6])  # of the value
def test_an_eigenvalue_is_shown_as_finely_as_its_residual_says(value, error):
    shown = digits_within(value, error * abs(value))
    assert abs(float(shown) - value) <= error * abs(value)
    assert len(shown.partition("e")[0].lstrip("-0.").replace(".", "")) <= 9


def test_the_mass_of_an_interval_that_ends_before_it_begins_is_refused():
    with pytest.raises(ArgumentError, match="lower end first"):
        Spectrum.of_eigenvalues(torch.tensor([0.0, 2.0])).mass(1.0, -1.0)


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda t: 3.0, "f returned a float"),
        (lambda t: t.sum(), "f returned a tensor of shape"),
        (lambda t: t.numpy(), "f returned an ndarray"),
        (lambda t: t.log(), "f is NaN or infinite at -"),
    ],
)
def test_a_mean_of_what_is_no_function_of_eigenvalues_is_refused(f, words):
    with pytest.raises(RitzError, match=words):
        spectral_density(Operator.from_matrix(torch.linspace(-1, 1, 600).diag()), num_steps=16).interval(f)


def test_a_share_of_eigenvalues_has_an_interval():
    spectrum = spectral_density(Operator.from_matrix(torch.linspace(-1, 1, 600).diag()), num_steps=32)
    low, high = spectrum.interval(lambda t: t > 0)
    assert low < 0.5 < high
