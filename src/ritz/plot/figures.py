"""Figures in our style: axes in panels, without any global state.

figure, (left, right) = plot.panels(2)
plot.density(left, spectrum, outliers=10)
plot.scree(right, pairs.values, residuals=pairs.residuals)
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Literal

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from ..errors import ArgumentError, check_positive, check_whole

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
_DOTS = 2**16 - 1  # what matplotlib draws in each direction
_LARGEST = _DOTS // _NOTEBOOK_DPI  # inches


_COLUMN, _PAGE = 3.25, 6.75  # inches of one column, and of two with the gap between
_SYMBOLS = re.compile(r"(?<![\w$\\])(λ|w|W|G|Φ|Δ|σ|α)_(max|min|class|cross|own|within|[QKVc])\b")


class ShownFigure(Figure):
    """A figure that a notebook shows as it is, without pyplot; λ_max in any of its texts has its subscript.

    >>> ShownFigure(figsize=(1, 1))._repr_png_()[1:4]
    b'PNG'
    """

    def draw(self, renderer: Any) -> None:
        """Draw everything, with symbols typeset; the texts themselves stay as they were written."""
        plain = {text: text.get_text() for text in _texts(self) if text.get_parse_math() and "_" in text.get_text()}
        try:
            for text, written in plain.items():
                text.set_text(typeset(written))
            self._lay_out_squares()
            super().draw(renderer)
        finally:
            for text, written in plain.items():
                text.set_text(written)

    def _lay_out_squares(self) -> None:
        """Lay out square panels once more, since at first matplotlib leaves too little room around them."""
        engine = self.get_layout_engine()
        if engine is not None and any(ax.get_box_aspect() is not None for ax in self.axes):
            engine.execute(self)

    def savefig(self, fname: Any, **options: Any) -> None:
        """Save it like matplotlib, but draw a plain PNG only once instead of twice."""
        as_is = matplotlib.rcParams["savefig.bbox"] is None and matplotlib.rcParams["savefig.facecolor"] == "auto"
        if not options.keys() <= {"format", "dpi"} or options.get("format") != "png" or not as_is:
            return super().savefig(fname, **options)
        canvas, dpi, wish = self.canvas, self.dpi, options.get("dpi", matplotlib.rcParams["savefig.dpi"])
        try:
            self.set_dpi(dpi if wish == "figure" else wish)
            FigureCanvasAgg(self).print_png(fname)  # which lays it out, and then draws
        finally:
            self.set_canvas(canvas)
            self.set_dpi(dpi)

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png", dpi=_NOTEBOOK_DPI)
        return stream.getvalue()


def _texts(artist: Artist) -> Iterator[Text]:
    """All texts in it but those of ticks: these are made for it, and written anew whenever they are drawn."""
    for child in artist.get_children():
        if isinstance(child, Axis):
            yield from (child.label, child.offsetText)
        elif isinstance(child, Text):
            yield child
        else:
            yield from _texts(child)


def typeset(text: str) -> str:
    """λ_max, w_Q, G_class as mathematics; all else as it is.

    >>> typeset("sharpness λ_max(H)")
    'sharpness $\\\\mathregular{λ_{max}}$(H)'
    """
    return _SYMBOLS.sub(r"$\\mathregular{\1_{\2}}$", text)


def style(columns: Literal[1, 2] = 1, *, rows: float = 1.0) -> AbstractContextManager[None]:
    """Our style for figures of your own, for one column of a paper or for two: `with ritz.plot.style(2): ...`.

    Colours differ under every colour blindness, text is as large as a paper's, fonts are kept as text.

    >>> with style(columns=2):
    ...     figure = matplotlib.figure.Figure()
    >>> figure.get_size_inches().tolist()
    [6.75, 2.4]
    """
    width = _COLUMN if columns == 1 else _PAGE
    size: Any = {"figure.figsize": (width, 2.4 * rows), "figure.constrained_layout.use": True}
    paper: Any = {"lines.linewidth": 1.2, "lines.markersize": 3, "legend.frameon": False, "legend.fontsize": 8}
    files: Any = {"savefig.dpi": 300, "pdf.fonttype": 42, "svg.fonttype": "none"}
    return matplotlib.rc_context({**_RC, **size, **paper, **files})


def small_multiples(count: int, *, columns: int = 6, size: float = 1.25) -> tuple[Figure, list[Axes]]:
    """Small panels on common axes, with numbers only at the outer edges; as many as requested.

    >>> figure, axes = small_multiples(28)
    >>> len(axes), sum(ax.xaxis.get_tick_params()["labelbottom"] for ax in axes)
    (28, 4)
    """
    check_positive("It is the number of panels.", count=count, columns=columns)
    columns = min(columns, count)
    figure, axes = panels(columns, math.ceil(count / columns), width=size, height=size, shared=True)
    for ax in axes[count:]:
        ax.set_visible(False)
    for ax in axes[:count]:
        ax.label_outer()
        ax.tick_params(labelsize=6)
    return figure, axes[:count]


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
    _check_size(width * columns, height * rows)
    with matplotlib.rc_context(_RC):
        figure = ShownFigure(figsize=(width * columns, height * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared)
    return figure, list(axes.flat)


def _check_size(width: float, height: float) -> None:
    if max(width, height) > _LARGEST:
        raise ArgumentError(
            f"A figure of {width:.3g} × {height:.3g} inches was requested.",
            f"No side of a picture can have more than {_DOTS} dots, {_LARGEST} inches in a notebook.",
            "Ask for fewer panels, or for smaller ones.",
        )


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
