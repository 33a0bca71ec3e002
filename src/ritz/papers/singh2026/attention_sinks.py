"""Figure 9: attention sinks in one head of self-attention that reads vectors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from ... import plot
from ...lab.models import self_attention
from ...record import Picture, Record
from ..frame.figure import Context, Figure
from ..frame.pictures import draw_band, legend_below, write_title
from ..frame.statements import each
from ..frame.statistics import median_spearman
from .attention import bulk_and_rest, full_spectrum
from .attention_statements import FOLLOWS, GROWS
from .paper import says

BIASES = tuple(k / 2 for k in range(17))  # up to 8, with which a first token of ten gets 0.997 of the attention


@dataclass(frozen=True)
class Config:
    """One head on sequences of vectors, along a grid of biases of its sink."""

    biases: tuple[float, ...] = BIASES  # open
    embedding_size: int = 10  # d: App. D.1.1
    key_size: int = 100  # d_K: App. D.1.1
    num_sequences: int = 10  # App. D.1.1
    length: int = 10  # App. D.1.1
    outliers: float = 0.05  # of the eigenvalues are drawn as outliers, the largest: App. D.1.1
    num_draws: int = 5  # open; weights of variance 1/d_K and 1/d, inputs and targets Gaussian
    seed: int = 0  # open


@dataclass(frozen=True)
class SinkPoint:
    """One bias and one draw."""

    config: Config
    bias: float
    draw: int


def run(config: Config, context: Context) -> dict[str, Any]:
    """The whole spectrum at every bias, for every draw."""
    points = [SinkPoint(config, bias, draw) for draw in range(config.num_draws) for bias in config.biases]
    records = context.sweep(partial(spectrum_at, device=context.device), points, name="sinks")
    shape = (config.num_draws, len(config.biases))

    def stack(name: str) -> np.ndarray:
        rows = [np.atleast_1d(record.arrays[name]) for record in records]
        width = min(map(len, rows))  # in some draw two values of the bulk may coincide
        return np.array([row[:width] for row in rows]).reshape(*shape, width)

    names = ("bulk", "outliers", "attention")
    return {"biases": np.array(config.biases), **{name: stack(name) for name in names}}


def spectrum_at(point: SinkPoint, *, device: torch.device) -> dict[str, Any]:
    """Bulk |λ|, largest first, the largest eigenvalues that do not repeat, and the attention that the sink gets."""
    config = point.config
    generator = torch.Generator().manual_seed(config.seed + point.draw)
    e, d = config.embedding_size, config.key_size
    head = self_attention(d, e, generator=generator, sink=point.bias, deviation=d**-0.5, dtype=torch.float64)
    with torch.no_grad():
        head.w_v.mul_((d / e) ** 0.5)
    x, y = torch.randn(2, config.num_sequences, config.length, e, generator=generator, dtype=torch.float64)
    bulk, _, rest = bulk_and_rest(full_spectrum(head, x, y, device))
    count = max(1, round(config.outliers * (2 * e * d + e * e)))
    attention = head.attention(x).detach()[..., 0].mean()
    return {
        "bulk": bulk.abs().sort(descending=True).values if len(bulk) else torch.tensor([torch.nan]),
        "outliers": rest.sort(descending=True).values[:count],
        "attention": attention[None],
    }


def draw(record: Record) -> Picture:
    """Eigenvalues against the bias: those of the first draw on the left, the change in all draws on the right."""
    figure, (left, right) = plot.panels(2, width=3.9, height=3.0)
    biases, bulk, outliers = (record.arrays[name] for name in ("biases", "bulk", "outliers"))
    kept = round(100 * record.config["outliers"])
    left.plot(biases, outliers[0], ".", color=plot.COLOURS[0], markersize=3, alpha=0.5)
    left.plot([], [], ".", color=plot.COLOURS[0], label=f"outliers: largest {kept} %")
    left.plot(biases, bulk[0], "_", color=plot.COLOURS[1], markersize=6)
    left.plot([], [], "_", color=plot.COLOURS[1], label="bulk: |λ| that repeat")
    left.set(yscale="log", xlabel="bias of the first token's scores", ylabel="eigenvalue")
    write_title(left, "first draw")
    legend_below(left)
    shown = {"sharpness": (outliers[..., 0], 0), f"mean of the largest {kept} %": (outliers.mean(-1), 5)}
    for label, (rows, colour) in {**shown, "largest of the bulk": (bulk.max(-1), 1)}.items():
        span = (rows.min(0), np.median(rows, axis=0), rows.max(0))  # all draws, if there are few
        draw_band(right, biases, *span, colour=plot.COLOURS[colour], label=label)
    right.set(yscale="log", xlabel="bias of the first token's scores", ylabel="eigenvalue")
    write_title(right, f"{len(bulk)} draws: median and range")
    legend_below(right)
    return figure


def _sizes(record: Record) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The largest |λ| of the bulk, the sharpness and the mean outlier, each as draws × biases."""
    bulk, outliers = record.arrays["bulk"], record.arrays["outliers"]
    return bulk.max(-1), outliers[..., 0], outliers.mean(-1)


def order_along_the_sink(record: Record) -> dict[str, float]:
    """How surely the bulk falls and the outliers rise with the bias."""
    biases, (bulk, top, mean) = record.arrays["biases"], _sizes(record)
    return {
        "bulk": -median_spearman(biases, bulk),
        "sharpness": median_spearman(biases, top),
        "mean outlier": median_spearman(biases, mean),
    }


def factors(record: Record) -> dict[str, float]:
    """The factors by which the largest sink changes them in the direction the paper says, for the median draw."""
    bulk, top, mean = _sizes(record)
    return {
        "bulk shrinks": float(np.median(bulk[:, 0] / bulk[:, -1])),
        "sharpness grows": float(np.median(top[:, -1] / top[:, 0])),
        "mean outlier grows": float(np.median(mean[:, -1] / mean[:, 0])),
    }


STATEMENTS = (  # as in Fig. 2c, for vectors
    says(
        "The larger the sink, the smaller the bulk and the larger the outliers, for d > 1 (rank correlations).",
        where="Fig. 9", measured=order_along_the_sink, rule=each(FOLLOWS), expected=1.0,
        why={
            "no": "None of them follows the bias.",
            "partly": "On the way to a large sink each may go the other way for a while, as the bulk may for d = 1.",
        },
    ),
    says(
        "Sinks shrink the bulk and enlarge the outliers (factors).",
        where="Sec. 3.3, Fig. 9", measured=factors, rule=each(GROWS), expected="above 1",
        why={
            "no": "None of them changes by a tenth.",
            "partly": "They change by less than half, or not all in this direction.",
        },
    ),
)  # fmt: skip


_PAPER = Config()
_PRESETS = {
    "paper": _PAPER,
    "laptop": replace(_PAPER, biases=BIASES[::2], num_draws=2),
    "smoke": Config(biases=(0.0, 4.0), embedding_size=2, key_size=8, num_sequences=3, length=4, num_draws=2),
}
FIGURES = {
    "singh2026.fig9": Figure(
        "singh2026.fig9", "Self-attention: sinks at embedding dimension 10", _PRESETS, run, draw, STATEMENTS
    )
}
