"""Figure 27: progressive sharpening and the edge of stability in one head of self-attention.

Many heads are trained at once, one for each initial draw and learning rate, with the whole Hessian of each at every
step. The paper does not say what the sequences are, so there are several readings, each with its own column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from ... import plot
from ...lab import ensemble
from ...lab.data import reversed_sequences
from ...lab.models import self_attention
from ...losses import SquaredError
from ...record import Claim, Picture, Record
from ...theory.attention import attention_bounds
from ..figure import Context, Figure, Rule, at_least, at_most, claim, each, within
from . import PAPER
from .attention import titled
from .edge import first_at_edge, measures

NOTED = ("losses", "sharpness", "trace", "residual", "value", "query", "key", "m1", "m2", "m3")
NORMS = {"value": "|w_V|", "query": "‖w_Q‖", "key": "‖w_K‖", "m1": "‖m₁‖", "m2": "‖m₂‖", "m3": "‖m₃‖"}


@dataclass(frozen=True)
class Config:
    """Full-batch gradient descent of a head that is to reverse sequences of two numbers."""

    key_size: int = 2  # d_K: App. D.2
    deviation: float = 0.1  # of the initial weights: App. D.2
    learning_rate: float = 2.3  # η: App. D.2
    factors: tuple[float, ...] = (
        0.95,
        1.0,
        1.05,
    )  # of η; "a range of learning rates around", not given which: App. D.2
    num_steps: int = 1000  # not given
    # Not given: what x is. So several readings: so many Gaussian sequences, drawn anew for each draw, or with 0 the one
    # sequence (1, -1), which is what two numbers are once they have mean 0 and variance 1.
    readings: tuple[int, ...] = (0, 1, 10)
    num_draws: int = 100  # of initial weights; not given, the paper shows one
    seed: int = 0


def told(reading: int) -> str:
    """A reading in words."""
    return "x = (1, -1)" if reading == 0 else f"{reading} Gaussian sequence" + "s" * (reading > 1)


def run(config: Config, context: Context) -> dict[str, Any]:
    """Train all heads in step, reading by reading: measures of readings × rates × draws, and one run to be shown."""
    rates = config.learning_rate * np.array(config.factors)
    found = [summary(_trained(config, reading, context), rates, config.learning_rate) for reading in config.readings]
    return {"rates": rates, **{name: np.stack([one[name] for one in found]) for name in found[0]}}


def summary(series: Mapping[str, np.ndarray], rates: np.ndarray, learning_rate: float) -> dict[str, np.ndarray]:
    """What is kept of series over rates × draws × steps: measures of all, and the first draw that reaches the edge."""
    shape = series["losses"].shape[:2]
    rows = [measures({name: series[name][i, j] for name in NOTED}, 2 / float(rates[i])) for i, j in np.ndindex(*shape)]
    found = {name: np.array([row[name] for row in rows]).reshape(shape) for name in rows[0]}
    at = int(np.abs(rates - learning_rate).argmin())
    chosen = int(found["reached"][at].argmax())
    shown = {f"shown_{name}": series[name][at, chosen] for name in NOTED}
    return {**found, "inside_bounds": series["inside_bounds"], "shown_draw": np.array(chosen), **shown}


def _trained(config: Config, reading: int, context: Context) -> dict[str, np.ndarray]:
    rates = config.learning_rate * torch.tensor(config.factors, dtype=torch.float64)
    networks, x, y = _heads(config, reading, context.device)
    first = observed(networks, x, y)
    pauses = ensemble.train(
        networks,
        SquaredError(),
        (x, y),
        learning_rate=rates.repeat_interleave(config.num_draws),
        num_epochs=config.num_steps,
        each=True,
        checkpoint=None if context.folder is None else context.folder / f"training-{reading}.npz",
    )
    for pause in pauses:
        pause.note(**observed(networks, x, y))
    shape, history = (len(config.factors), config.num_draws, -1), pause.history
    noted = {name: _whole(history[name].values, config) for name in NOTED}
    found = {name: np.vstack([first[name].cpu().numpy(), noted[name]]).T.reshape(shape) for name in NOTED}
    lows, highs = _bounds(networks, x, y)
    last = found["sharpness"][..., -1]
    inside = (lows.reshape(last.shape) <= last) & (last <= highs.reshape(last.shape))
    return {**found, "inside_bounds": inside.astype(float)}


def _whole(values: np.ndarray, config: Config) -> np.ndarray:
    """Filled up with NaN where every head diverged before the last step."""
    missing = config.num_steps - len(values)
    return np.vstack([values, np.full((missing, values.shape[1]), np.nan)]) if missing else values


def observed(networks: ensemble.Ensemble, x: Tensor, y: Tensor) -> dict[str, Float[Tensor, " B"]]:
    """What the figure shows of each head; norms of vectors are over all positions of all sequences."""
    H = ensemble.hessians(networks, SquaredError(), (x, y), each=True)
    sound = H.isfinite().all(-1).all(-1)
    values = torch.linalg.eigvalsh(torch.where(sound[:, None, None], H, 0.0))
    w_v, w_q, w_k = networks.parameters.values()
    m1, m2, m3 = moments((w_q * w_k).sum((1, 2)) / w_q.shape[-1] ** 0.5, x)
    return {
        "losses": ensemble.losses(networks, SquaredError(), (x, y), each=True),
        "sharpness": torch.where(sound, values[:, -1], torch.nan),
        "trace": H.diagonal(dim1=1, dim2=2).sum(1),
        "residual": (networks.outputs(x, each=True) - y).flatten(1).norm(dim=1),
        **{name: w.flatten(1).norm(dim=1) for name, w in (("value", w_v), ("query", w_q), ("key", w_k))},
        **{name: m.flatten(1).norm(dim=1) for name, m in (("m1", m1), ("m2", m2), ("m3", m3))},
    }


def moments(s: Float[Tensor, " B"], x: Float[Tensor, "B b n"]) -> tuple[Float[Tensor, "B b n"], ...]:
    """m₁ and the central m₂, m₃ of the attention softmax(s x xᵀ), for many heads at once. Def. B.1."""
    A = (s[:, None, None, None] * x[..., :, None] * x[..., None, :]).softmax(-1)
    m1 = (A @ x[..., None])[..., 0]
    apart = x[..., None, :] - m1[..., :, None]
    return m1, (A * apart**2).sum(-1), (A * apart**3).sum(-1)


def _heads(config: Config, reading: int, device: torch.device) -> tuple[ensemble.Ensemble, Tensor, Tensor]:
    """The same draws for each rate, with their sequences."""
    heads, data = [], list[tuple[Tensor, Tensor]]()
    for draw in range(config.num_draws):
        random = torch.Generator().manual_seed(config.seed + draw)
        heads.append(self_attention(config.key_size, generator=random, deviation=config.deviation, dtype=torch.float64))
        x, y = reversed_sequences(max(reading, 1), generator=random, dtype=torch.float64)
        if reading == 0:
            x = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
            y = x.flip(1)[..., None]
        data.append((x, y))
    count = len(config.factors)
    inputs, targets = (torch.stack(list(parts) * count).to(device) for parts in zip(*data, strict=True))
    return ensemble.Ensemble.of(heads * count, device=device), inputs, targets


def _bounds(networks: ensemble.Ensemble, x: Tensor, y: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """tr/3 + ξ/2 and tr/3 + ξ at the end of training, widened by rounding."""
    pairs = []
    for i in range(len(networks)):
        w_v, w_q, w_k = (parameter[i].cpu() for parameter in networks.parameters.values())
        if not all(bool(w.isfinite().all()) for w in (w_v, w_q, w_k)):
            pairs.append((np.nan, np.nan))
            continue
        low, high = attention_bounds(w_q[0], w_k[0], w_v[0, 0], x[i].cpu(), y[i, ..., 0].cpu()).largest_outlier
        pairs.append((low - 1e-9 * abs(high), high + 1e-9 * abs(high)))
    lows, highs = np.array(pairs).T
    return lows, highs


_ROWS: dict[str, tuple[str, ...]] = {
    "loss": ("losses",),
    "sharpness": ("sharpness",),
    "trace of H": ("trace",),
    "‖residual‖": ("residual",),
    "moments": ("m1", "m2", "m3"),
    "parameters": ("value", "query", "key"),
}


def draw(record: Record) -> Picture:
    """A column for each reading, at the paper's rate, of the first draw that reaches the edge."""
    readings = record.config["readings"]
    figure, axes = plot.panels(len(readings), len(_ROWS), width=3.3, height=1.5)
    edge, count = 2 / record.config["learning_rate"], record.arrays["reached"].shape[-1]
    for column, reading in enumerate(readings):
        shown = {name: record.arrays[f"shown_{name}"][column] for name in NOTED}
        _draw_column(axes[column :: len(readings)], shown, edge)
        titled(axes[column], f"{told(reading)}: draw {int(record.arrays['shown_draw'][column]) + 1} of {count}")
    for row, label in enumerate(_ROWS):
        axes[row * len(readings)].set_ylabel(label)
    return figure


def _draw_column(axes: Sequence[Axes], shown: Mapping[str, np.ndarray], edge: float) -> None:
    steps, reached = np.arange(len(shown["trace"])), first_at_edge(shown["sharpness"], edge)
    for ax, names in zip(axes, _ROWS.values(), strict=True):
        for name in names:
            ax.plot(steps, shown[name], linewidth=0.8, label=NORMS.get(name))
        if reached is not None:
            ax.axvline(reached, color="0.75", linewidth=0.8, zorder=0)
        ax.set_xlim(0, steps[-1])
        if len(names) > 1:
            ax.legend(frameon=False, fontsize=6, ncols=3, handlelength=1)
    for ax in (axes[0], axes[3]):
        ax.set_yscale("log")
    axes[1].axhline(edge, color=plot.COLOURS[1], linewidth=0.9, linestyle="--", label="2/η")
    axes[1].legend(frameon=False, fontsize=6)
    axes[-1].set_xlabel("step of gradient descent")


@dataclass(frozen=True)
class _Medians:
    """What a record says of every reading of what x is, at the learning rate of the paper."""

    record: Record

    @property
    def arrays(self) -> Mapping[str, Any]:
        return self.record.arrays

    @property
    def at(self) -> int:
        """Which of the rates it is."""
        return int(np.abs(np.asarray(self.arrays["rates"]) - self.record.config["learning_rate"]).argmin())

    @property
    def names(self) -> list[str]:
        return [told(reading) for reading in self.record.config["readings"]]

    def median(self, measure: str) -> dict[str, float]:
        """Of the draws that reach the edge."""
        return {name: _median(self.arrays[measure][i, self.at]) for i, name in enumerate(self.names)}

    def growths(self, *parts: str) -> dict[str, float]:
        """Of several norms, each by its name."""
        grown = {part: self.median(f"growth_{part}") for part in parts}
        return {f"{name}, {NORMS[part]}": grown[part][name] for name in self.names for part in parts}

    def mean(self, values: np.ndarray) -> dict[str, float]:
        """Over everything that is known of a reading."""
        return {name: float(np.mean(values[i])) for i, name in enumerate(self.names)}

    def judged(
        self, statement: str, rule: Rule, measured: Any, expected: Any, why: str, where: str = "App. D.5"
    ) -> Claim:
        """One claim, for each reading."""
        told_why = {"no": why, "partly": f"Not wholly, or not for all readings of what x is. {why}"}
        where = f"{where}, Fig. 27"
        return claim(
            statement, paper=PAPER, where=where, rule=each(rule), measured=measured, expected=expected, why=told_why
        )


def claims(record: Record) -> list[Claim]:
    """App. D.5: how many draws reach the edge, and what the median of those that do shows, for each reading."""
    of = _Medians(record)
    return [*_at_the_edge(of), *_along_the_way(of), *_in_the_loss(of)]


def _at_the_edge(of: _Medians) -> list[Claim]:
    """Whether the edge is reached, and what happens there."""
    return [
        of.judged(
            "The sharpness reaches 2/η (fraction of draws).", at_least(0.5, partly=0.05),
            of.mean(of.arrays["reached"][:, of.at]), 1.0,
            "Elsewhere the largest curvature of what can be learnt is below 2/η, or the run diverges.",
        ),
        of.judged(
            "The sharpness consistently increases during the initial stages (fraction of steps before 2/η).",
            at_least(0.95, partly=0.8), of.median("rising"), 1.0,
            "It falls at first, while the weights leave the saddle at zero, or it never reaches 2/η.",
        ),
        of.judged(
            "Having reached 2/η, the sharpness stays around it (median of η λ_max/2).",
            within(0.95, 1.05, partly=(0.8, 1.2)), of.median("level"), 1.0, "It leaves the edge, or never reaches it.",
        ),
        of.judged(
            "The sharpness oscillates around 2/η (crossings).", at_least(4, partly=2), of.median("crossings"), "many",
            "It crosses the threshold and does not come back, or never reaches it.",
        ),
        of.judged(
            "At the edge of stability sharpness and trace oscillate in completely opposite phases (correlation).",
            at_most(-0.9, partly=-0.5), of.median("phase"), -1.0,
            "They are in step, or have no fixed phase, or the edge is never reached.",
        ),
    ]  # fmt: skip


def _along_the_way(of: _Medians) -> list[Claim]:
    """What grows with the sharpness before the edge."""
    return [
        of.judged(
            "Progressive sharpening coincides with a growing trace of the Hessian (rank correlation).",
            at_least(0.9, partly=0.7), of.median("trace_follows"), 1.0,
            "Trace and sharpness do not rise together, or the edge is never reached.",
        ),
        of.judged(
            "So do the norms of the parameters grow (rank correlation with the step).",
            at_least(0.9, partly=0.7), of.growths("value", "query", "key"), 1.0,
            "Not all of them grow on the way to the edge.",
        ),
        of.judged(
            "So do the norms of the moments of the attention grow (rank correlation with the step).",
            at_least(0.9, partly=0.7), of.growths("m1", "m2", "m3"), 1.0,
            "As the attention concentrates, its central moments fall, which the paper itself says of sinks.",
        ),
    ]  # fmt: skip


def _in_the_loss(of: _Medians) -> list[Claim]:
    """What the loss does at the edge, and how widely all of it is seen."""
    return [
        of.judged(
            "At the edge of stability the loss goes on decreasing over long times (last over first ten steps there).",
            at_most(0.1, partly=0.5), of.median("loss_ratio"), "decreases",
            "The loss oscillates where it was when the edge was reached, as on a cycle of two steps.",
        ),
        of.judged(
            "It does so despite local non-monotonic behaviour (fraction of steps at which the loss rises).",
            at_least(0.1, partly=0.01), of.median("rising_losses"), "above 0",
            "The loss falls at every step, or the edge is never reached.",
        ),
        of.judged(
            "The amplitude of the oscillations decreases like the norm of the residual (rank correlation).",
            at_least(0.9, partly=0.7), of.median("damping"), 1.0,
            "The residual and the amplitude do not fall together.",
        ),
        of.judged(
            "Both phenomena can be observed for a range of learning rates around 2.3 (fraction of rates).",
            at_least(1.0, partly=0.5), of.mean(_shown(of.record)), 1.0,
            "At the other rates the sharpness does not rise to the edge, or does not stay there.", where="App. D.2",
        ),
        of.judged(
            "The largest eigenvalue is between tr/3 + ξ/2 and tr/3 + ξ (fraction of trained heads).",
            at_least(1.0, partly=0.9), of.mean(of.arrays["inside_bounds"]), 1.0,
            "Where ζ < 0 the bulk may be on top; a diverged head counts against.", where="Remark B.4",
        ),
    ]  # fmt: skip


def _median(values: np.ndarray) -> float:
    """Of the draws that reached the edge, which alone have numbers; NaN where none has."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")


def _shown(record: Record) -> np.ndarray:
    """Where most of the draws that reach the edge rise to it and stay within a fifth of it: readings × rates."""
    reached, rising, level = (record.arrays[name] for name in ("reached", "rising", "level"))
    shows = (reached == 1) & (rising >= 0.8) & (level >= 0.8) & (level <= 1.2)
    return shows.sum(-1) > reached.sum(-1) / 2


_PAPER = Config()
_PRESETS = {
    "paper": _PAPER,
    "laptop": replace(_PAPER, num_draws=20),
    "smoke": replace(_PAPER, factors=(1.0,), readings=(0, 2), num_draws=3, num_steps=40),
}
_TITLE = "Progressive sharpening and the edge of stability in self-attention"
FIGURES = {"singh2026.fig27": Figure("singh2026.fig27", _TITLE, _PRESETS, run, draw, claims)}
