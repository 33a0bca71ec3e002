"""The picture of Figure 27: small panels on common axes, a column for each reading of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullFormatter

from ... import plot
from ...record import Picture, Record
from ..frame.pictures import write_title
from .attention_descent import READINGS, SERIES
from .edge_by_reading import paper_rate
from .edge_of_stability import NORMS, first_at_edge

ROWS: dict[str, dict[str, str]] = {
    "loss, ‖residual‖": {"losses": "loss", "residual": "‖residual‖"},
    "times η/2": {"trace": "trace of H", "sharpness": "sharpness λ_max"},
    "moments": {name: NORMS[name] for name in ("m1", "m2", "m3")},
    "weights": {name: NORMS[name] for name in ("value", "query", "key")},
}  # the series of each row, by the label of its axis
_LOSS, _EDGE = range(2)  # rows with an axis of their own kind
_FEW = 10  # steps up to which their axis is linear: the sharpness has risen after a few of them
_SINGLE = 24  # steps drawn one by one; later ones, which alternate in cycles of two, as bands
_BINS = 80
_LATE = 100  # steps at the end by which a rate is judged by eye
_DEPTH = 1e-6  # the least loss on the axis: one that falls to rounding would flatten all others


def draw(record: Record) -> Picture:
    """A column for each reading: the first draw that reaches the edge at the paper's rate; below, all rates."""
    names, arrays = record.config["readings"], record.arrays
    count = len(names)
    figure, axes = plot.panels(count, len(ROWS) + 1, width=2.5, height=1.45)
    rate = float(record.config["learning_rate"])
    for column, name in enumerate(names):
        own = axes[column::count]
        _draw_column(own[:-1], {entry: arrays[f"shown_{entry}"][column] for entry in SERIES}, rate)
        _draw_rates(own[-1], arrays["drawn_sharpness"][column], arrays["rates"], arrays["reached"][column])
        note = "found by trying" if name == "standardised-mse" else "leads" * (column == 0)
        write_title(own[0], f"{READINGS[name].label}\n{_choice(record, column)}\n{note}", size=7.5)
    for row, label in enumerate([*ROWS, "η λ_max / 2"]):
        _share(axes[row * count : (row + 1) * count], label)
    return figure


def _choice(record: Record, column: int) -> str:
    """Which of how many draws is shown, in words."""
    at = paper_rate(record)
    reached, draw = record.arrays["reached"][column, at], int(record.arrays["drawn"][column, at])
    if not reached.any():
        return f"draw 1; none of {len(reached)} reaches 2/η"
    return f"draw {draw + 1}; 2/η reached by {int(reached.sum())} of {len(reached)}"


def _draw_column(axes: list[Axes], shown: Mapping[str, np.ndarray], rate: float) -> None:
    reached = first_at_edge(shown["sharpness"], 2 / rate)
    for row, (ax, names) in enumerate(zip(axes, ROWS.values(), strict=True)):
        for number, (name, label) in enumerate(names.items()):
            scale = rate / 2 if row == _EDGE else 1.0
            _draw_series(ax, scale * np.where(np.isfinite(shown[name]), shown[name], np.nan), label, number)
        if reached is not None:
            ax.axvline(reached, color="0.8", linewidth=0.8, zorder=0)
        ax.set_xscale("symlog", linthresh=_FEW, linscale=1.0)
        ax.set_xlim(0, len(shown["trace"]) - 1)
        ax.tick_params(labelbottom=row == len(axes) - 1)
    axes[_LOSS].set_yscale("log")
    axes[_LOSS].yaxis.set_minor_formatter(NullFormatter())
    axes[_EDGE].axhline(1, color="0.4", linewidth=0.8, linestyle="--", zorder=0, label="2/η")
    axes[-1].set_xlabel("step of gradient descent")


def _draw_series(ax: Axes, values: np.ndarray, label: str, number: int) -> None:
    """Draw the first steps one by one, and later ones in bins: their mean with a band from the least to the largest."""
    colour = plot.COLOURS[number]
    dashed = (0, (4, 3)) if number == 2 else "-"  # ‖w_K‖ lies on ‖w_Q‖
    steps, low, middle, high = _bins(values)
    ax.plot(steps, middle, linewidth=1.0, linestyle=dashed, color=colour, label=label)
    ax.fill_between(steps, low, high, color=colour, alpha=0.25, linewidth=0)


def _bins(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Steps with the least, mean and largest value of each bin: single steps first, then an even number of steps."""
    late = np.geomspace(_SINGLE, max(len(values), _SINGLE + 1), _BINS).astype(int) // 2 * 2
    edges = np.unique([*range(min(_SINGLE, len(values))), *late[late < len(values) - 1], len(values)])
    parts = [values[a:b] for a, b in pairwise(edges)]
    middles = np.array([(a + b - 1) / 2 for a, b in pairwise(edges)])
    low, middle, high = (np.array([f(part) for part in parts]) for f in (np.min, np.mean, np.max))
    return middles, low, middle, high


def _draw_rates(ax: Axes, sharpness: np.ndarray, rates: np.ndarray, reached: np.ndarray) -> None:
    """Draw where the sharpness of the shown draw ends at each rate, and write how many draws reach 2/η."""
    late = rates[:, None] / 2 * sharpness[:, -_LATE:].astype(np.float64)
    means, low, high = late.mean(1), late.min(1), late.max(1)
    label = f"last {late.shape[1]} steps:\nmean, least\nand largest"
    ax.errorbar(
        rates, means, np.maximum(0, [means - low, high - means]), fmt="o", markersize=3, linewidth=1.2, label=label
    )
    for rate, share in zip(rates, reached.mean(1), strict=True):  # above all points
        ax.text(rate, 1.0, f"{share:.0%}", transform=ax.get_xaxis_transform(), ha="center", fontsize=6, color="0.35")
    ax.axhline(1, color="0.4", linewidth=0.8, linestyle="--", zorder=0, label="2/η")
    ax.xaxis.set_major_locator(FixedLocator(list(rates)))
    ax.xaxis.set_major_formatter(FormatStrFormatter("%.3g"))
    ax.margins(x=0.12)
    ax.set_xlabel("learning rate η, with the share of draws\nthat reach 2/η", fontsize=7)


def _share(axes: list[Axes], label: str) -> None:
    """Give a row of panels one range and one legend."""
    limits = np.array([ax.get_ylim() for ax in axes])
    low, high = limits[:, 0].min(), limits[:, 1].max()
    if axes[0].get_yscale() == "log":
        low = max(low, _DEPTH * high)
    for ax in axes:
        ax.set_ylim(low, high + (0 if axes[0].get_yscale() == "log" else 0.05 * (high - low)))
    for ax in axes[1:]:
        ax.tick_params(labelleft=False)
    axes[0].set_ylabel(label)
    axes[-1].legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=1.6)
