"""Figures 5 and 23 to 25: the sharpness by the Gauss-Newton matrix, in GPT with and without attention.

At preset "paper" the 124M model and its twin are trained on a file of tokens:

    ritz run singh2026.fig5 --preset paper --device cuda --set tokens=train.bin

At preset "laptop" a small GPT reads tiny Shakespeare, character by character.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter
from torch import Tensor, nn

from ... import plot
from ...lab.models import GPT, parameter_count
from ...lab.training import Series
from ...operators import gauss_newton, hessian
from ...record import Picture, Record, discard
from ...risk import Risk
from ...risk.losses import CrossEntropy
from ...solvers import eigenpairs
from ..frame.accuracy import eigenvalue_statement, largest_finite
from ..frame.figure import Context, Figure
from ..frame.pictures import draw_band, write_title
from ..frame.statements import Statement, at_least, at_most, each, near
from ..frame.statistics import spearman
from .paper import BEYOND, says
from .pretraining import SMALL, TINY, Config, checkpoints, pretrain, sequences, token_stream

MODELS = ("with attention", "without attention")
AXIS = {"batch_loss": "loss", "residual": "mean norm of the residual ∂ℓ/∂z"}  # what the error is drawn against
OPERATORS = {"hessian": "H", "gauss_newton": "G"}
GRID = 100  # values of the loss or of the residual at which the two models are compared
QUANTITIES = (
    "batch_loss",
    "residual",
    "hessian",
    "gauss_newton",
    "hessian_residual",
    "gauss_newton_residual",
    "converged",
)


@dataclass(frozen=True)
class TrainingRun:
    """One training run: a task of a sweep."""

    config: Config
    attention: bool
    seed: int


def run(config: Config, context: Context) -> dict[str, Any]:
    """Train both models from each seed and measure along the way: arrays of models × seeds × checkpoints."""
    token_stream(config, context.data_dir)  # what is missing is missed now
    tasks = [TrainingRun(config, attention, seed) for attention in (True, False) for seed in config.seeds]
    task = partial(trajectory, device=context.device, data_dir=context.data_dir, folder=context.folder)
    records = context.sweep(task, tasks)
    shape = (len(MODELS), len(config.seeds), -1)
    result = {name: np.stack([record.arrays[name] for record in records]).reshape(shape) for name in QUANTITIES}
    sizes = [records[0].scalars["num_parameters"], records[-1].scalars["num_parameters"]]
    return {"steps": np.array(checkpoints(config)), **result, "num_parameters": sizes}


def trajectory(
    task: TrainingRun, *, device: torch.device, data_dir: Path | None, folder: Path | None
) -> dict[str, Any]:
    """One run: loss, residual and both sharpnesses at each checkpoint; NaN from where it diverged."""
    config, name, at = task.config, MODELS[0 if task.attention else 1], checkpoints(task.config)
    stream = token_stream(config, data_dir)
    file = None if folder is None else folder / f"{name.replace(' ', '-')}-{task.seed}.npz"
    model, pauses = pretrain(config, stream, attention=task.attention, seed=task.seed, device=device, file=file)

    def values(step: int) -> dict[str, float]:
        generator = torch.Generator().manual_seed(10**6 * (task.seed + 1) + step)
        rows = sequences(stream, config.num_sequences, config.context, generator, vocabulary=config.vocabulary)
        return measurements(model, rows.to(device), tolerance=config.tolerance, basis_size=config.basis_size)

    first = values(0)
    for pause in pauses:
        if pause.step in at:
            pause.note(**values(pause.step))
    nothing = Series(np.empty(0), np.empty(0))  # of a run that diverged before the next checkpoint
    history = pause.history
    result = {entry: np.array([first[entry], *history.get(entry, nothing).at(at[1:])]) for entry in QUANTITIES}
    if file is not None:
        discard(file)
    return {**result, "num_parameters": parameter_count(model)}


def measurements(model: GPT, rows: Int[Tensor, "b m"], *, tolerance: float, basis_size: int) -> dict[str, float]:
    """Largest eigenvalues of H and G with their residuals, the loss, and the mean norm of ∂ℓ/∂z over all tokens."""
    x, y = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
    if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
        return dict.fromkeys(QUANTITIES, float("nan"))  # diverged
    risk = Risk(model, CrossEntropy(), (x, y))
    H = eigenpairs(hessian(risk), 1, tolerance=tolerance, basis_size=basis_size)
    G = eigenpairs(gauss_newton(risk), 1, tolerance=tolerance, basis_size=basis_size)
    return {
        "batch_loss": risk.loss_value(),
        "residual": residual_norm(model, x, y),
        "hessian": float(H.values[0]),
        "gauss_newton": float(G.values[0]),
        "hessian_residual": float(H.residuals[0]),
        "gauss_newton_residual": float(G.residuals[0]),
        "converged": float(H.converged[0] and G.converged[0]),
    }


@torch.no_grad()
def residual_norm(model: nn.Module, x: Int[Tensor, "b n"], y: Int[Tensor, "b n"]) -> float:
    """The mean of ‖softmax(z) - e_y‖ over all tokens: z the logits, e_y the one-hot target. D.1.5."""
    p = torch.cat([model(row[None]).softmax(-1)[0] for row in x])
    p[torch.arange(len(p), device=p.device), y.flatten()] -= 1
    return float(p.norm(dim=-1).double().mean())


def relative_errors(record: Record) -> np.ndarray:
    """|λ_max(G) - λ_max(H)| / λ_max(H): models × seeds × checkpoints."""
    H, G = record.arrays["hessian"], record.arrays["gauss_newton"]
    return np.abs(G - H) / np.abs(H)


def common_curves(record: Record, against: str) -> tuple[np.ndarray, np.ndarray]:
    """Values of the loss or residual that all runs have passed, and the error of each run there. D.1.5.

    Each run's points are sorted and joined by straight lines. The first checkpoint is left out: the paper excepts it.
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
    """The same against the loss and against the residual, every run with its checkpoints."""
    figure, axes = plot.panels(2, width=4.2, height=3.2)
    for ax, against in zip(axes, ("batch_loss", "residual"), strict=True):
        _draw_curves(ax, record, against, every_seed=True)
    return figure


def draw_steps(record: Record) -> Picture:
    """Loss and relative error of both models along training: mean and standard error over the seeds."""
    figure, axes = plot.panels(2, width=4.2, height=3.0)
    steps = record.arrays["steps"]
    for ax, rows in zip(axes, (record.arrays["batch_loss"], relative_errors(record)), strict=True):
        for model, name in enumerate(MODELS):
            _draw_mean(ax, steps, rows[model], plot.COLOURS[model], name)
        _step_axis(ax, steps)
        ax.legend(frameon=False, fontsize=7)
    axes[0].set_ylabel("loss")
    axes[1].set(ylabel="relative error of λ_max(G)", yscale="log")
    write_title(axes[0], f"mean and standard error of {rows.shape[1]} runs")
    return figure


def _step_axis(ax: Axes, steps: np.ndarray) -> None:
    """From the first step measured on, logarithmic; powers of ten are named, and the last step."""
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
    write_title(ax, f"mean and standard error of {x.shape[1]} runs")
    ax.legend(frameon=False, fontsize=7)


def _draw_mean(ax: Axes, x: np.ndarray, rows: np.ndarray, colour: str, label: str) -> None:
    """The mean and a band of one standard error; none where it goes down to zero, for which there is no room."""
    mean = rows.mean(0)
    error = rows.std(0, ddof=1) / len(rows) ** 0.5 if len(rows) > 1 else np.zeros_like(mean)
    draw_band(ax, x, mean - error, mean, mean + error, colour=colour, where=mean > error, label=label)


_ALMOST_ALL = at_least(0.9, partly=0.6)  # "for almost all values"; partly, if for clearly more than half
_WORSE = {
    "no": "In this setting the twin without attention is no better at most values, or the two never share one.",
    "partly": "In this setting the twin without attention is better at most values, and not at almost all.",
}


def share_worse(record: Record, against: str) -> float:
    """The fraction of values at which the mean error is larger with attention; NaN where the models share none."""
    _, curves = common_curves(record, against)
    return float((curves[0].mean(0) > curves[1].mean(0)).mean()) if curves.shape[-1] else float("nan")


def error_ratio_at_start(record: Record) -> float:
    """The error with attention over that without, before training."""
    start = relative_errors(record)[..., 0].mean(1)
    return float(start[0] / start[1])


def rank_correlations(record: Record, against: str) -> dict[str, float]:
    """Of the error with the loss or the residual, over all runs and checkpoints but the first."""
    x, errors = record.arrays[against][..., 1:], relative_errors(record)[..., 1:]
    return {name: spearman(x[model].ravel(), errors[model].ravel()) for model, name in enumerate(MODELS)}


def comparison(against: str, where: str) -> tuple[Statement, ...]:
    """Figs. 5 and 23: the Gauss-Newton matrix is the worse approximation with attention, but for the start."""
    name = against.removeprefix("batch_")
    return (
        says(
            f"At almost every value of the {name}, λ_max(G) is the worse approximation with attention.",
            where=f"Sec. 4.3, {where}", measured=partial(share_worse, against=against), rule=_ALMOST_ALL,
            expected=1.0, why=_WORSE,
        ),
        says(
            "Except at the initialization (error with attention over that without).",
            where=f"Sec. 4.3, {where}", measured=error_ratio_at_start, rule=at_most(1.0, partly=1.25),
            expected="at most 1",
            why={
                "no": "Here the error is larger with attention before training, too.",
                "partly": "Here the error is larger with attention before training, too, by less than a quarter.",
            },
        ),
        says(
            f"The {name} drives the difference of H and G (rank correlation with the relative error).",
            where=f"Sec. 4.3, {where}", measured=partial(rank_correlations, against=against),
            rule=each(at_least(0.5, partly=0.2)), expected="positive",
            why={
                "no": "The relative error does not fall with it: it also depends on how curved the network is.",
                "partly": "The relative error falls with it loosely: it also depends on how curved the network is.",
            },
        ),
    )  # fmt: skip


def eigenvalue_residuals(record: Record) -> dict[str, float]:
    """The largest residual of each operator and model, relative; a model that diverged has no eigenvalue."""
    residuals = dict[str, np.ndarray]()
    for key, operator in OPERATORS.items():
        relative = record.arrays[f"{key}_residual"] / np.abs(record.arrays[key])
        residuals |= {f"{name}, {operator}": relative[model] for model, name in enumerate(MODELS)}
    return largest_finite(residuals)


def why_residuals(record: Record) -> str:
    """What leaves a residual that is too large."""
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


def shares_worse(record: Record) -> dict[str, float]:
    """The fraction of values at which the mean error is larger with attention."""
    return {"loss": share_worse(record, "batch_loss"), "residual": share_worse(record, "residual")}


def shares_worse_by_seed(record: Record) -> dict[str, float]:
    """The fraction of values of the loss at which the error of a run is larger with attention."""
    _, curves = common_curves(record, "batch_loss")
    shares = (curves[0] > curves[1]).mean(-1) if curves.shape[-1] else np.full(curves.shape[1], np.nan)
    return {f"seed {seed}": float(share) for seed, share in zip(record.config["seeds"], shares, strict=True)}


MEANS = (  # Fig. 24: so for the mean over the runs; of each by itself the paper does not speak
    says(
        "At almost every value of loss and residual, λ_max(G) is the worse approximation with attention.",
        where="Fig. 24, D.1.5", measured=shares_worse, rule=each(_ALMOST_ALL), expected=1.0, why=_WORSE,
    ),
    says(
        "So it is at almost every value of the loss in each run by itself.",
        paper=BEYOND, where="Fig. 24, which shows the mean", measured=shares_worse_by_seed, rule=each(_ALMOST_ALL),
        expected=1.0,
        why={**_WORSE, "partly": "At some values a single run is the other way round, and the mean hides it."},
    ),
)  # fmt: skip


def size_ratio(record: Record) -> float:
    """The number of parameters without attention over that with it."""
    with_attention, without = record.scalars["num_parameters"]
    return without / with_attention


def last_over_first(record: Record) -> dict[str, float]:
    """The error after training over that before, of each model."""
    errors = relative_errors(record).mean(1)
    return {name: float(errors[model, -1] / errors[model, 0]) for model, name in enumerate(MODELS)}


STEPS = (  # Fig. 25: two models of one size, whose error vanishes as they learn
    says(
        "The model without attention has a similar number of parameters (ratio).",
        where="Sec. 4.3, D.1.5", measured=size_ratio, rule=near(1.0, relative=0.05, partly=0.15), expected=1.0,
        why="The biases and norms of a small model are a larger part of it.",
    ),
    says(
        "The difference between Hessian and GGN is driven to zero during training (last error over first).",
        where="Sec. 4.3, Fig. 25", measured=last_over_first, rule=each(at_most(0.1, partly=0.5)), expected=0.0,
        why={
            "no": "The runs end long before the residuals vanish, and the relative error has not fallen.",
            "partly": "The runs end before the residuals vanish: the relative error has fallen, and not to zero.",
        },
    ),
)  # fmt: skip


_PRESETS = {"paper": Config(), "laptop": SMALL, "smoke": TINY}


_PAPER_COST = (
    "It needs a tokenised OpenWebText and, counted and not measured, about 30 hours of one H200: six runs of 10,000 "
    "steps of half a million tokens at 124M parameters (29 h in bfloat16 at 40 % of its peak), 174 measurements (2 h)."
)


def _figure(name: str, title: str, draw: Callable[[Record], Picture], statements: Sequence[Statement]) -> Figure:
    shared = "singh2026.pretraining"
    return Figure(f"singh2026.{name}", title, _PRESETS, run, draw, statements, shared, paper_cost=_PAPER_COST)


_FIGURES = [
    _figure(
        "fig5",
        "GPT: sharpness by the GGN against the residual, with and without attention",
        partial(draw_against, against="residual"),
        (*comparison("residual", "Fig. 5"), EIGENVALUES),
    ),
    _figure(
        "fig23",
        "GPT: sharpness by the GGN against the loss, with and without attention",
        partial(draw_against, against="batch_loss"),
        comparison("batch_loss", "Fig. 23"),
    ),
    _figure("fig24", "GPT: sharpness by the GGN against loss and residual, mean over runs", draw_seeds, MEANS),
    _figure("fig25", "GPT: loss and error of the GGN along training", draw_steps, STEPS),
]
FIGURES = {figure.id: figure for figure in _FIGURES}
