"""Figure 15, and Figure 8 of papyan2019: the density of two random matrices, by Lanczos and by their eigenvalues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from ... import plot
from ...lab import data
from ...operators import Operator
from ...record import Picture, Record
from ...solvers import lanczos
from ...spectrum import Spectrum
from ..frame.figure import Context, Figure
from ..frame.pictures import write_title
from ..frame.statements import Statement, at_least, at_most, near
from .paper import PAPER

BINS = 100  # "a histogram with 100 bins"
COPIED = 10  # of the largest eigenvalues, whose copies come first
_GRID = 4000  # points of an integral over λ or log λ


@dataclass(frozen=True)
class Config:
    """Two random matrices and the steps of Lanczos on them."""

    size: int = 2000  # a: "Y ∈ R^{2000×2000}"
    spikes: tuple[float, ...] = (5.0, 4.0, 3.0)  # a: "X₁₁ = 5, X₂₂ = 4, X₃₃ = 3"
    num_steps: int = 128  # open: for this figure; App. D.2 has it for the networks
    rows: int = 500  # b: "Z ∈ R^{500×1000}", so that Y is 500 × 500, and not 1000 × 1000
    columns: int = 1000  # b: "Z ∈ R^{500×1000}"
    index: float = 1.0  # b: "Pareto distribution with index α = 1"
    log_steps: int = 2048  # open: for this figure; App. D.2 has it for logarithms: more than rows, without a basis
    num_probes: int = 10  # "we average over n_vec = 10 initial vectors"
    seed: int = 0  # open: one draw of each matrix


def run(config: Config, context: Context) -> dict[str, Any]:
    """Eigenvalues of both matrices, and the quadratures with and without reorthogonalisation."""
    generator = torch.Generator().manual_seed(config.seed)
    spiked = data.spiked_matrix(config.size, config.spikes, generator=generator)
    pareto = data.pareto_matrix(config.rows, config.columns, index=config.index, generator=generator)
    result: dict[str, Any] = {}
    for name, Y, steps in (("spiked", spiked, config.num_steps), ("pareto", pareto, config.log_steps)):
        A = Operator.from_matrix(Y.to(context.device))
        starts = torch.randn(len(Y), config.num_probes, generator=generator, dtype=torch.float64)
        result[f"{name}_eigenvalues"] = torch.linalg.eigvalsh(Y)
        for kind, most, basis in (("fast", steps, False), ("slow", min(steps, len(Y)), True)):
            nodes, weights = lanczos(A, starts.to(A.device), most, keep_basis=basis).quadrature()
            result |= {f"{name}_{kind}_nodes": nodes, f"{name}_{kind}_weights": weights}
    return result


def exact(record: Record, name: str) -> Spectrum:
    """The spectrum from the eigenvalues of the matrix."""
    return Spectrum.of_eigenvalues(torch.from_numpy(record.arrays[f"{name}_eigenvalues"]))


def by_lanczos(record: Record, name: str, kind: str = "fast") -> Spectrum:
    """The spectrum from a quadrature, at the resolution of its steps."""
    nodes, weights = (torch.from_numpy(record.arrays[f"{name}_{kind}_{part}"]) for part in ("nodes", "weights"))
    resolution = float(nodes.max() - nodes.min()) / (nodes.shape[1] - 1)
    return Spectrum(nodes, weights, len(record.arrays[f"{name}_eigenvalues"]), resolution)


def bins(record: Record, name: str) -> np.ndarray:
    """The edges of the histogram: even in λ, or in log λ for the power law."""
    values = record.arrays[f"{name}_eigenvalues"]
    values = np.log(values) if name == "pareto" else values
    return np.linspace(values.min(), values.max(), BINS + 1)


def _curve(name: str, spectrum: Spectrum, x: Tensor, width: float) -> Tensor:
    return spectrum.log_density(x, width=width) if name == "pareto" else spectrum.density(x, width)


def distance(record: Record, name: str, first: Spectrum, second: Spectrum) -> float:
    """∫ |φ - ψ| of two densities of λ, or of log λ, smoothed alike by a bin's width: 0 to 2."""
    edges = bins(record, name)
    width = float(edges[1] - edges[0])
    x = torch.linspace(float(edges[0]) - 6 * width, float(edges[-1]) + 6 * width, _GRID, dtype=torch.float64)
    gap = _curve(name, first, x, width) - _curve(name, second, x, width)
    return float(torch.trapezoid(gap.abs(), x))


def to_exact(name: str) -> Callable[[Record], float]:
    """The distance of the density by Lanczos from that of the eigenvalues."""
    return lambda record: distance(record, name, by_lanczos(record, name), exact(record, name))


def spike_error(record: Record) -> float:
    """How far the nearest node of every probe is from a spike, relative to it: the largest."""
    count = len(record.config["spikes"])
    spikes, nodes = record.arrays["spiked_eigenvalues"][-count:], record.arrays["spiked_fast_nodes"]
    return float(np.abs(nodes[:, :, None] / spikes - 1).min(1).max())


def harm(record: Record) -> float:
    """The larger distance of the two densities with and without reorthogonalisation."""
    both = ("spiked", "pareto")
    return max(distance(record, name, by_lanczos(record, name), by_lanczos(record, name, "slow")) for name in both)


def copies(record: Record) -> float:
    """The most nodes of one probe that lie within a millionth of one and the same eigenvalue."""
    values, nodes = record.arrays["pareto_eigenvalues"][-COPIED:], record.arrays["pareto_fast_nodes"]
    near_by = np.abs(nodes[:, :, None] / values - 1) < 1e-6
    return float(near_by.sum(1).max())


def tail_index(record: Record) -> float:
    """Hill's estimate of γ in P(Λ > λ) ∝ λ^-γ from the largest tenth of the eigenvalues."""
    values = np.sort(record.arrays["pareto_eigenvalues"])[::-1]
    k = max(len(values) // 10, 2)
    return float(1 / np.mean(np.log(values[: k - 1] / values[k - 1])))


def published_mass(record: Record) -> float:
    """∫ of eq. (7) of papyan2019, and of Sec. C.7, over log λ: the weights τ/θ are those of another measure."""
    nodes, weights = record.arrays["pareto_fast_nodes"], record.arrays["pareto_fast_weights"]
    sound = nodes > 0
    return float((weights[sound] / nodes[sound]).sum() / len(nodes))


def draw(record: Record) -> Picture:
    """Both histograms with 100 bins, and the density by Lanczos over each."""
    figure, axes = plot.panels(2, width=3.9, height=2.9)
    titles = {"spiked": "(a) diag(5, 4, 3, 0, …) + ZZᵀ/n", "pareto": "(b) ZZᵀ/m, Z of Pareto entries: log λ"}
    for ax, (name, title) in zip(axes, titles.items(), strict=True):
        _panel(ax, record, name)
        write_title(ax, title)
    axes[0].legend(frameon=False, fontsize=7)
    return figure


def _panel(ax: Axes, record: Record, name: str) -> None:
    edges, values = bins(record, name), record.arrays[f"{name}_eigenvalues"]
    values = np.log(values) if name == "pareto" else values
    ax.hist(values, edges.tolist(), density=True, color=plot.COLOURS[0], alpha=0.6, label="eigenvalues")
    width = float(edges[1] - edges[0])
    x = torch.linspace(float(edges[0]) - 5 * width, float(edges[-1]) + 5 * width, 1024, dtype=torch.float64)
    y = _curve(name, by_lanczos(record, name), x, width)
    ax.plot(x, y, color=plot.COLOURS[1], lw=1.2, label="Lanczos")
    least = 1 / (len(values) * width)
    ax.set(yscale="log", ylim=(least / 10, 3 * float(y.max())), ylabel="density")
    ax.set_xlabel("log λ" if name == "pareto" else "λ")


def statements(paper: str, figure: str, equation: str) -> tuple[Statement, ...]:
    """The statements of both papers about the figure, under its number in either."""
    return (
        Statement(
            "The density by FastLanczos lies on the histogram of the eigenvalues (∫ |φ - ψ| dλ of the two).",
            paper, f"{figure}a", measured=to_exact("spiked"), rule=at_most(0.05, partly=0.2), expected=0.0,
            why="The density by Lanczos is off by more than a line's width in places.",
        ),
        Statement(
            "The spikes of that density are where the outliers are (largest distance of an outlier from its node, "
            "relative).",
            paper, f"{figure}a", measured=spike_error, rule=at_most(1e-3, partly=1e-2), expected=0.0,
            why="Some probe has no node at one of the spikes.",
        ),
        Statement(
            "The density of the logarithms by FastLanczos lies on their histogram, too (∫ |φ - ψ| d log λ of the two).",
            paper, f"{figure}b", measured=to_exact("pareto"), rule=at_most(0.05, partly=0.2), expected=0.0,
            why="Few eigenvalues carry the tail, and ten probes give each of them a random weight.",
        ),
        Statement(
            "The lack of reorthogonalisation does no harm (∫ |φ - ψ| of densities with it and without, the larger).",
            paper, "Sec. C.5" if paper == PAPER else "Sec. 5.5", measured=harm, rule=at_most(0.01, partly=0.1),
            expected=0.0, why="Copies of eigenvalues, or their weights, move the density.",
        ),
        Statement(
            "Without reorthogonalisation ghosts appear: copies of eigenvalues, whatever their multiplicity (the most "
            "nodes of a probe at one of the ten largest).",
            paper, "Sec. C.5" if paper == PAPER else "Sec. 5.5", measured=copies, rule=at_least(2), expected="above 1",
            why="Every eigenvalue has one node at most.",
        ),
        Statement(
            "The matrix of Pareto entries has a power law (Hill's index of its largest tenth; α/2 in theory).",
            paper, f"{figure}b", measured=tail_index, rule=near(0.5, relative=0.3, partly=0.6), expected=0.5,
            why="The tail of this draw is too short, or falls otherwise.",
        ),
        Statement(
            "The printed sum, with its factor 1/θ, is a density of log λ (its integral).",
            paper, equation, measured=published_mass, rule=near(1.0, relative=0.01, partly=0.1), expected=1.0,
            why="The factor belongs to the density of λ on a logarithmic axis; that of log λ has none, and is drawn.",
        ),
    )  # fmt: skip


COMPUTATION = "papyan2020.synthetic"
TITLE = "Two random matrices: densities by Lanczos against histograms"
PRESETS = {
    "paper": Config(),
    "laptop": Config(log_steps=500),
    "smoke": Config(
        size=120, spikes=(50.0, 40.0, 30.0), num_steps=40, rows=60, columns=90, log_steps=120, num_probes=4
    ),
}
FIGURES = {
    "papyan2020.fig15": Figure(
        "papyan2020.fig15", TITLE, PRESETS, run, draw, statements(PAPER, "Fig. 15", "Sec. C.7"), COMPUTATION
    )
}
