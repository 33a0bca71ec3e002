"""Pictures of trained networks that several figures share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from ... import plot
from ...record import Record
from ..frame.pictures import write_title
from .curves import Curve, ended, middle, variant_curves, words
from .data import TITLES
from .variants import Variant

SHARE = "share of the largest class, α_max"
MARKERS = ("o", "s", "^", "D")
_ANY = "0.4"  # the colour of legend entries that apply to all data sets
_ENTRY = 2.1  # inches for an entry of a legend
_INPUTS = {"qr": "white inputs", "rank": "white inputs, rank-revealing", "raw": "raw inputs"}
_STARTS = {"balanced": "balanced weights", "kaiming": "Kaiming uniform weights"}


def by_data_set(record: Record) -> Figure:
    """A column for each data set: sharpness, and below it the loss; then the size of the data, and learning rates."""
    names = record.config["data"]
    figure, axes = plot.panels(len(names) + 1, 2, width=2.7, height=2.4)
    upper, lower = axes[: len(names) + 1], axes[len(names) + 1 :]
    revealing = variant_curves(record, inputs="rank")
    for index, (name, curve) in enumerate(variant_curves(record).items()):
        shares = curve["shares"]
        upper[index].plot(shares, curve["printed"], color="black", linewidth=1.0, label="eq. (14)")
        for ax, exact, end in ((upper[index], "exact", "sharpness"), (lower[index], "rest", "loss")):
            ax.plot(shares, middle(curve[exact]), "--", color=plot.COLOURS[0], linewidth=1.2, label="minimum, QR")
            _seeds(ax, record, curve, end, colour=plot.COLOURS[0], label="measured, QR")
            if revealing:
                ax.plot(shares, middle(revealing[name][end]), "s", color=plot.COLOURS[1], markersize=7,
                        markerfacecolor="none", label="measured, rank-revealing")  # fmt: skip
        write_title(upper[index], name)
        lower[index].set_xlabel(SHARE)
    _same_height(upper[:-1])
    _same_height(lower[:-1])
    _draw_sizes(upper[-1], record)
    _draw_rates(lower[-1], record)
    upper[0].set_ylabel("sharpness λ_max(H)")
    lower[0].set_ylabel("loss")
    _legend_below(figure)
    return figure


def _draw_sizes(ax: Axes, record: Record) -> None:
    """The balanced minimum against the number of images, at one share."""
    config = record.config
    for index, (name, row) in enumerate(zip(config["data"], np.asarray(record.arrays["by_size"]), strict=True)):
        style: dict[str, Any] = {"color": plot.COLOURS[index], "markersize": 4, "linewidth": 1.0}
        ax.plot(config["sizes"], row, f"{MARKERS[index]}-", label=TITLES[name], **style)
    L, alpha = config["depth"], config["size_alpha"]
    ax.axhline(L * config["sigma_x"] ** (2 / L) * alpha ** (1 - 1 / L), color="black", linewidth=1.0)
    ax.set(xscale="log", xlabel="images n", ylim=(0, None))
    ax.xaxis.set_minor_formatter(NullFormatter())
    write_title(ax, f"balanced minimum, α_max = {alpha:g}")


def _draw_rates(ax: Axes, record: Record) -> None:
    """Draw how far above the least loss training ends, with the rate halved or kept."""
    for variant, line in (({}, "-"), ({"rate": "constant"}, ":")):
        for index, curve in enumerate(variant_curves(record, **variant).values()):
            excess = middle(curve["loss"] / curve["rest"] - 1)
            ax.plot(curve["shares"], excess, line, color=plot.COLOURS[index], linewidth=1.2)
    ax.plot([], [], ":", color=_ANY, label="rate kept")
    ax.plot([], [], "-", color=_ANY, label="rate halved as printed")
    ax.set(yscale="log", xlabel=SHARE)
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())
    write_title(ax, "loss over least loss - 1")


def by_variant(record: Record, several: Sequence[Variant]) -> Figure:
    """A panel for each way to treat the data, the leading one first: sharpness of every data set beside (14)."""
    figure, axes = plot.panels(len(several), width=2.9, height=3.0)
    for variant, ax in zip(several, axes, strict=True):
        changed = {"inputs": variant.inputs, "start": variant.start, "scale": variant.scale, "rate": variant.rate}
        curves = variant_curves(record, **changed, draws=variant.draws)
        any_curve = next(iter(curves.values()))
        shares, printed = any_curve["shares"], any_curve["printed"]
        ax.plot(shares, printed, "--", color="black", linewidth=1.0, label="eq. (14)")
        gone = [_curve(ax, record, index, name, curve) for index, (name, curve) in enumerate(curves.items())]
        highest = np.nanmax([*printed, *(value for curve in curves.values() for value in curve["sharpness"].ravel())])
        if highest > 5 * printed.max():
            ax.set_yscale("log")
        write_title(ax, _title(record, variant, several[0]), size=8)
        ax.text(0.98, 0.02, "\n".join(filter(None, gone)), transform=ax.transAxes, fontsize=7, ha="right")
        ax.set_xlabel(SHARE, fontsize=8)
    axes[0].set_ylabel("sharpness λ_max(H)")
    for scale in ("linear", "log"):
        _same_height([ax for ax in axes if ax.get_yscale() == scale])
    _legend_below(figure)
    return figure


def _title(record: Record, variant: Variant, first: Variant) -> str:
    """What the leading variant is, or how another one differs from it."""
    if variant == first:
        return f"{record.config['activation']}, {_INPUTS[variant.inputs]},\n{_STARTS[variant.start]}"
    if variant.inputs != first.inputs:
        return f"the same on\n{_INPUTS[variant.inputs]}"
    return f"another reading:\n{words(variant, first)}"


def series(ax: Axes, epochs: np.ndarray, values: np.ndarray, **style: Any) -> None:
    """Draw a curve along training, on a logarithmic axis of epochs."""
    ax.plot(epochs, values, **style)
    ax.set(xscale="log", xlabel="epoch")


def _seeds(ax: Axes, record: Record, curve: Curve, key: str, *, colour: str, label: str, marker: str = "o") -> None:
    """Draw the median seed with the range of all; markers are hollow where most trainings have not ended."""
    values, shares = np.asarray(curve[key]), curve["shares"]
    done = np.mean(ended(curve, record.config["learning_rate"]), 0) >= 0.5
    line = middle(values)
    low, high = np.fmin.reduce(values), np.fmax.reduce(values)
    ax.fill_between(shares, low, high, color=colour, alpha=0.2, linewidth=0)
    ax.plot(shares, line, color=colour, linewidth=1.0)
    dots: dict[str, Any] = {"marker": marker, "linestyle": "", "color": colour, "markersize": 4.5}
    ax.plot(shares[done], line[done], **dots)
    ax.plot(shares[~done], line[~done], markerfacecolor="white", **dots)
    ax.plot([], [], **dots, label=label)
    if not done.all():
        ax.plot([], [], marker="o", linestyle="", color=_ANY, markerfacecolor="white", label="training has not ended")
    if len(values) > 1:
        ax.fill_between([], [], [], color=_ANY, alpha=0.3, linewidth=0, label="range of all seeds")


def _curve(ax: Axes, record: Record, index: int, name: str, curve: Curve) -> str:
    """Draw one data set and note diverged networks; dotted: the balanced minimum, crosses: peaks along training."""
    shares, colour = curve["shares"], plot.COLOURS[index]
    diverged = int(np.sum(curve["diverged"]))
    if diverged < curve["diverged"].size:
        _seeds(ax, record, curve, "sharpness", colour=colour, label=name, marker=MARKERS[index])
        if np.isfinite(curve["exact"]).any():
            ax.plot(shares, middle(curve["exact"]), ":", color=colour, linewidth=1.2)
            ax.plot([], [], ":", color=_ANY, linewidth=1.2, label="balanced minimum")
        if np.isfinite(curve["along"][..., :-1]).any():
            ax.plot(shares, middle(curve["peak"]), "x", color=colour, markersize=5)
            ax.plot([], [], "x", color=_ANY, markersize=5, label="peak along training")
    return f"{name}: {diverged} of {curve['diverged'].size} diverged" if diverged else ""


def _legend_below(figure: Figure) -> None:
    """A legend below the axes with the entries of all panels, each once, in rows of about equal length."""
    pairs = [pair for ax in figure.axes for pair in zip(*ax.get_legend_handles_labels(), strict=True)]
    handles = {name: handle for handle, name in reversed(pairs)}
    names = list(dict.fromkeys(name for _, name in pairs))
    rows = math.ceil(len(names) * _ENTRY / figure.get_figwidth())
    figure.legend([handles[name] for name in names], names, loc="outside lower center",
                  ncols=math.ceil(len(names) / rows), frameon=False, fontsize=7)  # fmt: skip


def _same_height(axes: Sequence[Axes]) -> None:
    limits = [ax.get_ylim() for ax in axes]
    low, high = min((one[0] for one in limits), default=0.0), max((one[1] for one in limits), default=1.0)
    for ax in axes:
        ax.set_ylim(0 if ax.get_yscale() == "linear" else low, high)
