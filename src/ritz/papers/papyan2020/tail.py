"""Figure 16, and Figure 4 of papyan2019: the tails of the test E of VGG11 on MNIST, and the power law in them.

ritz run papyan2020.fig16 --preset paper --device cuda
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from ... import plot
from ...record import Picture, Record
from ..frame.figure import Context, Figure
from ..frame.loans import Loan
from ..frame.pictures import write_title
from ..frame.statements import Statement, at_least, at_most, each, near, within
from . import spectra
from .networks import sweep_on_shelf, training
from .paper import PAPER
from .pictures import resolved_from
from .setting import SMALL, TINY, Piece
from .spectra import LANCZOS, Measurement, Method, measured, printed_width, spectrum_of
from .tail_numbers import (
    EXPONENTS,
    POINTS,
    PREFACTORS,
    WIDTH,
    PowerLaw,
    asymmetries,
    by_part,
    explained,
    exponent_in_words,
    fitted_part,
    flatness,
    imprecision,
    lesser_side,
    linear_exponent,
    linear_laws,
    log_density,
    log_exponent_in_words,
    log_law,
    part_of_axis,
    prefactors,
    seeds,
    skewness_in_words,
)

PART = Piece(per_class=1351)
SEMICIRCLE = 2.0  # its fourth moment over the square of its second


@dataclass(frozen=True)
class Config:
    """Networks trained on part of MNIST, and E over the test examples."""

    network: Piece = PART
    seeds: tuple[int, ...] = (0,)  # open: print shows one network; more of them say how much it differs from the next
    method: Method = LANCZOS
    log_steps: int = 2048  # "we compute the log-spectrum, in which case we use M=2048 iterations"; of the first seed
    log_examples: int | None = 2000  # open: of 10,000 test examples, for so many steps
    linear_part: tuple[float, float] = (0.05, 0.5)  # "on part of the spectrum": in max |λ|; 128 steps resolve no less
    log_part: tuple[float, float] = (1e-3, 0.3)  # "Fitting a power law trend": in max |λ|

    @property
    def pieces(self) -> list[Piece]:
        """The network from each seed."""
        return [self.network.with_seed(seed) for seed in self.seeds]


def run(config: Config, context: Context) -> dict[str, Any]:
    """Train a network from each seed; its E by as many steps as printed, and for the first the long recursion."""
    records = sweep_on_shelf(training, config.pieces, context)
    errors = np.array([record.scalars["last_test_error"] for record in records])
    return {"test_errors": errors, **measured(_measurements(config), context)}


def loans(config: Config) -> list[Loan]:
    """The results of sweeps in a record of this config."""
    trainings = [
        Loan(training, piece, partial(_last_error, at=at), "last test error") for at, piece in enumerate(config.pieces)
    ]
    return trainings + spectra.loans(_measurements(config))


def _last_error(record: Record, *, at: int) -> dict[str, Any]:
    """The last error of one training, for the seed at this place."""
    return {"last_test_error": record.arrays["test_errors"][at]}


def _measurements(config: Config) -> dict[str, Measurement]:
    own = {
        f"seed {piece.seed}": Measurement(piece, piece.num_epochs, "test", "E", 0, config.method)
        for piece in config.pieces
    }
    long = replace(config.method, num_steps=config.log_steps, num_probes=1, num_examples=config.log_examples)
    return {**own, "long": replace(own[f"seed {config.seeds[0]}"], method=long)}


def draw(record: Record) -> Picture:
    """Left both tails of the density over log |λ|, right the density by the long recursion, each with both lines."""
    figure, (left, right) = plot.panels(2, width=4.4, height=3.2)
    _draw_linear(left, record)
    _draw_log(right, record)
    for ax, name in zip((left, right), EXPONENTS, strict=True):
        x = np.asarray(ax.lines[-1].get_xdata())
        printed = PowerLaw(EXPONENTS[name], PREFACTORS[name], 0.99)
        ax.plot(x, printed.prefactor * x**printed.exponent, ":", color="0.4", lw=1.0, label=f"printed: {printed}")
        ax.set(xscale="log", yscale="log", xlabel="|λ|", ylabel="density of |λ|")
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.legend(frameon=False, fontsize=7)
    write_title(left, f"E on test, by the density of λ ({record.config['method']['num_steps']:,} steps)")
    write_title(right, f"by the density of log |λ| ({record.config['log_steps']:,} steps, {seeds(record)[0]})")
    return figure


def _draw_linear(ax: Axes, record: Record) -> None:
    """The tails of all networks, those after the first pale, and the line through the first."""
    first, *others = seeds(record)
    for name in (*others, first):
        _draw_tails(ax, record, name, pale=name != first)
    law = linear_laws(record, first)["positive"]
    _draw_line(ax, law, part_of_axis(spectrum_of(record, first), record.config["linear_part"]), "λ > 0")


def _draw_tails(ax: Axes, record: Record, name: str, *, pale: bool) -> None:
    spectrum, width = spectrum_of(record, name), printed_width(record, name)
    x = part_of_axis(spectrum, (record.config["linear_part"][0] / 10, 1.0))
    one = 1 / (spectrum.size * width * np.sqrt(2 * np.pi))  # the height of one eigenvalue
    look: dict[str, Any] = {"lw": 0.8, "alpha": 0.35} if pale else {"lw": 1.2}
    for sign, colour, side in ((1.0, plot.COLOURS[1], "λ > 0"), (-1.0, plot.COLOURS[0], "λ < 0")):
        y = spectrum.density(torch.from_numpy(sign * x), width).numpy()
        label = None if pale else f"{side}, {name} (pale: other seeds)" if len(seeds(record)) > 1 else side
        ax.plot(x, np.where(y >= one / 3, y, np.nan), color=colour, label=label, **look)


def _draw_log(ax: Axes, record: Record) -> None:
    spectrum = spectrum_of(record, "long")
    x = np.geomspace(resolved_from(spectrum, WIDTH), max(map(abs, spectrum.range)), POINTS)
    ax.plot(x, log_density(spectrum, x), color=plot.COLOURS[2], lw=1.2, label="|λ|")
    _draw_line(ax, log_law(record), fitted_part(spectrum, record.config["log_part"]), "|λ|")


def _draw_line(ax: Axes, law: PowerLaw, x: np.ndarray, name: str) -> None:
    label = f"through {name}: {law}"
    ax.plot(x, law.prefactor * x**law.exponent, "--", color="black", lw=1.0, label=label)


def statements(paper: str, where: str) -> tuple[Statement, ...]:
    """The statements of both papers about the figure."""
    says = partial(Statement, paper=paper)
    section = "Sec. C.7" if paper == PAPER else "Sec. 5.6"
    return (
        says(
            "The spectrum of E is almost perfectly symmetric (|∫λ³|/∫|λ|³).",
            where=f"{where}a", measured=asymmetries, rule=each(at_most(0.1, partly=0.3)), expected=0.0,
            why=skewness_in_words,
        ),
        says(
            "The density of E falls as |λ|^-2.7 (exponent by the density of λ).",
            where=f"{where}a", measured=by_part("linear_part", lambda *at: linear_exponent(*at)[0]),
            rule=near(-2.7, relative=0.15, partly=0.5), expected=-2.7,
            why=exponent_in_words,
        ),
        says(
            "The density of E falls as |λ|^-2.2 (exponent by the density of log |λ|).",
            where=f"{where}b", measured=by_part("log_part", lambda *at: log_law(*at).exponent),
            rule=near(-2.2, relative=0.15, partly=0.5), expected=-2.2,
            why=log_exponent_in_words,
        ),
        says(
            "Both tails are power laws (R² of the line through each; 0.99 in print).",
            where=where, measured=explained, rule=each(at_least(0.98, partly=0.9)), expected=0.99,
            why="The curve bends away from the line.",
        ),
        says(
            "The density of log |λ| gives the more precise estimate (1 - R² of its line over that of the worse of λ).",
            where=section, measured=imprecision, rule=at_most(0.5, partly=1.0), expected="below 1",
            why="Its line fits no better.",
        ),
        says(
            "The prefactors of these power laws are 1.2e-4 and 2.6e-4 (log₁₀ of ours over these).",
            where=where, measured=prefactors, rule=each(within(-0.5, 0.5, partly=(-1.5, 1.5))), expected=0.0,
            why="It is the law's density at |λ| = 1: it goes with the exponent, and with how small the loss is.",
        ),
        says(
            "The spectrum of E is no semicircle (least ∫λ⁴/(∫λ²)²; 2 for a semicircle).",
            where=where, measured=flatness, rule=at_least(5 * SEMICIRCLE, partly=1.5 * SEMICIRCLE),
            expected=f"above {SEMICIRCLE:g}", why="The tails are no heavier than those of a semicircle, or hardly.",
        ),
        says(
            "The spectrum of E is no Marchenko-Pastur law, which has one sign (share of ∫λ² on the lesser side of "
            "zero).",
            where=where if paper == PAPER else "Sec. 4", measured=lesser_side, rule=each(at_least(0.1, partly=0.01)),
            expected=0.5, why="Almost all eigenvalues have one sign.",
        ),
    )  # fmt: skip


COMPUTATION = "papyan2020.tail"
PRINTED = {
    f"network.{name}": '"VGG11 trained on MNIST sub-sampled to 1351 examples per class"'
    for name in ("network", "data", "per_class")
}
PRESETS = {
    "paper": Config(seeds=(0, 1, 2)),
    "laptop": Config(SMALL, (0, 1), Method(num_steps=64, num_probes=2, num_examples=200), 200, 200),
    "smoke": Config(TINY, (0,), Method(num_steps=6, num_probes=2, num_examples=20), 8, 20),
}
TITLE = "The tails of E on test, and their power law"
FIGURES = {
    "papyan2020.fig16": Figure(
        "papyan2020.fig16",
        TITLE,
        PRESETS,
        run,
        draw,
        statements(PAPER, "Fig. 16"),
        COMPUTATION,
        loans=loans,
        printed=PRINTED,
    )
}
