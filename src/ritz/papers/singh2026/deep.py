"""Figures 17-22: the sharpness of deep networks against norms of their weights W_b and of products that leave one out.

The product Ŵ_b = W_B ⋯ W_{b+1}W_{b-1} ⋯ W₁ is what the derivative with respect to W_b depends on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from ... import plot
from ...record import Picture, Record
from ..frame.figure import Context, Figure
from ..frame.pictures import legend_at_foot, write_title
from ..frame.readings import Reading
from ..frame.statements import OURS, Statement, at_least, each
from . import network_readings, paper, trained_networks
from .network_readings import by_reading, lead, lead_reasons, part
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

LINEAR = tuple(one for one in network_readings.LINEAR if one.value in ("own", "shared", "own-unit"))


@dataclass(frozen=True)
class Config:
    """Networks of width 100 and two to six layers, with as many outputs as inputs."""

    activation: Literal["linear", "relu"] = "linear"
    size: int = 1  # "input/output size D ∈ {1, 10}", D.1.4: 1 in Fig. 17, 19, 21, 22, and 10 in Fig. 18, 20
    depths: tuple[int, ...] = (2, 3, 4, 5, 6)  # "depth B ∈ {2, 3, 4, 5, 6}", D.1.4
    width: int = 100  # "models of width m = 100", D.1.4
    deep_rate: float = 1e-2  # "D = 1 … deeper networks parametrized with SP and μP … η = 10⁻³", D.1.4; open at D = 10
    deep_from: int = 3  # open: layers from which a network counts as "deeper"
    readings: tuple[str, ...] = network_readings.names(LINEAR)  # open
    training: Training = TRAINING


def run(config: Config, context: Context) -> dict[str, Any]:
    """Correlation coefficients: reading × parametrisation × depth × stage × layer × norm, NaN beyond the depth."""
    points = [
        point_of(config, reading, name, depth)
        for reading in config.readings
        for name in NAMES
        for depth in config.depths
    ]
    shape = (len(config.readings), len(NAMES), len(config.depths))
    summary, label = partial(_summary, deepest=max(config.depths)), f"deep {config.activation} networks"
    return trained_networks.sweep_arrays(points, summary, context, shape=shape, name=label)


def point_of(config: Config, reading: str, name: Name, depth: int) -> NetworkPoint:
    """The networks of a parametrisation and depth, with their learning rate."""
    slow = depth >= config.deep_from and name != "NTP"
    training = replace(config.training, learning_rate=config.deep_rate) if slow else config.training
    widths = (config.size, *[config.width] * (depth - 1), config.size)
    return network_readings.read(NetworkPoint(name, widths, config.activation, training), reading)


def _summary(point: NetworkPoint, raw: trained_networks.Raw, *, deepest: int) -> dict[str, torch.Tensor]:
    missing = deepest - raw["norms"].shape[1]
    result = {key: coefficients(raw["sharpness"], raw[name]) for key, name in _QUANTITIES.items()}
    return {key: torch.nn.functional.pad(r, (0, 0, 0, missing), value=torch.nan) for key, r in result.items()}


_QUANTITIES = {"weights": "norms", "products": "products"}


# ---------------------------------------------------------------------------------------------------- what is drawn

_NORMS = {SPECTRAL: "spectral", FROBENIUS: "Frobenius"}
_LETTERS = {"weights": "W", "products": r"\hat{W}"}


def _draw(record: Record, key: Literal["weights", "products"], norm: int, readings: tuple[Reading, ...]) -> Picture:
    """A heat map for each stage and parametrisation, with depths as rows and layers as columns; readings below."""
    rows, first = len(STAGES) + (len(record.config["readings"]) > 1), lead(record)
    figure, axes = plot.panels(len(NAMES), rows, width=3.0, height=2.4)
    for row in range(len(STAGES)):
        for column, name in enumerate(NAMES):
            ax, values = axes[row * len(NAMES) + column], first.arrays[key][column, :, row, :, norm]
            _heat_map(ax, record, values, _LETTERS[key])
            _numbers(ax, values, trained_networks.cut_off(first, name) & (row == TRAINED))
            write_title(ax, trained_networks.stage_title(first, name, row, "(…)"), size=8)
    maps, below = axes[: len(STAGES) * len(NAMES)], axes[len(STAGES) * len(NAMES) :]
    for ax in maps[:: len(NAMES)]:
        ax.set_ylabel("layers B")
    of = f"squared {_NORMS[norm]} norm, D = {record.config['size']}, {KINDS[record.config['activation']]}"
    bar = figure.colorbar(axes[0].images[0], ax=maps, shrink=0.9)
    bar.set_label(f"correlation of sharpness with\n{of}", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    for ax, name in zip(below, NAMES, strict=False):
        _draw_readings(ax, record, name, key, norm, readings)
    if below:
        below[0].set_ylabel("correlation", fontsize=8)
        legend_at_foot(figure, below[0], columns=3)
    return figure


def _draw_readings(ax: Any, record: Record, name: Name, key: str, norm: int, readings: tuple[Reading, ...]) -> None:
    """Draw each reading's coefficients after training: for the product without the last matrix, and the best weight."""
    words, depths = {reading.value: reading.words for reading in readings}, record.config["depths"]
    for index, reading in enumerate(record.config["readings"]):
        rows = _rows(part(record, index), key, name, TRAINED, norm)
        values = [row[-1] if key == "products" else row.max() for row in rows]
        style, wide = ("-o", 1.8) if index == 0 else ("--.", 1.0)
        ax.plot(depths, values, style, ms=3, lw=wide, color=plot.COLOURS[index], label=words[reading])
    ax.set(xlabel="layers B", ylim=(-0.3, 1.05))
    ax.set_xticks(depths)
    which = f"${_LETTERS[key]}_B$" if key == "products" else "best W"
    write_title(ax, f"{name}, trained: {which} by reading", size=8)


def _heat_map(ax: Any, record: Record, values: np.ndarray, letter: str) -> None:
    depths = record.config["depths"]
    ax.imshow(values, vmin=-1, vmax=1, cmap="RdBu_r", aspect="auto")
    ax.set_xticks(range(max(depths)), labels=[f"${letter}_{b}$" for b in range(1, max(depths) + 1)])
    ax.set_yticks(range(len(depths)), labels=map(str, depths))
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)


def _numbers(ax: Any, values: np.ndarray, cut: np.ndarray) -> None:
    """Write the coefficients into the map, in brackets where training was cut off."""
    for (row, column), r in np.ndenumerate(values):
        if np.isfinite(r):
            text = f"({r:.2f})" if cut[row] else f"{r:.2f}"
            ax.text(column, row, text, ha="center", va="center", fontsize=7, color="w" if abs(r) > 0.6 else "k")


# --------------------------------------------------------------------------------------------------- what is claimed

WELL = at_least(0.7, partly=0.4)  # "correlate well", of the coefficient
STRONGEST = at_least(0.75, partly=0.5)  # share of the depths at which one quantity is the highest
HIGHER = at_least(0.05, partly=-0.05)  # by how much one coefficient beats the others
SOME = at_least(0.4, partly=0.2)  # "partially persisting", of the coefficient
BETTER = at_least(0.1, partly=0.0)  # by how much training raises a coefficient, in Fisher's z, which has no ceiling

_SPREAD = "The spread of sharpness comes from other layers as well."


def says(statement: str, *, measured: Any, relu: bool = False, **rest: Any) -> Statement:
    """A statement judged for every reading."""
    readings = network_readings.RELU if relu else LINEAR
    return paper.says(statement, measured=by_reading(measured, readings), **rest)


def _rows(record: Record, key: str, name: Name, stage: int, norm: int) -> list[np.ndarray]:
    """The coefficients of all layers, for each depth."""
    values = record.arrays[key][NAMES.index(name), :, stage, :, norm]
    return [row[:depth] for row, depth in zip(values, record.config["depths"], strict=True)]


def last_left_out(record: Record, name: Name, stage: int = TRAINED, norm: int = SPECTRAL) -> np.ndarray:
    """The coefficient of Ŵ_B, for each depth."""
    return np.array([row[-1] for row in _rows(record, "products", name, stage, norm)])


def best_weight(record: Record, name: Name, stage: int = TRAINED, norm: int = SPECTRAL) -> np.ndarray:
    """The highest coefficient among the weights, for each depth."""
    return np.array([row.max() for row in _rows(record, "weights", name, stage, norm)])


def best_other_product(record: Record, name: Name, stage: int = TRAINED, norm: int = SPECTRAL) -> np.ndarray:
    """The highest coefficient among the products but Ŵ_B, for each depth."""
    return np.array([row[:-1].max() for row in _rows(record, "products", name, stage, norm)])


def _others(record: Record, name: Name) -> np.ndarray:
    return np.maximum(best_weight(record, name), best_other_product(record, name))


def _deep(record: Record) -> np.ndarray:
    """The depths at which products of the remaining weights differ from single weights."""
    return np.array(record.config["depths"]) > 2


def lowest(record: Record) -> float:
    """The least coefficient of Ŵ_B over all depths."""
    return float(np.min([last_left_out(record, name) for name in NAMES]))


def shares_most(record: Record) -> dict[str, float]:
    """The share of depths at which Ŵ_B has the highest coefficient."""
    most = {name: last_left_out(record, name) >= _others(record, name) for name in NAMES}
    return {f"{name}, share of B > 2": float(np.mean(row[_deep(record)])) for name, row in most.items()}


def gains(record: Record) -> dict[str, float]:
    """How much training raises the coefficient of Ŵ_B, in Fisher's z."""
    rows = {name: _z(last_left_out(record, name)) - _z(last_left_out(record, name, INITIAL)) for name in NAMES}
    return {f"{name}, median over B": float(np.median(row)) for name, row in rows.items()}


def _z(r: np.ndarray) -> np.ndarray:
    return np.arctanh(np.clip(r, -0.9999, 0.9999))


def persistence(record: Record) -> dict[str, float]:
    """The coefficients of Ŵ_B after training under μP."""
    return {"μP, median over B > 2": float(np.median(last_left_out(record, "μP")[_deep(record)]))}


def shares_above_weights(record: Record, names: Sequence[Name]) -> dict[str, float]:
    """The share of depths at which Ŵ_B has a higher coefficient than any single matrix."""
    rows = {name: last_left_out(record, name) > best_weight(record, name) for name in names}
    return {f"{name}, share of B > 2": float(np.mean(row[_deep(record)])) for name, row in rows.items()}


def highest_of_all(record: Record) -> dict[str, float]:
    """The highest coefficient among all weights and products, at the depth where it is least."""
    rows = {name: np.maximum(last_left_out(record, name), _others(record, name)) for name in NAMES}
    return {f"{name}, lowest over B": float(row.min()) for name, row in rows.items()}


def well(where: str) -> Statement:
    """The statement in the captions of Fig. 17 and 18."""
    return says(
        "Squared norm of the products of parameter matrices excluding the last one correlate well with the largest "
        "Hessian eigenvalues across different depths and model parametrizations (the lowest of all).",
        where=where, measured=lowest, rule=WELL, expected="≈ 1", why=lead_reasons(_SPREAD),
    )  # fmt: skip


def single_weights(where: str, names: Sequence[Name]) -> Statement:
    """The statement about Fig. 19 and 20; for larger inputs and outputs, under μP alone."""
    return says(
        "Among these quantities, the squared spectral norm of Ŵ_B shows the strongest correlation with sharpness "
        "(share of depths at which no single matrix has a stronger one).",
        where=where, measured=partial(shares_above_weights, names=names), rule=each(STRONGEST), expected=1.0,
        why=lead_reasons("The norm of a single matrix follows sharpness as well as the product does.", names=names),
    )  # fmt: skip


PRODUCTS = (  # D = 1
    well("Fig. 17"),
    says(
        "Among these quantities [all weights and products], the squared spectral norm of Ŵ_B shows the strongest "
        "correlation with sharpness (share of depths).",
        where="Sec. 4.2, Fig. 17", measured=shares_most, rule=each(STRONGEST), expected=1.0,
        why=lead_reasons("Another weight or product correlates more."),
    ),
    says(
        "… especially near convergence (by how much training raises its coefficient, in Fisher's z).",
        where="Sec. 4.2, Fig. 17", measured=gains, rule=each(BETTER), expected="> 0",
        why=lead_reasons("The coefficient is no higher after training than before."),
    ),
)  # fmt: skip
PRODUCTS_AT_TEN = (  # D = 10: the caption of Fig. 18 says more than the text does
    well("Fig. 18"),
    says(
        "… with the effect partially persisting for larger input/output size under μP.",
        where="Sec. 4.2, Fig. 18", measured=persistence, rule=each(SOME), expected="> 0",
        why=lead_reasons(_SPREAD, names=["μP"]),
    ),
)  # fmt: skip
RELU_PRODUCTS = (  # the paper shows Fig. 21 and 22 without a word on them
    says(
        "The spectral norm of certain weights or products correlates strongly at all depths, with ReLU too.",
        paper=OURS, where="Fig. 21", measured=highest_of_all, relu=True, rule=each(WELL), expected="≈ 1",
        why=lead_reasons("The products of the weights are not the network's derivatives where units are off."),
    ),
)  # fmt: skip


def hidden_gap(record: Record, name: Name) -> float:
    """The coefficient of the Frobenius norm less that of the spectral norm: the median over all hidden matrices.

    These are W₂ … W_{B-1} for B ≥ 3; at D = 1 the first and last are vectors, whose norms are the same.
    """
    pairs = zip(*(_rows(record, "weights", name, TRAINED, norm) for norm in (FROBENIUS, SPECTRAL)), strict=True)
    return float(np.median(np.concatenate([(frobenius - spectral)[1:-1] for frobenius, spectral in pairs])))


def hidden_gaps(record: Record) -> dict[str, float]:
    """`hidden_gap` in each parametrisation."""
    return {f"{name}, median over hidden matrices": hidden_gap(record, name) for name in NAMES}


FROBENIUS_NORMS = (
    says(
        "With ReLU the squared Frobenius norm of a hidden matrix correlates more than its squared spectral norm.",
        paper=OURS, where="Fig. 22", measured=hidden_gaps, relu=True, rule=each(HIGHER), expected="> 0",
        why=lead_reasons("The spectral norm of a hidden matrix follows sharpness as well, or better."),
    ),
)  # fmt: skip


def _presets(config: Config) -> dict[str, Config]:
    small = replace(config.training, networks=70, improvement=2e-3, epochs=1000)
    laptop = replace(config, width=50, deep_rate=1e-2, readings=config.readings[:2], training=small)
    if config.activation == "relu":
        small = replace(small, networks=50, examples=256, batch_size=32, epochs=300)
        laptop = replace(laptop, width=30, training=small)
    tiny = replace(config.training, networks=6, examples=32, batch_size=16, epochs=3, window=1)
    smoke = replace(config, width=4, depths=(2, 3), training=tiny)
    return {"paper": config, "laptop": laptop, "smoke": smoke}


_ONE = _presets(Config(deep_rate=1e-3, readings=("own", "shared")))  # at D = 1 both variances of W are one
_TEN = _presets(Config(size=10))
_RELU = _presets(
    Config(
        activation="relu", deep_rate=1e-3, readings=network_readings.names(network_readings.RELU),
        training=Training(epochs=3000),  # ten times what most take
    )
)  # fmt: skip


def _figure(number: int, title: str, key: Any, norm: int, statements: Any) -> Figure:
    presets, computation = {
        17: (_ONE, "linear-1"), 19: (_ONE, "linear-1"), 18: (_TEN, "linear-10"), 20: (_TEN, "linear-10"),
    }.get(number, (_RELU, "relu-1"))  # fmt: skip
    readings = network_readings.RELU if number > 20 else LINEAR
    draw = partial(_draw, key=key, norm=norm, readings=readings)
    shared = f"singh2026.deep-{computation}"
    return Figure(f"singh2026.fig{number}", title, presets, run, draw, statements, shared, readings)


FIGURES = {
    figure.id: figure
    for figure in (
        _figure(
            17, "Deep linear networks, D = 1: sharpness against products of weights", "products", SPECTRAL, PRODUCTS,
        ),
        _figure(
            18, "Deep linear networks, D = 10: sharpness against products of weights", "products", SPECTRAL,
            PRODUCTS_AT_TEN,
        ),
        _figure(
            19, "Deep linear networks, D = 1: sharpness against single weights", "weights", SPECTRAL,
            (single_weights("Sec. 4.2, Fig. 17 and 19", NAMES),),
        ),
        _figure(
            20, "Deep linear networks, D = 10: sharpness against single weights", "weights", SPECTRAL,
            (single_weights("Sec. 4.2, Fig. 18 and 20", ("μP",)),),
        ),
        _figure(
            21, "Deep ReLU networks, D = 1: sharpness against products of weights", "products", SPECTRAL,
            RELU_PRODUCTS,
        ),
        _figure(
            22, "Deep ReLU networks, D = 1: sharpness against Frobenius norms of weights", "weights", FROBENIUS,
            FROBENIUS_NORMS,
        ),
    )
}  # fmt: skip
