"""Spectra of balanced solutions from the labels: Fig. 1 left on random data, Fig. 1 middle over depth and norm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from ... import plot, theory
from ...lab import data, init, models
from ...operators import hessian
from ...record import Record
from ...solvers import eigenpairs
from ..frame.accuracy import LARGE_CLOSED_FORM
from ..frame.figure import Context, Figure
from ..frame.pictures import write_title
from ..frame.statements import at_least, at_most, each, within
from .networks import printed_sharpness, risk_of
from .paper import says

# Fixed before the runs at preset "paper": see docs/decisions.md.
NO_MORE = at_most(1.0)
NOT_ZERO = 1e-14  # of the largest eigenvalue; the smallest of Fig. 1 left is predicted at 2.8e-14
GROWS = at_least(1.0, partly=0.9)
MAINLY = within(0.5, 1.5, partly=(0.25, 2.0))  # more of the growth than anything else has


@dataclass(frozen=True)
class RandomConfig:
    """The setting of Fig. 1 left; sources: linear2026, App. C, "Figure 1, Left"."""

    depth: int = 5  # "a sequence of L = 5 balanced weight matrices"
    width: int = 20  # "d = 20", "W_ℓ ∈ R^{d × d}"
    num_examples: int = 100  # "X' ∈ R^{20 × 100}"
    sigma_x: float = 3.0  # "orthogonalize it with σ_x = 3"
    counted: tuple[int, ...] = (3, 2, 4)  # open: d₀, …, d_L of a network whose layers are not all as wide
    seed: int = 0  # open


@dataclass(frozen=True)
class ContourConfig:
    """The setting of Fig. 1 middle, of which the paper prints eq. (14) and nothing else: all of it is open."""

    depths: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8, 9, 10)  # open
    norms: tuple[float, float] = (0.1, 1.2)  # open: σ_max(Y)/√n: one-hot labels of ten classes have √0.1 to 1
    grid: int = 111  # open: norms that the contours are drawn from
    alphas: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)  # open: where networks are built and measured
    sizes: tuple[int, ...] = (100, 200, 500, 1000, 2000, 5000)  # open: n, for "independent of the dataset size"
    num_classes: int = 10  # open
    num_inputs: int = 12  # open
    num_examples: int = 100  # open
    sigma_x: float = 1.0  # open
    seed: int = 0  # open


def run_random(config: RandomConfig, context: Context) -> dict[str, Any]:
    """All eigenvalues of the Hessian at zero loss: measured, and predicted from the singular values of Y.

    A second network, with layers of different widths, is measured to count its non-zero eigenvalues.
    """
    widths = [config.width] * (config.depth + 1)
    S, Y, measured = _at_zero_loss(widths, config, context)
    labels = torch.linalg.svdvals(Y).cpu() / (config.num_examples**0.5 * config.sigma_x)
    predicted = theory.balanced_linear(labels ** (1 / config.depth), widths, config.sigma_x).eigenvalues()
    unequal = _at_zero_loss(config.counted, config, context)[2]
    return {"measured": measured, "predicted": predicted, "singular_values": S, "unequal": unequal}


def _at_zero_loss(widths: Sequence[int], config: RandomConfig, context: Context) -> tuple[Tensor, Tensor, Tensor]:
    """Balanced layers on white data that they fit: their singular values, the labels, the eigenvalues of H."""
    generator = torch.Generator().manual_seed(config.seed)
    X = torch.randn(config.num_examples, widths[0], generator=generator, dtype=torch.float64)
    X = data.whiten_by_qr(X, config.sigma_x).to(context.device)
    S = torch.rand(min(widths), generator=generator, dtype=torch.float64)
    weights = init.balanced(widths, S, generator=generator)
    model = models.linear_network(
        widths, generator=generator, parametrization=weights, device=context.device, dtype=torch.float64
    )
    Y = model(X).detach()
    H = hessian(risk_of(model, (X, Y))).dense()
    return S, Y, torch.linalg.eigvalsh(H.cpu())  # LAPACK: it tells small eigenvalues from zero, to 1e-15 of the largest


def draw_random(record: Record) -> MatplotlibFigure:
    """The non-zero eigenvalues by rank."""
    config, measured, predicted = record.config, record.arrays["measured"][::-1], record.arrays["predicted"][::-1]
    count = config["width"] ** 2
    rank = np.arange(1, count + 1)
    figure, (left, right) = plot.panels(2)
    left.plot(rank, measured[:count], "o", color=plot.COLOURS[0], markersize=3, markeredgewidth=0, label="numerically")
    left.plot(rank, predicted[:count], color=plot.COLOURS[1], linewidth=1.0, label="from Y, eq. (9) and (13)")
    left.set(yscale="log", ylim=(predicted[count - 1] / 3, None), xlabel="rank", ylabel="eigenvalue λ")
    write_title(left, f"L = {config['depth']}, d = {config['width']}, σₓ = {config['sigma_x']:g}")
    left.legend(frameon=False, fontsize=8)
    error = np.abs(measured - predicted) / predicted[0]
    right.plot(np.arange(1, len(error) + 1), np.maximum(error, 1e-18), ".", color=plot.COLOURS[2], markersize=2)
    right.axvline(count, color="0.6", linewidth=0.8)
    right.text(count, 0.95, " zero beyond d²", transform=right.get_xaxis_transform(), fontsize=8, va="top")
    right.set(yscale="log", xlabel="rank, of all parameters", ylabel="error, relative to λ_max")
    return figure


def num_nonzero(values: np.ndarray) -> int:
    """The number of non-zero eigenvalues, rounding being below 1e-15 of the largest."""
    return int((np.abs(values) > NOT_ZERO * np.abs(values).max()).sum())


def _errors(record: Record) -> np.ndarray:
    """The errors of all predicted eigenvalues, relative to λ_max."""
    measured = record.arrays["measured"]
    return np.asarray(np.abs(measured - record.arrays["predicted"]) / np.abs(measured).max())


def _shares_of_nonzero(record: Record) -> dict[str, float]:
    """The number of eigenvalues that are not zero in units of min(d)², for equal widths and for others."""
    width, widths = record.config["width"], record.config["counted"]
    return {
        f"all d = {width}": num_nonzero(record.arrays["measured"]) / width**2,
        "d = " + ", ".join(map(str, widths)): num_nonzero(record.arrays["unequal"]) / min(widths) ** 2,
    }


RANDOM = (  # Fig. 1 left
    says(
        "The theory predicts the non-zero eigenvalues exactly (largest error of all eigenvalues, relative to λ_max).",
        where="Fig. 1a; eq. (9), (13)",
        measured=lambda record: float(_errors(record).max()),
        rule=LARGE_CLOSED_FORM,
        expected=0.0,
        why=lambda record: f"It is at the eigenvalue {record.arrays['measured'][_errors(record).argmax()]:.3g}.",
    ),
    says(
        "Of the p eigenvalues at most min(d)² are non-zero (their number, in units of that, for layers of equal and of "
        "different widths).",
        where="Sec. 3, after eq. (9)",
        measured=_shares_of_nonzero,
        rule=each(NO_MORE),
        expected=1.0,
        why="(9) runs over i ≤ d_L and j ≤ d₀ with singular values continued by zeros: r(d₀ + d_L - r) are non-zero "
        "for r singular values, which is min(d)² only where d₀ = d_L = min(d).",
    ),
)


def run_contour(config: ContourConfig, context: Context) -> dict[str, Any]:
    """Eq. (14) on a grid, and the measured sharpness of balanced solutions with one-hot labels on part of it."""
    norms = torch.linspace(*config.norms, config.grid, dtype=torch.float64)
    formula = [[printed_sharpness(float(s) ** 2, depth, config.sigma_x) for s in norms] for depth in config.depths]
    n, middle = config.num_examples, (_middle(config.depths), _middle(config.alphas))
    points = [[_solution(config, depth, alpha, n, context) for alpha in config.alphas] for depth in config.depths]
    sizes = [_solution(config, *middle, size, context)[1] for size in config.sizes]
    shares, sharpness = np.array(points).transpose(2, 0, 1)
    return {
        "norms": norms,
        "formula": np.array(formula),
        "shares": shares[0],
        "sharpness": sharpness,
        "by_size": np.array(sizes),
    }


def _solution(
    config: ContourConfig, depth: int, alpha: float, num_examples: int, context: Context
) -> tuple[float, float]:
    """α_max, and the sharpness of a balanced network that fits one-hot labels without an error."""
    generator = torch.Generator().manual_seed(config.seed)
    Y = one_hot_labels(config.num_classes, alpha, num_examples)
    extra = torch.randn(len(Y), config.num_inputs - config.num_classes, generator=generator, dtype=torch.float64)
    turned = torch.cat([Y, extra], 1) @ init.orthogonal(config.num_inputs, config.num_inputs, generator=generator)
    X = data.whiten_by_qr(turned, config.sigma_x)  # holds the labels in its span: the loss can be zero
    hidden = [config.num_classes] * (depth - 1)
    weights = theory.balanced_weights(Y.T @ X / (len(X) * config.sigma_x**2), hidden, generator=generator)
    widths = [config.num_inputs, *hidden, config.num_classes]
    model = models.linear_network(
        widths, generator=generator, parametrization=weights, device=context.device, dtype=torch.float64
    )
    top = eigenpairs(hessian(risk_of(model, (X, Y))), 1, tolerance=1e-8)
    return float(Y.sum(0).max()) / len(Y), float(top.values[0])


def one_hot_labels(num_classes: int, alpha: float, num_examples: int) -> Float[Tensor, "N K"]:
    """One-hot rows: a share α of class 0 and equal parts of the other classes, up to rounding."""
    first = round(alpha * num_examples)
    y = torch.cat([torch.zeros(first), 1 + torch.arange(num_examples - first) % (num_classes - 1)])
    return data.one_hot(y.long(), num_classes, dtype=torch.float64)


def draw_contour(record: Record) -> MatplotlibFigure:
    """Contours of (14), and the measured networks on them in the same colours."""
    config, arrays = record.config, record.arrays
    figure, (left, right) = plot.panels(2, height=3.0)
    levels = MaxNLocator(13).tick_values(0, float(arrays["formula"].max()))
    bands = BoundaryNorm(levels, 256)  # the dots use the same bands of colour
    filled = left.contourf(config["depths"], arrays["norms"], arrays["formula"].T, levels, cmap="viridis", norm=bands)
    norms, depths = np.meshgrid(np.sqrt(arrays["shares"]), config["depths"])
    left.scatter(depths, norms, c=arrays["sharpness"], norm=bands, s=22, edgecolors="white",
                 linewidths=0.7, cmap=filled.cmap, clip_on=False, zorder=3)  # fmt: skip
    left.set(xlabel="depth L", ylabel="spectral norm σ_max(Y)/√n")
    write_title(left, "λ_max by (14); dots: measured")
    bar = figure.colorbar(filled, ax=left, format="%.3g")
    bar.set_label("sharpness λ_max", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    exact = printed_sharpness(_middle(config["alphas"]), _middle(config["depths"]), config["sigma_x"])
    right.axhline(exact, color="black", linewidth=1.0, linestyle="--", label="eq. (14)")
    right.plot(config["sizes"], arrays["by_size"], "o", color=plot.COLOURS[0], label="measured")
    right.set(xscale="log", xlabel="size of the data set n", ylabel="λ_max", ylim=(0, 1.5 * exact))
    write_title(right, f"L = {_middle(config['depths'])}, α_max = {_middle(config['alphas']):g}")
    right.legend(frameon=False, fontsize=8)
    return figure


def _errors_of_14(record: Record) -> np.ndarray:
    """The error of the measured sharpness relative to (14), depth × share."""
    depths, shares, sigma_x = record.config["depths"], record.arrays["shares"], record.config["sigma_x"]
    printed = np.array([[printed_sharpness(a, depth, sigma_x) for a in shares] for depth in depths])
    return np.asarray(np.abs(record.arrays["sharpness"] / printed - 1))


def _place_of_largest_error(record: Record) -> str:
    error = _errors_of_14(record)
    row, column = np.unravel_index(np.argmax(error), error.shape)
    depth, share = record.config["depths"][row], record.arrays["shares"][column]
    return f"The largest error is at L = {depth} and α_max = {share:g}."


def _spread_over_sizes(record: Record) -> float:
    sizes = record.arrays["by_size"]
    return float((sizes.max() - sizes.min()) / sizes.mean())


def _rise(record: Record) -> np.ndarray:
    """The rise in sharpness from even labels to one large class, for each depth."""
    sharpness = record.arrays["sharpness"]
    return np.asarray(sharpness[:, -1] - sharpness[:, 0])


def _growth(record: Record) -> np.ndarray:
    """The factor by which that rise grows from each depth to the next."""
    rise = _rise(record)
    return np.asarray(rise[1:] / rise[:-1])


def _part_of_depth(record: Record) -> float:
    """How much of the growth of the rise is due to the factor L, on a logarithmic scale."""
    depths, rise = record.config["depths"], _rise(record)
    return float(np.log(depths[-1] / depths[0]) / np.log(rise[-1] / rise[0])) if np.all(rise > 0) else np.nan


def _growth_in_words(record: Record) -> str:
    depths, rise = record.config["depths"], _rise(record)
    return (
        "The rise does not grow from the least to the largest depth as the factor L does: it is "
        f"{rise[-1] / rise[0]:.3g} times as large, L {depths[-1] / depths[0]:.3g} times."
    )


CONTOUR = (  # Fig. 1 middle: what (14) says about depth, norm and size, held against measured networks
    says(
        "Equation (14) is the sharpness of a balanced solution at zero loss, for every depth and spectral norm of Y "
        "(largest error, relative to (14)).",
        where="Fig. 1b; eq. (14)",
        measured=lambda record: float(_errors_of_14(record).max()),
        rule=LARGE_CLOSED_FORM,
        expected=0.0,
        why=_place_of_largest_error,
    ),
    says(
        "The sharpness at a balanced solution is independent of the size n of the data set (difference between the "
        "largest and the least, relative to the mean).",
        where="Fig. 1b; Sec. 4, after eq. (14)",
        measured=_spread_over_sizes,
        rule=LARGE_CLOSED_FORM,
        expected=0.0,
        why=lambda record: (
            f"It is from {record.arrays['by_size'].min():.4g} to {record.arrays['by_size'].max():.4g} for the sizes "
            "measured."
        ),
    ),
    says(
        "Large depths amplify the effect of the label distribution (smallest ratio of the rise in sharpness from one "
        "depth to the next).",
        where="Fig. 1b; Sec. 4, after eq. (14)",
        measured=lambda record: float(_growth(record).min()),
        rule=GROWS,
        expected="> 1",
        why=lambda record: (
            f"The rise is less for L = {record.config['depths'][int(_growth(record).argmin()) + 1]} than for the depth "
            "before it."
        ),
    ),
    says(
        "That is mainly due to the leading factor L (its part in the growth of the rise, on a logarithmic scale).",
        where="Fig. 1b; Sec. 4, after eq. (14)",
        measured=_part_of_depth,
        rule=MAINLY,
        expected=1.0,
        why=_growth_in_words,
    ),
)


def _middle(values: Sequence[Any]) -> Any:
    return values[len(values) // 2]


_SMALL = ContourConfig(depths=(2, 4, 6), alphas=(0.2, 0.5, 0.8), sizes=(40, 80), num_classes=4, num_inputs=6, grid=11)

FIGURES = {
    figure.id: figure
    for figure in (
        Figure(
            "linear2026.fig1a",
            "Eigenvalues of a balanced solution on random data: numerically, and from the labels",
            presets={"paper": RandomConfig(), "laptop": RandomConfig(), "smoke": RandomConfig(depth=3, width=6)},
            run=run_random,
            draw=draw_random,
            statements=RANDOM,
        ),
        Figure(
            "linear2026.fig1b",
            "Sharpness over depth and spectral norm of the labels: contours of (14), and networks on them",
            presets={"paper": ContourConfig(), "laptop": ContourConfig(), "smoke": replace(_SMALL, num_examples=40)},
            run=run_contour,
            draw=draw_contour,
            statements=CONTOUR,
        ),
    )
}
