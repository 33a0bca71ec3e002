"""Figure 7: how the spectrum of a two-layer linear network grows with the variance of its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from torch import Tensor

from ... import plot, theory
from ...lab import data, ensemble, models
from ...lab.data import Examples
from ...lab.models import ScalarNetwork
from ...lab.training import compressed
from ...record import Picture, Record
from ...risk.losses import SquaredError
from ..frame.accuracy import CLOSED_FORM, DISAGREE
from ..frame.figure import Context, Figure
from ..frame.pictures import write_title
from ..frame.statements import each, within
from .paper import says

LINES = ("outlier 1", "outlier 2", "bulk +", "bulk -")


@dataclass(frozen=True)
class Config:
    """One network ⟨w, v⟩x at its start, and data of growing variance."""

    width: int = 10  # open; that of Fig. 1 and 8
    largest: float = 20.0  # D.1.1: σₓ² in (0, 20)
    steps: int = 40  # open
    examples: int = 100_000  # D.1.1
    seed: int = 0  # open, and whether each variance has a network of its own: here all have the same


def run(config: Config, context: Context) -> dict[str, Any]:
    """All eigenvalues at each variance, measured, and the lines of the closed form."""
    generator = torch.Generator().manual_seed(config.seed)
    network = models.scalar_network(config.width, generator=generator, dtype=torch.float64)
    variances = torch.linspace(0, config.largest, config.steps + 1, dtype=torch.float64)[1:]
    sets = [_regression(config, float(variance) ** 0.5, generator) for variance in variances]
    rows = [compressed(*examples) for examples in sets]  # two examples with the curvature of all
    stack = ensemble.Ensemble.of([network] * len(sets), device=context.device)
    x, y = (torch.stack(part) for part in zip(*rows, strict=True))
    spectra = ensemble.spectra(stack, SquaredError(), (x, y), each=True)
    return {
        "variances": variances,
        "eigenvalues": spectra,
        "lines": torch.stack([_lines(network, one) for one in sets]),
    }


def _regression(config: Config, sigma: float, generator: torch.Generator) -> Examples:
    """Gaussian inputs with this deviation, and independent standard normal targets."""
    nothing = torch.zeros(1, 1, dtype=torch.float64)
    return data.gaussian_regression(
        config.examples, 1, generator=generator, W=nothing, sigma_x=sigma, noise=1.0, dtype=torch.float64
    )


def _lines(network: ScalarNetwork, examples: Examples) -> Tensor:
    closed = theory.linear_network(network.v, network.w, examples.x[:, 0], examples.y[:, 0])
    return torch.tensor([closed[name].value for name in LINES], dtype=torch.float64)


def draw(record: Record) -> Picture:
    """Left, as in the paper, sorted eigenvalues coloured by the variance; right, eigenvalues against the variance."""
    figure, (left, right) = plot.panels(2, width=3.9, height=3.0)
    variances, values = record.arrays["variances"], record.arrays["eigenvalues"]
    scale = ScalarMappable(Normalize(0, float(variances[-1])), "viridis")
    for colour, row in zip(scale.to_rgba(variances), values, strict=True):
        left.plot(np.arange(1, len(row) + 1), row, "o-", color=colour, ms=3, lw=0.6)
    bar = figure.colorbar(scale, ax=left)
    bar.set_label("variance of the inputs σ²", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    left.set(xlabel="eigenvalue, from the most negative", ylabel="λ", yscale="symlog")
    write_title(left, "measured")
    _against_variance(right, record)
    return figure


def _against_variance(ax: Axes, record: Record) -> None:
    """Draw measured lines as dots, the closed form as lines, and a guide for proportionality."""
    variances, lines, measured = record.arrays["variances"], np.abs(record.arrays["lines"]), by_line(record)
    for name, closed, colour in zip(LINES[:3], lines.T[:3], plot.COLOURS, strict=False):
        ax.plot(variances, closed, color=colour, lw=1.4, label=name.replace(" +", " ±"))
        ax.plot(variances, np.abs(measured[name]), "o", color=colour, ms=2.5)
    ax.plot([], [], "o", color="0.4", ms=2.5, label="measured")
    guide = float(lines[-1, :3].min()) * variances / variances[-1] / 3
    ax.plot(variances, guide, color="0.6", ls=":", label="∝ σ²")
    ax.set(xlabel="variance of the inputs σ²", ylabel="|λ|", xscale="log", yscale="log")
    write_title(ax, "lines: Thm 3.1")
    ax.set_ylim(top=20 * float(lines.max()))  # room for the legend
    ax.legend(frameon=False, fontsize=7, ncols=2, loc="upper left")


SLOPE = within(0.95, 1.05, partly=(0.8, 1.2))  # of log λ against log σ²


def by_line(record: Record) -> dict[str, np.ndarray]:
    """The measured eigenvalues of each line at each variance, distinguished by their rank; the bulk's means.

    -|δx| ≤ λ₂ ≤ |δx| ≤ λ₁ always: in ascending order m - 1 of the bulk, outlier 2, m - 1 of the bulk, outlier 1.
    """
    values, m = np.sort(record.arrays["eigenvalues"], axis=1), record.config["width"]
    below, above = values[:, : m - 1].mean(1), values[:, m:-1].mean(1)
    return dict(zip(LINES, (values[:, -1], values[:, m - 1], above, below), strict=True))


def slopes(record: Record) -> dict[str, float]:
    """d log |λ| / d log σ² of the measured eigenvalues of each line, by least squares."""
    x = np.log(record.arrays["variances"])
    return {name: float(np.polyfit(x, np.log(np.abs(values)), 1)[0]) for name, values in by_line(record).items()}


def theorem_error(record: Record) -> float:
    """The largest error of the closed form over all eigenvalues, relative to the largest one."""
    m = record.config["width"]
    expected = np.sort(np.repeat(record.arrays["lines"], [1, 1, m - 1, m - 1], axis=1), axis=1)
    measured = np.sort(record.arrays["eigenvalues"], axis=1)
    return float((np.abs(expected - measured).max(1) / np.abs(measured).max(1)).max())


STATEMENTS = (
    says(
        "Eigenvalues scale in proportion to the input variance σₓ².",
        where="Sec. 3.1, Fig. 7",
        measured=slopes,
        rule=each(SLOPE),
        expected=1.0,
        why="The covariance of inputs and targets grows with σ alone: a line made of it does not follow σ².",
    ),
    says(
        "Thm 3.1 has all eigenvalues: two outliers, and ±δx, m - 1 times each.",
        where="Thm 3.1",
        measured=theorem_error,
        rule=CLOSED_FORM,
        expected=0.0,
        why=DISAGREE,
    ),
)


FIGURES = {
    "singh2026.fig7": Figure(
        "singh2026.fig7",
        "The spectrum of a linear network against the variance of its inputs",
        {"paper": Config(), "laptop": Config(), "smoke": Config(width=3, steps=4, examples=50)},
        run,
        draw,
        STATEMENTS,
    )
}
