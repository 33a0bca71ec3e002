"""Figure 8: the pair of outliers of a linear and of a ReLU network along training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from ... import plot, theory
from ...lab import data, ensemble, models
from ...lab.data import Examples
from ...lab.ensemble import Ensemble
from ...lab.models import Activation, ScalarNetwork
from ...lab.training import train
from ...record import Picture, Record
from ...risk.losses import SquaredError
from ...theory import Phase
from ..frame.accuracy import CLOSED_FORM, DISAGREE
from ..frame.figure import Context, Figure
from ..frame.pictures import legend_above, write_title
from ..frame.statements import at_least, at_most, each
from .paper import says

KINDS: tuple[Activation, ...] = ("linear", "relu")
LOSS = SquaredError()
SMALL = 1e-5  # |δx|/λ₁ below which the rounding of λ₂ is seen in the second printed eigenvector, which ends as zero


@dataclass(frozen=True)
class Config:
    """Gradient descent of networks ⟨w, φ(vx)⟩ on the wedge."""

    width: int = 10  # "a single hidden layer network of width 10", Fig. 8
    learning_rate: float = 0.18  # "using a learning rate of 0.18 and momentum 0.9", Fig. 8
    momentum: float = 0.9  # "using a learning rate of 0.18 and momentum 0.9", Fig. 8
    epochs: int = 200  # open
    examples: int = 100  # open, as is the "wedge dataset": here y = |x| at equally spaced x in [-1, 1]
    seed: int = 2  # open


def run(config: Config, context: Context) -> dict[str, Any]:
    """λ₁, λ₂, the trace of their cell, the bulk and the loss after every epoch, and the error of the closed form."""
    result: dict[str, Any] = {}
    for kind in KINDS:
        rows = list(_trajectory(config, kind, context.device))
        result |= {
            f"{kind}_{name}": torch.tensor([float(row[name]) for row in rows], dtype=torch.float64) for name in rows[0]
        }
    return result


def _trajectory(config: Config, kind: Activation, device: torch.device) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(config.seed)
    examples = Examples(*(part.to(device) for part in data.wedge(config.examples, dtype=torch.float64)))
    draw = models.scalar_network
    network = draw(config.width, activation=kind, generator=generator, dtype=torch.float64, device=device)
    bulk = torch.cat(theory.invariant_bulk(network.v, network.w), 1)
    yield _state(network, examples, bulk)
    optimizer = torch.optim.SGD(network.parameters(), lr=config.learning_rate, momentum=config.momentum)
    for _ in train(network, LOSS, examples, optimizer, num_epochs=config.epochs):
        yield _state(network, examples, bulk)


def _state(network: ScalarNetwork, examples: Examples, bulk: Tensor) -> dict[str, Any]:
    """The measurements at one epoch; for a ReLU network, those of the pair of the positive cell."""
    w, v, x, y = (part.detach().cpu().flatten() for part in (network.w, network.v, *examples))
    linear = network.activation == "linear"
    closed = (theory.linear_network if linear else theory.relu_network)(v, w, x, y)
    stack = Ensemble.of([network])
    H = ensemble.hessians(stack, LOSS, examples)[0].cpu()
    inside = torch.ones_like(v, dtype=torch.bool) if linear else v > 0
    seen = torch.ones_like(x, dtype=torch.bool) if linear else x > 0
    prefix, theta = "" if linear else "cell +, ", torch.cat([v, w])
    first, second = (closed[f"{prefix}outlier {i}"].value for i in (1, 2))
    printed = _poster_values(H, w, v, x, y, (first, second)) if linear else {}
    return {
        "first": first,
        "second": second,
        "bulk": closed[f"{prefix}bulk +"].value if int(inside.sum()) > 1 else float("nan"),
        "trace": float(H.diagonal()[inside.repeat(2)].sum()),
        "loss": float(ensemble.losses(stack, LOSS, examples)[0]),
        "error": (closed.eigenvalues() - torch.linalg.eigvalsh(H)).abs().max() / closed.scale,
        "outside": (bulk.T @ theta).norm() / theta.norm(),
        "late": theory.phase(v[inside], w[inside], x[seen], y[seen]) is Phase.LATE,
        **_measured(H, inside),
        **printed,
    }


def _measured(H: Tensor, inside: Tensor) -> dict[str, float]:
    """The eigenvalues of a cell's units, by their rank: -|δx| ≤ λ₂ ≤ |δx| ≤ λ₁, where δx is the bulk."""
    both, q = inside.repeat(2), int(inside.sum())
    values = torch.linalg.eigvalsh(H[both][:, both])
    rest = torch.cat([values[: q - 1], values[q:-1]])
    return {
        "measured_first": float(values[-1]),
        "measured_second": float(values[q - 1]),
        "measured_bulk": float(rest.abs().mean()) if len(rest) else float("nan"),
    }


def _poster_values(
    H: Tensor, w: Tensor, v: Tensor, x: Tensor, y: Tensor, outliers: tuple[float, float]
) -> dict[str, float]:
    """The formulas on the poster of 2024 for a linear network: its λ₁, and the errors of its eigenvectors.

    At δx = 0 the second vector is zero, and near it mere rounding: there its error is NaN.
    """
    delta = float((((w @ v) * x - y) * x).mean())
    first, second = (printed_residual(H, w, v, delta, value) for value in outliers)
    sound = abs(delta) > SMALL * outliers[0]
    return {
        "poster": poster_outlier(w, v, x, y),
        "printed_residual_1": first,
        "printed_residual_2": second if sound else float("nan"),
    }


def poster_outlier(w: Tensor, v: Tensor, x: Tensor, y: Tensor) -> float:
    """λ₁ of a linear network as the poster of 2024 prints it, whose last square lacks σ²."""
    sigma2, c, yx = x.square().mean(), w @ v, (y * x).mean()
    W, V = w @ w, v @ v
    inside = (sigma2 * (W - V)) ** 2 + 4 * sigma2**2 * (W * V - c**2) + 4 * (2 * c - yx) ** 2
    return float(sigma2 * (W + V) + inside.sqrt()) / 2


def printed_residual(H: Tensor, w: Tensor, v: Tensor, delta: float, value: float) -> float:
    """‖Hz - λz‖/‖H‖‖z‖ of the printed eigenvector z = (λw + δx v; δx w + λv) of an outlier λ."""
    z = torch.cat([value * w + delta * v, delta * w + value * v])
    return float((H @ z - value * z).norm() / (torch.linalg.matrix_norm(H, 2) * z.norm()))


# ---------------------------------------------------------------------------------------------------- what is drawn


LINES = {"first": (1, "λ₁"), "second": (0, "λ₂"), "bulk": (2, "|bulk|")}


def draw(record: Record) -> Picture:
    """The pair, its mean tr/2 and the bulk for each network, predicted as lines and measured as rings; and the loss."""
    figure, axes = plot.panels(2, 2, width=3.9, height=2.5)
    for column, kind in enumerate(KINDS):
        top, bottom = axes[column], axes[column + 2]
        draw_lines(top, record, kind)
        top.plot(record.arrays[f"{kind}_trace"] / 2, color="0.4", ls="--", lw=1, label="half of the trace")
        write_title(top, "linear" if kind == "linear" else "ReLU, positive cell")
        bottom.semilogy(np.maximum(record.arrays[f"{kind}_loss"], 1e-32), color=plot.COLOURS[6], lw=1)
        bottom.set(xlabel="epoch")
    axes[0].set_ylabel("eigenvalue")
    axes[2].set_ylabel("loss")
    legend_above(figure, axes[0], columns=5)
    return figure


def draw_lines(ax: Axes, record: Record, kind: Activation) -> None:
    """Draw the closed form along training as lines, and the measurements of every tenth epoch."""
    epochs = np.arange(len(record.arrays[f"{kind}_first"]))
    some = slice(None, None, max(1, len(epochs) // 20))
    for name, (colour, label) in LINES.items():
        closed, measured = (np.abs(v) if name == "bulk" else v for v in _both(record, kind, name))
        ax.plot(epochs, closed, color=plot.COLOURS[colour], lw=1 if name == "bulk" else 1.5, label=label)
        ax.plot(epochs[some], measured[some], "o", ms=3.5, mfc="none", mew=0.8, color="0.2")
    ax.plot([], [], "o", ms=3.5, mfc="none", mew=0.8, color="0.2", label="measured")


def _both(record: Record, kind: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    return record.arrays[f"{kind}_{name}"], record.arrays[f"{kind}_measured_{name}"]


# --------------------------------------------------------------------------------------------------- what is claimed

VANISHES = at_most(1e-3, partly=0.1)  # of λ₁, at the end
ALWAYS = at_least(0.99, partly=0.9)  # share of the epochs; rounding decides where λ₂ crosses zero

NO_PAIR = {
    "no": "The sum of the outliers is not the trace.",
    "partly": "The sum of the outliers is the trace to some digits only, or not in both networks.",
}
PHASES = {
    "no": "The sign of λ₂ does not tell the phase, or the run has no epoch in it (NaN).",
    "partly": "The sign of λ₂ does not tell the phase at every epoch, or the run has no epoch in one (NaN).",
}
NOT_REACHED = {
    "no": "The solution was not reached in these epochs.",
    "partly": "The solution was not quite reached in these epochs, or not by both networks.",
}


def pair_errors(record: Record) -> dict[str, float]:
    """The measured |λ₁ + λ₂ - tr| relative to the trace, at the worst epoch of each network."""
    names = ("measured_first", "measured_second", "trace")
    parts = {kind: [record.arrays[f"{kind}_{name}"] for name in names] for kind in KINDS}
    return {kind: float(np.abs((first + second) / trace - 1).max()) for kind, (first, second, trace) in parts.items()}


def form_errors(record: Record) -> dict[str, float]:
    """The relative error of the closed form, at the worst epoch of each network."""
    return {kind: float(record.arrays[f"{kind}_error"].max()) for kind in KINDS}


def outside_the_plane(record: Record) -> float:
    """The share of the linear network's weights in the bulk eigenspace of its start, at the worst epoch."""
    return float(record.arrays["linear_outside"].max())


def left_over(*names: str) -> Callable[[Record], dict[str, float]]:
    """The largest of the named eigenvalues in magnitude after the last epoch, relative to λ₁, of each network."""

    def largest(record: Record) -> dict[str, float]:
        last = {kind: {name: record.arrays[f"{kind}_{name}"][-1] for name in ("first", *names)} for kind in KINDS}
        return {kind: float(np.nanmax([abs(end[name] / end["first"]) for name in names])) for kind, end in last.items()}

    return largest


def in_phase(record: Record) -> dict[str, float]:
    """The share of late-phase epochs with λ₂ ≥ 0, and of other epochs with λ₂ ≤ 0; NaN if there are none."""
    result = {}
    for kind, cell in zip(KINDS, ("linear", "ReLU, positive cell"), strict=True):
        second, first, late = (record.arrays[f"{kind}_{name}"] for name in ("second", "first", "late"))
        small, late = 1e-12 * first, late.astype(bool)
        if kind == "relu" or late.any():  # the linear network has no late phase where the data are even: see STATEMENTS
            result[f"{cell}: late"] = _share((second >= -small)[late])
        result[f"{cell}: early or divergent"] = _share((second <= small)[~late])
    return result


def _share(holds: np.ndarray) -> float:
    return float(holds.mean()) if len(holds) else float("nan")


# The wedge at equally spaced x is even: yx = 0, so that the linear network's best slope is zero. By App. C it is then
# never in the late phase, and only a cell of the ReLU network can say what λ₂ does there.
STATEMENTS = (
    says(
        "The outliers are a pair throughout training: they sum up to the trace, in ReLU to that of the cell.",
        where="Sec. 3.1 and 4.1, Fig. 8", measured=pair_errors, rule=each(CLOSED_FORM), expected=0.0, why=NO_PAIR,
    ),
    says(
        "The closed forms hold at any point of training.",
        where="Sec. 1, Thm 3.1 and 3.4", measured=form_errors, rule=each(CLOSED_FORM), expected=0.0, why=DISAGREE,
    ),
    says(
        "All iterates of gradient descent are orthogonal to the bulk eigenspace, which does not change.",
        where="Cor 3.1", measured=outside_the_plane, rule=CLOSED_FORM, expected=0.0,
        why="The iterates have left the plane of their start.",
    ),
    says(
        "λ₂ ≥ 0 in the late phase of learning, λ₂ ≤ 0 in the early and the divergent one. (The wedge has yx = 0: "
        "the linear network has no late phase, and the ReLU cell alone is judged there.)",
        where="App. C", measured=in_phase, rule=each(ALWAYS), expected=1.0, why=PHASES,
    ),
    says(
        "Upon reaching the solution only λ₁ = tr H is left.",
        where="App. C", measured=left_over("second", "bulk"), rule=each(VANISHES), expected=0.0, why=NOT_REACHED,
    ),
)  # fmt: skip


PRESETS = {"paper": Config(), "laptop": Config(), "smoke": Config(width=4, epochs=5, examples=10)}
COMPUTATION = "singh2026.evolution"
FIGURES = {
    "singh2026.fig8": Figure(
        "singh2026.fig8", "The pair of outliers along training", PRESETS, run, draw, STATEMENTS, COMPUTATION
    )
}
