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
from ..figure import Context, Figure, at_least, claim, each
from . import PAPER
from .regression import NAMES, STAGES, Name, Point, correlations, measured

INITIAL, TRAINED = 0, 1
SPECTRAL, FROBENIUS = 0, 1


@dataclass(frozen=True)
class Config:
    """Networks of width 100 and two to six layers, with as many outputs as inputs."""

    activation: Literal["linear", "relu"] = "linear"
    size: int = 1  # D = K; D.1.4: 1 (Fig. 17, 19, 21, 22) or 10 (Fig. 18, 20)
    depths: tuple[int, ...] = (2, 3, 4, 5, 6)  # D.1.4
    width: int = 100  # D.1.4
    networks: int = 200  # D.1.3
    examples: int = 1024  # D.1.3
    noise: float = 0.1  # D.1.3: variance 0.01
    batch_size: int = 128  # D.1.3
    learning_rate: float = 1e-2  # D.1.4
    deep_rate: float = 1e-3  # D.1.4: "deeper networks parametrized with SP and μP" at D = 1; the rate at D = 10 is open
    deep_from: int = 3  # layers from which they are "deeper"; open
    window: int = 20  # open, as in Fig. 4
    improvement: float = 1e-2
    epochs: int = 2000  # at most; open
    seed: int = 0


def run(config: Config, context: Context) -> dict[str, Any]:
    """Correlation coefficients, as arrays of parametrisation × depth × stage × layer × norm, NaN beyond the depth."""
    points = [_point(config, name, depth) for name in NAMES for depth in config.depths]
    label = f"deep {config.activation} networks"
    records = context.sweep(partial(measured, device=context.device), points, name=label)
    found: dict[str, list[torch.Tensor]] = {"weights": [], "products": [], "loss": [], "lost": []}
    for record in records:
        raw = {name: torch.as_tensor(array) for name, array in record.arrays.items()}
        missing = max(config.depths) - raw["norms"].shape[1]
        for key, name in (("weights", "norms"), ("products", "products")):
            known = correlations(raw["sharpness"], raw[name])
            found[key].append(torch.nn.functional.pad(known, (0, 0, 0, missing), value=torch.nan))
        found["loss"].append(raw["losses"].nanmedian(-1).values)
        found["lost"].append(1 - raw["converged"].mean(-1))
    shape = (len(NAMES), len(config.depths))
    epochs = torch.tensor([record.scalars["epochs"] for record in records]).view(shape)
    return {"epochs": epochs, **{key: torch.stack(values).unflatten(0, shape) for key, values in found.items()}}


def _point(config: Config, name: Name, depth: int) -> Point:
    slow = depth >= config.deep_from and name != "NTP"
    return Point(
        name,
        (config.size, *[config.width] * (depth - 1), config.size),
        config.activation,
        config.networks,
        config.examples,
        config.noise,
        config.deep_rate if slow else config.learning_rate,
        config.batch_size,
        config.window,
        config.improvement,
        config.epochs,
        config.seed,
    )


# ---------------------------------------------------------------------------------------------------- what is drawn


def _draw(record: Record, key: Literal["weights", "products"], norm: int) -> Picture:
    """A heat map for each stage and parametrisation: depth downwards, layers to the right."""
    figure, axes = plot.panels(len(NAMES), len(STAGES), width=3.0, height=2.3)
    depths = record.config["depths"]
    letter = r"\hat{W}" if key == "products" else "W"
    for row, stage in enumerate(STAGES):
        for column, name in enumerate(NAMES):
            ax = axes[row * len(NAMES) + column]
            values = record.arrays[key][column, :, row, :, norm]
            ax.imshow(values, vmin=-1, vmax=1, cmap="RdBu_r", aspect="auto")
            _numbers(ax, values)
            ax.set_xticks(range(max(depths)), labels=[f"${letter}_{b}$" for b in range(1, max(depths) + 1)])
            ax.set_yticks(range(len(depths)), labels=map(str, depths))
            ax.set_title(f"{name}, {stage}")
    for ax in axes[:: len(NAMES)]:
        ax.set_ylabel("layers B")
    figure.colorbar(axes[0].images[0], ax=axes, shrink=0.7, label="correlation with sharpness")
    return figure


def _numbers(ax: Any, values: np.ndarray) -> None:
    for (row, column), r in np.ndenumerate(values):
        if np.isfinite(r):
            ax.text(column, row, f"{r:.2f}", ha="center", va="center", fontsize=7, color="w" if abs(r) > 0.6 else "k")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)


# --------------------------------------------------------------------------------------------------- what is claimed

WELL = at_least(0.7, partly=0.4)  # "correlate well", of the coefficient
STRONGEST = at_least(0.75, partly=0.5)  # share of the depths at which one quantity is the highest
HIGHER = at_least(0.05, partly=-0.05)  # by how much one coefficient beats the others
SOME = at_least(0.4, partly=0.2)  # "partially persisting", of the coefficient
BETTER = at_least(0.0, partly=-0.1)  # by how much training raises a coefficient

_SPREAD = "The spread of sharpness comes from other layers as well."


def last_left_out(record: Record, name: Name, stage: int = TRAINED, norm: int = SPECTRAL) -> np.ndarray:
    """The coefficient of Ŵ_B, for each depth."""
    values = record.arrays["products"][NAMES.index(name), :, stage, :, norm]
    return np.array([row[depth - 1] for row, depth in zip(values, record.config["depths"], strict=True)])


def others(record: Record, name: Name, *keys: str, stage: int = TRAINED, norm: int = SPECTRAL) -> np.ndarray:
    """The highest coefficient among the weights, or among them and the products but Ŵ_B, for each depth."""
    found = []
    for index, depth in enumerate(record.config["depths"]):
        rows = [record.arrays[key][NAMES.index(name), index, stage, :, norm] for key in keys]
        known = [row[: depth - 1] if key == "products" else row[:depth] for key, row in zip(keys, rows, strict=True)]
        found.append(np.concatenate(known).max())
    return np.array(found)


def _deep(record: Record) -> np.ndarray:
    """Depths at which weights and products are not the same."""
    return np.array(record.config["depths"]) > 2


def _well(record: Record) -> dict[str, float]:
    return {name: float(last_left_out(record, name).min()) for name in NAMES}


def _claims_products(record: Record) -> list[Claim]:
    """Sec. 4.2 and the caption of Fig. 17, D = 1."""
    share, gain = {}, {}
    for name in NAMES:
        own, rest = last_left_out(record, name), others(record, name, "weights", "products")
        share[name] = float(np.mean((own >= rest)[_deep(record)]))
        gain[name] = float(np.median(own - last_left_out(record, name, INITIAL)))
    return [
        _claim(
            "The squared norm of the product without the last matrix correlates well with sharpness, at all depths.",
            "Fig. 17", WELL, _well(record), "≈ 1", _SPREAD,
        ),
        _claim(
            "Among all weights and products, the product without the last matrix correlates most.",
            "Sec. 4.2, Fig. 17", STRONGEST, share, "all depths", "Another weight or product correlates more.",
        ),
        _claim(
            "It does so especially near convergence.", "Sec. 4.2, Fig. 17", BETTER, gain, "≥ 0",
            "The coefficient is lower after training than before.",
        ),
    ]  # fmt: skip


def _claims_ten(record: Record) -> list[Claim]:
    """Fig. 18, D = 10: its caption says more than the text."""
    persists = {"μP": float(np.median(last_left_out(record, "μP")[_deep(record)]))}
    return [
        _claim(
            "The squared norm of the product without the last matrix correlates well with sharpness, at all depths "
            "and in all parametrisations.",
            "Fig. 18", WELL, _well(record), "≈ 1", _SPREAD,
        ),
        _claim(
            "For larger inputs and outputs the effect persists partially, under μP.", "Sec. 4.2, Fig. 18", SOME,
            persists, "> 0", _SPREAD,
        ),
    ]  # fmt: skip


def _claims_weights(record: Record, where: str) -> list[Claim]:
    gap = {}
    for name in NAMES:
        difference = last_left_out(record, name) - others(record, name, "weights")
        gap[name] = float(np.median(difference[_deep(record)]))
    statement = "Single weight matrices correlate less with sharpness than the product without the last one."
    why = "The norm of a single matrix follows sharpness as well as the product does."
    return [_claim(statement, where, HIGHER, gap, "> 0", why)]


def _claims_relu_products(record: Record) -> list[Claim]:
    best = {}
    for name in NAMES:
        highest = np.maximum(last_left_out(record, name), others(record, name, "weights", "products"))
        best[name] = float(highest.min())
    statement = "The spectral norm of certain weights or products correlates strongly at all depths, with ReLU too."
    why = "The products of the weights are not the network's derivatives where units are off."
    return [_claim(statement, "Sec. 1, contribution 3, Fig. 21", WELL, best, "≈ 1", why)]


def _claims_frobenius(record: Record) -> list[Claim]:
    gap = {}
    for name in NAMES:
        frobenius, spectral = (others(record, name, "weights", norm=norm) for norm in (FROBENIUS, SPECTRAL))
        gap[name] = float(np.median(frobenius - spectral))
    statement = "With ReLU the squared Frobenius norm of a matrix correlates more than its squared spectral norm."
    why = "Both norms of the matrices that matter at D = 1, which are vectors, are one."
    return [_claim(statement, "Sec. 4.2, Fig. 22", HIGHER, gap, "> 0", why)]


def _claim(statement: str, where: str, rule: Any, measured: Any, expected: str, why: str) -> Claim:
    told = {"no": why, "partly": why}
    return claim(statement, paper=PAPER, where=where, rule=each(rule), measured=measured, expected=expected, why=told)


def _presets(paper: Config) -> dict[str, Config]:
    laptop = replace(paper, width=50, networks=80, deep_rate=1e-2, epochs=1000)
    if paper.activation == "relu":
        laptop = replace(laptop, width=30, networks=60, examples=256, batch_size=32, epochs=300)
    tiny = {"width": 4, "depths": (2, 3), "networks": 6, "examples": 32, "batch_size": 16, "epochs": 3, "window": 1}
    return {"paper": paper, "laptop": laptop, "smoke": replace(paper, **tiny)}  # type: ignore[arg-type]


_ONE, _TEN, _RELU = _presets(Config()), _presets(Config(size=10)), _presets(Config(activation="relu"))


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
