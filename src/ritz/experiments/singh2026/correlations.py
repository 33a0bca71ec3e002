"""Figures 4, 14-16 and 26: sharpness and trace of two-layer networks against norms and alignments of their weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from ... import plot
from ...record import Claim, Picture, Record
from ..figure import Context, Figure, at_least, at_most, claim, each, within
from . import PAPER
from .regression import NAMES, NORMS, STAGES, Name, Point, correlations, measured

INITIAL, TRAINED = 0, 1
SPECTRAL, FROBENIUS, NUCLEAR = range(3)


@dataclass(frozen=True)
class Config:
    """Two layers f = W₂φ(W₁x) of width 100 with as many outputs as inputs."""

    activation: Literal["linear", "relu"] = "linear"
    width: int = 100  # D.1.3
    sizes: tuple[int, ...] = (1, 2, 5, 10, 20, 40, 70, 100)  # D = K; D.1.3: in {1, …, 100}, which is open
    networks: int = 200  # D.1.3, at each point
    examples: int = 1024  # D.1.3
    noise: float = 0.1  # D.1.3: variance 0.01
    batch_size: int = 128  # D.1.3
    learning_rate: float = 1e-2  # D.1.3. Its η = 1 for large μP networks belongs to layer rates η/n_{ℓ-1}, which are
    # 0.01 at D = 100; with the spectral condition's η n_ℓ/n_{ℓ-1} (theory.md) 0.01 has the same effect at every D
    window: int = 20  # open, "until the loss stops improving": by less than 1 % in 20 epochs
    improvement: float = 1e-2
    epochs: int = 2000  # at most; open
    seed: int = 0


def run(config: Config, context: Context) -> dict[str, Any]:
    """Correlation coefficients, as arrays of parametrisation × size × stage × …."""
    points = [_point(config, name, D) for name in NAMES for D in config.sizes]
    records = context.sweep(partial(measured, device=context.device), points, name=f"{config.activation} networks")
    found: dict[str, list[torch.Tensor]] = {}
    for record in records:
        for key, value in _summary({name: torch.as_tensor(array) for name, array in record.arrays.items()}).items():
            found.setdefault(key, []).append(value)
    shape = (len(NAMES), len(config.sizes))
    epochs = torch.tensor([record.scalars["epochs"] for record in records]).view(shape)
    return {"epochs": epochs, **{key: torch.stack(values).unflatten(0, shape) for key, values in found.items()}}


def _point(config: Config, name: Name, D: int) -> Point:
    return Point(
        name,
        (D, config.width, D),
        config.activation,
        config.networks,
        config.examples,
        config.noise,
        config.learning_rate,
        config.batch_size,
        config.window,
        config.improvement,
        config.epochs,
        config.seed,
    )


def _summary(raw: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What is kept of one point: correlations, and what tells whether the networks were trained and measured."""
    sharpness, norms = raw["sharpness"], raw["norms"]
    largest = norms[:, :, SPECTRAL].amax(1)
    found = {
        "norms": correlations(sharpness, norms),
        "alignments": correlations(sharpness, raw["alignments"]),
        "loss": raw["losses"].nanmedian(-1).values,
        "lost": 1 - raw["converged"].mean(-1),  # networks that diverged, or whose eigenvalue was not found
        "above": (sharpness >= (1 - 1e-3) * largest).double().mean(-1),
        "rise": (sharpness / largest).nanmedian(-1).values,
    }
    if "trace" in raw:
        found["trace_norms"] = correlations(raw["trace"], norms)
        # printed for K = D and white inputs: D (‖W₁‖² + ‖W₂‖²); μP and SP alone have no multipliers
        found["trace_ratio"] = (raw["trace"] / norms[:, :, FROBENIUS].sum(1)).nanmedian(-1).values
    return found


# ---------------------------------------------------------------------------------------------------- what is drawn

_TITLES = {"spectral": "spectral", "frobenius": "Frobenius", "nuclear": "nuclear"}


def _draw(record: Record, names: tuple[Name, ...], key: str, target: str) -> Picture:
    """Stages below each other, a column for each parametrisation; layers by line, norms by colour."""
    figure, axes = plot.panels(len(names), len(STAGES), width=3.4 if len(names) > 1 else 4.4, height=2.5)
    D, networks = np.array(record.config["sizes"]), record.config["networks"]
    for row, stage in enumerate(STAGES):
        for column, name in enumerate(names):
            ax = axes[row * len(names) + column]
            values = record.arrays[key][NAMES.index(name), :, row]
            _panel(ax, D, values[:, None] if values.ndim == 2 else values, networks)
            ax.set(title=f"{name}, {stage}", xlabel="inputs and outputs D", ylim=(-1.05, 1.05))
    for ax in axes[:: len(names)]:
        ax.set_ylabel(f"correlation with {target}")
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    return figure


def _panel(ax: Any, D: np.ndarray, values: np.ndarray, networks: int) -> None:
    for layer in range(values.shape[1]):
        for norm, title in enumerate(_TITLES.values()):
            r = values[:, layer, norm]
            error = (1 - r**2) / max(networks - 3, 1) ** 0.5
            which = f"{title}, W{'₁₂'[layer]}" if values.shape[1] > 1 else title
            ax.plot(D, r, "-o" if layer == 0 else "--s", ms=3, lw=1.3, color=plot.COLOURS[norm], label=which)
            ax.fill_between(D, r - error, r + error, color=plot.COLOURS[norm], alpha=0.12, lw=0)
    ax.axhline(0, color="0.7", lw=0.8, zorder=0)
    ax.set_xscale("log")
    ax.set_xticks(D, labels=[str(size) if size in (1, 2, 5, 10, 20, 50, 100) else "" for size in D])
    ax.minorticks_off()


# --------------------------------------------------------------------------------------------------- what is claimed

MOST = at_least(0.02, partly=-0.02)  # by how much a coefficient is the highest: 0.02 is beyond a tie
STRONG = at_least(0.7, partly=0.4)  # what "strong" and "well" are taken to mean, of a coefficient
WEAK = at_most(0.5, partly=0.7)  # "none of them correlates strongly"
LEADS = at_least(0.3, partly=0.1)  # by how much the matrix that drives the correlation has the higher coefficient
BETTER = at_least(0.05, partly=0.0)  # by how much training raises a coefficient
LARGER = at_least(0.05, partly=-0.05)  # by how much alignment correlates better than norms
DIFFERS = at_least(0.3, partly=0.1)  # how far r(W₁) - r(W₂) of one parametrisation is from that of another
QUARTER = within(0.25, 0.75, partly=(0.1, 0.9))  # "between 0.25 and 0.75"
BOUND = at_least(0.99, partly=0.9)  # of the networks
NEAR = at_most(0.05, partly=0.2)  # relative error of an approximation

_TIE = "Another norm correlates as well or better: all three grow together where the matrix grows."


def _sizes(record: Record) -> np.ndarray:
    return np.array(record.config["sizes"])


def _best(record: Record, key: str, name: Name, stage: int, norm: int) -> np.ndarray:
    """The coefficient of the layer that correlates most, for each size."""
    return np.asarray(record.arrays[key][NAMES.index(name), :, stage, :, norm]).max(-1)


def margin(record: Record, key: str, name: Name, norm: int, stage: int = TRAINED) -> float:
    """By how much the best layer's coefficient for one norm beats those for the others: the median over D > 1."""
    own = _best(record, key, name, stage, norm)
    others = np.stack([_best(record, key, name, stage, other) for other in range(len(NORMS)) if other != norm])
    return float(np.median((own - others.max(0))[_sizes(record) > 1]))  # at D = 1 the norms are one


def lead(record: Record, name: Name, stage: int, chosen: np.ndarray) -> float:
    """r(W₁) - r(W₂) for the spectral norm: the median over the chosen sizes."""
    values = record.arrays["norms"][NAMES.index(name), :, stage, :, SPECTRAL]
    return float(np.median((values[:, 0] - values[:, 1])[chosen]))


def _claims_two_layers(record: Record) -> list[Claim]:
    """Sec. 4.2, Fig. 4, and what D.3.3 says of SP and μP."""
    names: tuple[Name, ...] = ("SP", "μP")
    D = _sizes(record)
    best = {name: [_best(record, "norms", name, stage, SPECTRAL) for stage in (INITIAL, TRAINED)] for name in names}
    return [
        _claim(
            "The squared spectral norm of a weight matrix correlates most with sharpness, after training.",
            "Sec. 4.2, Fig. 4", each(MOST), {name: margin(record, "norms", name, SPECTRAL) for name in names},
            "> 0", _TIE,
        ),
        _claim(
            "Sharpness and the squared spectral norm correlate strongly.",
            "Abstract, Fig. 4", each(STRONG), {name: float(np.median(best[name][1])) for name in names}, "≈ 1",
            "Most of the spread of sharpness does not come from one matrix.",
        ),
        _claim(
            "The effect is most prominent in trained networks.",
            "Sec. 4.2, Fig. 4", each(BETTER),
            {name: float(np.median(best[name][1] - best[name][0])) for name in names}, "> 0",
            "The coefficients are as high before training.",
        ),
        _claim(
            "At initialisation and for small D it is the first matrix whose norm correlates.",
            "D.3.3, Fig. 4", each(LEADS), {name: lead(record, name, INITIAL, D <= 5) for name in names}, "> 0",
            "The entries of the first matrix are not enough larger than those of the second.",
        ),
        _claim(
            "At initialisation and for larger D none of the norms correlates strongly.",
            "D.3.3, Fig. 4", each(WEAK), {name: float(best[name][0][-1]) for name in names}, "≈ 0",
            "The norm of a matrix correlates also where both have entries of one size.",
        ),
        _claim(
            "Which matrix drives the correlation after training depends on the parametrisation.",
            "Sec. 4.2, D.3.3", DIFFERS, _spread(record), "≠ 0", "The same matrix leads in all of them, or none does.",
        ),
        _claim(
            "At convergence it is the second matrix that drives the correlation, in SP and, as printed, in μP.",
            "D.3.3", each(LEADS), {name: -lead(record, name, TRAINED, D > 0) for name in names}, "> 0",
            "The sentence sets SP against μP and says “second” of both: at least one of them is a misprint.",
        ),
        _claim(
            "The largest eigenvalue is at least the largest squared spectral norm, for white inputs.",
            "D.3.3", each(BOUND), _above(record, names), 1.0, "The sampled inputs are not white enough.",
        ),
    ]  # fmt: skip


def _above(record: Record, names: tuple[Name, ...]) -> dict[str, float]:
    """The share of networks above the bound, at the size where it is lowest."""
    return {name: float(record.arrays["above"][NAMES.index(name)].min()) for name in names}


def _spread(record: Record) -> float:
    leads = [lead(record, name, TRAINED, _sizes(record) > 0) for name in NAMES]
    return max(leads) - min(leads)


def _claims_neural_tangent(record: Record) -> list[Claim]:
    layers = record.arrays["norms"][NAMES.index("NTP"), :, TRAINED, :, SPECTRAL]
    both = {f"W{'₁₂'[layer]}": float(np.median(layers[:, layer])) for layer in range(2)}
    start = float(np.median(_best(record, "norms", "NTP", INITIAL, SPECTRAL)))
    return [
        _claim(
            "The squared spectral norm correlates most with sharpness, after training.", "Fig. 14", MOST,
            margin(record, "norms", "NTP", SPECTRAL), "> 0", _TIE,
        ),
        _claim(
            "At convergence the largest singular values of both matrices correlate well with sharpness.",
            "D.3.3, Fig. 14", each(STRONG), both, "≈ 1", "Each matrix has only its part in the spread of sharpness.",
        ),
        _claim(
            "At initialisation none of the norms correlates strongly.", "D.3.3, Fig. 14", WEAK, start, "≈ 0",
            "Both matrices have entries of one size, and the norm of the larger correlates all the same.",
        ),
    ]  # fmt: skip


def _claims_alignments(record: Record) -> list[Claim]:
    large = _sizes(record) >= _sizes(record).max() / 2
    gains = {}
    for name in NAMES:
        chosen = large | (name == "NTP")
        aligned = record.arrays["alignments"][NAMES.index(name), :, INITIAL].max(-1)
        gains[name] = float(np.median((aligned - _best(record, "norms", name, INITIAL, SPECTRAL))[chosen]))
    statement = "At initialisation, where both matrices have entries of one size, alignment correlates more than norms."
    why = "The alignment of random layers varies too little to move their sharpness."
    return [_claim(statement, "D.3.3, Fig. 15", each(LARGER), gains, "> 0", why)]


def _claims_relu(record: Record) -> list[Claim]:
    first = {
        name: float(np.median(record.arrays["norms"][NAMES.index(name), :, TRAINED, 0, SPECTRAL])) for name in NAMES
    }
    return [
        _claim(
            "For ReLU networks the squared Frobenius norm correlates most with sharpness.", "Sec. 4.2, Fig. 16",
            each(MOST), {name: margin(record, "norms", name, FROBENIUS) for name in NAMES}, "> 0", _TIE,
        ),
        _claim(
            "The squared spectral norm of the first matrix correlates between 0.25 and 0.75.", "Sec. 4.2, Fig. 16",
            each(QUARTER), first, "0.25 to 0.75", "It depends on the teacher, which the paper leaves open.",
        ),
    ]  # fmt: skip


def _claims_trace(record: Record) -> list[Claim]:
    weakest = {
        name: min(float(np.median(_best(record, "trace_norms", name, TRAINED, norm))) for norm in range(len(NORMS)))
        for name in NAMES
    }
    ratio = {
        name: float(np.abs(record.arrays["trace_ratio"][NAMES.index(name)] / _sizes(record)[:, None] - 1).max())
        for name in ("SP", "μP")
    }
    return [
        _claim(
            "The squared Frobenius norm correlates most with the trace.", "D.4, Fig. 26", each(MOST),
            {name: margin(record, "trace_norms", name, FROBENIUS) for name in NAMES}, "> 0", _TIE,
        ),
        _claim(
            "All squared norms correlate strongly with the trace.", "D.4, Fig. 26", each(STRONG), weakest, "≈ 1",
            "One of the norms does not follow the trace.",
        ),
        _claim(
            "tr H ≈ D (‖W₁‖_F² + ‖W₂‖_F²).", "D.4", each(NEAR), ratio, "≈ 0",
            "The inputs of a small sample are not white, and the trace sees their second moment.",
        ),
    ]  # fmt: skip


def _claim(statement: str, where: str, rule: Any, measured: Any, expected: Any, why: str) -> Claim:
    """Of a "partly" that comes from parametrisations that differ, the measured numbers tell enough."""
    told = {"no": why, "partly": why}
    return claim(statement, paper=PAPER, where=where, rule=rule, measured=measured, expected=expected, why=told)


def _presets(paper: Config) -> dict[str, Config]:
    laptop = replace(paper, sizes=(1, 2, 5, 10, 20, 40), networks=100)
    if paper.activation == "relu":
        laptop = replace(paper, width=50, sizes=(1, 3, 10, 20), networks=60, examples=256, batch_size=64, epochs=800)
    tiny = {"width": 6, "sizes": (1, 2, 3), "networks": 8, "examples": 32, "batch_size": 16, "epochs": 3, "window": 1}
    return {"paper": paper, "laptop": laptop, "smoke": replace(paper, **tiny)}  # type: ignore[arg-type]


_LINEAR, _RELU = _presets(Config()), _presets(Config(activation="relu"))
_SHARED = "singh2026.correlations-linear"

FIGURES = {
    figure.id: figure
    for figure in (
        Figure(
            "singh2026.fig4", "Sharpness against norms of the weights: two linear layers, SP and μP", _LINEAR, run,
            partial(_draw, names=("SP", "μP"), key="norms", target="sharpness"), _claims_two_layers, _SHARED,
        ),
        Figure(
            "singh2026.fig14", "Sharpness against norms of the weights: two linear layers, NTP", _LINEAR, run,
            partial(_draw, names=("NTP",), key="norms", target="sharpness"), _claims_neural_tangent, _SHARED,
        ),
        Figure(
            "singh2026.fig15", "Sharpness against the alignment of two linear layers", _LINEAR, run,
            partial(_draw, names=NAMES, key="alignments", target="sharpness"), _claims_alignments, _SHARED,
        ),
        Figure(
            "singh2026.fig16", "Sharpness against norms of the weights: two ReLU layers", _RELU, run,
            partial(_draw, names=NAMES, key="norms", target="sharpness"), _claims_relu,
        ),
        Figure(
            "singh2026.fig26", "The trace against norms of the weights: two linear layers", _LINEAR, run,
            partial(_draw, names=NAMES, key="trace_norms", target="the trace"), _claims_trace, _SHARED,
        ),
    )
}  # fmt: skip
