"""Figure 1: the spectrum of a ReLU network of one input is that of its two cells, the units with v > 0 and v < 0."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from ... import plot, theory
from ...lab import data, ensemble, models
from ...lab.data import Examples
from ...lab.ensemble import Ensemble
from ...record import Picture, Record
from ...risk.losses import SquaredError
from ...theory import ClosedForm
from ..frame.accuracy import CLOSED_FORM, DISAGREE
from ..frame.figure import Context, Figure
from ..frame.pictures import write_title
from .paper import says

CELLS = ("cell +", "cell -")


@dataclass(frozen=True)
class Config:
    """A network ⟨w, (vx)₊⟩ at its start. Open in the paper: everything but the width."""

    width: int = 10  # Fig. 1
    examples: int = 100  # drawn uniformly from the wedge y = |x| of Fig. 8, so that the cells are not alike
    draws: int = 100  # networks on which the theorem is tried; the first is drawn
    repeats: tuple[int, ...] = (1, 2, 4, 8, 16)  # how often the examples with x > 0 are repeated, to thin out cell -
    seed: int = 2  # open: any seed with units on both sides of zero shows both bulks


def run(config: Config, context: Context) -> dict[str, Any]:
    """The first network's eigenvalues with their cells, and the theorem's errors for all networks."""
    generator = torch.Generator().manual_seed(config.seed)
    examples = data.wedge(config.examples, generator=generator, dtype=torch.float64)
    draw = lambda: models.scalar_network(config.width, activation="relu", generator=generator, dtype=torch.float64)
    networks = Ensemble.of([draw() for _ in range(config.draws)], device=context.device)
    H = ensemble.hessians(networks, SquaredError(), examples).cpu()
    values = torch.linalg.eigvalsh(H)
    closed = [closed_form(networks, index, examples) for index in range(config.draws)]
    v = networks.parameters["v"].cpu()
    return {
        "eigenvalues": values[0],
        **lines(closed[0]),
        "errors": torch.stack([_error(one, spectrum) for one, spectrum in zip(closed, values, strict=True)]),
        "coupling": _coupling(H, v),
        "top": torch.stack([_top_error(one, spectrum) for one, spectrum in zip(closed, values, strict=True)]),
        "shares": torch.tensor([share(examples, times) for times in config.repeats], dtype=torch.float64),
        "thinned": torch.stack([_cell_top(networks, with_repeats(examples, times)) for times in config.repeats]),
    }


def closed_form(networks: Ensemble, index: int, examples: Examples) -> ClosedForm:
    """The lines of one network of the stack by Thm 3.4."""
    w, v = (networks.parameters[name][index] for name in ("w", "v"))
    return theory.relu_network(v, w, examples.x[:, 0], examples.y[:, 0])


def lines(closed: ClosedForm) -> dict[str, Any]:
    """Names, values and multiplicities of the lines."""
    groups = closed.groups
    return {
        "names": [group.name for group in groups],
        "lines": torch.tensor([group.value for group in groups], dtype=torch.float64),
        "multiplicities": torch.tensor([group.multiplicity for group in groups]),
    }


def with_repeats(examples: Examples, times: int) -> Examples:
    """The data with every example right of zero repeated `times` times."""
    right = examples.x[:, 0] > 0
    parts = [(part[~right], *[part[right]] * times) for part in examples]
    return Examples(*(torch.cat(part) for part in parts))


def share(examples: Examples, times: int) -> float:
    """n₋/n once the examples right of zero are repeated."""
    left = int((examples.x <= 0).sum())
    return left / (left + times * (len(examples.x) - left))


def _cell_top(networks: Ensemble, examples: Examples) -> Float[Tensor, " B"]:
    """The largest eigenvalue from cell - in each network; zero where the cell has no units."""
    H = ensemble.hessians(networks, SquaredError(), examples).cpu()
    minus = (networks.parameters["v"].cpu() < 0).repeat(1, 2).to(H)  # in coordinates (v, w)
    return torch.linalg.eigvalsh(H * minus[:, :, None] * minus[:, None]).amax(1)


def _coupling(H: Float[Tensor, "B n n"], v: Float[Tensor, "B m"]) -> Float[Tensor, " B"]:
    """The largest entry between units of different cells, relative to the largest of all."""
    plus = (v > 0).repeat(1, 2)
    across = plus[:, :, None] != plus[:, None]
    return (H * across).abs().amax((1, 2)) / H.abs().amax((1, 2))


def _error(closed: ClosedForm, spectrum: Float[Tensor, " n"]) -> Tensor:
    return (closed.eigenvalues() - spectrum).abs().max() / spectrum.abs().max()


def _top_error(closed: ClosedForm, spectrum: Float[Tensor, " n"]) -> Tensor:
    """|λ_max - max over the cells of their first outlier|, relative."""
    firsts = [group.value for group in closed.groups if group.name.endswith("outlier 1")]
    return (spectrum[-1] - max(firsts)).abs() / spectrum[-1]


# ---------------------------------------------------------------------------------------------------- what is drawn


def order(record: Record) -> tuple[np.ndarray, list[str]]:
    """The eigenvalues of the closed form in ascending order, with the name of the line that each belongs to."""
    counts = record.arrays["multiplicities"]
    values = np.repeat(record.arrays["lines"], counts)
    names = np.repeat(np.array(record.scalars["names"]), counts)
    ranks = np.argsort(values, kind="stable")
    return values[ranks], [str(name) for name in names[ranks]]


def draw(record: Record) -> Picture:
    """All eigenvalues in ascending order: the closed form in the colour of its cell, inside rings for the measured."""
    figure, (ax,) = plot.panels(width=5.6, height=3.4)
    values, names = order(record)
    places = np.arange(1, len(values) + 1)
    ax.plot(places, record.arrays["eigenvalues"], "o", mfc="none", mec="0.3", ms=8, label="measured")
    for colour, cell in zip((1, 0), CELLS, strict=True):
        for marker, kind in (("D", "outlier"), ("o", "bulk")):
            own = np.array([name.startswith(cell) and kind in name for name in names])
            ax.plot(places[own], values[own], marker, ms=4, color=plot.COLOURS[colour], label=f"{cell}, {kind}")
    ax.axvline((values < 0).sum() + 0.5, color="0.6", ls=":", lw=1.2)
    ax.axhline(0, color="0.85", lw=0.8, zorder=0)
    ordered_axes(ax, values, title=f"ReLU, width {record.config['width']}")
    return figure


def ordered_axes(ax: Any, values: np.ndarray, title: str) -> None:
    """Axes for sorted eigenvalues of both signs and several magnitudes."""
    threshold = max(1e-2 * float(np.abs(values).max()), 1e-12)
    low, high = 1.6 * min(float(values.min()), 0.0), 1.6 * float(values.max())
    ax.set_yscale("symlog", linthresh=threshold)
    ax.set_yticks([tick for tick in _ticks(threshold, max(-low, high)) if low <= tick <= high])
    ax.minorticks_off()
    ax.set_ylim(low, high)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="eigenvalue, from the most negative", ylabel="λ")
    write_title(ax, title)
    ax.legend(frameon=False, fontsize=8)


def _ticks(threshold: float, largest: float) -> list[float]:
    """Ticks at zero and at powers of ten of both signs, outside the linear part, where they would overlap."""
    powers = 10.0 ** np.arange(np.ceil(np.log10(threshold)), np.log10(largest))
    return [*(-powers[::-1]).tolist(), 0.0, *powers.tolist()]


# --------------------------------------------------------------------------------------------------- what is claimed

COUPLED = {
    "no": "There are entries between units of different cells.",
    "partly": "There are small entries between units of different cells.",
}
OFF_SHARE = {
    "no": "A cell's largest eigenvalue does not follow the share of its examples, or no network has units in cell -.",
    "partly": "A cell's largest eigenvalue follows the share of its examples to some digits only.",
}


def largest(name: str) -> Callable[[Record], float]:
    """The largest entry of an array, over all networks."""
    return lambda record: float(record.arrays[name].max())


def thinned_error(record: Record) -> float:
    """The relative deviation of cell -'s largest eigenvalue from being proportional to n₋/n, in the worst network."""
    per_share = record.arrays["thinned"] / record.arrays["shares"][:, None]
    positive = per_share[:, per_share[0] > 0]
    return float(np.abs(positive / positive[0] - 1).max()) if positive.size else float("nan")


STATEMENTS = (
    says(
        "The Hessian decouples between the cells.",
        where="Sec. 3.2", measured=largest("coupling"), rule=CLOSED_FORM, expected=0.0, why=COUPLED,
    ),
    says(
        "Thm 3.4 has all eigenvalues, cell by cell.",
        where="Thm 3.4, Fig. 1", measured=largest("errors"), rule=CLOSED_FORM, expected=0.0, why=DISAGREE,
    ),
    says(
        "The largest eigenvalue is the larger of the cells' first outliers.",
        where="Sec. 3.2", measured=largest("top"), rule=CLOSED_FORM, expected=0.0, why=DISAGREE,
    ),
    says(
        "Eigenvalues scale in proportion to the density n₊/n or n₋/n of their cell.",
        where="Sec. 3.2", measured=thinned_error, rule=CLOSED_FORM, expected=0.0, why=OFF_SHARE,
    ),
)  # fmt: skip


PRESETS = {"paper": Config(), "laptop": Config(), "smoke": Config(width=5, examples=12, draws=4, repeats=(1, 3))}
COMPUTATION = "singh2026.relu"
FIGURES = {
    "singh2026.fig1": Figure(
        "singh2026.fig1", "The spectrum of a ReLU network by its cells", PRESETS, run, draw, STATEMENTS, COMPUTATION
    )
}
