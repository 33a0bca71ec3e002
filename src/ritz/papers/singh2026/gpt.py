"""Figures 5 and 23 to 25: the sharpness by the Gauss-Newton matrix, in GPT with and without attention.

OpenWebText does not come with ritz, so that preset "paper" is what tiny Shakespeare allows: nanoGPT's character model
with 10M parameters, and its twin, three seeds each. "large" has the 12 × 768 blocks of GPT-2 on the same text, one
seed. The setting as printed needs a file of tokens:

    ritz run singh2026.fig5 --preset printed --device cuda --set tokens=train.bin

At preset "laptop" a small GPT reads tiny Shakespeare.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from ... import plot
from ...record import Picture, Record
from ..frame.accuracy import eigenvalue_statement, largest_finite
from ..frame.figure import Figure
from ..frame.pictures import draw_band, write_title
from ..frame.statements import Statement, at_least, at_most, each
from ..frame.statistics import spearman
from .gpt_sharpness import MODELS, run
from .paper import BEYOND, says
from .pretraining import CHARACTERS, GPT2_SIZE, PAPER_COST, SMALL, TINY, Config

AXIS = {"batch_loss": "loss", "residual": "mean norm of the residual ∂ℓ/∂z"}  # what the error is drawn against
OPERATORS = {"hessian": "H", "gauss_newton": "G"}
GRID = 100  # values of the loss or of the residual at which the two models are compared


def relative_errors(record: Record) -> np.ndarray:
    """|λ_max(G) - λ_max(H)| / λ_max(H): models × seeds × checkpoints."""
    H, G = record.arrays["hessian"], record.arrays["gauss_newton"]
    return np.abs(G - H) / np.abs(H)


def common_curves(record: Record, against: str) -> tuple[np.ndarray, np.ndarray]:
    """Values of the loss or residual that all runs have passed, and each run's error at these values. D.1.5.

    Each run's points are sorted and joined by straight lines. The first checkpoint is left out, as in the paper.
    """
    x, error = record.arrays[against][..., 1:], relative_errors(record)[..., 1:]
    low, high = np.nanmin(x, axis=-1).max(), np.nanmax(x, axis=-1).min()
    grid = np.linspace(low, high, GRID) if high > low else np.empty(0)
    curves = np.empty((*x.shape[:2], len(grid)))
    for index in np.ndindex(*x.shape[:2]):
        sound = np.isfinite(x[index]) & np.isfinite(error[index])
        order = x[index][sound].argsort()
        points = x[index][sound][order], error[index][sound][order]
        curves[index] = np.interp(grid, *points) if sound.any() else np.nan
    return grid, curves


def draw_against(record: Record, *, against: str) -> Picture:
    """The relative error of both models against the loss or the residual: mean and standard error over the seeds."""
    figure, (ax,) = plot.panels(width=4.4, height=3.2)
    _draw_curves(ax, record, against, every_seed=False)
    return figure


def draw_seeds(record: Record) -> Picture:
    """The relative error against the loss, for every run, with its checkpoints."""
    figure, (ax,) = plot.panels(width=4.4, height=3.2)
    _draw_curves(ax, record, "batch_loss", every_seed=True)
    return figure


def draw_steps(record: Record) -> Picture:
    """Loss, relative error and ‖H - G‖ of both models along training: mean and standard error over the seeds."""
    rows_of = {"loss": record.arrays["batch_loss"], "relative error of λ_max(G)": relative_errors(record)}
    if "difference" in record.arrays:
        rows_of["‖H - G‖"] = record.arrays["difference"]
    figure, axes = plot.panels(len(rows_of), width=3.6, height=3.0)
    steps = record.arrays["steps"]
    for ax, (label, rows) in zip(axes, rows_of.items(), strict=True):
        for model, name in enumerate(MODELS):
            _draw_mean(ax, steps, rows[model], plot.COLOURS[model], name)
        _step_axis(ax, steps)
        ax.set(ylabel=label, yscale="linear" if label == "loss" else "log")
        ax.legend(frameon=False, fontsize=7)
    write_title(axes[0], f"mean and standard error of {rows.shape[1]} runs")
    write_title(axes[1], in_words(record).replace(", ", "\n"))
    return figure


def _step_axis(ax: Axes, steps: np.ndarray) -> None:
    """Make the axis logarithmic from the first measured step, labelled at powers of ten and at the last step."""
    last = int(steps[-1])
    named = [0, *(10**k for k in range(12) if steps[1] <= 10**k < last / 2), last]
    ax.set_xscale("symlog", linthresh=max(steps[1], 1))
    ax.set_xticks(named, [f"{step:,}" for step in named])
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set(xlabel="training step", xlim=(0, last))


def _draw_curves(ax: Axes, record: Record, against: str, *, every_seed: bool) -> None:
    grid, curves = common_curves(record, against)
    errors, x = relative_errors(record), record.arrays[against]
    for model, name in enumerate(MODELS):
        colour = plot.COLOURS[model]
        _draw_mean(ax, grid, curves[model], colour, name)
        if every_seed:
            ax.plot(x[model].T, errors[model].T, ".", color=colour, markersize=3, alpha=0.5)
        ax.plot(x[model][:, 0].mean(), errors[model][:, 0].mean(), "*", color=colour, markersize=7)
    ax.plot([], [], "*", color="0.4", linestyle="", label="before training")
    if every_seed:
        ax.plot([], [], ".", color="0.4", linestyle="", label="each run's measurements")
    ax.set(yscale="log", xlabel=AXIS[against], ylabel="|λ_max(G) - λ_max(H)| / λ_max(H)")
    ax.invert_xaxis()  # training goes from left to right
    write_title(ax, f"{in_words(record)}\nmean and standard error of {x.shape[1]} runs")
    ax.legend(frameon=False, fontsize=7)


def in_words(record: Record) -> str:
    """The sizes of the models and the text they read, in words."""
    sizes = " and ".join(f"{size / 1e6:.3g}M" for size in record.scalars["num_parameters"])
    texts = {"shakespeare": "tiny Shakespeare", "walk": "a random walk", "tokens": "a file of tokens"}
    return f"{sizes} parameters, {texts[record.config['corpus']]}"


def _draw_mean(ax: Axes, x: np.ndarray, rows: np.ndarray, colour: str, label: str) -> None:
    """Draw the mean with a band of one standard error, without the band where it reaches zero on the log axis."""
    mean = rows.mean(0)
    error = rows.std(0, ddof=1) / len(rows) ** 0.5 if len(rows) > 1 else np.zeros_like(mean)
    draw_band(ax, x, mean - error, mean, mean + error, colour=colour, where=mean > error, label=label)


_ALMOST_ALL = at_least(0.9, partly=0.6)  # "for almost every": nine in ten; partly, if for clearly more than half
_FOLLOWS = at_least(0.7, partly=0.4)  # a rank correlation
_WORSE = {
    "no": "In this setting the twin without attention is no better at most values, or the two never share one.",
    "partly": "In this setting the twin without attention is better at most values, and not at almost all.",
}


def share_worse(record: Record, against: str) -> float:
    """The fraction of common values at which the mean error is larger with attention; NaN if there are none."""
    _, curves = common_curves(record, against)
    return float((curves[0].mean(0) > curves[1].mean(0)).mean()) if curves.shape[-1] else float("nan")


def error_ratio_at_start(record: Record) -> float:
    """The error with attention relative to that without, before training."""
    start = relative_errors(record)[..., 0].mean(1)
    return float(start[0] / start[1])


def difference_follows(record: Record) -> dict[str, float] | None:
    """Rank correlation of ‖H - G‖ and the residual, over all runs and checkpoints but the first."""
    if "difference" not in record.arrays:
        return None
    x, E = record.arrays["residual"][..., 1:], record.arrays["difference"][..., 1:]
    return {name: spearman(x[model].ravel(), E[model].ravel()) for model, name in enumerate(MODELS)}


def worse(against: str, where: str) -> Statement:
    """The statement that the Gauss-Newton matrix is the worse approximation with attention, value by value."""
    name = against.removeprefix("batch_")
    return says(
        f"For almost every fixed value of the {name} (except at the initialization) the relative approximation error "
        "for the model without attention is smaller than for a model with attention (fraction of values).",
        where=f"Sec. 4.3, {where}", measured=partial(share_worse, against=against), rule=_ALMOST_ALL, expected=1.0,
        why=_WORSE,
    )  # fmt: skip


AT_THE_START = says(  # the paper leaves out the start, and does not say that it is the other way round there
    "Before training the error with attention is the smaller one (over that without).",
    paper=BEYOND, where="Fig. 5", measured=error_ratio_at_start, rule=at_most(1.0, partly=1.25), expected="at most 1",
    why={
        "no": "Here the error is larger with attention before training, too.",
        "partly": "Here the error is larger with attention before training, too, by less than a quarter.",
    },
)  # fmt: skip
DRIVES = says(
    "The loss residual … technically drives the difference between Hessian and GGN to zero during training (rank "
    "correlation of ‖H - G‖ with the mean residual).",
    where="Sec. 4.3, Fig. 5", measured=difference_follows, rule=each(_FOLLOWS), expected=1.0,
    why="‖H - G‖ also depends on how curved the network is, which grows while it learns.",
)  # fmt: skip


def eigenvalue_residuals(record: Record) -> dict[str, float]:
    """The largest relative residual for each operator and model; a model that diverged has no eigenvalue."""
    residuals = dict[str, np.ndarray]()
    for key, operator in OPERATORS.items():
        relative = record.arrays[f"{key}_residual"] / np.abs(record.arrays[key])
        residuals |= {f"{name}, {operator}": relative[model] for model, name in enumerate(MODELS)}
    return largest_finite(residuals)


def why_residuals(record: Record) -> str:
    """Why a residual is too large, in words."""
    count = int(np.sum(record.arrays["converged"] == 0))
    looser = f"A search stops at {record.config['tolerance']:g} of the largest |λ|, that of a negative one here."
    return f"{count} searches ended before they had converged." if count else looser


EIGENVALUES = eigenvalue_statement(  # which Figs. 23 to 25 have from the same runs
    eigenvalue_residuals,
    paper=BEYOND,
    where="Fig. 5",
    why=why_residuals,
    what="is an eigenvalue of the Hessian H, or of G",
)


def shares_worse_by_seed(record: Record) -> dict[str, float]:
    """The fraction of values of the loss at which the error of a run is larger with attention."""
    _, curves = common_curves(record, "batch_loss")
    shares = (curves[0] > curves[1]).mean(-1) if curves.shape[-1] else np.full(curves.shape[1], np.nan)
    return {f"seed {seed}": float(share) for seed, share in zip(record.config["seeds"], shares, strict=True)}


EACH_RUN = says(  # the paper speaks of the mean
    "At almost every value of the loss the error is larger with attention in each run by itself.",
    paper=BEYOND, where="Fig. 23 and 24, which show the mean", measured=shares_worse_by_seed, rule=each(_ALMOST_ALL),
    expected=1.0,
    why={**_WORSE, "partly": "At some values a single run is the other way round, and the mean hides it."},
)  # fmt: skip


def share_of_steps(record: Record) -> float:
    """The fraction of steps after the first at which the mean error is larger with attention."""
    errors = relative_errors(record)[..., 1:].mean(1)
    return float((errors[0] > errors[1]).mean())


def steps_by_seed(record: Record) -> dict[str, float]:
    """The fraction of steps at which the error is larger with attention, for each run."""
    errors = relative_errors(record)[..., 1:]
    shares = (errors[0] > errors[1]).mean(-1)
    return {f"seed {seed}": float(share) for seed, share in zip(record.config["seeds"], shares, strict=True)}


def last_over_first(record: Record) -> dict[str, float] | None:
    """‖H - G‖ after training relative to before, for each model: the mean over the runs."""
    if "difference" not in record.arrays:
        return None
    E = record.arrays["difference"].mean(1)
    return {name: float(E[model, -1] / E[model, 0]) for model, name in enumerate(MODELS)}


STEPS = (  # Fig. 25
    says(
        "GGN top eigenvalue approximates sharpness worse in transformers than in MLPs, while pretraining (fraction of "
        "the steps at which is measured, but the first).",
        where="Sec. 4.3, Fig. 25", measured=share_of_steps, rule=_ALMOST_ALL, expected=1.0,
        why={
            "no": "At most steps the twin without attention is approximated no better.",
            "partly": "At most steps the twin without attention is approximated better, and not at almost all.",
        },
    ),
    says(
        "It is so in each run by itself.",
        paper=BEYOND, where="Fig. 25, which shows the mean", measured=steps_by_seed, rule=each(_ALMOST_ALL),
        expected=1.0, why="At some steps a single run is the other way round.",
    ),
    says(
        "The difference between Hessian and GGN is driven to zero during training (last ‖H - G‖ over first).",
        where="Sec. 4.3, Fig. 25", measured=last_over_first, rule=each(at_most(0.1, partly=0.5)), expected=0.0,
        why="The runs end before the residuals vanish, and the network is more curved at their end.",
    ),
)  # fmt: skip


_PRESETS = {"printed": Config(), "large": GPT2_SIZE, "paper": CHARACTERS, "laptop": SMALL, "smoke": TINY}


def _figure(name: str, title: str, draw: Callable[[Record], Picture], statements: Sequence[Statement]) -> Figure:
    shared = "singh2026.pretraining"
    return Figure(f"singh2026.{name}", title, _PRESETS, run, draw, statements, shared, paper_cost=PAPER_COST)


_FIGURES = [
    _figure(
        "fig5",
        "GPT: sharpness by the GGN against the residual, with and without attention",
        partial(draw_against, against="residual"),
        (worse("residual", "Fig. 5"), DRIVES, AT_THE_START, EIGENVALUES),
    ),
    _figure(
        "fig23",
        "GPT: sharpness by the GGN against the loss, every run",
        draw_seeds,
        (worse("batch_loss", "Fig. 23"), EACH_RUN),
    ),
    _figure(  # by footnote 4 and D.1.5
        "fig24",
        "GPT: sharpness by the GGN against the loss, mean over runs",
        partial(draw_against, against="batch_loss"),
        (worse("batch_loss", "footnote 4, Fig. 24"),),
    ),
    _figure("fig25", "GPT: loss and error of the GGN along training", draw_steps, STEPS),
]
FIGURES = {figure.id: figure for figure in _FIGURES}
