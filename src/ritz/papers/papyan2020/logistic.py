"""Section 8: logistic regression on the canonical classification model, its spectrum and how that predicts errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter
from torch import Tensor
from torch.nn import functional as F

from ... import plot, theory
from ...lab import data
from ...lab.data import Examples
from ...record import Picture, Record
from ..frame.figure import Context, Figure
from ..frame.pictures import write_title
from ..frame.statements import at_least, at_most, each, near
from ..frame.statistics import spearman
from .paper import BEYOND, says

CLASSIFIERS = {"symmetric": "symmetric probabilities", "bayes": "Bayes classifier", "trained": "trained"}
PARTS = ("eigenvalues", "error", "alpha", "theorem")  # of one classifier on one draw
GAPS = {
    "outliers_to_mini_bulk": "outliers / mini-bulk",
    "outliers_to_bulk": "outliers / bulk",
    "mini_bulk_to_bulk": "mini-bulk / bulk",
}


@dataclass(frozen=True)
class Config:
    """CCM(D, C) at several signal-to-noise ratios; the paper gives the model and a theorem, and no numbers."""

    num_inputs: int = 50  # open: D
    num_classes: int = 10  # open: C, that of the data sets
    per_class: int = 2000  # open: N
    test_per_class: int = 2000  # open: as many
    signals: tuple[float, ...] = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0)  # open: t, with s = t²
    sizes: tuple[int, ...] = (100, 400, 1600, 6400)  # open: N at which the expectation is approached, at the middle t
    decay: float = 5e-4  # "5 × 10⁻⁴ weight decay": App. D.1; without it separable classes have no minimum
    seeds: int = 3  # open: how much a draw differs from the next


@dataclass(frozen=True)
class Point:
    """One draw of the data."""

    signal: float
    per_class: int
    seed: int
    config: Config


def run(config: Config, context: Context) -> dict[str, Any]:
    """All eigenvalues of G, errors and the theorem's lines, for each signal and classifier; and by sample size."""
    points = [Point(t, config.per_class, seed, config) for seed in range(config.seeds) for t in config.signals]
    middle = config.signals[len(config.signals) // 2]
    sizes = [Point(middle, size, seed, config) for seed in range(config.seeds) for size in config.sizes]
    records = context.sweep(partial(point, device=context.device), points)
    shape = config.seeds, len(config.signals)
    result: dict[str, Any] = {"signals": np.array(config.signals), "sizes": np.array(config.sizes)}
    for name in [f"{kind}/{part}" for kind in CLASSIFIERS for part in PARTS]:
        stacked = np.stack([{**record.arrays, **record.scalars}[name] for record in records])
        result[name] = stacked.reshape(*shape, *stacked.shape[1:])
    deviations = context.sweep(partial(expectation_error, device=context.device), sizes)
    result["deviations"] = np.array([r.scalars["deviation"] for r in deviations]).reshape(config.seeds, -1)
    return result


def point(at: Point, *, device: torch.device) -> dict[str, Any]:
    """The spectra of G and the errors of three classifiers on one draw."""
    config, generator = at.config, torch.Generator().manual_seed(at.seed)
    train, test = (_drawn(at, size, generator, device) for size in (at.per_class, config.test_per_class))
    result: dict[str, Any] = {}
    weights = {"bayes": _bayes(at, device), "trained": _fitted(train, config)}
    for name, W in weights.items():
        p = (train.x @ W.T).softmax(1)
        alpha = float(1 - p[torch.arange(len(p), device=p.device), train.y].mean())
        result |= _named(name, gauss_newton(train.x, p), _error(W, test), alpha, at)
    alpha = result["bayes/alpha"]
    rows = torch.full(
        (config.num_classes, config.num_classes), alpha / (config.num_classes - 1), device=device
    ).double()
    rows.fill_diagonal_(1 - alpha)
    return result | _named("symmetric", gauss_newton(train.x, rows[train.y]), result["bayes/error"], alpha, at)


def expectation_error(at: Point, *, device: torch.device) -> dict[str, Any]:
    """‖G - E G‖ / ‖E G‖ with symmetric probabilities, as Lemma 8.1 has them, on one draw."""
    config, generator = at.config, torch.Generator().manual_seed(at.seed)
    C, D, alpha = config.num_classes, config.num_inputs, 0.2
    x, y = _drawn(at, at.per_class, generator, device)
    p = torch.full((C, C), alpha / (C - 1), dtype=torch.float64, device=device).fill_diagonal_(1 - alpha)
    U = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    expected = torch.zeros(C * D, C * D, dtype=torch.float64, device=device)
    for c in range(C):
        moment = torch.eye(D, dtype=torch.float64, device=device)
        moment[c, c] += at.signal**2
        expected += torch.kron(U[c].contiguous(), moment) / C
    return {"deviation": float((gauss_newton(x, p[y]) - expected).norm() / expected.norm())}


def gauss_newton(x: Tensor, p: Tensor) -> Tensor:
    """G = Ave (diag(p) - ppᵀ) ⊗ xxᵀ of z = Wx, W row by row: the Hessian, for E = 0. Sec. 8.1."""
    N, C, D = len(x), p.shape[1], x.shape[1]
    G = x.new_zeros(C, D, C, D)
    for c in range(C):
        for k in range(c, C):
            w = p[:, c] * ((1.0 if c == k else 0.0) - p[:, k])
            G[c, :, k] = G[k, :, c] = (w[:, None] * x).T @ x / N
    return G.view(C * D, C * D)


def _named(name: str, G: Tensor, error: float, alpha: float, at: Point) -> dict[str, Any]:
    """The results of one classifier: eigenvalues, largest first, errors, and the theorem's three lines at its α."""
    config = at.config
    form = theory.logistic_ccm(config.num_inputs, config.num_classes, at.signal, alpha)
    lines = {group.name: group.value for group in form.groups}
    return {
        f"{name}/eigenvalues": torch.linalg.eigvalsh(G).flip(0).cpu().numpy(),
        f"{name}/error": error,
        f"{name}/alpha": alpha,
        f"{name}/theorem": np.array([lines.get(part, np.nan) for part in ("outliers", "mini-bulk", "bulk")]),
    }


def _drawn(at: Point, size: int, generator: torch.Generator, device: torch.device) -> Examples:
    config = at.config
    x, y = data.canonical_classification(
        config.num_inputs, config.num_classes, at.signal, per_class=size, generator=generator, dtype=torch.float64
    )
    return Examples(x.to(device), y.to(device))


def _bayes(at: Point, device: torch.device) -> Tensor:
    """log p(c | x) = t x_c + const: the rows of W are t e_c."""
    config = at.config
    return at.signal * torch.eye(config.num_classes, config.num_inputs, dtype=torch.float64, device=device)


def _fitted(train: Examples, config: Config) -> Tensor:
    """The minimum of cross-entropy with weight decay."""
    W = torch.zeros(config.num_classes, config.num_inputs, dtype=torch.float64, device=train.x.device).requires_grad_()
    optimizer = torch.optim.LBFGS([W], max_iter=200, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

    def risk() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(train.x @ W.T, train.y) + config.decay / 2 * W.square().sum()
        loss.backward()
        return loss

    optimizer.step(risk)
    return W.detach()


def _error(W: Tensor, test: Examples) -> float:
    return float(((test.x @ W.T).argmax(1) != test.y).double().mean())


def groups(record: Record, name: str) -> np.ndarray:
    """The mean eigenvalues of outliers (C), mini-bulk (C(C - 2)) and bulk ((D - C)(C - 1)): (seeds, signals, 3)."""
    values, C, D = record.arrays[f"{name}/eigenvalues"], record.config["num_classes"], record.config["num_inputs"]
    ends = [0, C, C * (C - 1), D * (C - 1)]
    return np.stack([values[..., a:b].mean(-1) for a, b in pairwise(ends)], -1)


def gaps(record: Record, name: str) -> dict[str, np.ndarray]:
    """The three ratios between the mean eigenvalues of groups, of each draw: (seeds, signals)."""
    outliers, mini, bulk = np.moveaxis(groups(record, name), -1, 0)
    return dict(zip(GAPS, (outliers / mini, outliers / bulk, mini / bulk), strict=True))


def theorem_error(name: str) -> Callable[[Record], dict[str, float]]:
    """How far the mean eigenvalue of a group is from its line of the theorem, relative: the median over all draws."""

    def measured(record: Record) -> dict[str, float]:
        errors = np.abs(groups(record, name) / record.arrays[f"{name}/theorem"] - 1)
        medians = np.median(errors.reshape(-1, 3), axis=0)
        return dict(zip(("outliers", "mini-bulk", "bulk"), medians.tolist(), strict=True))

    return measured


def growth(record: Record) -> dict[str, float]:
    """Spearman's ρ of each ratio with s = t², the least of all seeds, of symmetric probabilities and a trained W."""
    t = record.arrays["signals"]
    return {
        f"{GAPS[gap]}, {CLASSIFIERS[name]}": min(spearman(t, row) for row in rows)
        for name in ("symmetric", "trained")
        for gap, rows in gaps(record, name).items()
    }


def prediction(record: Record) -> dict[str, float]:
    """Spearman's ρ of each ratio with the test error, over signals, the largest of all seeds."""
    errors = record.arrays["trained/error"]
    return {
        GAPS[gap]: max(spearman(ratio, error) for ratio, error in zip(rows, errors, strict=True))
        for gap, rows in gaps(record, "trained").items()
    }


def edges(name: str) -> Callable[[Record], dict[str, float]]:
    """Where, among the first C² eigenvalues, the two widest gaps in log λ are, at the middle signal; their medians."""

    def measured(record: Record) -> dict[str, float]:
        C, middle = record.config["num_classes"], len(record.arrays["signals"]) // 2
        values = record.arrays[f"{name}/eigenvalues"][:, middle, : C * C]
        steps = -np.diff(np.log(values), axis=1)
        widest = np.sort(np.argsort(-steps, axis=1)[:, :2] + 1, axis=1)
        first, second = np.median(widest, axis=0)
        places = first / C, second / (C * (C - 1))
        return dict(zip(("outliers, over C", "with the mini-bulk, over C(C - 1)"), map(float, places), strict=True))

    return measured


def convergence(record: Record) -> float:
    """d log ‖G - EG‖ / d log N."""
    return float(np.polyfit(np.log(record.arrays["sizes"]), np.log(record.arrays["deviations"].mean(0)), 1)[0])


def recovered(record: Record) -> float:
    """The largest |α̂ - α| of α̂ from three eigenvalues, over all draws with symmetric probabilities."""
    C, alpha = record.config["num_classes"], record.arrays["symmetric/alpha"]
    outliers, mini, bulk = np.moveaxis(groups(record, "symmetric"), -1, 0)
    return float(np.abs(1 - (outliers - bulk) / (C * (mini - bulk)) - alpha).max())


def draw(record: Record) -> Picture:
    """The spectrum at one signal, the three groups against s, and the ratios against the test error."""
    figure, (left, middle, right) = plot.panels(3, width=3.5, height=2.9)
    _spectrum_panel(left, record)
    _line_panel(middle, record)
    for colour, (gap, rows) in zip(plot.COLOURS, gaps(record, "trained").items(), strict=False):
        right.plot(record.arrays["trained/error"].T, rows.T, "o-", ms=3, lw=0.8, color=colour)
        right.plot([], [], "o-", ms=3, color=colour, label=GAPS[gap])
    right.set(xlabel="test error of the trained classifier", ylabel="ratio", yscale="log")
    right.set_yticks(marks := (1, 2, 5, 10), [f"{mark}" for mark in marks])
    right.yaxis.set_minor_formatter(NullFormatter())
    right.legend(frameon=False, fontsize=7)
    write_title(right, "ratios against errors")
    return figure


def _spectrum_panel(ax: Axes, record: Record) -> None:
    index = len(record.arrays["signals"]) // 2
    C, D = record.config["num_classes"], record.config["num_inputs"]
    for colour, name in zip(plot.COLOURS, ("symmetric", "trained"), strict=False):
        values = record.arrays[f"{name}/eigenvalues"][0, index, : D * (C - 1)]
        ax.plot(np.arange(1, len(values) + 1), values, ".", ms=3, color=colour, label=CLASSIFIERS[name])
    lines = record.arrays["symmetric/theorem"][0, index]
    ends = [0, C, C * (C - 1), D * (C - 1)]
    for value, (a, b) in zip(lines, pairwise(ends), strict=True):
        ax.plot([a + 1, b], [value, value], color="0.2", lw=1.2)
    ax.set(xlabel="eigenvalue, from the largest", ylabel="λ", xscale="log", yscale="log")
    ax.legend(frameon=False, fontsize=7)
    write_title(ax, f"G at t = {record.arrays['signals'][index]:g}; lines: Thm 8.1")


def _line_panel(ax: Axes, record: Record) -> None:
    s = record.arrays["signals"] ** 2
    for index, name in enumerate(("outliers", "mini-bulk", "bulk")):
        theorem = record.arrays["symmetric/theorem"][..., index].mean(0)
        ax.plot(s, theorem, color=plot.COLOURS[index], lw=1.2, label=name)
        ax.plot(s, groups(record, "symmetric")[..., index].T, "o", ms=3, color=plot.COLOURS[index])
    ax.set(xlabel="s = t²", ylabel="mean λ of a group", xscale="log", yscale="log")
    ax.legend(frameon=False, fontsize=7)
    write_title(ax, "symmetric probabilities; lines: Thm 8.1")


STATEMENTS = (
    says(
        "The spectrum of the expected G has C outliers, a mini-bulk of about C² and a bulk, each at its line "
        "(distance of a group's mean from it, relative, of samples).",
        where="Thm 8.1", measured=theorem_error("symmetric"), rule=each(at_most(0.1, partly=0.3)), expected=0.0,
        why="A sample of N examples scatters around its expectation.",
    ),
    says(
        "A sample approaches its expectation (d log ‖G - EG‖ / d log N).",
        where="Lemma 8.1", measured=convergence, rule=near(-0.5, relative=0.1, partly=0.3), expected=-0.5,
        why="The scatter does not fall as that of a mean does.",
    ),
    says(
        "C outliers stand apart, and so do C(C - 1) eigenvalues (place of the two widest gaps).",
        where="Thm 8.1", measured=edges("symmetric"), rule=each(near(1.0, relative=0.01, partly=0.1)), expected=1.0,
        why="The scatter of a sample closes a gap.",
    ),
    says(
        "Increasing s separates outliers from mini-bulk, outliers from bulk and mini-bulk from bulk (Spearman's ρ).",
        where="Sec. 8.2", measured=growth, rule=each(at_least(0.95, partly=0.5)), expected=1.0,
        why="A larger signal also makes fewer errors α, and these move the lines, too.",
    ),
    says(
        "All three ratios are predictive of misclassification (Spearman's ρ with the test error).",
        where="Sec. 8.2", measured=prediction, rule=each(at_most(-0.95, partly=-0.5)), expected=-1.0,
        why="A ratio that does not grow with s along with the others does not follow the error.",
    ),
    says(
        "The theorem holds for a trained classifier, whose probabilities are not symmetric (distance of a group's mean "
        "from its line at the mean α, relative).",
        where="Sec. 8", paper=BEYOND, measured=theorem_error("trained"), rule=each(at_most(0.1, partly=0.3)),
        expected=0.0, why="Probabilities depend on z: examples near the boundary carry most of G.",
    ),
    says(
        "A trained classifier has C outliers and C(C - 1) eigenvalues apart, too (place of the two widest gaps).",
        where="Sec. 8", paper=BEYOND, measured=edges("trained"), rule=each(near(1.0, relative=0.01, partly=0.1)),
        expected=1.0,
        why="Where examples near the boundary of two classes carry G, the two cross-class means of such a pair are one "
        "direction: half as many stand apart.",
    ),
    says(
        "Three eigenvalues give the misclassification of symmetric probabilities (largest |α̂ - α|).",
        where="Thm 8.1", paper=BEYOND, measured=recovered, rule=at_most(0.05, partly=0.15), expected=0.0,
        why="Outliers and mini-bulk of a sample scatter, and α is a quotient of their differences.",
    ),
)  # fmt: skip

SMOKE = Config(
    num_inputs=8, num_classes=3, per_class=60, test_per_class=100, signals=(1.0, 2.0, 3.0), sizes=(40, 160), seeds=1
)
FIGURES = {
    "papyan2020.sec8": Figure(
        "papyan2020.sec8",
        "Logistic regression on the canonical classification model: gaps and misclassification",
        {"paper": Config(), "laptop": Config(), "smoke": SMOKE},
        run,
        draw,
        STATEMENTS,
    )
}
