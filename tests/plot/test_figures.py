"""Figures draw themselves, whatever is in them, and leave no global state."""

import sys

import matplotlib
import pytest
import torch
from matplotlib.figure import Figure

from ritz import plot
from ritz.errors import ArgumentError
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


@pytest.mark.parametrize(("name", "start"), [("a.PNG", b"\x89PNG"), ("a.Pdf", b"%PDF")])
def test_the_ending_of_a_picture_may_be_in_capitals(name, start, tmp_path):
    assert write_picture(tmp_path / name, plot.panels()[0]).read_bytes().startswith(start)


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


def test_a_picture_is_that_of_matplotlib_and_drawn_once(spectrum, tmp_path, monkeypatch):
    figures = []
    for _ in range(3):
        figure, (ax,) = plot.panels()
        plot.log_spectrum(ax, spectrum)
        ax.set_ylabel("sharpness λ_max(H)")
        figures.append(figure)
    before, times, draw = (figure.canvas, figure.dpi), [], type(figure).draw
    Figure.savefig(figures[0], tmp_path / "theirs.png", format="png", dpi=90)
    with matplotlib.rc_context({"savefig.facecolor": "red"}):  # what a user has set holds
        red = write_picture(tmp_path / "red.png", figures[1], dpi=90).read_bytes()
    monkeypatch.setattr(type(figure), "draw", lambda self, renderer: times.append(1) or draw(self, renderer))
    ours = write_picture(tmp_path / "ours.png", figure, dpi=90).read_bytes()
    assert red != ours == (tmp_path / "theirs.png").read_bytes()
    assert len(times) == 1 and (figure.canvas, figure.dpi) == before


def test_symbols_are_typeset_while_a_figure_is_drawn_and_names_are_not(tmp_path):
    figure, (ax,) = plot.panels()
    seen = []
    ax.set_ylabel("sharpness λ_max(H)")
    name = ax.set_title("G_class", parse_math=False)  # a name of the user's
    name.draw = lambda renderer: seen.extend([ax.yaxis.label.get_text(), name.get_text()])
    figure.savefig(tmp_path / "figure.png")
    assert seen[-2:] == [r"sharpness $\mathregular{λ_{max}}$(H)", "G_class"]
    assert ax.get_ylabel() == "sharpness λ_max(H)"


@pytest.mark.parametrize("columns, width", [(1, 3.25), (2, 6.75)])
def test_the_style_is_for_figures_of_ones_own_and_ends_with_its_block(columns, width):
    before = dict(matplotlib.rcParams)
    with plot.style(columns):
        figure = matplotlib.figure.Figure()
        lines = [figure.subplots().plot([0, 1], [0, i])[0].get_color() for i in range(1)]
    assert figure.get_size_inches()[0] == width and lines == [plot.COLOURS[0]]
    assert dict(matplotlib.rcParams) == before


def test_a_paper_has_one_column_or_two():
    with pytest.raises(ArgumentError, match="one of 1, 2"):
        plot.style(3)


def test_small_multiples_have_numbers_at_the_edges_alone():
    figure, axes = plot.small_multiples(28, columns=7)
    assert len(axes) == 28
    figure.draw_without_rendering()
    labelled = [ax for ax in axes if any(label.get_text() and label.get_visible() for label in ax.get_xticklabels())]
    assert labelled == axes[-7:]
