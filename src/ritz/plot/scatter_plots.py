"""Eigenvalues against eigenvalues, paired by rank: what agrees lies on the diagonal."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from ..errors import ArgumentError
from .figures import COLOURS


def eigenvalues(ax: Axes, measured: Float[Tensor, " k"], predicted: Float[Tensor, " m"], **style: Any) -> Axes:
    """Measured eigenvalues against those of a closed form, both sorted; what lies on the diagonal agrees.

    The axes are logarithmic where all are positive and span more than two decades.

    >>> figure, (ax,) = ritz.plot.panels()
    >>> eigenvalues(ax, torch.tensor([1.0, 3.0]), torch.tensor([1.1, 2.9])).get_ylabel()
    'eigenvalue, measured'
    """
    if measured.shape != predicted.shape or measured.ndim != 1:
        raise ArgumentError(
            f"{tuple(measured.shape)} measured and {tuple(predicted.shape)} predicted eigenvalues were to be paired.",
            "Each point needs one of both, and they are paired by their order.",
            "Compare as many as were measured: closed_form.eigenvalues()[-k:] are the k largest.",
        )
    x, y = (values.detach().cpu().double().sort().values for values in (predicted, measured))
    both = torch.cat([x, y])
    ends = float(both.min()), float(both.max())
    ax.axline((ends[1], ends[1]), (0.5 * ends[1] or 1.0,) * 2, color="0.6", linewidth=0.8, zorder=0)
    look: dict[str, Any] = {"color": COLOURS[0], "markersize": 4, "alpha": 0.7, "markeredgewidth": 0} | style
    ax.plot(x, y, "o", **look)
    scale = "log" if ends[0] > 0 and ends[1] > 100 * ends[0] else "linear"
    ax.set(xscale=scale, yscale=scale, xlabel="eigenvalue, closed form", ylabel="eigenvalue, measured")
    return ax


def knockout(
    ax: Axes, before: Float[Tensor, " k"], after: Float[Tensor, " l"], *, top: int, zero: float = 0.0, **style: Any
) -> Axes:
    """Log-eigenvalues before a knockout against those after it, both moved to [0, 1] alike; the top in another colour.

    Ticks are eigenvalues, on both axes alike: the least, the largest, and their geometric mean. Points are paired by
    rank. What the knockout leaves unchanged lies on the identity line, and what it takes down lies above it. Pairs of
    which one is not above `zero` are not drawn. Papyan (2020), Figs. 7, 9, 13.

    >>> figure, (ax,) = ritz.plot.panels()
    >>> knockout(ax, torch.tensor([9.0, 2.0, 1.0]), torch.tensor([2.0, 2.0, 1.0]), top=1).lines[-1].get_xdata().shape
    (1,)
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['1', '', '9']
    """
    if len(before) != len(after):
        raise ArgumentError(
            f"There are {len(before)} eigenvalues before the knockout and {len(after)} after it.",
            "They are paired by rank.",
            "Pass the whole spectrum both times, zeros included.",
        )
    x, y = (values.detach().cpu().double() for values in (after, before))
    seen = (x > zero) & (y > zero)
    x, y = x[seen].log(), y[seen].log()
    ax.set(xlim=(-0.05, 1.05), ylim=(-0.05, 1.05), xticks=(0, 1), yticks=(0, 1), box_aspect=1)
    if len(x) == 0:
        ax.set(xticks=(), yticks=())
        ax.text(0.5, 0.5, "nothing\nis left", ha="center", va="center", color="0.5", fontsize="small")
        return ax
    low, high = float(torch.cat([x, y]).min()), float(torch.cat([x, y]).max())
    x, y = ((values - low) / max(high - low, 1e-12) for values in (x, y))
    marks = [_short(math.exp(place)) for place in (low, (low + high) / 2, high)]
    ax.set_xticks((0, 0.5, 1), [marks[0], "", marks[2]], fontsize="x-small")  # there is no room for a third
    ax.set_yticks((0, 0.5, 1), marks, fontsize="x-small")
    ax.plot((0, 1), (0, 1), color="black", linewidth=0.8, zorder=0)
    look: dict[str, Any] = {"markersize": 3.5, "alpha": 0.7, "markeredgewidth": 0} | style
    ax.plot(x[top:], y[top:], "o", color=COLOURS[3], **look)
    ax.plot(x[:top], y[:top], "o", color=COLOURS[0], **look)
    return ax


def _short(value: float) -> str:
    """A positive number in few characters: two digits, or one and a power of ten."""
    if 1e-2 <= value < 1e4:
        return f"{float(f'{value:.2g}'):g}"
    digit, power = f"{value:.0e}".split("e")
    return rf"${digit} \cdot 10^{{{int(power)}}}$" if digit != "1" else f"$10^{{{int(power)}}}$"
