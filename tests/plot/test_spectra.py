"""What is drawn is what was measured: the pictures' own data against the spectra they came from."""

import math
import sys

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from torch.testing import assert_close

from ritz import plot
from ritz.errors import ArgumentError
from ritz.record import write_picture
from ritz.spectrum import Spectrum

OUTLIERS = torch.tensor([5.0, -4.0], dtype=torch.float64)


@pytest.fixture
def ax():
    return plot.panels()[1][0]


@pytest.fixture
def spectrum():
    """Two outliers known to each of three probes, above a bulk of which each probe saw its own part."""
    bulk = torch.randn(3, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64).clamp(-2, 2)
    nodes = torch.cat([OUTLIERS.expand(3, 2), bulk], dim=1)
    weights = torch.cat([torch.full((3, 2), 0.01), torch.full((3, 8), 0.98 / 8)], dim=1)
    return Spectrum(nodes, weights, size=100, resolution=0.5)


def curve(line):
    return tuple(torch.as_tensor(np.asarray(values), dtype=torch.float64) for values in line.get_data())


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


def test_the_band_is_two_standard_errors_over_the_probes(ax, spectrum):
    plot.density(ax, spectrum)
    x, y = curve(ax.lines[0])
    error = spectrum.standard_error(lambda s: s.density(x, spectrum.width))
    top = torch.as_tensor(ax.collections[0].get_paths()[0].vertices[:, 1].max())
    assert_close(top, (y + 2 * error).max())


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


def test_a_scree_plot_is_sorted_and_hollow_where_negative(ax):
    plot.scree(ax, torch.tensor([1.0, -3.0, 2.0]), residuals=torch.tensor([0.1, 0.3, 0.2]))
    line, hollow = ax.lines[0], ax.lines[-1]
    assert_close(curve(line)[1], torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64))
    assert hollow.get_xdata().tolist() == [1] and to_hex(hollow.get_markerfacecolor()) == "#ffffff"
    bars = [segment[:, 1] for c in ax.collections for segment in c.get_segments()]
    np.testing.assert_allclose(bars, [[2.7, 3.3], [1.8, 2.2], [0.9, 1.1]], rtol=1e-6)


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


def test_eigenvalues_are_paired_by_order_with_those_of_a_closed_form(ax):
    plot.eigenvalues(ax, torch.tensor([3.1, 0.9, 2.0]), torch.tensor([1.0, 2.0, 3.0]))
    x, y = curve(ax.lines[-1])
    assert_close(x, torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    assert_close(y, torch.tensor([0.9, 2.0, 3.1], dtype=torch.float64), atol=1e-6, rtol=0)
    with pytest.raises(ArgumentError, match="paired"):
        plot.eigenvalues(ax, torch.ones(3), torch.ones(4))


@pytest.mark.parametrize(
    "values, scale", [([1e-4, 1.0], "log"), ([0.5, 1.0], "linear"), ([-1.0, 1.0], "linear"), ([0.0, 0.0], "linear")]
)
def test_the_scale_of_eigenvalues_follows_their_signs_and_spread(ax, values, scale):
    plot.eigenvalues(ax, torch.tensor(values), torch.tensor(values))
    assert ax.get_xscale() == ax.get_yscale() == scale
    ax.figure.draw_without_rendering()


@pytest.mark.parametrize("draw", [plot.density, plot.log_spectrum])
def test_style_reaches_the_line(ax, spectrum, draw):
    draw(ax, spectrum, color="black", label="mine", linestyle="--")
    line = ax.lines[0]
    assert (line.get_color(), line.get_label(), line.get_linestyle()) == ("black", "mine", "--")


@pytest.mark.parametrize("values", [[0.0, 0.0], [2.0], [-1.0, -1.0, -1.0]])
def test_spectra_of_one_point_are_drawn_without_warning(values, tmp_path):
    figure, axes = plot.panels(3)
    spectrum = Spectrum.of_eigenvalues(torch.tensor(values))
    plot.density(axes[0], spectrum)
    plot.log_spectrum(axes[1], spectrum)
    plot.scree(axes[2], torch.tensor(values))
    assert write_picture(tmp_path / "figure.png", figure).read_bytes().startswith(b"\x89PNG")


def test_drawing_leaves_no_global_state(spectrum):
    before = dict(matplotlib.rcParams)
    figure, (ax,) = plot.panels()
    plot.density(ax, spectrum)
    figure.draw_without_rendering()
    assert dict(matplotlib.rcParams) == before
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()


def test_a_figure_shows_itself_in_a_notebook(spectrum):
    figure, (ax,) = plot.panels()
    plot.density(ax, spectrum)
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_counts_per_decade_add_up_to_the_eigenvalues_above_the_floor(ax):
    values = torch.cat([torch.logspace(-3, 0, 40, dtype=torch.float64), torch.zeros(960)])
    plot.counts(ax, Spectrum.of_eigenvalues(values), floor=1e-4, width=0.1)
    x, y = curve(ax.lines[0])
    assert_close(float(torch.trapezoid(y, x.log10())), 40.0, atol=0.1, rtol=0)
    assert ax.get_xlim()[0] == 1e-4 and ax.get_xlim()[1] > 1


def test_a_knockout_pairs_eigenvalues_by_rank_and_keeps_what_is_unchanged_on_the_line(ax):
    before, after = (torch.tensor(v, dtype=torch.float64).exp() for v in ([4.0, 1.0, 0.0], [2.0, 1.0, 0.0]))
    plot.knockout(ax, before, after, top=1)
    rest, top = (curve(line) for line in ax.lines[1:])
    assert_close(torch.stack(top), torch.tensor([[0.5], [1.0]], dtype=torch.float64))
    assert_close(torch.stack(rest), torch.tensor([[0.25, 0.0], [0.25, 0.0]], dtype=torch.float64))


def test_a_knockout_that_leaves_nothing_says_so(ax):
    plot.knockout(ax, torch.tensor([1.0, 0.5]), torch.tensor([1e-17, 0.0]), top=1, zero=1e-12)
    assert [text.get_text() for text in ax.texts] == ["nothing is left"]


def test_screes_leave_zeros_out_and_name_a_decade_at_least(ax):
    curves = {"H": torch.tensor([6.0, 3.0, 2.0]), "H_class": torch.tensor([5.0, 2.5, 0.0])}
    plot.screes(ax, curves, zero=1e-9, whisker=(2.5, 5.0))
    assert [len(line.get_ydata()) for line in ax.lines[:2]] == [3, 2]
    assert ax.get_ylim()[0] <= 1 < ax.get_ylim()[1]
