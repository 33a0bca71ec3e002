"""Theorems that no figure shows, as printed, on random networks: Thm 3.1-3.3, eq. (2), Thm B.1, Cor B.1-B.3.

Every formula stands here as the paper prints it, and is compared with dense Hessians; `ritz.theory` has the forms that
hold in all cases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ... import plot
from ...checks.oracles import dense_hessian, squared_error
from ...lab import data
from ...record import Picture, Record
from ..frame.accuracy import CLOSED_FORM, DISAGREE
from ..frame.figure import Context, Figure
from ..frame.pictures import write_title
from ..frame.statements import OURS, each
from .paper import says

SHOWN = ("Thm 3.1", "Thm B.1", "Cor B.1", "Cor B.2")  # draws whose eigenvalues are recorded and drawn
RESULTS = ("Thm 3.1", "eq. (2)", "Thm 3.2", "Thm 3.3", "Thm 3.3, s", "Thm B.1", "Cor B.1", "Cor B.2", "Cor B.3")


@dataclass(frozen=True)
class Config:
    """Gaussian weights, inputs and targets."""

    draws: int = 200  # open
    width: int = 10  # open; that of Fig. 1 and 8
    examples: int = 30  # open
    inputs: int = 3  # open: D of Cor B.1, K of Cor B.2 and B.3
    seed: int = 0  # open


def run(config: Config, context: Context) -> dict[str, Any]:
    """The error of each result in every draw, and predicted and measured eigenvalues for the first draws."""
    generator = torch.Generator().manual_seed(config.seed)
    rows = [_draw(config, generator) for _ in range(config.draws)]
    result = {f"error_{name}": np.array([row[name] for row in rows]) for name in RESULTS}
    result |= {name: np.array([row[name] for row in rows]) for name in ("residual", "pair centre", "triple centre")}
    for name in SHOWN:
        result |= {f"{kind}_{name}": rows[0][f"{kind} {name}"].numpy() for kind in ("predicted", "measured")}
    return result


def _draw(config: Config, generator: torch.Generator) -> dict[str, Any]:
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
    m, N, D = config.width, config.examples, config.inputs
    linear = _linear(normal(m), normal(m), normal(N), 3 * normal(N), normal(m))
    bias = _bias(m, data.decorrelated(N, 1, generator=generator, dtype=torch.float64), normal)
    X = N**0.5 * torch.linalg.qr(normal(N, D)).Q * torch.linspace(0.5, 2, D, dtype=torch.float64)
    several = _several_inputs(normal(D, m), normal(D, m), X, normal(N))
    return linear | bias | several | _several_outputs(normal(D, m), normal(D, m), normal(N), normal(N, D))


def outliers(w: Tensor, v: Tensor, sigma2: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. (1) as printed."""
    half, c = sigma2 * (w @ w + v @ v) / 2, w @ v
    root = (half**2 + delta**2 + 2 * sigma2 * delta * c).sqrt()
    return half + root, half - root


def sum_of_squares(w: Tensor, v: Tensor, sigma2: Tensor, yx: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. (2) as printed."""
    W, V, c = w @ w, v @ v, w @ v
    inside = (sigma2 * (W - V)) ** 2 + 4 * sigma2**2 * (W * V - c**2) + 4 * (2 * c * sigma2 - yx) ** 2
    return (sigma2 * (W + V) + inside.sqrt()) / 2, (sigma2 * (W + V) - inside.sqrt()) / 2


def bulk_vector(w: Tensor, v: Tensor, c: Tensor, s: float) -> Float[Tensor, " n"]:
    """(ẑ; s ẑ) with ẑ = c without its part along w + s v: Thm 3.3, where s is sgn(λ_bulk)."""
    u = w + s * v
    z = c - u * (u @ c) / (u @ u)
    return torch.cat([z, s * z])


def _linear(w: Tensor, v: Tensor, x: Tensor, y: Tensor, c: Tensor) -> dict[str, Any]:
    """Thm 3.1 to 3.3 and eq. (2) for f(x) = ⟨w, v⟩x."""
    H = dense_hessian(lambda v, w: squared_error((w @ v) * x, y), v, w)
    sigma2, yx = x.square().mean(), (x * y).mean()
    delta, m = (w @ v) * sigma2 - yx, len(w)
    pair = outliers(w, v, sigma2, delta)
    squares = torch.stack(sum_of_squares(w, v, sigma2, yx)) - torch.stack(pair)
    printed = [torch.cat([value * w + delta * v, delta * w + value * v]) for value in pair]
    bulk = {value: bulk_vector(w, v, c, float(torch.sign(value))) for value in (delta, -delta)}
    mended = {value: bulk_vector(w, v, c, float(value / delta)) for value in (delta, -delta)}
    return {
        **_comparison("Thm 3.1", torch.cat([torch.stack(pair), delta.repeat(m - 1), -delta.repeat(m - 1)]), H),
        "eq. (2)": float(squares.abs().max() / pair[0]),
        "Thm 3.2": max(_residual(H, z, value) for z, value in zip(printed, pair, strict=True)),
        "Thm 3.3": max(_residual(H, z, value) for value, z in bulk.items()),
        "Thm 3.3, s": max(_residual(H, z, value) for value, z in mended.items()),
        "residual": float(delta),
    }


def _bias(m: int, examples: data.Examples, normal: Callable[..., Tensor]) -> dict[str, Any]:
    """Thm B.1 for f(x) = wᵀ(vx + b), under its assumptions, with the centres of the outliers by Sec. 4."""
    (v, b), w = (1.5 * torch.linalg.qr(normal(m, 2)).Q).unbind(1), normal(m)
    x, y = examples.x[:, 0], 3 * examples.y[:, 0]
    H = dense_hessian(lambda v, b, w: squared_error((w @ v) * x + w @ b, y), v, b, w)
    V, W = v @ v, w @ w
    residuals = (w @ v) * x + w @ b - y
    rho2 = (residuals * x).mean() ** 2 + residuals.mean() ** 2
    root = ((V + W) ** 2 + 12 * rho2).sqrt()
    pair = torch.stack([(V + W + root) / 2, (V + W - root) / 2])
    triple = _triple(V, W, rho2) + (V + W) / 3
    rho, zeros = rho2.sqrt(), torch.zeros(m - 1, dtype=w.dtype)
    predicted = torch.cat([pair, triple, rho.repeat(m - 2), -rho.repeat(m - 2), zeros])
    order, trace = predicted.argsort(), H.diagonal().sum()
    measured = torch.empty_like(predicted)
    measured[order] = torch.linalg.eigvalsh(H)  # in the order of the prediction
    centres = {"pair centre": float(measured[:2].mean() / trace), "triple centre": float(measured[2:5].mean() / trace)}
    return {**_comparison("Thm B.1", predicted, H), **centres}


def _triple(V: Tensor, W: Tensor, rho2: Tensor) -> Float[Tensor, " 3"]:
    """t_k of Thm B.1 as printed."""
    p = -rho2 - (V + W) ** 2 / 3
    q = -2 / 27 * (V + W) ** 3 - V * rho2 / 3 + 2 / 3 * W * rho2
    angle = (3 * q / (2 * p) * (-3 / p).sqrt()).clamp(-1, 1).arccos() / 3
    k = torch.arange(3, dtype=V.dtype)
    return 2 * (-p / 3).sqrt() * (angle - 2 * torch.pi * k / 3).cos()


def _several_inputs(W: Tensor, V: Tensor, X: Tensor, y: Tensor) -> dict[str, Any]:
    """Cor B.1 for f(x) = Σ_d ⟨w_d, v_d⟩x_d with uncorrelated inputs."""
    H = dense_hessian(lambda V, W: squared_error(X @ (W * V).sum(1), y), V, W)
    sigma2, yx = X.square().mean(0), (X * y[:, None]).mean(0)
    delta = (W * V).sum(1) * sigma2 - yx
    return _comparison("Cor B.1", _groups(W, V, sigma2, delta), H)


def _several_outputs(W: Tensor, V: Tensor, x: Tensor, Y: Tensor) -> dict[str, Any]:
    """Cor B.2 and B.3 for f^k(x) = ⟨w_k, v_k⟩x."""
    H = dense_hessian(lambda V, W: squared_error(torch.outer(x, (W * V).sum(1)), Y), V, W)
    sigma2 = x.square().mean().repeat(len(W))
    delta = (W * V).sum(1) * sigma2 - (x[:, None] * Y).mean(0)
    residuals = []
    for k, (w, v, s, d) in enumerate(zip(W, V, sigma2, delta, strict=True)):
        for value in outliers(w, v, s, d):
            z = torch.zeros(2, *W.shape, dtype=W.dtype)
            z[0, k], z[1, k] = value * w + d * v, d * w + value * v
            residuals.append(_residual(H, z.flatten(), value))
    return {**_comparison("Cor B.2", _groups(W, V, sigma2, delta), H), "Cor B.3": max(residuals)}


def _groups(W: Tensor, V: Tensor, sigma2: Tensor, delta: Tensor) -> Tensor:
    """The bulk and the pairs of all groups {w_d, v_d}."""
    pairs = [torch.stack(outliers(*group)) for group in zip(W, V, sigma2, delta, strict=True)]
    return torch.cat([*pairs, *(sign * delta.repeat(W.shape[1] - 1) for sign in (1, -1))])


def _comparison(name: str, predicted: Tensor, H: Tensor) -> dict[str, Any]:
    """The printed eigenvalues against all of H, and their largest error relative to the largest eigenvalue."""
    predicted, measured = predicted.sort().values, torch.linalg.eigvalsh(H)
    error = float((predicted - measured).abs().max() / measured.abs().max())
    return {name: error, f"predicted {name}": predicted, f"measured {name}": measured}


def _residual(H: Tensor, z: Tensor, value: Tensor) -> float:
    return float((H @ z - value * z).norm() / (torch.linalg.matrix_norm(H, 2) * z.norm()))


# ---------------------------------------------------------------------------------------------------- what is drawn


def draw(record: Record) -> Picture:
    """Left, printed eigenvalues against measured ones; right, the error of each result in every draw."""
    figure, (left, right) = plot.panels(2, width=4.2, height=3.4)
    for name, colour, marker in zip(SHOWN, plot.COLOURS, "os^D", strict=False):
        both = (record.arrays[f"{kind}_{name}"] for kind in ("measured", "predicted"))
        left.plot(*both, marker, ms=5, mfc="none", color=colour, label=name)
    left.axline((0, 0), slope=1, color="0.7", lw=0.8, zorder=0)
    left.set(xlabel="measured eigenvalue, first draw", ylabel="as printed", xscale="symlog", yscale="symlog")
    left.legend(frameon=False, fontsize=8)
    for place, name in enumerate(RESULTS):
        errors = np.maximum(record.arrays[f"error_{name}"], 1e-18)
        spread = place + 0.3 * np.linspace(-1, 1, len(errors))
        right.plot(spread, errors, ".", ms=2.5, color=plot.COLOURS[0 if errors.max() < 1e-9 else 1])
    right.set(yscale="log", ylabel="relative error")
    right.set_xticks(range(len(RESULTS)), labels=RESULTS, rotation=40, ha="right", fontsize=7)
    write_title(right, f"{len(errors)} draws")
    return figure


# --------------------------------------------------------------------------------------------------- what is claimed


def largest(name: str) -> Callable[[Record], float]:
    """The largest error of a result over all draws."""
    return lambda record: float(record.arrays[f"error_{name}"].max())


def by_sign(record: Record) -> dict[str, float]:
    """The largest residual of Thm 3.3's vectors, for either sign of δx."""
    errors, delta = record.arrays["error_Thm 3.3"], record.arrays["residual"]
    signs = {"δx > 0": delta > 0, "δx < 0": delta < 0}
    return {name: float(errors[own].max()) if own.any() else float("nan") for name, own in signs.items()}


def centre_errors(record: Record) -> dict[str, float]:
    """The distance of the centres of the measured outliers from the printed fractions of the trace."""
    printed = {"pair centre": 1 / 4, "triple centre": 1 / 6}
    return {name: float(np.abs(record.arrays[name] - value).max()) for name, value in printed.items()}


def _theorem(statement: str, where: str, name: str) -> Any:
    return says(statement, where=where, measured=largest(name), rule=CLOSED_FORM, expected=0.0, why=DISAGREE)


STATEMENTS = (
    _theorem(
        "The Hessian spectrum consists of m - 1 repeated eigenvalues ±δx and two paired outlying eigenvalues.",
        "Thm 3.1", "Thm 3.1",
    ),
    _theorem("The part inside the square-root is a sum of squares.", "Sec. 3.1, eq. (2)", "eq. (2)"),
    _theorem("Outlier eigenvectors are λ (w; v) + δx (v; w).", "Thm 3.2", "Thm 3.2"),
    says(
        "Bulk eigenvectors are (ẑ; sgn(λ) ẑ), ẑ orthogonal to w + sgn(λ) v.",
        where="Thm 3.3", measured=by_sign, rule=each(CLOSED_FORM), expected=0.0,
        why="For δx < 0 the two bulk eigenspaces trade places: s = λ/δx in place of sgn(λ), as the proof derives it.",
    ),
    says(
        "Bulk eigenvectors are (ẑ; s ẑ), ẑ orthogonal to w + s v, with s = λ/δx.",
        paper=OURS, where="Thm 3.3, mended", measured=largest("Thm 3.3, s"), rule=CLOSED_FORM, expected=0.0,
        why=DISAGREE,
    ),
    _theorem(
        "A linear network with bias: a pair, a triple, bulk eigenvalues ±√(δx² + δ²) and 0 eigenvalues.",
        "Thm B.1", "Thm B.1",
    ),
    says(
        "Two of these outliers are centered at 1/4 tr(H), while another three around 1/6 tr(H).",
        where="Sec. 4", measured=centre_errors, rule=each(CLOSED_FORM), expected=0.0, why=DISAGREE,
    ),
    _theorem(
        "The spectrum decouples across the parameter groups for each input dimension: bulk and pairs of each.",
        "Cor B.1", "Cor B.1",
    ),
    _theorem(
        "The spectrum decouples across the parameter groups for each output dimension: bulk and pairs of each.",
        "Cor B.2", "Cor B.2",
    ),
    _theorem("The outlier eigenvectors of an output are zero outside of its group.", "Cor B.3", "Cor B.3"),
)  # fmt: skip

FIGURES = {
    "singh2026.theorems": Figure(
        "singh2026.theorems",
        "Theorems that no figure shows, as printed, on random networks",
        {"paper": Config(), "laptop": Config(), "smoke": Config(draws=6, width=4, examples=8, inputs=2)},
        run,
        draw,
        STATEMENTS,
    )
}
