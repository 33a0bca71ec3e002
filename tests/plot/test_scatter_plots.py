"""Pairs of eigenvalues as they are drawn."""

import io

import pytest
import torch
from torch.testing import assert_close

from ritz import plot
from ritz.errors import ArgumentError
from ritz.theory import ClosedForm, Group
from tests.plot.curves import curve


def test_eigenvalues_are_paired_by_order_with_those_of_a_closed_form(ax):
    plot.eigenvalues(ax, torch.tensor([3.1, 0.9, 2.0]), torch.tensor([1.0, 2.0, 3.0]))
    x, y = curve(ax.lines[-1])
    assert_close(x, torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    assert_close(y, torch.tensor([0.9, 2.0, 3.1], dtype=torch.float64), atol=1e-6, rtol=0)
    with pytest.raises(ArgumentError, match="paired"):
        plot.eigenvalues(ax, torch.ones(3), torch.ones(4))


def test_the_largest_of_a_closed_form_are_paired_as_the_refusal_says(ax):
    closed_form = ClosedForm([Group("bulk", 0.0, 7), Group("outliers", 2.0, 1), Group("largest", 5.0, 1)])
    measured = torch.tensor([5.0, 2.0])  # the k largest, as a search finds them
    with pytest.raises(ArgumentError) as caught:
        plot.eigenvalues(ax, measured, closed_form.eigenvalues())
    assert "closed_form.eigenvalues()[-k:]" in caught.value.ways_out[0]
    x, y = curve(plot.eigenvalues(ax, measured, closed_form.eigenvalues()[-2:]).lines[-1])
    assert_close(x, y)


@pytest.mark.parametrize(
    "values, scale", [([1e-4, 1.0], "log"), ([0.5, 1.0], "linear"), ([-1.0, 1.0], "linear"), ([0.0, 0.0], "linear")]
)
def test_the_scale_of_eigenvalues_follows_their_signs_and_spread(ax, values, scale):
    plot.eigenvalues(ax, torch.tensor(values), torch.tensor(values))
    assert ax.get_xscale() == ax.get_yscale() == scale
    ax.figure.draw_without_rendering()


def test_a_knockout_pairs_eigenvalues_by_rank_and_keeps_what_is_unchanged_on_the_line(ax):
    before, after = (torch.tensor(v, dtype=torch.float64).exp() for v in ([4.0, 1.0, 0.0], [2.0, 1.0, 0.0]))
    plot.knockout(ax, before, after, top=1)
    rest, top = (curve(line) for line in ax.lines[1:])
    assert_close(torch.stack(top), torch.tensor([[0.5], [1.0]], dtype=torch.float64))
    assert_close(torch.stack(rest), torch.tensor([[0.25, 0.0], [0.25, 0.0]], dtype=torch.float64))


def test_a_knockout_that_leaves_nothing_says_so(ax):
    plot.knockout(ax, torch.tensor([1.0, 0.5]), torch.tensor([1e-17, 0.0]), top=1, zero=1e-12)
    assert [text.get_text() for text in ax.texts] == ["nothing\nis left"]


def test_square_panels_leave_room_for_their_labels():
    """A picture of seven layers, of which some are empty: at one layout alone the labels are cut off below."""
    figure, axes = plot.panels(7, width=2.1, height=2.5)
    for number, ax in enumerate(axes):
        values = torch.tensor([0.07, 0.04, 0.02]) * (number > 2)
        plot.knockout(ax, values, 0.2 * values, top=2)
        ax.set(xlabel="λ(Δ off Δ_class)", title=f"layer{number}.conv")
    figure.suptitle("blue: the 10 largest\nabove the line: made by means", fontsize="x-small")
    figure.savefig(io.BytesIO(), format="png", dpi=100)
    for ax in axes:
        assert ax.xaxis.label.get_window_extent().y0 >= 0
        assert ax.title.get_window_extent().y1 <= figure._suptitle.get_window_extent().y0 + 1
