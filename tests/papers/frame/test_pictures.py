"""Titles, legends and bands of panels."""

import numpy as np

from ritz import plot
from ritz.papers.frame.pictures import draw_band, legend_above, legend_below, write_title


def test_a_band_is_drawn_where_it_is_requested_and_legends_beside_the_curves():
    figure, (left, right) = plot.panels(2)
    x = np.arange(4.0)
    draw_band(left, x, x - 1, x, x + 1, colour="k", where=x > 1, label="middle")
    (line,), (band,) = left.lines, left.collections
    assert line.get_ydata().tolist() == x.tolist() and band.get_paths()[0].vertices[:, 0].min() == 2
    legend_below(left, columns=1)
    legend_above(figure, left, columns=1)
    write_title(right, "title", size=8)
    for legend in (left.get_legend(), *figure.legends):
        assert [text.get_text() for text in legend.texts] == ["middle"]
    assert len(figure.legends) == 1
    assert right.get_title(loc="left") == "title"
