"""Curvature along training, measured and predicted from the weights: the trace in Fig. 3, top eigenvalues in Fig. 4."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure as MatplotlibFigure
from torch import Tensor

from ... import plot
from ...errors import ArgumentError
from ...operators import Operator, gauss_newton, hessian
from ...record import Record
from ...solvers import hutchinson
from ...theory import linear_trace
from ..frame.figure import Context, Figure
from ..frame.pictures import write_title
from ..frame.readings import words_of
from . import data, pictures
from .along_statements import PAIRS, PROBES, TRACE, pair_errors
from .data import TITLES, White, Whitening
from .networks import Chain, Start, WhiteDescent, initial_weights, printed_pairs, risk_of, top_eigenpairs
from .setting import Setting, by_data_set, late

GAUSSIANS = 20  # probes at a time: 300 MB for the widest inputs
ANOTHER = 1_000_003  # between the seeds of one data set and those of the next, more than there are epochs

Measure = Callable[..., dict[str, Any]]
Probes = Literal["gaussian", "signs"]


@dataclass(frozen=True)
class Config(Setting):
    """The setting of Fig. 3, as far as it differs from Fig. 1 right; the data keep their own shares of classes."""

    width: int = 256  # "with width 256"
    learning_rate: float = 0.003  # "η_max = 0.003"
    inputs: Whitening = "qr"  # "QR decomposition"; rank is the rank-revealing one
    start: Start = "kaiming"  # open: PyTorch's default, for (7) and (15) need no balanced layers
    num_pauses: int = 40  # open: when it is measured, half of it in the last nine tenths of the epochs
    num_probes: int = 100  # "with 100 samples"
    probes: tuple[Probes, ...] = ("gaussian", "signs")  # "z ~ N(0, I)"; signs beside, whose variance is smaller
    num_eigenvalues: int = 10  # Fig. 4: "Top-10 eigenvalues"
    counted: tuple[int, int, int] = (12, 5, 3)  # open: d₀, d₁, d₂ of a network small enough to count its eigenvalues


_PAIRS = replace(  # Fig. 4: "2-layer Linear-MLP with width 256", "η_max = 0.001"
    Config(), depth=2, learning_rate=0.001, num_pauses=25
)


def run_trace(config: Config, context: Context) -> dict[str, Any]:
    """tr H by Hutchinson's method and by eq. (7), at some epochs of every data set: arrays data × pause."""
    return by_data_set(partial(train, measure=traces), config, context, name="traces")


def run_pairs(config: Config, context: Context) -> dict[str, Any]:
    """The top eigenvalues of H and of eq. (15), likewise, as arrays data × pause × rank; and how many are not zero."""
    if config.depth != 2:
        raise ArgumentError(
            f"depth={config.depth} was given.",
            "Equation (15) and this figure are about networks of two layers.",
            "Leave depth at 2; linear2026.fig3 takes any depth.",
        )
    arrays = by_data_set(partial(train, measure=pairs), config, context, name="pairs")
    return arrays | {"num_nonzero": num_nonzero(config)}


def traces(descent: WhiteDescent, parameters: list[Tensor], epoch: int, config: Config) -> dict[str, Any]:
    """One measurement of Fig. 3, with probes that are independent of those of other epochs and data sets."""
    weights, (white,), (name,) = descent.weights(parameters, 0), descent.problems, config.data
    H = hessian(risk_of(Chain(weights), white.examples()))
    seed = config.seed + epoch + ANOTHER * list(TITLES).index(name)
    values, errors = zip(*(_estimate(H, kind, config.num_probes, seed) for kind in config.probes), strict=True)
    printed = float(linear_trace(weights, config.sigma_x))
    return {"measured": np.array(values), "error": np.array(errors), "printed": printed}


def _estimate(H: Operator, kind: Probes, count: int, seed: int) -> tuple[float, float]:
    """The mean of zᵀHz over this many probes z, and its standard error."""
    generator = torch.Generator().manual_seed(seed)
    if kind == "signs":
        estimate = hutchinson(H, num_products=count, generator=generator)
        return estimate.value, estimate.standard_error
    forms = []
    for part in torch.full((count,), 1.0).split(GAUSSIANS):
        Z = torch.randn(H.size, len(part), generator=generator, dtype=torch.float64).to(H.device)
        forms.append(((H @ Z) * Z).sum(0).cpu())
    samples = torch.cat(forms)
    return float(samples.mean()), float(samples.std() / count**0.5)


def pairs(descent: WhiteDescent, parameters: list[Tensor], epoch: int, config: Config) -> dict[str, Any]:
    """One measurement of Fig. 4."""
    k = config.num_eigenvalues
    weights, white = descent.reduction(parameters, 0, k)
    top = top_eigenpairs(Chain(weights), white.examples(), k)
    nothing = torch.full((k,), torch.nan, dtype=torch.float64)
    values, residuals = (nothing, nothing) if top is None else (top.values, top.residuals)
    printed = printed_pairs(weights[0], weights[1], config.sigma_x, k)
    norms = torch.stack([torch.linalg.matrix_norm(W, 2) for W in weights])
    size = torch.stack([W.square().sum() for W in weights]).sum()
    result = {"measured": values, "error": residuals, "printed": printed, "norms": norms, "size": size}
    return result | _trace_at_end(descent, parameters, epoch, config)


def _trace_at_end(descent: WhiteDescent, parameters: list[Tensor], epoch: int, config: Config) -> dict[str, Any]:
    """tr H of the trained network by random signs, with its standard error, and by (11); NaN before."""
    if epoch != config.num_epochs:
        return {"trace": np.full(2, np.nan), "printed_trace": np.nan}
    (W1, W2), (white,) = descent.weights(parameters, 0), descent.problems
    H = hessian(risk_of(Chain([W1, W2]), white.examples()))
    printed = config.sigma_x**2 * (len(W2) * W1.square().sum() + W1.shape[1] * W2.square().sum())
    return {"trace": np.array(_estimate(H, "signs", config.num_probes, config.seed)), "printed_trace": float(printed)}


def train(
    config: Config, *, measure: Measure, device: torch.device, data_dir: Path | None = None, folder: Path | None = None
) -> dict[str, np.ndarray]:
    """Train a network on one data set and measure it on the way; the loss too is the one after the step."""
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
    """The number of non-zero eigenvalues of G for a small two-layer network on white inputs."""
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
        epochs, error = arrays["epochs"][index], 2 * arrays["error"][index, :, 0]
        pictures.series(upper, epochs, arrays["printed"][index], color=plot.COLOURS[1], linewidth=1.2, label="eq. (7)")
        kinds = [words_of(PROBES, "probes", kind) for kind in record.config["probes"]]
        upper.errorbar(epochs, arrays["measured"][index, :, 0], error, fmt="o", color=plot.COLOURS[0], markersize=3.5,
                       capsize=2, linewidth=0.8, label=f"{kinds[0]}, ± 2 s.e.")  # fmt: skip
        for other, kind in enumerate(kinds[1:], 1):
            upper.plot(epochs, arrays["measured"][index, :, other], "x", color="0.4", markersize=3.5, label=kind)
        write_title(upper, TITLES[name])
        upper.set_xlabel("")
        pictures.series(lower, epochs, arrays["loss"][index], color="0.3", linewidth=1.2, label="training")
        pictures.series(lower, epochs, arrays["rest"][index], color="0.3", linewidth=0.9, linestyle=":", label="least")
        lower.set_ylim(0, None)
    axes[0].set_ylabel("tr H")
    axes[0].legend(frameon=False, fontsize=7, loc="upper left")
    axes[len(names)].set_ylabel("loss")
    axes[len(names)].legend(frameon=False, fontsize=7, loc="lower left")
    return figure


def draw_pairs(record: Record) -> MatplotlibFigure:
    """A panel for each data set: the error of (15) in per cent along training, rank by rank, and their mean."""
    arrays, names = record.arrays, record.config["data"]
    figure, axes = plot.panels(len(names), width=2.9, height=2.6)
    shades = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, arrays["measured"].shape[2]))
    for index, (name, ax) in enumerate(zip(names, axes, strict=True)):
        error = 100 * pair_errors(arrays["measured"][index], arrays["printed"][index])
        for rank, shade in enumerate(shades):
            label = f"$\\lambda_{{{rank + 1}}}$" if rank in (0, len(shades) - 1) else None
            pictures.series(ax, arrays["epochs"][index], error[:, rank], color=shade, linewidth=0.9, label=label)
        pictures.series(ax, arrays["epochs"][index], error.mean(1), color="black", linewidth=1.6, label="mean")
        write_title(ax, TITLES[name])
        ax.set_yscale("log")
    axes[0].set_ylabel("error of (15), per cent")
    axes[0].legend(frameon=False, fontsize=7)
    return figure


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
            readings=PROBES,
            run=run_trace,
            draw=draw_trace,
            statements=TRACE,
        ),
        Figure(
            "linear2026.fig4",
            "The ten largest eigenvalues of two layers along training: the error of (15)",
            presets=_presets(_PAIRS, 20, learning_rate=0.1),
            printed={
                "depth": '"2-layer Linear-MLP"',
                "learning_rate": '"η_max = 0.001"',
                "num_pauses": "open",
                "probes": "not used here: random signs, for (11) alone",
                "num_probes": "open: for (11)",
            },
            run=run_pairs,
            draw=draw_pairs,
            statements=PAIRS,
        ),
    )
}
