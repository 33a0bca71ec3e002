"""How spectra are drawn here: a bulk on a logarithmic axis, and the outliers that were taken out as stems."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ... import plot
from ...record import Record
from ...spectrum import Spectrum
from .setting import NETWORKS, TITLES
from .spectra import bulk, certified, printed_width

_FINENESS = 300  # widths in the range of a density: finer ones would be narrower than a printed line


def of_seeds(record: Record) -> str:
    """Which network of several a picture shows, in words that follow others; nothing where there is one."""
    first, *others = record.config["seeds"]
    return f"; seed {first} of {1 + len(others)}" if others else ""


def network_in_words(piece: Mapping[str, Any]) -> str:
    """The network of a record's piece and its data, without their size and seed."""
    return f"{NETWORKS[piece['network']]} on {TITLES[piece['data']]}"


def mark_outliers(ax: Axes, values: np.ndarray, name: str) -> None:
    """Ticks on the axis where another measurement has eigenvalues: a probe that hardly has one shows no hump there."""
    low, high = ax.get_ylim()
    ax.vlines(values, low, low * (high / low) ** 0.06, color="black", linewidth=0.7, label=name)


def draw_spectrum(
    ax: Axes, record: Record, prefix: str, *, scale: float = 1.0, markersize: float = 3.0, stems: str = "", **style: Any
) -> None:
    """Draw the density of what lies under a prefix, as of all eigenvalues over `scale`, with the outliers as stems.

    `stems` is their name in a legend.
    """
    facts = record.scalars[f"{prefix}/facts"]
    count, size = facts["outliers"], facts["size"]
    rest = rescaled(bulk(record, prefix), scale)
    values = certified(record, prefix)[:count] / scale
    span = max([rest.range[1], *values]) - min([rest.range[0], *values])
    width = max(printed_width(record, prefix) / scale, span / _FINENESS)
    plot.density(ax, rest, width=width, band=False, **style)
    colour = ax.lines[-1].get_color()
    one = 1 / (size * width * math.sqrt(2 * math.pi))
    ax.vlines(values, ax.get_ylim()[0], one, color=colour, linewidth=0.9)
    look: dict[str, Any] = {"markersize": markersize, "markeredgewidth": 0, "label": stems or None}
    ax.plot(values, np.full(count, one), "o", color=colour, **look)


def resolved_from(spectrum: Spectrum, width: float) -> float:
    """The |λ| below which a density of log |λ| falls to nothing between any two nodes, a tenth of the largest at most.

    There, gaps of more than two widths follow one another: three of nine. One alone is a gap of the spectrum.
    """
    u = spectrum.nodes.abs().flatten()
    u = u[u > 0].log().sort().values
    wide = u.diff() > 2 * width
    near = [bool(wide[i]) and int(wide[max(0, i - 4) : i + 5].sum()) >= 3 for i in range(len(wide))]
    below = [i for i, sparse in enumerate(near) if sparse and u[i] < u[-1] - math.log(10)]
    return float(u[below[-1] + 1 if below else 0].exp())


def rescaled(spectrum: Spectrum, scale: float) -> Spectrum:
    """The spectrum of A/scale."""
    resolution = spectrum.resolution if spectrum.resolution is None else spectrum.resolution / scale
    return Spectrum(spectrum.nodes / scale, spectrum.weights, spectrum.size, resolution)
