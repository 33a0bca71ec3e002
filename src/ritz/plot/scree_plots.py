"""Eigenvalues by rank, largest first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullFormatter
from torch import Tensor

from ..errors import ArgumentError
from .figures import COLOURS, empty

LOOKS = (  # colour, points, what lies above what: two that may agree, then others
    *((COLOURS[0], 3.6, 2.0), (COLOURS[3], 1.8, 2.2), ("0.55", 2.7, 2.1)),
    *((colour, 2.7, 2.1) for colour in COLOURS if colour not in (COLOURS[0], COLOURS[3])),
)
MARKERS = "os^Dv"  # one for each round of the colours


def scree(ax: Axes, values: Float[Tensor, " k"], *, residuals: Float[Tensor, " k"] | None = None, **style: Any) -> Axes:
    """|λ| by rank, largest first, on a logarithmic axis; hollow where λ is negative, with residuals as error bars.

    >>> figure, (ax,) = ritz.plot.panels()
    >>> scree(ax, torch.tensor([5.0, -4.0, 1.0])).get_ylabel()
    '|λ|, hollow: λ < 0'
    """
    if residuals is not None and bool((residuals < 0).any()):
        raise ArgumentError(
            f"A residual of {float(residuals.min()):.3g} was given.",
            "A residual is a norm, which cannot be negative.",
            "Pass pairs.residuals, or leave it out.",
        )
    signed = values.detach().cpu().double().numpy()
    order = np.argsort(-np.abs(signed), kind="stable")
    signed, rank = signed[order], np.arange(1, len(signed) + 1)
    negative = signed < 0
    error = None if residuals is None else residuals.detach().cpu().double().numpy()[order]
    look: dict[str, Any] = {"color": COLOURS[0], "markersize": 4.5, "linewidth": 0.8} | style
    ax.errorbar(rank, np.abs(signed), error, fmt="o-", capsize=2, **look)
    marker = {name: look[name] for name in ("color", "markersize")}
    ax.plot(rank[negative], -signed[negative], "o", markerfacecolor="white", zorder=3, **marker)
    ax.set(yscale="log" if signed.any() else "linear", xlabel="rank")
    ax.set_ylabel("|λ|, hollow: λ < 0" if negative.any() else "eigenvalue λ")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    return ax


def screes(
    ax: Axes,
    curves: Mapping[str, Float[Tensor, " _"]],
    *,
    zero: float = 0.0,
    whisker: tuple[float, float] | None = None,
) -> Axes:
    """Several lists of eigenvalues by rank, both axes logarithmic; the whisker beside them shows a range.

    Values that are not above `zero` are not drawn. The second list lies on top, in smaller points, so that where two
    agree both are seen. Papyan (2020), Figs. 8 and 10.

    >>> figure, (ax,) = ritz.plot.panels()
    >>> screes(ax, {"Φ": torch.tensor([3.0, 1.0]), "Φ_class": torch.tensor([2.0])}).get_legend_handles_labels()[1]
    ['Φ', 'Φ_class']
    """
    if whisker is not None and not 0 < whisker[0] <= whisker[1] < math.inf:
        raise ArgumentError(
            f"whisker={whisker} was given.", "It is a range on a logarithmic axis.", "Pass 0 < low ≤ high."
        )
    for index, (name, values) in enumerate(curves.items()):
        values = values[values > zero].detach().cpu()
        ax.plot(range(1, len(values) + 1), values, "-", label=name, **_look(index))
    if not any(len(line.get_xdata()) for line in ax.lines):  # type: ignore[arg-type]
        return empty(ax)
    if whisker is not None:
        low, high = whisker
        ax.errorbar([0.7], [low], [[0.0], [high - low]], color=COLOURS[3], capsize=3, linewidth=1.2)
    ax.set(xscale="log", yscale="log", xlabel="rank")
    low, high = (math.log10(end) for end in ax.get_ylim())
    if math.floor(high) <= math.ceil(low):  # two decades are named at least, or nobody knows the scale
        ax.set_ylim(10.0 ** math.floor(low), 10.0 ** math.ceil(high))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_minor_formatter(NullFormatter())
    return ax


def _look(index: int) -> dict[str, Any]:
    """The style of a list by its place: colours first, then other markers."""
    colour, size, order = LOOKS[index % len(LOOKS)]
    marker = MARKERS[index // len(LOOKS) % len(MARKERS)]
    look = {"color": colour, "marker": marker, "markersize": size, "zorder": order}
    return {**look, "linewidth": 0.8, "markeredgewidth": 0}
