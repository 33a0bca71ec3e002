"""Figures draw themselves, whatever is in them, and leave no global state."""

import sys

import matplotlib
import pytest
import torch

from ritz import plot
from ritz.record import write_picture
from ritz.spectrum import Spectrum


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
