"""Pictures that several figures share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ... import plot
from ...record import Record
from .data import TITLES

SHARE = "share of the largest class, α_max"
MARKERS = ("o", "s", "^", "D")


def by_data_set(record: Record) -> Figure:
    """A panel for each data set: measured sharpness, (14), and the exact prediction, for each whitening."""
    names, kinds = record.config["data"], record.config["inputs"]
    figure, axes = plot.panels(len(names), width=2.9, height=3.0)
    for index, (name, ax) in enumerate(zip(names, axes, strict=True)):
        shares, sharpness = record.arrays["shares"][index], record.arrays["sharpness"][index]
        ax.plot(shares, record.arrays["printed"][index], color="black", linewidth=1.0, label="eq. (14)")
        for variant, kind in enumerate(kinds):
            colour, told = plot.COLOURS[variant], {"qr": "QR", "rank": "rank-revealing"}[kind]
            face = colour if kind == "qr" else "none"
            ax.plot(shares, record.arrays["exact"][index, variant], "--" if kind == "qr" else ":", color=colour,
                    linewidth=1.2, label=f"exact, {told}")  # fmt: skip
            ax.plot(shares, sharpness[variant], MARKERS[variant], color=colour, markerfacecolor=face,
                    markersize=4.5 + 2.5 * variant, label=f"measured, {told}")  # fmt: skip
        title(ax, TITLES[name])
        ax.set(xlabel=SHARE, ylim=(0, None))
    _same_height(axes)
    axes[0].set_ylabel("sharpness λ_max(H)")
    _legend_below(figure, axes[0])
    return figure


def by_variant(record: Record, variants: Sequence[Any]) -> Figure:
    """A panel for each way to start: measured sharpness of every data set beside (14)."""
    figure, axes = plot.panels(len(variants), width=3.6, height=3.2)
    for variant, (kind, ax) in enumerate(zip(variants, axes, strict=True)):
        _prediction(ax, record)
        for index, name in enumerate(record.config["data"]):
            _curve(ax, record, index, variant, TITLES[name])
        if kind.inputs == "raw":
            ax.set_yscale("log")
        else:
            ax.set_ylim(0, None)
        start = {"balanced": "balanced weights", "kaiming": "Kaiming uniform weights"}[kind.start]
        title(ax, f"{record.config['activation']}, {'raw' if kind.inputs == 'raw' else 'white'} inputs, {start}")
        ax.set_xlabel(SHARE)
    axes[0].set_ylabel("sharpness λ_max(H)")
    if variants[0].inputs != "raw":
        _same_height(axes)
    _legend_below(figure, axes[0])
    return figure


def title(ax: Axes, text: str) -> None:
    """A small heading, on the left."""
    ax.set_title(text, fontsize=9, loc="left")


def series(ax: Axes, epochs: np.ndarray, values: np.ndarray, **style: Any) -> None:
    """A curve along training, on a logarithmic axis of epochs."""
    ax.plot(epochs, values, **style)
    ax.set(xscale="log", xlabel="epoch")


def _curve(ax: Axes, record: Record, index: int, variant: int, title: str) -> None:
    """Filled at the end of training, hollow the peak along it where it was looked for."""
    shares, arrays, colour = record.arrays["shares"][index], record.arrays, plot.COLOURS[index]
    diverged = int(np.sum(arrays["diverged"][index, variant]))
    told = title if not diverged else f"{title}: {diverged} of {len(shares)} diverged"
    ax.plot(shares, arrays["sharpness"][index, variant], f"{MARKERS[index]}-", color=colour, markersize=4.5,
            linewidth=1.0, label=told)  # fmt: skip
    if record.config["num_pauses"] > 1 and diverged < len(shares):
        ax.plot(shares, arrays["peak"][index, variant], MARKERS[index], color=colour, markerfacecolor="none",
                markersize=6.5, label=f"{title}, peak")  # fmt: skip


def _prediction(ax: Axes, record: Record) -> None:
    """(14), which is the same for every data set but for the rounding of its shares."""
    shares, printed = record.arrays["shares"][0], record.arrays["printed"][0]
    ax.plot(shares, printed, "--", color="black", linewidth=1.0, label="eq. (14)")


def _legend_below(figure: Figure, ax: Axes) -> None:
    """Outside the axes, where no curve can be."""
    handles, names = ax.get_legend_handles_labels()
    columns = len(figure.axes) + 1 if len(figure.axes) > 1 else 2
    figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, fontsize=7)


def _same_height(axes: Sequence[Axes]) -> None:
    top = max(ax.get_ylim()[1] for ax in axes)
    for ax in axes:
        ax.set_ylim(0, top)
