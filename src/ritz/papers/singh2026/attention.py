"""Figure 2: what norms of weights and attention sinks do to the spectrum of one head of self-attention."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from ... import plot, progress
from ...lab.models import SelfAttention, self_attention
from ...operators import hessian
from ...record import Picture, Record
from ...risk import Risk
from ...risk.losses import SquaredError
from ...theory.attention import attention_bounds, attention_moments
from ...theory.attention import self_attention as closed_form
from ..frame.figure import Context, Figure
from ..frame.pictures import draw_band, legend_below, quartiles, write_title
from ..frame.statements import Statement
from .attention_statements import QUERY_AND_KEY, READINGS, SINK, VALUE

EQUAL = 1e-9  # relative to the largest |λ|: measured eigenvalues nearer than this count as one that repeats
REPEATS = 3  # copies from which an eigenvalue counts as bulk: "repeat multiple times", App. D.1.1
DECADES = tuple(round(10 ** (k / 24), 4) for k in range(-24, 25))  # a decade on either side of the norm 1
BIASES = tuple(round(k / 6, 4) for k in range(49))  # up to 8, with which a first token of ten gets 0.997 of attention
Varied = Literal["query and key", "value", "sink"]


@dataclass(frozen=True)
class Config:
    """One head on sequences of numbers, along a grid of norms of its weights or of biases of its sink."""

    varied: Varied  # what the panel varies
    grid: tuple[float, ...]  # open: a decade on either side of the norm 1, or biases up to 8
    key_size: int = 1000  # "d_K = 1000", D.1.1
    num_sequences: int = 10  # "batch size and sequence length equal to 10", D.1.1
    length: int = 10  # "batch size and sequence length equal to 10", D.1.1
    norm: float = 1.0  # "we set the parameter that is not changing to have norm 1", D.1.1
    ranges: tuple[float, ...] = (1.0, 3.0, 10.0)  # open: norms up to which the bulk is asked to stay as it is
    first_token: float = 1.0  # open: factor of the first number of each sequence; larger for a massive activation
    num_draws: int = 200  # open: of weights, inputs and targets, all Gaussian; the paper may show one
    num_measured: int = 13  # open: grid points at which the whole spectrum of the median draw is measured, too
    seed: int = 0  # open


def run(config: Config, context: Context) -> dict[str, Any]:
    """Closed forms for all draws, and beside them the measured spectrum of the median draw."""
    draws = [_draw(config, number) for number in range(config.num_draws)]
    rows = list[list[dict[str, Any]]]()
    with progress.bar("Closed forms", total=len(draws)) as bar:
        for head, x, y in draws:
            rows.append([_theory(head_at(head, config, value), x, y) for value in config.grid])
            bar.advance()
    result: dict[str, Any] = {name: np.array([[point[name] for point in row] for row in rows]) for name in rows[0][0]}
    shown = median_draw(result["bulk"])
    return {"grid": np.array(config.grid), **result, "shown": shown, **_spectra(config, draws[shown], context)}


def median_draw(bulk: np.ndarray) -> int:
    """The index of the draw whose bulk changes along the grid by the median amount."""
    return int(np.argsort(bulk.max(1) / bulk.min(1), kind="stable")[len(bulk) // 2])


def head_at(head: SelfAttention, config: Config, value: float) -> SelfAttention:
    """The head of a draw at a grid point: with its weights scaled to this norm, or its sink set to this bias."""
    changed = SelfAttention(config.key_size, sink=value if config.varied == "sink" else 0.0).to(torch.float64)
    query_key = value if config.varied == "query and key" else config.norm
    with torch.no_grad():
        changed.w_v.fill_(value if config.varied == "value" else config.norm)
        changed.w_q.copy_(query_key * head.w_q / head.w_q.norm())
        changed.w_k.copy_(query_key * head.w_k / head.w_k.norm())
    return changed


def bulk_and_rest(values: Float[Tensor, " n"]) -> tuple[Float[Tensor, " c"], list[int], Float[Tensor, " r"]]:
    """The eigenvalues that repeat, how often each one does, and all others, in ascending order. App. D.1.1."""
    values = values.sort().values
    apart = values.diff() > EQUAL * float(values.abs().max())
    ends = [0, *(int(end) + 1 for end in apart.nonzero()), len(values)]
    groups = [values[start:stop] for start, stop in pairwise(ends)]
    bulk = [group for group in groups if len(group) >= REPEATS]
    rest = [group for group in groups if len(group) < REPEATS]
    centres = [group.mean() for group in bulk]
    empty = values[:0]
    return torch.stack(centres) if bulk else empty, [len(g) for g in bulk], torch.cat(rest) if rest else empty


def _draw(config: Config, number: int) -> tuple[SelfAttention, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(config.seed + number)
    head = self_attention(config.key_size, generator=generator, dtype=torch.float64)
    x, y = torch.randn(2, config.num_sequences, config.length, generator=generator, dtype=torch.float64)
    x[:, 0] *= config.first_token
    return head, x, y


def _weights(head: SelfAttention) -> tuple[Tensor, Tensor, Tensor]:
    """w_V, w_Q, w_K in the form that `theory` takes."""
    return head.w_v.detach()[0, 0], head.w_q.detach()[0], head.w_k.detach()[0]


def _theory(head: SelfAttention, x: Tensor, y: Tensor) -> dict[str, Any]:
    """The predictions for a head: outliers, bulk, condition number with its bound, moments of its attention."""
    bias = head.scores_bias(x.shape[1])
    form = closed_form(*_weights(head), x, y, scores_bias=bias)
    bounds = attention_bounds(*_weights(head), x, y, scores_bias=bias)
    values = form.eigenvalues()
    outliers = sorted((float(group.value) for group in form.groups if group.name.startswith("outlier")), reverse=True)
    A = head.attention(x).detach()
    moments = zip(*(attention_moments(A[i], x[i]) for i in range(len(x))), strict=True)
    return {
        "outliers": outliers,
        "bulk": bounds.gamma,
        "sharpness": float(values.max()),
        "condition": float(values.abs().max() / values.abs().min()),
        "condition_bound": bounds.condition_number,
        "moments": [float(torch.cat(moment).square().mean().sqrt()) for moment in moments],
        "attention": float(A[..., 0].mean()),
    }


def _spectra(config: Config, draw: tuple[SelfAttention, Tensor, Tensor], context: Context) -> dict[str, Any]:
    """The measured spectra of one draw at some of the grid points, separated into bulk and outliers."""
    head, x, y = draw
    count = min(config.num_measured, len(config.grid))
    points = np.unique(np.linspace(0, len(config.grid) - 1, count).round().astype(int))
    rows = list[dict[str, Any]]()
    with progress.bar("Measured spectra", total=len(points)) as bar:
        for index in points:
            rows.append(_parts(head_at(head, config, config.grid[index]), x, y, context.device))
            bar.advance()
    result = {f"measured_{name}": np.array([row[name] for row in rows]) for name in rows[0]}
    return {"measured_at": np.array(config.grid)[points], **result}


def _parts(head: SelfAttention, x: Tensor, y: Tensor, device: torch.device) -> dict[str, Any]:
    values = full_spectrum(head, x, y[..., None], device)
    predicted = closed_form(*_weights(head), x, y, scores_bias=head.scores_bias(x.shape[1])).eigenvalues()
    bulk, copies, rest = bulk_and_rest(values)
    outliers = torch.full((3,), torch.nan, dtype=torch.float64)
    outliers[: len(rest)] = rest[rest.abs().argsort(descending=True)][:3].sort(descending=True).values
    return {
        "bulk": float(bulk.abs().max()) if len(bulk) else float("nan"),
        "copies": min(copies) if len(copies) == 2 else 0,
        "outliers": outliers.tolist(),
        "condition": float(values.abs().max() / values.abs().min()),
        "error": float((values - predicted.sort().values).abs().max() / values.abs().max()),
    }


def full_spectrum(head: SelfAttention, x: Tensor, y: Tensor, device: torch.device) -> Float[Tensor, " n"]:
    """All eigenvalues of the Hessian, ascending, in float64."""
    head = copy.deepcopy(head).to(device)
    H = hessian(Risk(head, SquaredError(), (x.to(device), y.to(device)))).dense()
    return torch.linalg.eigvalsh(H).cpu()


_AXES: dict[str, dict[str, Any]] = {
    "query and key": {"xlabel": "norm of w_Q and of w_K", "xscale": "log"},
    "value": {"xlabel": "|w_V|", "xscale": "log"},
    "sink": {"xlabel": "bias of the first token's scores"},
}


def draw(record: Record) -> Picture:
    """Eigenvalues and condition number of the median draw, predicted and measured, and the range of all draws."""
    figure, (left, right) = plot.panels(2, width=3.9, height=3.0)
    arrays, grid, shown = record.arrays, record.arrays["grid"], record.scalars["shown"]
    for rows, colour in ((arrays["outliers"][..., 0], plot.COLOURS[0]), (arrays["bulk"], plot.COLOURS[1])):
        left.fill_between(grid, rows.min(0), rows.max(0), color=colour, alpha=0.15, linewidth=0)
    for number in range(3):
        left.plot(grid, arrays["outliers"][shown, :, number], color=plot.COLOURS[0], label="outliers" * (number == 0))
    for sign in (1, -1):
        left.plot(grid, sign * arrays["bulk"][shown], color=plot.COLOURS[1], label="bulk ±γ" * (sign == 1))
    _mark(left, record)
    smallest = max(float(np.min(arrays["bulk"][shown])), 1e-12)
    left.set_yscale("symlog", linthresh=10 ** np.floor(np.log10(smallest)), linscale=0.8)
    left.axhline(0, color="0.7", linewidth=0.6, zorder=0)
    left.set(ylabel="eigenvalue", **_AXES[record.config["varied"]])
    write_title(left, f"median of {len(arrays['bulk'])} draws; bands: largest outlier\nand bulk of all")
    legend_below(left)
    _draw_condition(right, record)
    return figure


def _draw_condition(ax: Axes, record: Record) -> None:
    arrays, grid, shown = record.arrays, record.arrays["grid"], record.scalars["shown"]
    for name, colour, label in (("condition", 0, "κ"), ("condition_bound", 2, "lower bound, Remark 3.1")):
        rows = np.clip(arrays[name], None, 1e300)  # κ may be infinite
        low, _, high = quartiles(rows)
        draw_band(ax, grid, low, rows[shown], high, colour=plot.COLOURS[colour], label=label)
    look: dict[str, Any] = {"color": "0.2", "markersize": 3.5, "markerfacecolor": "none", "label": "measured κ"}
    ax.plot(arrays["measured_at"], arrays["measured_condition"], "o", **look)
    ax.set(yscale="log", ylabel="condition number", **_AXES[record.config["varied"]])
    write_title(ax, "median draw; bands: quartiles of all")
    legend_below(ax, columns=3)


def _mark(ax: Axes, record: Record) -> None:
    at = record.arrays["measured_at"]
    look: dict[str, Any] = {"markersize": 3.5, "markerfacecolor": "none", "markeredgewidth": 0.8, "linestyle": ""}
    ax.plot(at, record.arrays["measured_outliers"], "o", color="0.2", **look)
    ax.plot(at, record.arrays["measured_bulk"], "s", color="0.2", **look)
    ax.plot(at, -record.arrays["measured_bulk"], "s", color="0.2", **look)
    ax.plot([], [], "o", color="0.2", label="measured outlier", **look)
    ax.plot([], [], "s", color="0.2", label="measured bulk", **look)


def _presets(varied: Varied, grid: tuple[float, ...]) -> dict[str, Config]:
    paper = Config(varied, grid)
    return {
        "paper": paper,
        "laptop": replace(paper, num_draws=30, num_measured=3),
        "smoke": replace(paper, grid=grid[::24], key_size=8, num_draws=3, num_measured=2),
    }


def _figure(name: str, title: str, varied: Varied, grid: tuple[float, ...], statements: Sequence[Statement]) -> Figure:
    readings = READINGS if varied == "query and key" else ()
    return Figure(f"singh2026.{name}", title, _presets(varied, grid), run, draw, statements, readings=readings)


_FIGURES = [
    _figure("fig2a", "Self-attention: norm of query and key", "query and key", DECADES, QUERY_AND_KEY),
    _figure("fig2b", "Self-attention: norm of the value", "value", DECADES, VALUE),
    _figure("fig2c", "Self-attention: attention sinks", "sink", BIASES, SINK),
]
FIGURES = {figure.id: figure for figure in _FIGURES}
