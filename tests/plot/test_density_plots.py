"""Densities as they are drawn: the pictures' own data against the spectra they came from."""

import math

import pytest
import torch
from torch.testing import assert_close

from ritz import Operator, plot, spectral_density
from ritz.errors import ArgumentError
from ritz.plot.curves import log_curve
from ritz.spectrum import Spectrum
from tests.plot.curves import OUTLIERS, curve


def test_the_curve_is_the_density_of_what_is_not_an_outlier(ax, spectrum):
    assert plot.density(ax, spectrum, outliers=2) is ax
    x, y = curve(ax.lines[0])
    _, bulk = spectrum.split(2)
    assert_close(y, 0.98 * bulk.density(x, spectrum.width))
    assert_close(float(torch.trapezoid(y, x)), 0.98, atol=1e-3, rtol=0)


def test_stems_stand_at_the_outliers_as_high_as_one_eigenvalue(ax, spectrum):
    plot.density(ax, spectrum, outliers=2)
    (stems,) = [c for c in ax.collections if hasattr(c, "get_segments") and len(c.get_segments()) == 2]
    one = 1 / (100 * spectrum.width * math.sqrt(2 * math.pi))
    for segment, value in zip(stems.get_segments(), OUTLIERS, strict=True):
        assert_close(torch.as_tensor(segment[1]), torch.tensor([value, one], dtype=torch.float64))
    assert segment[0][1] == ax.get_ylim()[0]


def test_the_band_is_that_of_the_spectrum(ax, spectrum):
    plot.density(ax, spectrum)
    x, y = curve(ax.lines[0])
    lower, upper = spectrum.band(x, spectrum.width)
    corners = torch.as_tensor(ax.collections[0].get_paths()[0].vertices)
    assert_close(corners[:, 1].max(), upper.max())
    assert bool(((lower <= y + 1e-12) & (y <= upper)).all()) and float(upper.max()) > float(y.max())


def test_one_probe_has_a_band(ax, spectrum):
    plot.log_spectrum(ax, Spectrum(spectrum.nodes[:1], spectrum.weights[:1], 100, 0.5, 2))
    assert len(ax.collections) == 1


def test_a_comparison_has_one_width(ax):
    wide, narrow = (Spectrum.of_eigenvalues(torch.linspace(0, end, 50)) for end in (100.0, 1.0))
    plot.comparison(ax, {"wide": wide, "narrow": narrow})
    for line, spectrum in zip(ax.lines, (wide, narrow), strict=True):
        x, y = curve(line)
        assert_close(y, spectrum.density(x, 100 / 300))  # the narrowest that the wide one shows


def test_the_log_spectrum_of_a_small_layer_is_where_its_eigenvalues_are(ax):
    spectrum = Spectrum.of_eigenvalues(torch.logspace(-3, 0, 16, dtype=torch.float64))
    plot.log_spectrum(ax, spectrum)
    _, y = curve(ax.lines[0])
    low, high = ax.get_xlim()
    assert 1e-4 < low < 1e-3 and 1 < high < 10
    peaks = (y[1:-1] > y[:-2]) & (y[1:-1] > y[2:])
    assert int((peaks & (y[1:-1] > 0.1 * y.max())).sum()) == 16


def test_an_exact_spectrum_has_no_band(ax):
    plot.density(ax, Spectrum.of_eigenvalues(torch.linspace(0, 1, 20)))
    assert not ax.collections


def test_the_axis_shows_one_eigenvalue_and_no_absurd_tail(ax, spectrum):
    plot.density(ax, spectrum)
    low, high = ax.get_ylim()
    one = 1 / (100 * spectrum.width * math.sqrt(2 * math.pi))
    assert_close(low, one / 10)
    assert curve(ax.lines[0])[1].max() < high < 10 * curve(ax.lines[0])[1].max()
    assert ax.get_yscale() == "log"


def test_outliers_of_a_plain_quadrature_are_refused(ax, spectrum):
    with pytest.raises(ArgumentError, match="does not hold 4 outliers"):
        plot.density(ax, spectrum, outliers=4)


def test_the_log_spectrum_is_a_density_of_the_logarithm(ax, spectrum):
    plot.log_spectrum(ax, spectrum)
    x, y = curve(ax.lines[0])
    assert_close(float(torch.trapezoid(y, x.log())), 1.0, atol=1e-3, rtol=0)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_exact_zeros_gather_at_the_floor_of_the_log_spectrum(ax):
    spectrum = Spectrum.of_eigenvalues(torch.tensor([0.0, 0.0, 0.0, 1.0]))
    plot.log_spectrum(ax, spectrum, floor=1e-3)
    x, y = curve(ax.lines[0])
    assert_close(float(x[y.argmax()]), 1e-3, rtol=0.1, atol=0)


@pytest.mark.parametrize("log", [False, True])
def test_a_comparison_names_every_spectrum_and_shows_all_of_each(ax, spectrum, log):
    wide = Spectrum.of_eigenvalues(torch.linspace(-20, 30, 200))
    plot.comparison(ax, {"Hessian": spectrum, "Gauss-Newton": wide}, log=log)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["Hessian", "Gauss-Newton"]
    assert len({line.get_color() for line in ax.lines}) == 2
    low, high = ax.get_ylim()
    for line in ax.lines:
        x, y = curve(line)
        assert low < y.max() < high
        assert ax.get_xlim()[0] <= x[y.argmax()] <= ax.get_xlim()[1]


@pytest.mark.parametrize("draw", [plot.density, plot.log_spectrum])
def test_style_reaches_the_line(ax, spectrum, draw):
    draw(ax, spectrum, color="black", label="mine", linestyle="--")
    line = ax.lines[0]
    assert (line.get_color(), line.get_label(), line.get_linestyle()) == ("black", "mine", "--")


def test_counts_per_decade_add_up_to_the_eigenvalues_above_the_floor(ax):
    values = torch.cat([torch.logspace(-3, 0, 40, dtype=torch.float64), torch.zeros(960)])
    plot.counts(ax, Spectrum.of_eigenvalues(values), floor=1e-4, width=0.1)
    x, y = curve(ax.lines[0])
    assert_close(float(torch.trapezoid(y, x.log10())), 40.0, atol=0.1, rtol=0)
    assert ax.get_xlim()[0] == 1e-4 and ax.get_xlim()[1] > 1


def test_a_log_spectrum_has_stems_at_its_outliers_and_is_grey_where_it_is_open(ax):
    generator = torch.Generator().manual_seed(0)
    matrix = torch.diag(torch.cat([torch.rand(400, generator=generator) * 1e-3, torch.tensor([1.0, 2.0])]).double())
    spectrum = spectral_density(
        Operator.from_matrix(matrix), num_steps=12, num_probes=4, outliers=2, generator=generator
    )
    plot.log_spectrum(ax, spectrum, outliers=2)
    (grey,) = ax.patches
    resolved = log_curve(spectrum, outliers=2).resolved_from
    assert grey.get_width() == resolved
    lower, upper = spectrum.split(2)[1].log_band(torch.tensor([0.5 * resolved]).log().double())
    assert float(upper) > 10 * float(lower)
    assert ax.lines[-1].get_xdata().tolist() == pytest.approx([2.0, 1.0])
    plot.log_spectrum(ax, Spectrum.of_eigenvalues(torch.logspace(-6, 0, 50)))
    assert not ax.patches  # one of them is resolved everywhere


def test_the_band_ends_where_the_curve_does(ax):
    generator = torch.Generator().manual_seed(0)
    matrix = torch.diag(torch.linspace(0, 1, 300).double())
    spectrum = spectral_density(Operator.from_matrix(matrix), num_steps=12, num_probes=4, generator=generator)
    plot.density(ax, spectrum)
    x, y = curve(ax.lines[0])
    seen = x[y >= ax.get_ylim()[0]]
    band = torch.as_tensor(ax.collections[0].get_paths()[0].vertices)
    assert float(band[:, 0].min()) >= float(seen.min()) and float(band[:, 0].max()) <= float(seen.max())


def test_names_of_outliers_do_not_cover_each_other(ax):
    plot.stems(ax, torch.tensor([10.0, 9.99, 5.0]), 1.0, 0.1)
    assert [text.get_text() for text in ax.texts] == [r"$\lambda_{1}$", r"$\lambda_{3}$"]


@pytest.mark.parametrize("width", [1e6, 5e-324])
def test_an_axis_of_counts_that_no_float_reaches_is_refused(ax, width):
    with pytest.raises(ArgumentError, match="beyond the largest float"):
        plot.counts(ax, Spectrum.of_eigenvalues(torch.ones(3)), floor=1e-3, width=width)
