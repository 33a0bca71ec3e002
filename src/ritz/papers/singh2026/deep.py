"""Figures 17-22: the sharpness of deep networks against norms of their weights W_b and of products that leave one out.

Ŵ_b = W_B ⋯ W_{b+1}W_{b-1} ⋯ W₁ is what the derivative with respect to W_b is made of.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from ... import plot
from ...record import Claim, Picture, Record
from ..frame.claims import at_least, each
from ..frame.figure import Context, Figure
from ..frame.pictures import titled
from . import claim, regression
from .regression import (
    FROBENIUS,
    INITIAL,
    KINDS,
    NAMES,
    SPECTRAL,
    STAGES,
    TRAINED,
    TRAINING,
    Name,
    Point,
    Training,
    correlations,
    reasons,
)


@dataclass(frozen=True)
class Config:
    """Networks of width 100 and two to six layers, with as many outputs as inputs."""

    activation: Literal["linear", "relu"] = "linear"
    size: int = 1  # D = K; D.1.4: 1 (Fig. 17, 19, 21, 22) or 10 (Fig. 18, 20)
    depths: tuple[int, ...] = (2, 3, 4, 5, 6)  # D.1.4
    width: int = 100  # D.1.4
    deep_rate: float = 1e-2  # of "deeper networks parametrized with SP and μP". D.1.4 has 1e-3 for them at D = 1, in a
    # list of figures of linear networks; open elsewhere, and the 1e-2 of all others there
    deep_from: int = 3  # layers from which they are "deeper"; open
    training: Training = TRAINING


def run(config: Config, context: Context) -> dict[str, Any]:
    """Correlation coefficients, as arrays of parametrisation × depth × stage × layer × norm, NaN beyond the depth."""
    points = [_point(config, name, depth) for name in NAMES for depth in config.depths]
    shape, label = (len(NAMES), len(config.depths)), f"deep {config.activation} networks"
    return regression.swept(points, partial(_summary, deepest=max(config.depths)), context, shape=shape, name=label)


def _point(config: Config, name: Name, depth: int) -> Point:
    slow = depth >= config.deep_from and name != "NTP"
    training = replace(config.training, learning_rate=config.deep_rate) if slow else config.training
    return Point(name, (config.size, *[config.width] * (depth - 1), config.size), config.activation, training)


def _summary(point: Point, raw: regression.Raw, *, deepest: int) -> dict[str, torch.Tensor]:
    missing = deepest - raw["norms"].shape[1]
    known = {key: correlations(raw["sharpness"], raw[name]) for key, name in _QUANTITIES.items()}
    return {key: torch.nn.functional.pad(r, (0, 0, 0, missing), value=torch.nan) for key, r in known.items()}


_QUANTITIES = {"weights": "norms", "products": "products"}


# ---------------------------------------------------------------------------------------------------- what is drawn

_NORMS = {SPECTRAL: "spectral", FROBENIUS: "Frobenius"}
_LETTERS = {"weights": "W", "products": r"\hat{W}"}


def _draw(record: Record, key: Literal["weights", "products"], norm: int) -> Picture:
    """A heat map for each stage and parametrisation: depth downwards, layers to the right."""
    figure, axes = plot.panels(len(NAMES), len(STAGES), width=3.0, height=2.4)
    for row in range(len(STAGES)):
        for column, name in enumerate(NAMES):
            ax = axes[row * len(NAMES) + column]
            _heat_map(ax, record, record.arrays[key][column, :, row, :, norm], _LETTERS[key])
            _numbers(
                ax, record.arrays[key][column, :, row, :, norm], regression.cut_off(record, name) & (row == TRAINED)
            )
            titled(ax, regression.stage_title(record, name, row, "(…)"), size=8)
    for ax in axes[:: len(NAMES)]:
        ax.set_ylabel("layers B")
    of = f"squared {_NORMS[norm]} norm, D = {record.config['size']}, {KINDS[record.config['activation']]}"
    bar = figure.colorbar(axes[0].images[0], ax=axes, shrink=0.9)
    bar.set_label(f"correlation of sharpness with\n{of}", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure


def _heat_map(ax: Any, record: Record, values: np.ndarray, letter: str) -> None:
    depths = record.config["depths"]
    ax.imshow(values, vmin=-1, vmax=1, cmap="RdBu_r", aspect="auto")
    ax.set_xticks(range(max(depths)), labels=[f"${letter}_{b}$" for b in range(1, max(depths) + 1)])
    ax.set_yticks(range(len(depths)), labels=map(str, depths))
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)


def _numbers(ax: Any, values: np.ndarray, cut: np.ndarray) -> None:
    """The coefficients, in brackets where training was cut off."""
    for (row, column), r in np.ndenumerate(values):
        if np.isfinite(r):
            text = f"({r:.2f})" if cut[row] else f"{r:.2f}"
            ax.text(column, row, text, ha="center", va="center", fontsize=7, color="w" if abs(r) > 0.6 else "k")


# --------------------------------------------------------------------------------------------------- what is claimed

WELL = at_least(0.7, partly=0.4)  # "correlate well", of the coefficient
STRONGEST = at_least(0.75, partly=0.5)  # share of the depths at which one quantity is the highest
HIGHER = at_least(0.05, partly=-0.05)  # by how much one coefficient beats the others
SOME = at_least(0.4, partly=0.2)  # "partially persisting", of the coefficient
BETTER = at_least(0.05, partly=0.0)  # by how much training raises a coefficient

_SPREAD = "The spread of sharpness comes from other layers as well."


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
    """Depths at which weights and products are not the same."""
    return np.array(record.config["depths"]) > 2


def _claim_well(record: Record, where: str) -> Claim:
    lowest = float(np.min([last_left_out(record, name) for name in NAMES]))
    return claim(
        "The squared norm of the product without the last matrix correlates well with sharpness, at all depths and in "
        "all parametrisations (the lowest of all).",
        where=where, rule=WELL, measured=lowest, expected="≈ 1", why=reasons(record, _SPREAD),
    )  # fmt: skip


def _claims_products(record: Record) -> list[Claim]:
    """Sec. 4.2 and the caption of Fig. 17, D = 1."""
    share, gain = {}, {}
    for name in NAMES:
        own = last_left_out(record, name)
        share[f"{name}, share of B > 2"] = float(np.mean((own >= _others(record, name))[_deep(record)]))
        gain[f"{name}, median over B"] = float(np.median(own - last_left_out(record, name, INITIAL)))
    return [
        _claim_well(record, "Fig. 17"),
        claim(
            "Among all weights and products, the product without the last matrix correlates most.",
            where="Sec. 4.2, Fig. 17", rule=each(STRONGEST), measured=share, expected="all depths",
            why=reasons(record, "Another weight or product correlates more."),
        ),
        claim(
            "It does so especially near convergence.", where="Sec. 4.2, Fig. 17",
            rule=each(BETTER), measured=gain, expected="> 0",
            why=reasons(record, "The coefficient is no higher after training than before."),
        ),
    ]  # fmt: skip


def _claims_ten(record: Record) -> list[Claim]:
    """Fig. 18, D = 10: its caption says more than the text."""
    persists = {"μP, median over B > 2": float(np.median(last_left_out(record, "μP")[_deep(record)]))}
    return [
        _claim_well(record, "Fig. 18"),
        claim(
            "For larger inputs and outputs the effect persists partially, under μP.", where="Sec. 4.2, Fig. 18",
            rule=each(SOME), measured=persists, expected="> 0", why=reasons(record, _SPREAD, names=["μP"]),
        ),
    ]  # fmt: skip


def _claims_weights(record: Record, where: str) -> list[Claim]:
    gap = {}
    for name in NAMES:
        difference = last_left_out(record, name) - best_weight(record, name)
        gap[f"{name}, median over B > 2"] = float(np.median(difference[_deep(record)]))
    return [
        claim(
            "Single weight matrices correlate less with sharpness than the product without the last one.",
            where=where, rule=each(HIGHER), measured=gap, expected="> 0",
            why=reasons(record, "The norm of a single matrix follows sharpness as well as the product does."),
        )
    ]  # fmt: skip


def _claims_relu_products(record: Record) -> list[Claim]:
    best = {}
    for name in NAMES:
        highest = np.maximum(last_left_out(record, name), _others(record, name))
        best[f"{name}, lowest over B"] = float(highest.min())
    return [
        claim(
            "The spectral norm of certain weights or products correlates strongly at all depths, with ReLU too.",
            where="Sec. 1, contribution 3, Fig. 21", rule=each(WELL), measured=best, expected="≈ 1",
            why=reasons(record, "The products of the weights are not the network's derivatives where units are off."),
        )
    ]  # fmt: skip


def hidden_gap(record: Record, name: Name) -> float:
    """r of the Frobenius norm less r of the spectral norm, of the same matrix: the median over all hidden matrices.

    W₂ … W_{B-1}, for B ≥ 3: at D = 1 the first and the last are vectors, whose norms are one.
    """
    pairs = zip(*(_rows(record, "weights", name, TRAINED, norm) for norm in (FROBENIUS, SPECTRAL)), strict=True)
    return float(np.median(np.concatenate([(frobenius - spectral)[1:-1] for frobenius, spectral in pairs])))


def _claims_frobenius(record: Record) -> list[Claim]:
    gap = {f"{name}, median over hidden matrices": hidden_gap(record, name) for name in NAMES}
    why = "The spectral norm of a hidden matrix follows sharpness as well as its Frobenius norm does."
    return [
        claim(
            "With ReLU the squared Frobenius norm of a matrix correlates more than its squared spectral norm.",
            where="Sec. 4.2, Fig. 22", rule=each(HIGHER), measured=gap, expected="> 0", why=reasons(record, why),
        )
    ]  # fmt: skip


def _presets(paper: Config) -> dict[str, Config]:
    small = replace(paper.training, networks=70, improvement=2e-3, epochs=1000)
    laptop = replace(paper, width=50, deep_rate=1e-2, training=small)
    if paper.activation == "relu":
        small = replace(small, networks=50, examples=256, batch_size=32, epochs=300)
        laptop = replace(laptop, width=30, training=small)
    tiny = replace(paper.training, networks=6, examples=32, batch_size=16, epochs=3, window=1)
    smoke = replace(paper, width=4, depths=(2, 3), training=tiny)
    return {"paper": paper, "laptop": laptop, "smoke": smoke}


_ONE = _presets(Config(deep_rate=1e-3))
_TEN = _presets(Config(size=10))
_RELU = _presets(Config(activation="relu", training=Training(epochs=3000)))  # ten times what most take


def _figure(number: int, title: str, presets: Any, key: Any, norm: int, claims: Any, computation: str) -> Figure:
    draw = partial(_draw, key=key, norm=norm)
    return Figure(f"singh2026.fig{number}", title, presets, run, draw, claims, f"singh2026.deep-{computation}")


FIGURES = {
    figure.id: figure
    for figure in (
        _figure(
            17, "Deep linear networks, D = 1: sharpness against products of weights", _ONE, "products", SPECTRAL,
            _claims_products, "linear-1",
        ),
        _figure(
            18, "Deep linear networks, D = 10: sharpness against products of weights", _TEN, "products", SPECTRAL,
            _claims_ten, "linear-10",
        ),
        _figure(
            19, "Deep linear networks, D = 1: sharpness against single weights", _ONE, "weights", SPECTRAL,
            partial(_claims_weights, where="Sec. 4.2, Fig. 17 and 19"), "linear-1",
        ),
        _figure(
            20, "Deep linear networks, D = 10: sharpness against single weights", _TEN, "weights", SPECTRAL,
            partial(_claims_weights, where="Sec. 4.2, Fig. 18 and 20"), "linear-10",
        ),
        _figure(
            21, "Deep ReLU networks, D = 1: sharpness against products of weights", _RELU, "products", SPECTRAL,
            _claims_relu_products, "relu-1",
        ),
        _figure(
            22, "Deep ReLU networks, D = 1: sharpness against Frobenius norms of weights", _RELU, "weights", FROBENIUS,
            _claims_frobenius, "relu-1",
        ),
    )
}  # fmt: skip
