"""Figure 2: what norms of weights and attention sinks do to the spectrum of one head of self-attention."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
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
from ..frame.accuracy import LARGE_CLOSED_FORM
from ..frame.figure import Context, Figure
from ..frame.pictures import draw_band, legend_below, quartiles, write_title
from ..frame.statements import Statement, at_least, at_most, each
from ..frame.statistics import median_spearman, spearman
from .paper import says

EQUAL = 1e-9  # relative to the largest |λ|: measured eigenvalues nearer to each other are one that repeats
ROUNDING = 1e-9  # relative: by so much a bound may be missed
REPEATS = 3  # copies from which an eigenvalue counts as bulk: "repeat multiple times", App. D.1.1
DECADES = tuple(round(10 ** (k / 24), 4) for k in range(-24, 25))  # a decade on either side of the norm 1
BIASES = tuple(round(k / 6, 4) for k in range(49))  # up to 8, with which a first token of ten gets 0.997 of attention
RANGES = (1.0, 3.0, 10.0)  # norms up to which the bulk is asked to stay as it is: the paper gives no range
Varied = Literal["query and key", "value", "sink"]


@dataclass(frozen=True)
class Config:
    """One head on sequences of numbers, along a grid of norms of its weights or of biases of its sink."""

    varied: Varied
    grid: tuple[float, ...]  # not given in the paper: see DECADES and BIASES
    key_size: int = 1000  # d_K: App. D.1.1
    num_sequences: int = 10  # App. D.1.1
    length: int = 10  # App. D.1.1
    norm: float = 1.0  # of the weights that are not varied: App. D.1.1
    first_token: float = 1.0  # not given: factor of the first number of each sequence; larger for a massive activation
    num_draws: int = 200  # of weights, inputs and targets, all Gaussian; not given, the paper may show one
    num_measured: int = 13  # grid points at which the whole spectrum of the first draw is measured, too
    seed: int = 0


def run(config: Config, context: Context) -> dict[str, Any]:
    """Closed forms for all draws, and the measured spectrum of the first beside them."""
    draws = [_draw(config, number) for number in range(config.num_draws)]
    rows = list[list[dict[str, Any]]]()
    with progress.bar("Closed forms", total=len(draws)) as bar:
        for head, x, y in draws:
            rows.append([_theory(head_at(head, config, value), x, y) for value in config.grid])
            bar.advance()
    result: dict[str, Any] = {name: np.array([[point[name] for point in row] for row in rows]) for name in rows[0][0]}
    return {"grid": np.array(config.grid), **result, **_spectra(config, draws[0], context)}


def head_at(head: SelfAttention, config: Config, value: float) -> SelfAttention:
    """The head with its weights at the norm, or its sink at the bias, that this grid point has."""
    changed = SelfAttention(config.key_size, sink=value if config.varied == "sink" else 0.0).to(torch.float64)
    query_key = value if config.varied == "query and key" else config.norm
    with torch.no_grad():
        changed.w_v.fill_(value if config.varied == "value" else config.norm)
        changed.w_q.copy_(query_key * head.w_q / head.w_q.norm())
        changed.w_k.copy_(query_key * head.w_k / head.w_k.norm())
    return changed


def bulk_and_rest(values: Float[Tensor, " n"]) -> tuple[Float[Tensor, " c"], list[int], Float[Tensor, " r"]]:
    """The eigenvalues that repeat, how often each does, and the rest, all ascending. App. D.1.1."""
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
    """w_Q, w_K, w_V, as theory takes them."""
    return head.w_q.detach()[0], head.w_k.detach()[0], head.w_v.detach()[0, 0]


def _theory(head: SelfAttention, x: Tensor, y: Tensor) -> dict[str, Any]:
    """What theory says of a head: outliers, bulk, condition number and its bound, moments of its attention."""
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
    """The spectra of one draw at some of the grid points, taken apart into bulk and outliers."""
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
    """Left, the eigenvalues of the first draw, predicted and measured; right, the condition number of all draws."""
    figure, (left, right) = plot.panels(2, width=3.9, height=3.0)
    arrays, grid = record.arrays, record.arrays["grid"]
    for number in range(3):
        left.plot(grid, arrays["outliers"][0, :, number], color=plot.COLOURS[0], label="outliers" * (number == 0))
    for sign in (1, -1):
        left.plot(grid, sign * arrays["bulk"][0], color=plot.COLOURS[1], label="bulk ±γ" * (sign == 1))
    _mark(left, record)
    smallest = max(float(np.min(arrays["bulk"][0])), 1e-12)
    left.set_yscale("symlog", linthresh=10 ** np.floor(np.log10(smallest)), linscale=0.8)
    left.axhline(0, color="0.7", linewidth=0.6, zorder=0)
    left.set(ylabel="eigenvalue", **_AXES[record.config["varied"]])
    write_title(left, "first draw")
    legend_below(left)
    for name, colour, label in (("condition", 0, "κ"), ("condition_bound", 2, "lower bound, Remark 3.1")):
        half = quartiles(np.clip(arrays[name], None, 1e300))  # κ may be infinite
        draw_band(right, grid, *half, colour=plot.COLOURS[colour], label=label)
    right.set(yscale="log", ylabel="condition number", **_AXES[record.config["varied"]])
    write_title(right, f"{len(arrays['condition'])} draws: median and quartiles")
    legend_below(right)
    return figure


def _mark(ax: Axes, record: Record) -> None:
    at = record.arrays["measured_at"]
    look: dict[str, Any] = {"markersize": 3.5, "markerfacecolor": "none", "markeredgewidth": 0.8, "linestyle": ""}
    ax.plot(at, record.arrays["measured_outliers"], "o", color="0.2", **look)
    ax.plot(at, record.arrays["measured_bulk"], "s", color="0.2", **look)
    ax.plot(at, -record.arrays["measured_bulk"], "s", color="0.2", **look)
    ax.plot([], [], "o", color="0.2", label="measured outlier", **look)
    ax.plot([], [], "s", color="0.2", label="measured bulk", **look)


_SAME = at_most(0.1, partly=0.5)  # a tenth is not to be seen in the figure, a half is
GROWS = at_least(1.5, partly=1.1)  # a factor
FOLLOWS = at_least(0.9, partly=0.7)  # a rank correlation


def theorem_error(record: Record) -> float:
    """The largest relative error of an eigenvalue; infinite where the bulk is not d_K - 1 pairs."""
    wrong = record.arrays["measured_copies"] != record.config["key_size"] - 1
    return float("inf") if wrong.any() else float(record.arrays["measured_error"].max())


def bulk_changes(record: Record) -> dict[str, float]:
    """The largest relative change of the bulk up to each end of RANGES, the median draw."""
    grid, bulk = record.arrays["grid"], record.arrays["bulk"]
    changes = np.abs(bulk / bulk[:, :1] - 1)
    medians = [float(np.median(changes[:, grid <= end * (1 + 1e-9)].max(1))) for end in RANGES]
    return {f"norms up to {end:g}": median for end, median in zip(RANGES, medians, strict=True)}


def spread(record: Record, name: str) -> float:
    """Largest over smallest along the grid, the median draw."""
    rows = record.arrays[name]
    return float(np.median(rows.max(1) / rows.min(1)))


def share_bounded(record: Record) -> float:
    """The fraction of heads whose condition number is at least its lower bound."""
    kappa, bound = (record.arrays[name] for name in ("condition", "condition_bound"))
    return float(np.mean(kappa >= (1 - ROUNDING) * bound))


def rising_condition(record: Record) -> dict[str, float]:
    """How surely the condition number rises along the grid."""
    kappa = record.arrays["condition"]
    return {
        "draws in which it rises throughout": float(np.mean((np.diff(kappa) >= 0).all(1))),
        "rank correlation": median_spearman(record.arrays["grid"], kappa),
    }


QUERY_AND_KEY = (  # Fig. 2a: the bulk stays, the outliers and the condition number grow
    says(
        "The Hessian has d_K - 1 pairs of bulk eigenvalues ±γ, and three outliers.",
        where="Thm 3.5, Fig. 2a", measured=theorem_error, rule=LARGE_CLOSED_FORM, expected=0.0,
        why={
            "no": "The measured spectrum is not that of the closed form, or its bulk does not repeat so often.",
            "partly": "The measured spectrum is that of the closed form to a few digits only.",
        },
    ),
    says(
        "The norm of the query and key weights does not affect the bulk eigenvalues (largest relative change).",
        where="Sec. 3.3, Fig. 2a", measured=bulk_changes, rule=each(_SAME), expected=0.0,
        why={
            "no": "γ depends on these norms through the attention, which is not uniform even up to the norm 1.",
            "partly": "γ depends on these norms through the attention, which is nearly uniform for small ones alone; "
            "the paper does not say over which range it looked.",
        },
    ),
    says(
        "The largest eigenvalue depends on the magnitude of the query and key weights.",
        where="Sec. 3.3, Fig. 2a", measured=partial(spread, name="sharpness"), rule=GROWS, expected="changes",
        why={
            "no": "α, in which these norms do not occur, is the sharpness almost alone over this range.",
            "partly": "It changes by less than half over this range: most of it is α, in which these norms do not "
            "occur.",
        },
    ),
    says(
        "The condition number is at least (2 tr + 3ξ)/(6|γ|) (fraction of heads).",
        where="Remark 3.1", measured=share_bounded, rule=at_least(1.0, partly=0.9), expected=1.0,
        why="The bound was violated.",
    ),
    says(
        "The condition number is monotonic in the magnitude of the key and query weights.",
        where="Sec. 3.3, below Remark 3.1", measured=rising_condition, rule=each(FOLLOWS), expected=1.0,
        why="The bound is monotonic only while α, β, γ, ζ stay; they move with the weights.",
    ),
)  # fmt: skip


def spreads(record: Record) -> dict[str, float]:
    """Largest over smallest along the grid, the median draw."""
    return {name: spread(record, name) for name in ("bulk", "sharpness")}


def monotonic_condition(record: Record) -> dict[str, float]:
    """How surely the condition number goes one way along the grid."""
    grid, kappa = record.arrays["grid"], record.arrays["condition"]
    steps = np.diff(kappa)
    return {
        "draws in which it only rises or only falls": float(np.mean((steps >= 0).all(1) | (steps <= 0).all(1))),
        "|rank correlation|": float(np.median([abs(spearman(grid, row)) for row in kappa])),
    }


VALUE = (  # Fig. 2b: everything moves with w_V, and the condition number has no direction
    says(
        "Both the bulk and the outlier eigenvalues depend on w_V.",
        where="Sec. 3.3, Fig. 2b", measured=spreads, rule=each(GROWS), expected="both change",
        why={
            "no": "Neither changes by a tenth over this range of w_V.",
            "partly": "They hardly change over this range of w_V, or one of them does.",
        },
    ),
    says(
        "No monotonic relation of the condition number and the magnitude of w_V.",
        where="Sec. 3.3, Fig. 2b", measured=monotonic_condition, rule=each(at_most(0.7, partly=0.9)), expected="none",
        why={
            "no": "The condition number follows |w_V| as closely as it was said to follow w_Q and w_K.",
            "partly": "It follows |w_V| over most of this range, if not over all of it.",
        },
    ),
)  # fmt: skip


def factor(record: Record, name: str) -> float:
    """The last of the grid over the first, the median draw."""
    rows = record.arrays[name]
    return float(np.median(rows[:, -1] / rows[:, 0]))


def moment_factors(record: Record) -> dict[str, float]:
    """By how much the moments of the attention change as the paper says, the median draw."""
    m1, m2, m3 = np.median(record.arrays["moments"][:, -1] / record.arrays["moments"][:, 0], axis=0).tolist()
    return {"m₁ rises": m1, "m₂ falls": 1 / m2, "m₃ falls": 1 / m3}


def order_along_the_sink(record: Record) -> dict[str, float]:
    """How surely the bulk falls and the sharpness rises with the bias."""
    grid, bulk, top = (record.arrays[name] for name in ("grid", "bulk", "sharpness"))
    return {"bulk": -median_spearman(grid, bulk), "sharpness": median_spearman(grid, top)}


SINK = (  # Fig. 2c: the bulk shrinks, the largest eigenvalue grows
    says(
        "As the sink grows, m₁ rises, and m₂ and m₃ shrink (factors).",
        where="Sec. 3.3", measured=moment_factors, rule=each(GROWS), expected="above 1",
        why={
            "no": "The first token is no larger than what the others average to.",
            "partly": "The first token is as large as the others: it is no massive activation.",
        },
    ),
    says(
        "As the sink grows, the bulk shrinks towards zero.",
        where="Sec. 3.3, Fig. 2c", measured=partial(factor, name="bulk"), rule=at_most(0.1, partly=0.5), expected=0.0,
        why={
            "no": "The largest sink here leaves the other tokens enough attention to keep m₂.",
            "partly": "It shrinks, and the largest sink here is not large enough for zero.",
        },
    ),
    says(
        "As the sink grows, so does the largest eigenvalue (factor).",
        where="Sec. 3.3, Fig. 2c", measured=partial(factor, name="sharpness"), rule=GROWS, expected="above 1",
        why={
            "no": "It does so for a massive activation: here the first token is as large as the others.",
            "partly": "It hardly grows: here the first token is as large as the others, and no massive activation.",
        },
    ),
    says(
        "The larger the sink, the smaller the bulk and the larger the sharpness (rank correlations).",
        where="Fig. 2c, caption of Fig. 9", measured=order_along_the_sink, rule=each(FOLLOWS), expected=1.0,
        why={
            "no": "Neither follows the bias.",
            "partly": "γ may grow before it falls: this is true in the limit.",
        },
    ),
    says(
        "Sinks make the landscape badly conditioned (factor of the condition number).",
        where="Sec. 3.3", measured=partial(factor, name="condition"), rule=at_least(10, partly=1.5),
        expected="above 1",
        why={
            "no": "The smallest eigenvalue does not fall as the largest grows.",
            "partly": "The condition number grows by less than a factor of ten.",
        },
    ),
)  # fmt: skip


def _presets(varied: Varied, grid: tuple[float, ...]) -> dict[str, Config]:
    paper = Config(varied, grid)
    return {
        "paper": paper,
        "laptop": replace(paper, num_draws=30, num_measured=3),
        "smoke": replace(paper, grid=grid[::24], key_size=8, num_draws=3, num_measured=2),
    }


def _figure(name: str, title: str, varied: Varied, grid: tuple[float, ...], statements: Sequence[Statement]) -> Figure:
    return Figure(f"singh2026.{name}", title, _presets(varied, grid), run, draw, statements)


_FIGURES = [
    _figure("fig2a", "Self-attention: norm of query and key", "query and key", DECADES, QUERY_AND_KEY),
    _figure("fig2b", "Self-attention: norm of the value", "value", DECADES, VALUE),
    _figure("fig2c", "Self-attention: attention sinks", "sink", BIASES, SINK),
]
FIGURES = {figure.id: figure for figure in _FIGURES}
