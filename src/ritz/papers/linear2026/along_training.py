"""Curvature along training, measured and from the weights alone: Fig. 3, the trace, and Fig. 4, the top eigenvalues."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure as MatplotlibFigure
from torch import Tensor

from ... import plot
from ...errors import ArgumentError
from ...operators import gauss_newton, hessian
from ...record import Record
from ...solvers import hutchinson
from ...theory import linear_trace
from ..frame.accuracy import eigenvalue_statement
from ..frame.figure import Context, Figure
from ..frame.pictures import write_title
from ..frame.statements import OURS, at_most, each
from ..frame.statistics import spearman
from . import data, pictures
from .data import TITLES, White, Whitening
from .networks import Chain, Start, WhiteDescent, initial_weights, printed_pairs, risk_of, top_eigenpairs
from .paper import says
from .setting import TO_A_PERCENT, Setting, by_data_set, by_title, distance_to_minimum, late, titles

# Fixed before the runs at preset "paper": see docs/decisions.md.
VERY_WELL = at_most(0.05, partly=0.2)  # two curves that one cannot, or can hardly, tell apart
WITHIN_NOISE = at_most(4.0, partly=6.0)  # standard errors: four are not seen once in ten thousand measurements
FALLS = at_most(-0.9, partly=-0.5)  # a rank correlation, as for the curves that rise in Fig. 1
NO_MORE = at_most(1.0)
ANOTHER = 1_000_003  # from the seeds of one data set to those of the next, with room for its epochs

Measure = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Config(Setting):
    """The setting of Fig. 3, for which no α_max is set: what differs from Fig. 1 right, or is new."""

    width: int = 256  # "with width 256"
    learning_rate: float = 0.003  # "η_max = 0.003"
    inputs: Whitening = "qr"  # "Data Whitening"; "rank" is the rank-revealing one
    start: Start = "kaiming"  # open; PyTorch's default, for (7) and (15) need no balanced layers
    num_pauses: int = 40  # open: when it is measured, half of it in the last nine tenths of the epochs
    num_probes: int = 100  # "with 100 samples"; signs here, for which the variance is smaller than for Gaussians
    num_eigenvalues: int = 10  # Fig. 4: "Top-10 eigenvalues"
    counted: tuple[int, int, int] = (12, 5, 3)  # open: d₀, d₁, d₂ of a network small enough to count its eigenvalues


_PAIRS = replace(  # Fig. 4: "2-layer Linear-MLP with width 256", "η_max = 0.001"
    Config(), depth=2, learning_rate=0.001, num_pauses=25
)


def run_trace(config: Config, context: Context) -> dict[str, Any]:
    """tr H by Hutchinson's method and by eq. (7), at some epochs of every data set: arrays data × pause."""
    return by_data_set(partial(train, measure=traces), config, context, name="traces")


def run_pairs(config: Config, context: Context) -> dict[str, Any]:
    """The top eigenvalues of H and those of eq. (15), likewise: arrays data × pause × rank; and a count of them."""
    if config.depth != 2:
        raise ArgumentError(
            f"depth={config.depth} was given.",
            "(15) and this figure are of two layers.",
            "Leave depth at 2; linear2026.fig3 takes any depth.",
        )
    arrays = by_data_set(partial(train, measure=pairs), config, context, name="pairs")
    return arrays | {"num_nonzero": num_nonzero(config)}


def traces(descent: WhiteDescent, parameters: list[Tensor], epoch: int, config: Config) -> dict[str, Any]:
    """One measurement of Fig. 3, with probes of its own: those of two epochs or data sets have nothing in common."""
    weights, (white,), (name,) = descent.weights(parameters, 0), descent.problems, config.data
    H = hessian(risk_of(Chain(weights), white.examples()))
    generator = torch.Generator().manual_seed(config.seed + epoch + ANOTHER * list(TITLES).index(name))
    estimate = hutchinson(H, num_products=config.num_probes, generator=generator)
    printed = float(linear_trace(weights, config.sigma_x))
    return {"measured": estimate.value, "error": estimate.standard_error, "printed": printed}


def pairs(descent: WhiteDescent, parameters: list[Tensor], epoch: int, config: Config) -> dict[str, Any]:
    """One measurement of Fig. 4."""
    k = config.num_eigenvalues
    weights, white = descent.reduction(parameters, 0, k)
    top = top_eigenpairs(Chain(weights), white.examples(), k)
    nothing = torch.full((k,), torch.nan, dtype=torch.float64)
    values, residuals = (nothing, nothing) if top is None else (top.values, top.residuals)
    printed = printed_pairs(weights[0], weights[1], config.sigma_x, k)
    norms = torch.stack([torch.linalg.matrix_norm(W, 2) for W in weights])
    return {"measured": values, "error": residuals, "printed": printed, "norms": norms}


def train(
    config: Config, *, measure: Measure, device: torch.device, data_dir: Path | None = None, folder: Path | None = None
) -> dict[str, np.ndarray]:
    """Train a network on one data set and measure it on the way; the loss, too, is that after the step."""
    (name,) = config.data
    cut = data.subset(data.training_set(name, data_dir), config.num_examples, alpha_max=None, seed=config.seed)
    X, Y = data.regression(cut, device)
    white = White.of(data.white_inputs(X, config.sigma_x, config.inputs), Y, config.sigma_x)
    descent = WhiteDescent([config.weights(config.start, white.T.shape[1], white.T)], [white])
    epochs = late(config.num_epochs, config.num_pauses)
    file = None if folder is None else folder / "training" / f"{name}.npz"
    settings: dict[str, Any] = {"learning_rate": config.learning_rate, "num_epochs": config.num_epochs}
    for pause in descent.pauses(checkpoint=file, **settings):
        if pause.epoch in epochs and math.isfinite(loss := white.loss(descent.weights(pause.parameters, 0))):
            rate = pause.learning_rate[0]
            pause.note(after=loss, rate=rate, **measure(descent, pause.parameters, pause.epoch, config))
    series_of = {key: series for key, series in pause.history.items() if key not in ("loss", "learning_rate")}
    arrays = {key: series.at(epochs) for key, series in series_of.items()}
    arrays |= {"loss": arrays.pop("after"), "learning_rate": arrays.pop("rate")}
    return arrays | {"epochs": np.array(epochs), "rest": np.full(len(epochs), white.rest)}


def num_nonzero(config: Config) -> np.ndarray:
    """How many eigenvalues of G do not vanish for a small network of two layers on white inputs."""
    d0, _, d2 = config.counted
    generator = torch.Generator().manual_seed(config.seed)
    weights = initial_weights("kaiming", config.counted, singular_values=(0.0, 1.0), generator=generator)
    examples = White(torch.zeros(d2, d0, dtype=torch.float64), 0.0, config.sigma_x).examples()
    G = gauss_newton(risk_of(Chain(weights), examples)).dense()
    values = torch.linalg.eigvalsh(G)
    return np.array([int((values > 1e-10 * values.max()).sum())])


def draw_trace(record: Record) -> MatplotlibFigure:
    """A panel for each data set: the trace along training, and the loss, both after the same step."""
    arrays, names = record.arrays, record.config["data"]
    figure, axes = plot.panels(len(names), 2, width=2.9, height=2.1)
    for index, name in enumerate(names):
        upper, lower = axes[index], axes[len(names) + index]
        epochs, error = arrays["epochs"][index], 2 * arrays["error"][index]
        pictures.series(upper, epochs, arrays["printed"][index], color=plot.COLOURS[1], linewidth=1.2, label="eq. (7)")
        upper.errorbar(epochs, arrays["measured"][index], error, fmt="o", color=plot.COLOURS[0], markersize=3.5,
                       capsize=2, linewidth=0.8, label="Hutchinson, signs, ± 2 s.e.")  # fmt: skip
        write_title(upper, TITLES[name])
        upper.set_xlabel("")
        pictures.series(lower, epochs, arrays["loss"][index], color="0.3", linewidth=1.2, label="training")
        pictures.series(lower, epochs, arrays["rest"][index], color="0.3", linewidth=0.9, linestyle=":", label="least")
        lower.set_ylim(0, None)
    axes[0].set_ylabel("tr H")
    axes[0].legend(frameon=False, fontsize=7)
    axes[len(names)].set_ylabel("loss")
    axes[len(names)].legend(frameon=False, fontsize=7, loc="lower left")
    return figure


def draw_pairs(record: Record) -> MatplotlibFigure:
    """A panel for each data set: the error of (15) in per cent along training, rank by rank, and their mean."""
    arrays, names = record.arrays, record.config["data"]
    figure, axes = plot.panels(len(names), width=2.9, height=2.6)
    shades = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, arrays["measured"].shape[2]))
    for index, (name, ax) in enumerate(zip(names, axes, strict=True)):
        error = 100 * _pair_errors(arrays["measured"][index], arrays["printed"][index])
        for rank, shade in enumerate(shades):
            label = f"λ{rank + 1}" if rank in (0, len(shades) - 1) else None
            pictures.series(ax, arrays["epochs"][index], error[:, rank], color=shade, linewidth=0.9, label=label)
        pictures.series(ax, arrays["epochs"][index], error.mean(1), color="black", linewidth=1.6, label="mean")
        write_title(ax, TITLES[name])
        ax.set_yscale("log")
    axes[0].set_ylabel("error of (15), per cent")
    axes[0].legend(frameon=False, fontsize=7)
    return figure


def _pair_errors(measured: np.ndarray, printed: np.ndarray) -> np.ndarray:
    """|λ - λ'|/λ, rank by rank."""
    return np.abs(printed - measured) / np.abs(measured)


def _differences(record: Record) -> np.ndarray:
    """Of Hutchinson's estimate from (7), data × pause, relative to (7)."""
    printed = record.arrays["printed"]
    return np.asarray(np.abs(record.arrays["measured"] - printed) / np.abs(printed))


def _standard_errors(record: Record) -> np.ndarray:
    """The same differences in units of the estimate's standard error."""
    return np.asarray(np.abs(record.arrays["measured"] - record.arrays["printed"]) / record.arrays["error"])


def _largest_difference(record: Record) -> str:
    """Where (7) and the estimate differ most."""
    relative, units = _differences(record), _standard_errors(record)
    row, column = np.unravel_index(np.argmax(np.nan_to_num(relative, nan=np.inf)), relative.shape)
    return (
        f"The largest difference, {relative[row, column]:.2g} of (7), is at epoch "
        f"{record.arrays['epochs'][row, column]:g} of {titles(record)[row]}: {units[row, column]:.2g} standard errors "
        "of the estimate."
    )


TRACE = (  # Fig. 3
    says(
        "Eq. (7) holds very well for the sum of the eigenvalues of the Hessian (largest difference along training from "
        "Hutchinson's estimate with random signs, relative to (7)).",
        where="Fig. 3; Sec. 2.2",
        measured=lambda record: by_title(record, _differences(record).max(1)),
        rule=each(VERY_WELL),
        expected=0.0,
        why=_largest_difference,
    ),
    says(
        "It does so even early in training, when the loss is high (difference after the first epoch, relative to (7)).",
        where="Fig. 3; Sec. 2.2",
        measured=lambda record: by_title(record, _differences(record)[:, 0]),
        rule=each(VERY_WELL),
        expected=0.0,
        why=_largest_difference,
    ),
    says(
        "Eq. (7) is no approximation but the trace of the full Hessian at any loss (largest difference from "
        "Hutchinson's estimate, in standard errors; random signs where App. C has Gaussian vectors).",
        paper=OURS,
        where="Fig. 3",
        measured=lambda record: by_title(record, _standard_errors(record).max(1)),
        rule=each(WITHIN_NOISE),
        expected="noise",
        why=_largest_difference,
    ),
)


def _mean_errors(record: Record) -> np.ndarray:
    """Of (15) over the ranks, data × pause."""
    return _pair_errors(record.arrays["measured"], record.arrays["printed"]).mean(2)


def _correlations_with_epochs(record: Record) -> dict[str, float]:
    rows = zip(titles(record), record.arrays["epochs"], _mean_errors(record), strict=True)
    return {name: spearman(epochs, errors) for name, epochs, errors in rows}


def _steps_down(record: Record) -> str:
    errors = _mean_errors(record)
    counts = zip(titles(record), np.sum(np.diff(errors) < 0, 1), strict=True)
    steps = ", ".join(f"{name} {count} of {errors.shape[1] - 1}" for name, count in counts)
    return f"Steps from one pause to the next in which the error falls: {steps}."


def _errors_of_10(record: Record) -> np.ndarray:
    """Of σₓ²(‖W₁‖₂² + ‖W₂‖₂²) at the end of training, relative to the measured sharpness."""
    squares = (record.arrays["norms"][:, -1] ** 2).sum(1)
    return np.asarray(np.abs(record.config["sigma_x"] ** 2 * squares / record.arrays["measured"][:, -1, 0] - 1))


def _of_the_minimum(record: Record) -> str:
    ends = (record.arrays[key][:, -1] for key in ("loss", "rest", "learning_rate"))
    return f"is of the Gauss-Newton matrix, H at a minimum. {distance_to_minimum(*ends)}"


def _share_of_nonzero(record: Record) -> float:
    d0, d1, d2 = record.config["counted"]
    return float(record.arrays["num_nonzero"][0]) / (min(d0, d1) * min(d1, d2))


def _residuals(record: Record) -> dict[str, float]:
    relative = record.arrays["error"] / record.arrays["measured"][..., :1]
    return by_title(record, relative.max((1, 2)))


PAIRS = (  # Fig. 4
    says(
        "Eq. (15) becomes increasingly precise as training progresses (rank correlation of its mean error with the "
        "epoch).",
        where="Fig. 4; App. B",
        measured=_correlations_with_epochs,
        rule=each(FALLS),
        expected=-1.0,
        why=_steps_down,
    ),
    says(
        "At the end of training eq. (15) gives the top eigenvalues of the Hessian (mean error, relative to the "
        "measured ones).",
        where="Fig. 4; App. B",
        measured=lambda record: by_title(record, _mean_errors(record)[:, -1]),
        rule=each(TO_A_PERCENT),
        expected=0.0,
        why=lambda record: f"(15) {_of_the_minimum(record)}",
    ),
    says(
        "The sharpness of two layers is σₓ²(‖W₁‖₂² + ‖W₂‖₂²), not the larger of the two (error at the end, relative "
        "to the measured one).",
        where="eq. (10)",
        measured=lambda record: by_title(record, _errors_of_10(record)),
        rule=each(TO_A_PERCENT),
        expected=0.0,
        why=lambda record: f"(10) {_of_the_minimum(record)}",
    ),
    says(
        "At most min(d₀, d₁) · min(d₁, d₂) eigenvalues are non-zero (their number for a small network, in units of "
        "that).",
        where="App. B, last paragraph",
        measured=_share_of_nonzero,
        rule=NO_MORE,
        expected=1.0,
        why=lambda record: (
            "(15) runs over i ≤ d₀ and j ≤ d₂ with singular values continued by zeros, so that a hidden layer narrower "
            f"than one of them leaves more eigenvalues: here d = {', '.join(map(str, record.config['counted']))}."
        ),
    ),
    eigenvalue_statement(
        _residuals,
        paper=OURS,
        where="Fig. 4",
        why="The search ended before all pairs had converged.",
        what="are eigenvalues of the Hessian",
        scale="λ₁",
    ),
)


def _presets(paper: Config, pauses: int, *, learning_rate: float) -> dict[str, Config]:
    tiny = {"data": ("digits",), "num_examples": 150, "width": 16, "num_epochs": 300, "num_pauses": 5, "num_probes": 20}
    smoke = replace(paper, **tiny, learning_rate=learning_rate, num_eigenvalues=4)  # type: ignore[arg-type]
    return {"paper": paper, "laptop": replace(paper, num_pauses=pauses), "smoke": smoke}


FIGURES = {
    figure.id: figure
    for figure in (
        Figure(
            "linear2026.fig3",
            "The trace of the Hessian along training: Hutchinson's method and (7)",
            presets=_presets(Config(), 10, learning_rate=0.1),
            run=run_trace,
            draw=draw_trace,
            statements=TRACE,
        ),
        Figure(
            "linear2026.fig4",
            "The ten largest eigenvalues of two layers along training: the error of (15)",
            presets=_presets(_PAIRS, 20, learning_rate=0.1),
            run=run_pairs,
            draw=draw_pairs,
            statements=PAIRS,
        ),
    )
}
