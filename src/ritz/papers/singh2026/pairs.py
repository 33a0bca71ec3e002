"""Figures 3 and 10-13: is there a pair of eigenvalues whose sum is tr H / D?

The paper looks, among all pairs of eigenvalues, for the one whose sum is nearest to tr H / D, and for the second
nearest. Among thousands of sums some are near any number, so that a control is added here: how near a pair comes to a
number of the same size without meaning (`control`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ... import plot
from ...lab import data, ensemble, init, models
from ...record import Picture, Record
from ...risk.losses import SquaredError
from ...theory import Spectra, linear_spectra, relu_spectra
from ..frame.figure import Context, Figure
from ..frame.pictures import draw_band, legend_above, quartiles, write_title
from ..frame.statements import Statement, at_least, at_most, each
from .paper import BEYOND, says

Start = Literal["orthogonal", "standard"]
Kind = Literal["decorrelated", "normalized"]
Settings = tuple[tuple[int, int], ...]  # numbers of a start and of a kind of data
STARTS: tuple[Start, ...] = ("orthogonal", "standard")
KINDS: tuple[Kind, ...] = ("decorrelated", "normalized")
QUANTITIES = ("best", "second", "mean", "control")
EXACT_TO = 1e-10  # a gap below this is rounding
AT_A_TIME = 10  # models: the gradients of 10 two-layer networks of width 150 take 0.3 GB


@dataclass(frozen=True)
class Config:
    """Networks of one output, width m and D ≤ m inputs, before training."""

    depth: int = 2  # "two-layer linear model", D.1.2; four in Fig. 11 and 13
    activation: Literal["linear", "relu"] = "linear"
    widths: tuple[int, ...] = (10, 150)  # "m ∈ {10, 150}", D.1.2
    examples: tuple[int, ...] = (102, 152)  # "102, and 152 for width 10 and 150", D.1.2
    models: tuple[int, ...] = (100, 100)  # "For every point in fig. 3 we sample 100 models", D.1.2
    inputs: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 10, 20, 50, 100, 150)  # "multiple values for … D ≤ m", D.1.2
    seed: int = 0  # open, and whether all models see the same data: here each has its own


@dataclass(frozen=True)
class PairPoint:
    """One point of a curve."""

    start: Start
    kind: Kind
    inputs: int
    width: int
    depth: int
    activation: Literal["linear", "relu"]
    examples: int
    models: int
    seed: int


def run(config: Config, context: Context) -> dict[str, Any]:
    """The gaps |λᵢ + λⱼ - tr H/D| for each width, as arrays start × data × inputs × models."""
    result: dict[str, Any] = {"reduction": _reduction(config)}
    for width, examples, count in zip(config.widths, config.examples, config.models, strict=True):
        inputs = [D for D in config.inputs if width >= D]
        rest = (width, config.depth, config.activation, examples, count, config.seed)
        points = [PairPoint(start, kind, D, *rest) for start in STARTS for kind in KINDS for D in inputs]
        records = context.sweep(partial(point_gaps, device=context.device), points, name=f"pairs at width {width}")
        for name in (*QUANTITIES, "fraction"):
            stack = torch.stack([torch.as_tensor(record.arrays[name]) for record in records])
            result[f"{name}_{width}"] = stack.view(len(STARTS), len(KINDS), len(inputs), count)
        result[f"inputs_{width}"] = torch.tensor(inputs)
        result[f"parameters_{width}"] = [record.scalars["parameters"] for record in records[: len(inputs)]]
    return result


def point_gaps(point: PairPoint, device: torch.device) -> dict[str, Any]:
    """The gaps of all models of one point, and the numbers they are measured from."""
    generator = torch.Generator().manual_seed(point.seed)
    parts: list[dict[str, Tensor]] = []
    size = 0
    for first in range(0, point.models, AT_A_TIME):
        spectra = _spectra(point, min(AT_A_TIME, point.models - first), generator, device)
        scale = 0.5 + torch.rand(len(spectra.values), generator=generator, dtype=torch.float64).to(device)
        parts.append(gaps(spectra, point.inputs, scale))
        size = spectra.size
    return {"parameters": size, **{name: torch.cat([part[name] for part in parts]) for name in parts[0]}}


def gaps(spectra: Spectra, inputs: int, scale: Float[Tensor, " B"]) -> dict[str, Float[Tensor, " B"]]:
    """The smallest and second smallest |λᵢ + λⱼ - tr H/D|, i < j; tr H/n; and the smallest to scale · tr H/D."""
    values = torch.cat([spectra.values, spectra.values.new_zeros(len(scale), min(spectra.zeros, 3))], 1)
    fraction = values.sum(1) / inputs  # with three zeros, every pair with a zero has a twin with the same sum
    i, j = torch.triu_indices(values.shape[1], values.shape[1], 1, device=values.device)
    sums = values[:, i] + values[:, j]
    best, second = (sums - fraction[:, None]).abs().topk(2, largest=False).values.unbind(1)
    control = (sums - (scale * fraction)[:, None]).abs().amin(1)
    mean = fraction * inputs / spectra.size
    return {"best": best, "second": second, "mean": mean, "control": control, "fraction": fraction}


def _spectra(point: PairPoint, count: int, generator: torch.Generator, device: torch.device) -> Spectra:
    widths = (point.inputs, *[point.width] * (point.depth - 1), 1)
    draw = data.decorrelated if point.kind == "decorrelated" else data.normalized
    sets = [draw(point.examples, point.inputs, generator=generator, dtype=torch.float64) for _ in range(count)]
    X, y = (torch.stack(part).to(device) for part in zip(*sets, strict=True))
    layers = [initial_weights(point.start, widths, generator) for _ in range(count)]
    if point.activation == "relu" and point.depth > 2:
        networks = [_network(widths, weights, generator) for weights in layers]
        stack = ensemble.Ensemble.of(networks, device=device)
        return Spectra(ensemble.spectra(stack, SquaredError(), (X, y), each=True), 0)
    weights = [torch.stack(layer).to(device) for layer in zip(*layers, strict=True)]
    if point.activation == "linear":
        return linear_spectra(weights, X, y)
    return relu_spectra(weights[0], weights[1], X, y)


def _network(widths: tuple[int, ...], weights: list[Tensor], generator: torch.Generator) -> torch.nn.Module:
    return models.mlp(widths, generator=generator, bias=False, parametrization=weights, dtype=torch.float64)


def initial_weights(start: Start, widths: tuple[int, ...], generator: torch.Generator) -> list[Tensor]:
    """Orthonormal columns or rows in every layer, or PyTorch's default, which D.1.3 calls standard."""
    draw = init.orthogonal if start == "orthogonal" else init.kaiming_uniform
    return [draw(after, before, generator=generator) for before, after in pairwise(widths)]


def _reduction(config: Config) -> str:
    """How all eigenvalues were found, in words for the record."""
    if config.activation == "relu" and config.depth > 2:
        return (
            "Dense Hessians. Four ReLU layers of width 150 have up to 67,650 parameters and no exact reduction. At "
            "this size one spectrum takes minutes on a GPU, and 4,400 would be needed: the second width is smaller."
        )
    rows = "N + 2m" if config.activation == "relu" else "the layers' inputs and outputs, less one each,"
    return f"Exact, in the range of H, which has {rows} dimensions; all other eigenvalues are zero."


# ---------------------------------------------------------------------------------------------------- what is drawn

_LOOKS = {
    "best": (0, "-", "nearest pair"),
    "second": (1, "-", "second nearest"),
    "mean": (2, "--", "mean eigenvalue"),
    "control": (6, ":", "nearest to a random number"),
}


def _draw(record: Record, shown: Settings) -> Picture:
    """One row for each width, one column for each start and kind of data."""
    widths = record.config["widths"]
    figure, axes = plot.panels(len(shown), len(widths), width=3.3 if len(shown) > 1 else 4.2, height=2.7)
    cells = [(width, start, kind) for width in widths for start, kind in shown]
    for ax, (width, start, kind) in zip(axes, cells, strict=True):
        D = record.arrays[f"inputs_{width}"]
        for name, (colour, line, label) in _LOOKS.items():
            half = quartiles(np.maximum(record.arrays[f"{name}_{width}"][start, kind], 1e-17), axis=-1)  # of the models
            look: dict[str, Any] = {"linestyle": line, "marker": ".", "lw": 1.3, "label": label}
            draw_band(ax, D, *half, colour=plot.COLOURS[colour], alpha=0.15, **look)
        ax.set(xscale="log", yscale="log", xlabel="inputs D")
        write_title(ax, f"{STARTS[start]}, {KINDS[kind]}, m = {width}{_cut_axis(ax, record, width, start, kind)}")
        ax.set_xticks(D, labels=axis_labels(D))
        ax.minorticks_off()
    for ax in axes[:: len(shown)]:
        ax.set_ylabel("|λᵢ + λⱼ - tr H/D|")
    legend_above(figure, axes[0], columns=4 if len(shown) > 1 else 2)
    return figure


def _cut_axis(ax: Any, record: Record, width: int, start: int, kind: int) -> str:
    """Cut the axis below the values at the D of interest; returns a note on what was cut off, for the title.

    Where theory has the pair exactly, at 1e-15, all other gaps would be in the topmost of sixteen decades.
    """
    D, best = record.arrays[f"inputs_{width}"], np.median(record.arrays[f"best_{width}"][start, kind], axis=-1)
    open_ones = (_least(record) <= D) & (best > EXACT_TO)
    cut = (best <= EXACT_TO) & (best < 1e-3 * best[open_ones].min(initial=np.inf))
    if not (open_ones.any() and cut.any()):
        return ""
    top = max(float(record.arrays[f"{name}_{width}"][start, kind].max()) for name in ("second", "mean"))
    ax.set_ylim(0.05 * float(best[open_ones].min()), 3 * top)
    return f"\nD = {', '.join(map(str, D[cut]))}: exact ({best[cut].max():.0e}), below the axis"


def axis_labels(D: np.ndarray) -> list[str]:
    """Labels of a logarithmic axis, without those that would overlap the next one."""
    labels, last = [str(D[-1])], D[-1]
    for number in D[-2::-1]:
        near = np.log(last / number) < 0.09 * np.log(D[-1] / D[0])  # of the axis: what a number of three digits takes
        labels.append("" if near else str(number))
        last = last if near else number
    return labels[::-1]


# --------------------------------------------------------------------------------------------------- what is claimed

CLEAR = at_least(100, partly=10)  # "orders of magnitude"
AT_THE_FRACTION = at_most(1e-6, partly=1e-2)  # "close to the considered fraction", where theory has it exactly
VERY_CLOSE = at_least(
    0.9, partly=0.5
)  # share of D at which the gap is below the mean eigenvalue, the paper's yardstick
NO_CLEAR_BEST = at_most(10, partly=100)  # less than an order of magnitude between the two
BEYOND_CHANCE = at_least(10, partly=3)  # a number without meaning has 1

_REASONS = {  # of medians over the models
    AT_THE_FRACTION: {
        "no": "At every width the nearest pair misses tr H/D by more than a hundredth of it at some D.",
        "partly": "The nearest pair misses tr H/D by more than a millionth of it at some D.",
    },
    CLEAR: {
        "no": "At every width it is less than ten times smaller at some D.",
        "partly": "It is less than a hundred times smaller at some D.",
    },
    VERY_CLOSE: {
        "no": "At half of the D or more the nearest pair misses tr H/D by more than the mean eigenvalue.",
        "partly": "At some D the nearest pair misses tr H/D by more than the mean eigenvalue.",
    },
    NO_CLEAR_BEST: {
        "no": "In every setting one pair is more than a hundred times nearer than the others at half of the D or more.",
        "partly": "In some settings one pair is more than ten times nearer than the others at half of the D or more.",
    },
    BEYOND_CHANCE: {
        "no": "At half of the D or more the pair nearest to a random number of this size is less than three times "
        "farther from it, or nearer: among so many sums some are near to anything.",
        "partly": "In some settings the pair nearest to a random number of this size is less than ten times farther "
        "from it, or nearer, at half of the D or more.",
    },
}


def _medians(record: Record, name: str, width: int, start: int, kind: int, *, least: int) -> np.ndarray:
    """The median over the models for each D from `least` on."""
    values = np.median(record.arrays[f"{name}_{width}"][start, kind], axis=-1)
    return values[record.arrays[f"inputs_{width}"] >= least]


def _least(record: Record) -> int:
    """The least D that goes beyond the assumptions: two linear layers have the pair at D = 1 by Thm 3.1."""
    return 2 if record.config["depth"] == 2 and record.config["activation"] == "linear" else 1


def worst_ratio(
    over: str, under: str, shown: Settings, worst: Callable[[np.ndarray], float], *, trivial: bool = False
) -> Callable[[Record], dict[str, float]]:
    """The worst ratio of medians over D, for each width and setting; without trivial cases unless requested."""

    def ratios(record: Record) -> dict[str, float]:
        least, result = 1 if trivial else _least(record), {}
        for width in record.config["widths"]:
            for start, kind in shown:
                top, bottom = (_medians(record, name, width, start, kind, least=least) for name in (over, under))
                ratio = top / np.maximum(bottom, np.finfo(float).tiny)
                label = f"{STARTS[start]}, {KINDS[kind]}, m = {width}"
                result[label] = float(worst(ratio)) if len(ratio) else float("nan")
        return result

    return ratios


def shares_close(shown: Settings) -> Callable[[Record], dict[str, float]]:
    """The share of D at which the median gap is below the mean eigenvalue, for each width and setting."""

    def shares(record: Record) -> dict[str, float]:
        result = {}
        for width in record.config["widths"]:
            for start, kind in shown:
                best, mean = (
                    _medians(record, name, width, start, kind, least=_least(record)) for name in ("best", "mean")
                )
                label = f"{STARTS[start]}, {KINDS[kind]}, m = {width}"
                result[label] = float((best < mean).mean()) if len(best) else float("nan")
        return result

    return shares


EXACT: Settings = ((0, 0),)  # Fig. 3a
STANDARD: Settings = ((1, 1),)  # Fig. 3b
OTHERS: Settings = ((0, 1), (1, 0))  # what Fig. 3 does not show
ALL: Settings = ((0, 0), (0, 1), (1, 0), (1, 1))

EXACTLY = (
    says(
        "At any input size, the sum of the two eigenvalues is close to the considered fraction of the trace.",
        where="Sec. 4.1, Fig. 3a", measured=worst_ratio("best", "fraction", EXACT, np.max, trivial=True),
        rule=each(AT_THE_FRACTION), expected="≈ 0", why=_REASONS[AT_THE_FRACTION],
    ),
    says(
        "Their absolute difference is orders of magnitude smaller than the second closest sum of eigenvalue pair.",
        where="Sec. 4.1, Fig. 3a", measured=worst_ratio("second", "best", EXACT, np.min, trivial=True),
        rule=each(CLEAR), expected="orders of magnitude", why=_REASONS[CLEAR],
    ),
    says(
        "… as well as the reference mean eigenvalue.",
        where="Sec. 4.1, Fig. 3a", measured=worst_ratio("mean", "best", EXACT, np.min, trivial=True),
        rule=each(CLEAR), expected="orders of magnitude", why=_REASONS[CLEAR],
    ),
)  # fmt: skip


def closely(shown: Settings, where: str) -> tuple[Statement, ...]:
    """The statement about all settings beyond the assumptions, and the same question for the control."""
    return (
        says(
            "The sum of the two eigenvalues is very close to the trace fraction (share of D at which its gap is below "
            "the mean eigenvalue).",
            where=where, measured=shares_close(shown),
            rule=each(VERY_CLOSE), expected=1.0, why=_REASONS[VERY_CLOSE],
        ),
        says(
            "A pair is nearer to tr H/D than to a random number of this size (how many times).",
            paper=BEYOND, where=where, measured=worst_ratio("control", "best", shown, np.median),
            rule=each(BEYOND_CHANCE), expected="≫ 1", why=_REASONS[BEYOND_CHANCE],
        ),
    )  # fmt: skip


def no_clear_best(shown: Settings, where: str) -> Statement:
    """The statement about settings in which no pair stands out."""
    return says(
        "There is no clear best pair, as the pair that induces second-best fit … is also close to the smallest one.",
        where=where, measured=worst_ratio("second", "best", shown, np.median),
        rule=each(NO_CLEAR_BEST), expected="≈ 1", why=_REASONS[NO_CLEAR_BEST],
    )  # fmt: skip


def _presets(paper: Config) -> dict[str, Config]:
    laptop = replace(paper, models=(40, 8), inputs=(1, 2, 4, 7, 10, 30, 100))
    if paper.widths[1] < 100:
        laptop = replace(laptop, widths=(10, 16))
    smoke = replace(paper, widths=(4, 6), examples=(12, 14), models=(3, 3), inputs=(1, 2, 4))
    return {"paper": paper, "laptop": laptop, "smoke": smoke}


_TWO_LINEAR, _FOUR_LINEAR = _presets(Config()), _presets(Config(depth=4))
_TWO_RELU = _presets(Config(activation="relu"))
# A width of 150 is out of reach (see `_reduction`); 25 is what a GPU diagonalises in half a second.
_FOUR_RELU = _presets(
    Config(
        4, "relu", widths=(10, 25), examples=(102, 102), models=(100, 20), inputs=(1, 2, 3, 4, 6, 8, 10, 15, 25)
    ),
)  # fmt: skip

FIGURES = {
    figure.id: figure
    for figure in (
        Figure(
            "singh2026.fig3a",
            "A pair of eigenvalues that sums up to tr H/D: orthogonal weights, decorrelated data",
            _TWO_LINEAR, run, partial(_draw, shown=EXACT), EXACTLY, "singh2026.pairs-linear-2",
        ),
        Figure(
            "singh2026.fig3b",
            "The same for the standard parametrisation and standardised data",
            _TWO_LINEAR, run, partial(_draw, shown=STANDARD),
            (*closely(STANDARD, "Sec. 4.1, Fig. 3b"), no_clear_best(STANDARD, "Sec. 4.1, Fig. 3b")),
            "singh2026.pairs-linear-2",
        ),
        Figure(
            "singh2026.fig10",
            "Paired eigenvalues of two linear layers: the settings between Fig. 3a and 3b",
            _TWO_LINEAR, run, partial(_draw, shown=OTHERS),
            closely(OTHERS, "Sec. 1, contribution 2, Fig. 10"), "singh2026.pairs-linear-2",
        ),
        Figure(
            "singh2026.fig11",
            "Paired eigenvalues of four linear layers",
            _FOUR_LINEAR, run, partial(_draw, shown=ALL),
            closely(ALL, "Sec. 1, contribution 2, Fig. 11"),
        ),
        Figure(
            "singh2026.fig12",
            "Paired eigenvalues of two ReLU layers",
            _TWO_RELU, run, partial(_draw, shown=ALL),
            closely(ALL, "Sec. 1, contribution 2, Fig. 12"),
        ),
        Figure(
            "singh2026.fig13",
            "Paired eigenvalues of four ReLU layers",
            _FOUR_RELU, run, partial(_draw, shown=ALL),
            (
                *closely(ALL, "Sec. 1, contribution 2, Fig. 13"),
                no_clear_best(((1, 0), (1, 1)), "Sec. 4.1, Fig. 13b, 13c"),
            ),
        ),
    )
}  # fmt: skip
