"""Eigenvalues by rank as they are drawn."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from torch.testing import assert_close

from ritz import plot
from tests.plot.curves import curve


def test_a_scree_plot_is_sorted_and_hollow_where_negative(ax):
    plot.scree(ax, torch.tensor([1.0, -3.0, 2.0]), residuals=torch.tensor([0.1, 0.3, 0.2]))
    line, hollow = ax.lines[0], ax.lines[-1]
    assert_close(curve(line)[1], torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64))
    assert hollow.get_xdata().tolist() == [1] and to_hex(hollow.get_markerfacecolor()) == "#ffffff"
    bars = [segment[:, 1] for c in ax.collections for segment in c.get_segments()]
    np.testing.assert_allclose(bars, [[2.7, 3.3], [1.8, 2.2], [0.9, 1.1]], rtol=1e-6)


def test_screes_leave_zeros_out_and_name_two_decades_at_least(ax):
    curves = {"Φ": torch.tensor([6.0, 3.0, 2.0]), "Φ_class": torch.tensor([5.0, 2.5, 0.0])}
    plot.screes(ax, curves, zero=1e-9, whisker=(2.5, 5.0))
    assert [len(line.get_ydata()) for line in ax.lines[:2]] == [3, 2]
    assert ax.get_ylim() == (1.0, 10.0)


@pytest.mark.parametrize("count", [1, 3, 5, 20])
def test_screes_draw_every_list_and_no_two_alike(ax, count):
    curves = {f"list {i}": torch.tensor([3.0 + i, 1.0]) for i in range(count)}
    plot.screes(ax, curves)
    assert ax.get_legend_handles_labels()[1] == list(curves)
    assert [float(line.get_ydata()[0]) for line in ax.lines] == [3.0 + i for i in range(count)]
    assert len({(to_hex(line.get_color()), line.get_marker()) for line in ax.lines}) == count
