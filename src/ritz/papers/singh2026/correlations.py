"""Figures 4, 14-16 and 26: sharpness and trace of two-layer networks against norms and alignments of their weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.axes import Axes

from ... import plot
from ...record import Picture, Record
from ..frame.figure import Context, Figure
from ..frame.pictures import legend_above, legend_at_foot, write_title
from ..frame.readings import Reading
from . import network_readings, trained_networks
from .correlation_statements import ALIGNMENTS, NEURAL_TANGENT, RELU, TRACE, TWO_LAYERS
from .network_readings import lead, part
from .trained_networks import (
    FROBENIUS,
    INITIAL,
    KINDS,
    NAMES,
    SPECTRAL,
    STAGES,
    TRAINED,
    TRAINING,
    Name,
    NetworkPoint,
    Training,
    coefficients,
)
from .two_layer_coefficients import sizes


@dataclass(frozen=True)
class Config:
    """Two layers f = W₂φ(W₁x) of width 100 with as many outputs as inputs."""

    activation: Literal["linear", "relu"] = "linear"
    width: int = 100  # "We set the width of the model m = 100", D.1.3
    sizes: tuple[int, ...] = (1, *range(10, 101, 10))  # "D ∈ {1, …, 100}", D.1.3: which of them is open
    readings: tuple[str, ...] = network_readings.names(network_readings.LINEAR)  # open
    other_widths: tuple[int, ...] = (50, 200)  # open: the claim is said to hold across widths, and one is shown
    size_at_widths: int = 10  # open: D of these networks
    training: Training = TRAINING


def run(config: Config, context: Context) -> dict[str, Any]:
    """The correlation coefficients as reading × parametrisation × size × stage × …, and those at other widths."""
    lists = [
        [point_of(config, reading, name, D) for name in NAMES for D in config.sizes] for reading in config.readings
    ]
    shape, label = (len(config.readings), len(NAMES), len(config.sizes)), f"{config.activation} networks"
    points = [point for several in lists for point in several]
    result = trained_networks.sweep_arrays(points, _summary, context, shape=shape, name=label)
    if not config.other_widths:
        return result
    wide = [
        point_of(config, config.readings[0], name, config.size_at_widths, m)
        for name in NAMES
        for m in config.other_widths
    ]
    others = trained_networks.sweep_arrays(
        wide, _summary, context, shape=(len(NAMES), len(config.other_widths)), name=f"{label} of other widths"
    )
    return {**result, **{f"width_{key}": array for key, array in others.items()}}


def point_of(config: Config, reading: str, name: Name, size: int, width: int | None = None) -> NetworkPoint:
    """The networks of a reading, parametrisation and size."""
    widths = (size, config.width if width is None else width, size)
    return network_readings.read(NetworkPoint(name, widths, config.activation, config.training), reading)


def _summary(point: NetworkPoint, raw: trained_networks.Raw) -> dict[str, torch.Tensor]:
    """What is recorded of one point: correlations, and how well the paper's bounds and approximations hold."""
    sharpness, norms = raw["sharpness"], raw["norms"]
    result = {"norms": coefficients(sharpness, norms), "alignments": coefficients(sharpness, raw["alignments"])}
    if point.activation == "linear":
        result["trace_norms"] = coefficients(raw["trace"], norms)
        result["trace_error"] = trace_error(point, raw["trace"], norms)
        result["above"] = share_above(point, sharpness, norms)
        result["difference"] = (raw["difference"] / sharpness).nanmedian(-1).values
    return result


def trace_error(point: NetworkPoint, trace: torch.Tensor, norms: torch.Tensor) -> torch.Tensor:
    """The largest |tr H / D(‖W₁‖_F² + ‖W₂‖_F²) - 1| of all networks; NaN for NTP, whose layers have multipliers."""
    if point.parametrization == "NTP":
        return torch.full_like(trace[:, 0], torch.nan)
    return trained_networks.highest((trace / (point.widths[0] * norms[:, :, FROBENIUS].sum(1)) - 1).abs())


def share_above(point: NetworkPoint, sharpness: torch.Tensor, norms: torch.Tensor) -> torch.Tensor:
    """The share of networks whose sharpness is at least max(‖W₁‖₂², ‖W₂‖₂²), as printed; NaN for NTP."""
    if point.parametrization == "NTP":
        return torch.full_like(sharpness[:, 0], torch.nan)
    finite, bound = sharpness.isfinite(), norms[:, :, SPECTRAL].amax(1)
    return ((sharpness >= (1 - trained_networks.TOLERANCE) * bound) & finite).sum(-1) / finite.sum(-1)


# ---------------------------------------------------------------------------------------------------- what is drawn

_TITLES = {"spectral": "spectral", "frobenius": "Frobenius", "nuclear": "nuclear"}


_LABELS = {
    "norms": "correlation of sharpness\nwith squared norms",
    "alignments": "correlation of sharpness\nwith alignments",
    "trace_norms": "correlation of the trace\nwith squared norms",
}


def _draw(
    record: Record, names: tuple[Name, ...], key: str, readings: tuple[Reading, ...], compared: tuple[int, int]
) -> Picture:
    """A row for each stage, a column for each parametrisation, layers by line and norms by colour; readings below.

    `compared` are the norm and the stage of which all readings are shown.
    """
    rows = len(STAGES) + (len(record.config["readings"]) > 1)
    figure, axes = plot.panels(len(names), rows, width=3.4 if len(names) > 1 else 4.4, height=2.5)
    first = lead(record)
    for row in range(len(STAGES)):
        for column, name in enumerate(names):
            ax = axes[row * len(names) + column]
            _panel(ax, first, name, key, row)
            _size_axis(ax, sizes(record))
            write_title(ax, trained_networks.stage_title(first, name, row, "hollow"))
    for ax in axes[:: len(names)]:
        ax.set_ylabel(f"{_LABELS[key]} ({KINDS[record.config['activation']]})", fontsize=8)
    legend_above(figure, axes[0], columns=3)
    below = axes[len(STAGES) * len(names) :]
    for ax, name in zip(below, names, strict=False):
        _draw_readings(ax, record, name, key, readings, compared)
    if below:
        legend_at_foot(figure, below[0], columns=min(len(names), 2))
    _one_range(axes)
    return figure


def _one_range(axes: Sequence[Axes]) -> None:
    """Let all axes run from the lowest coefficient, or a little below zero, to one."""
    values = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for ax in axes for line in ax.lines])
    lowest = float(np.nanmin(values))
    for ax in axes:
        ax.set_ylim(min(lowest - 0.1, -0.2), 1.05)


def _size_axis(ax: Any, D: np.ndarray) -> None:
    ax.axhline(0, color="0.7", lw=0.8, zorder=0)
    ax.set(xlabel="inputs and outputs D")
    roomy = len(D) < 9
    labels = [str(d) if d == D[0] or d % 20 == 0 or (roomy and d - D[0] > D[-1] / 30) else "" for d in D]
    ax.set_xticks(D, labels=labels, fontsize=7)


def _draw_readings(
    ax: Any, record: Record, name: Name, key: str, readings: tuple[Reading, ...], compared: tuple[int, int]
) -> None:
    """Draw the better layer's coefficient of one norm for each reading."""
    norm, stage = compared
    words = {reading.value: reading.words for reading in readings}
    for index, reading in enumerate(record.config["readings"]):
        values = part(record, index).arrays[key][NAMES.index(name), :, stage, ..., norm]
        values = values.max(-1) if values.ndim > 1 else values  # alignments have no layers
        style, wide = ("-o", 1.8) if index == 0 else ("--.", 1.0)
        ax.plot(sizes(record), values, style, ms=3, lw=wide, color=plot.COLOURS[index], label=words[reading])
    _size_axis(ax, sizes(record))
    kind = "alignment" if key == "alignments" else "norm, layer where it is larger"
    what = f"{tuple(_TITLES.values())[norm]} {kind}"
    write_title(ax, f"{name}, {STAGES[stage]}, by reading of the text:\n{what}", size=8)


def _panel(ax: Any, record: Record, name: Name, key: str, stage: int) -> None:
    D, index = sizes(record), NAMES.index(name)
    values = record.arrays[key][index, :, stage]
    values = values[:, None] if values.ndim == 2 else values  # alignments have no layers
    cut = trained_networks.cut_off(record, name) & (stage == TRAINED)
    freedom = np.maximum(record.arrays["used"][index, :, stage] - 3, 1)
    for layer in range(values.shape[1]):
        for norm, title in enumerate(_TITLES.values()):
            r, colour, marker = values[:, layer, norm], plot.COLOURS[norm], "os"[layer]
            error = (1 - r**2) / freedom**0.5
            which = f"{title}, W{'₁₂'[layer]}" if values.shape[1] > 1 else title
            ax.plot(D, r, ("-", "--")[layer] + marker, ms=3, lw=1.3, color=colour, label=which)
            ax.plot(D[cut], r[cut], marker, ms=4, mfc="w", color=colour)
            ax.fill_between(D, r - error, r + error, color=colour, alpha=0.12, lw=0)


def _presets(paper: Config) -> dict[str, Config]:
    coarse = replace(paper.training, improvement=2e-3)
    laptop = replace(
        paper, sizes=(1, 10, 30), readings=paper.readings[:2], other_widths=(50,),
        training=replace(coarse, networks=60, epochs=1000),
    )  # fmt: skip
    if paper.activation == "relu":
        small = replace(coarse, networks=60, examples=256, batch_size=64, epochs=700)
        laptop = replace(paper, width=50, sizes=(1, 3, 10, 20), readings=paper.readings[:2], training=small)
    tiny = replace(paper.training, networks=8, examples=32, batch_size=16, epochs=3, window=1)
    smoke = replace(paper, width=6, sizes=(1, 2, 3), training=tiny)
    if paper.other_widths:
        smoke = replace(smoke, other_widths=(3,), size_at_widths=2)
    return {"paper": paper, "laptop": laptop, "smoke": smoke}


# ReLU networks with many inputs improve slowly for long: they are cut off, for the cost, as `finished` records
_LINEAR = _presets(Config())
_RELU = _presets(
    Config(
        activation="relu", sizes=(1, 2, 5, 10, 20, 40, 70, 100), other_widths=(),
        readings=network_readings.names(network_readings.RELU), training=Training(epochs=5000),
    )
)  # fmt: skip
_SHARED = "singh2026.correlations-linear"


def _figure(
    number: int, title: str, names: tuple[Name, ...], key: str, compared: tuple[int, int], statements: Any
) -> Figure:
    relu = number == 16
    readings = network_readings.RELU if relu else network_readings.LINEAR
    draw = partial(_draw, names=names, key=key, readings=readings, compared=compared)
    presets, shared = (_RELU, "") if relu else (_LINEAR, _SHARED)
    return Figure(f"singh2026.fig{number}", title, presets, run, draw, statements, shared, readings)


FIGURES = {
    figure.id: figure
    for figure in (
        _figure(
            4, "Sharpness against norms of the weights: two linear layers, SP and μP", ("SP", "μP"), "norms",
            (SPECTRAL, TRAINED), TWO_LAYERS,
        ),
        _figure(
            14, "Sharpness against norms of the weights: two linear layers, NTP", ("NTP",), "norms",
            (SPECTRAL, TRAINED), NEURAL_TANGENT,
        ),
        _figure(
            15, "Sharpness against the alignment of two linear layers", NAMES, "alignments", (SPECTRAL, INITIAL),
            ALIGNMENTS,
        ),
        _figure(
            16, "Sharpness against norms of the weights: two ReLU layers", NAMES, "norms", (FROBENIUS, TRAINED), RELU,
        ),
        _figure(
            26, "The trace against norms of the weights: two linear layers", NAMES, "trace_norms",
            (FROBENIUS, TRAINED), TRACE,
        ),
    )
}  # fmt: skip
