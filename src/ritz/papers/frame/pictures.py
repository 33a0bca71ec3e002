"""Titles, legends and bands for the panels of all papers."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_Place = Literal["outside upper center", "outside lower center"]


def write_title(ax: Axes, text: str, *, size: float = 9) -> None:
    """Write a panel's title in the style of `plot.panels`, which applies only while axes are created."""
    ax.set_title(text, loc="left", fontsize=size)


def legend_below(ax: Axes, *, columns: int = 4, **look: Any) -> None:
    """A legend below the axes, where it hides nothing."""
    place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.18), "ncols": columns}
    ax.legend(**{"frameon": False, "fontsize": 7, "columnspacing": 1.2, **place, **look})


def legend_above(figure: Figure, ax: Axes, *, columns: int) -> None:
    """One legend above all panels, for the lines of one of them."""
    _legend_outside(figure, ax, "outside upper center", columns)


def legend_at_foot(figure: Figure, ax: Axes, *, columns: int) -> None:
    """One legend below all panels, for the lines of one of them."""
    _legend_outside(figure, ax, "outside lower center", columns)


def _legend_outside(figure: Figure, ax: Axes, place: _Place, columns: int) -> None:
    figure.legend(*ax.get_legend_handles_labels(), loc=place, ncols=columns, frameon=False, fontsize=8)


def draw_band(
    ax: Axes,
    x: np.ndarray,
    low: np.ndarray,
    middle: np.ndarray,
    high: np.ndarray,
    *,
    colour: str,
    alpha: float = 0.2,
    where: np.ndarray | None = None,
    **line: Any,
) -> None:
    """Draw a line with a band around it; `where` leaves parts of the band out."""
    ax.plot(x, middle, color=colour, **line)
    ax.fill_between(x, low, high, where=where, color=colour, alpha=alpha, linewidth=0)


def quartiles(rows: np.ndarray, *, axis: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The first quartile, the median and the third quartile, for a band."""
    low, middle, high = np.quantile(rows, (0.25, 0.5, 0.75), axis=axis)
    return low, middle, high
