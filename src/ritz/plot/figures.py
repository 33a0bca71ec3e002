"""Figures of our style: axes in panels, without any global state.

figure, (left, right) = plot.panels(2)
plot.density(left, spectrum, outliers=10)
plot.scree(right, pairs.values, residuals=pairs.residuals)
"""

from __future__ import annotations

import io
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..errors import check_positive, check_whole

# Blue, vermillion, green, orange, purple, sky, black: tell apart under every colour blindness. Okabe and Ito (2008).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000")
_RC: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.prop_cycle": f"cycler('color', {list(COLOURS)})",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}
_NOTEBOOK_DPI = 120  # of a figure that shows itself


class ShownFigure(Figure):
    """A figure that a notebook shows as it is, without pyplot.

    >>> ShownFigure(figsize=(1, 1))._repr_png_()[1:4]
    b'PNG'
    """

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png", dpi=_NOTEBOOK_DPI)
        return stream.getvalue()


def panels(
    columns: int = 1, rows: int = 1, *, width: float = 3.6, height: float = 2.8, shared: bool = False
) -> tuple[Figure, list[Axes]]:
    """A figure of rows × columns axes, each so many inches large; it needs no display and leaves no global state.

    `shared` axes have one scale and one range. It is the last line of a notebook's cell that is shown: end it with
    `figure`.

    >>> figure, axes = panels(2)
    >>> len(axes), figure.get_size_inches().tolist()
    (2, [7.2, 2.8])
    """
    check_whole(columns=columns, rows=rows)
    check_positive("It is the size of a figure.", columns=columns, rows=rows, width=width, height=height)
    with matplotlib.rc_context(_RC):
        figure = ShownFigure(figsize=(width * columns, height * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared)
    return figure, list(axes.flat)


def empty(ax: Axes) -> Axes:
    """A panel of eigenvalues that are zero, for which a logarithmic axis has no place.

    >>> figure, (ax,) = ritz.plot.panels()
    >>> empty(ax).texts[0].get_text()
    'all are zero'
    """
    ax.text(0.5, 0.5, "all are zero", ha="center", color="0.5", fontsize="small", transform=ax.transAxes)
    ax.minorticks_off()
    ax.set(xticks=[], yticks=[])
    return ax


def limits(ax: Axes, low: float, high: float, axis: str = "y") -> tuple[float, float]:
    """The limits of a logarithmic axis, widened to what earlier curves on it needed."""
    before = ax.get_ylim() if axis == "y" else ax.get_xlim()
    return (min(low, before[0]), max(high, before[1])) if len(ax.lines) else (low, high)
