"""Pictures that several figures share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ... import plot
from ...record import Record
from ..frame.pictures import write_title
from .data import TITLES

SHARE = "share of the largest class, α_max"
MARKERS = ("o", "s", "^", "D")
_ANY = "0.4"  # the colour of what a legend says of all data sets
_ENTRY = 1.75  # inches that an entry of a legend takes
_WORDS = {"qr": "QR", "rank": "rank-revealing", "raw": "raw"}


def by_data_set(record: Record) -> Figure:
    """A column for each data set: sharpness, and below it the loss, measured and at the minimum, for each whitening."""
    names, arrays = record.config["data"], record.arrays
    figure, axes = plot.panels(len(names), 2, width=2.9, height=2.4)
    upper, lower = axes[: len(names)], axes[len(names) :]
    for index, name in enumerate(names):
        shares = arrays["shares"][index]
        upper[index].plot(shares, arrays["printed"][index], color="black", linewidth=1.0, label="eq. (14)")
        for variant, kind in enumerate(record.config["inputs"]):
            theory, measured = _styles(variant, kind)
            for ax, exact, end in ((upper[index], "exact", "sharpness"), (lower[index], "rest", "loss")):
                ax.plot(shares, arrays[exact][index, variant], **theory, label=f"minimum, {_WORDS[kind]}")
                ax.plot(shares, arrays[end][index, variant], **measured, label=f"measured, {_WORDS[kind]}")
        write_title(upper[index], TITLES[name])
        lower[index].set_xlabel(SHARE)
    _same_height(upper)
    _same_height(lower)
    upper[0].set_ylabel("sharpness λ_max(H)")
    lower[0].set_ylabel("loss")
    _legend_below(figure)
    return figure


def _styles(variant: int, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of what is predicted and what is measured on some inputs."""
    colour = plot.COLOURS[variant]
    line = {"color": colour, "linewidth": 1.2, "linestyle": "--" if kind == "qr" else ":"}
    face = colour if kind == "qr" else "none"
    dots = {"color": colour, "linestyle": "", "marker": MARKERS[variant], "markerfacecolor": face}
    return line, {**dots, "markersize": 4.5 + 2.5 * variant}


def by_variant(record: Record, variants: Sequence[Any]) -> Figure:
    """A panel for each way to treat the data: measured sharpness of every data set beside (14)."""
    figure, axes = plot.panels(len(variants), width=3.6, height=3.2)
    for variant, (kind, ax) in enumerate(zip(variants, axes, strict=True)):
        shares, printed = record.arrays["shares"][0], record.arrays["printed"][0]
        ax.plot(shares, printed, "--", color="black", linewidth=1.0, label="eq. (14)")
        gone = [_curve(ax, record, index, variant) for index in range(len(record.config["data"]))]
        if np.nanmax([*printed, *_values(record, variant)]) > 5 * printed.max():
            ax.set_yscale("log")
        start = {"balanced": "balanced weights", "kaiming": "Kaiming uniform weights"}[kind.start]
        write_title(ax, f"{record.config['activation']}, {'raw' if kind.inputs == 'raw' else 'white'} inputs, {start}")
        ax.text(0.98, 0.02, "\n".join(filter(None, gone)), transform=ax.transAxes, fontsize=7, ha="right")
        ax.set_xlabel(SHARE)
    axes[0].set_ylabel("sharpness λ_max(H)")
    _same_height([ax for ax in axes if ax.get_yscale() == "linear"])
    _legend_below(figure)
    return figure


def series(ax: Axes, epochs: np.ndarray, values: np.ndarray, **style: Any) -> None:
    """A curve along training, on a logarithmic axis of epochs."""
    ax.plot(epochs, values, **style)
    ax.set(xscale="log", xlabel="epoch")


def _curve(ax: Axes, record: Record, index: int, variant: int) -> str:
    """Filled at the end of training, hollow the peak along it where it was looked for; says who has diverged.

    A dotted line is the minimum that balanced layers would have, where it is known.
    """
    name, arrays = TITLES[record.config["data"][index]], record.arrays
    shares, colour = arrays["shares"][index], plot.COLOURS[index]
    diverged = int(np.sum(arrays["diverged"][index, variant]))
    if diverged < len(shares):
        ax.plot(shares, arrays["sharpness"][index, variant], f"{MARKERS[index]}-", color=colour, markersize=4.5,
                linewidth=1.0, label=name)  # fmt: skip
        if np.isfinite(arrays["exact"][index, variant]).any():
            ax.plot(shares, arrays["exact"][index, variant], ":", color=colour, linewidth=1.2)
            ax.plot([], [], ":", color=_ANY, linewidth=1.2, label="balanced minimum")
        if record.config["num_pauses"] > 1:
            hollow: dict[str, Any] = {"markerfacecolor": "none", "markersize": 6.5}
            ax.plot(shares, arrays["peak"][index, variant], MARKERS[index], color=colour, **hollow)
            ax.plot([], [], "h", color=_ANY, **hollow, label="peak along training")
    return f"{name}: {diverged} of {len(shares)} networks diverged" if diverged else ""


def _values(record: Record, variant: int) -> list[float]:
    return [float(value) for key in ("sharpness", "peak") for value in record.arrays[key][:, variant].ravel()]


def _legend_below(figure: Figure) -> None:
    """Outside the axes, where no curve can be: what any panel has, once, in rows of about the same length."""
    pairs = [pair for ax in figure.axes for pair in zip(*ax.get_legend_handles_labels(), strict=True)]
    handles = {name: handle for handle, name in reversed(pairs)}
    names = list(dict.fromkeys(name for _, name in pairs))
    rows = math.ceil(len(names) * _ENTRY / figure.get_figwidth())
    figure.legend([handles[name] for name in names], names, loc="outside lower center",
                  ncols=math.ceil(len(names) / rows), frameon=False, fontsize=7)  # fmt: skip


def _same_height(axes: Sequence[Axes]) -> None:
    top = max((ax.get_ylim()[1] for ax in axes), default=1.0)
    for ax in axes:
        ax.set_ylim(0, top)
