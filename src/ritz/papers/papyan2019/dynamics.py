"""Figures 6 and 10: H, G and E along training on growing parts of CIFAR-10, and the errors of these networks.

    ritz run papyan2019.fig6 papyan2019.fig10 --preset paper --device cuda

The paper writes H for E here, and Hess for H.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ... import plot
from ...record import Picture, Record
from ..frame.figure import Context, Figure
from ..frame.loans import Loan
from ..frame.pictures import legend_above, write_title
from ..frame.readings import ByReading
from ..frame.statements import at_least, at_most, each
from ..frame.statistics import spearman
from ..papyan2020 import spectra
from ..papyan2020.components import COLOUR, MATRICES
from ..papyan2020.networks import sweep_on_shelf, training
from ..papyan2020.pictures import draw_spectrum, of_seeds
from ..papyan2020.setting import FOLLOWED, NUM_CLASSES, SIZES, SMALL, TINY, Piece, check_ten_classes
from ..papyan2020.spectra import SMOKE_METHOD, Measurement, Method, bulk, certified, measured
from .paper import printed, says

BRIEF = Method(num_steps=64, num_pairs=NUM_CLASSES, num_examples=5000)  # for its 225 spectra; 128 steps in print
CURVES = ("train_error", "test_error")
FALL = 0.9  # of its whole fall: where the error has made this, its curve has bent


@dataclass(frozen=True)
class Config:
    """VGG11 on these numbers of examples a class, measured at these epochs and the last."""

    network: Piece = FOLLOWED
    sizes: tuple[int, ...] = SIZES  # "20 training sample sizes logarithmically spaced": five of them, a class
    seeds: tuple[int, ...] = (0, 1, 2)  # open: print shows one network; more of them say how much it differs
    method: Method = BRIEF

    def pieces(self, size: int) -> list[Piece]:
        """The networks on this many examples a class, from all their seeds."""
        return [replace(self.network, per_class=size, seed=seed) for seed in self.seeds]


def run(config: Config, context: Context) -> dict[str, Any]:
    """Train each network; at each of its epochs the three spectra: sizes × seeds × epochs."""
    check_ten_classes(config.network)
    result: dict[str, Any] = {}
    for size in config.sizes:
        pieces = config.pieces(size)
        records = sweep_on_shelf(training, pieces, context)
        result |= {f"{size}/{name}": np.stack([r.arrays[name] for r in records]) for name in CURVES}
        result["error_epochs"] = records[0].arrays["epochs"]
        for piece in pieces:
            result |= measured(_measurements(piece, config.method), context)
    return result | {"epochs": np.array(pieces[0].epochs)}


def loans(config: Config) -> list[Loan]:
    """The results of sweeps in a record of this config."""
    pieces = [(at, piece) for size in config.sizes for at, piece in enumerate(config.pieces(size))]
    trainings = [Loan(training, piece, partial(_curves, size=piece.per_class, at=at), "curves") for at, piece in pieces]
    every = {name: one for _, piece in pieces for name, one in _measurements(piece, config.method).items()}
    return trainings + spectra.loans(every)


def _curves(record: Record, *, size: int, at: int) -> dict[str, Any]:
    """The errors of one training, for the seed at this place."""
    return {"epochs": record.arrays["error_epochs"]} | {name: record.arrays[f"{size}/{name}"][at] for name in CURVES}


def _measurements(piece: Piece, method: Method) -> dict[str, Measurement]:
    return {
        prefix(piece.per_class, piece.seed, epoch, matrix): Measurement(
            piece, epoch, "train", matrix, 0 if matrix == "E" else NUM_CLASSES, method
        )
        for epoch in piece.epochs
        for matrix in MATRICES
    }


def prefix(size: int, seed: int, epoch: int, matrix: str) -> str:
    """The prefix of a spectrum in the record."""
    return f"{size}/seed {seed}/{epoch}/{matrix}"


def edge(record: Record, size: int, seed: int, epoch: int) -> float:
    """The bulk edge of E, by which the paper divides: its largest |λ|."""
    return max(map(abs, bulk(record, prefix(size, seed, epoch, "E")).range))


def heights(record: Record, size: int) -> np.ndarray:
    """λ_max(G) at each epoch over the edge of E there, the mean over the seeds in logarithms."""
    at, seeds = record.arrays["epochs"].tolist(), record.config["seeds"]
    top = lambda seed, epoch: certified(record, prefix(size, seed, epoch, "G"))[0] / edge(record, size, seed, epoch)
    return np.exp(np.mean([[np.log(top(seed, epoch)) for epoch in at] for seed in seeds], axis=0))


def magnitudes(record: Record, size: int) -> np.ndarray:
    """λ_max(G) at each epoch by itself, the mean over the seeds in logarithms."""
    at, seeds = record.arrays["epochs"].tolist(), record.config["seeds"]
    rows = [[np.log(certified(record, prefix(size, seed, epoch, "G"))[0]) for epoch in at] for seed in seeds]
    return np.exp(np.mean(rows, axis=0))


def by_size(number: Callable[[Record, int], float]) -> Callable[[Record], dict[str, float]]:
    """A number for each sample size."""
    return lambda record: {f"{size} a class": number(record, size) for size in record.config["sizes"]}


# The magnitude of G: as the caption says that it is drawn, or as it is.
SIZES_OF_G = {"over the edge of E, as it is drawn": heights, "by itself": magnitudes}


def by_reading(number: Callable[[Record, int, np.ndarray], float]) -> Callable[[Record], ByReading]:
    """A number of the magnitudes of G along training, for each sample size, by both readings."""

    def measured(record: Record) -> ByReading:
        sizes = record.config["sizes"]
        return ByReading(
            (words, {f"{size} a class": number(record, size, values(record, size)) for size in sizes})
            for words, values in SIZES_OF_G.items()
        )

    return measured


def peak(record: Record, size: int, values: np.ndarray) -> float:
    """The magnitude of G at its peak, relative to the larger of its first and last."""
    return float(values.max() / max(values[0], values[-1]))


def fall(record: Record, size: int) -> float:
    """λ_max(G) over the edge of E at the last epoch."""
    return float(heights(record, size)[-1])


Squares = Callable[[Record, str], float]  # ∫λ² of what lies under a prefix
SPECTRA_OF_BOTH: dict[str, Squares] = {
    "whole spectra": lambda record, name: spectra.spectrum_of(record, name).moment(2),
    "bulks, without the C outliers of G": lambda record, name: bulk(record, name).moment(2),
}


def _shares_of_E(record: Record, size: int, squares: Squares) -> list[float]:
    """∫λ² of E over that of E and G together, at every epoch of every seed."""
    shares = []
    for seed, epoch in product(record.config["seeds"], record.arrays["epochs"].tolist()):
        E, G = (squares(record, prefix(size, seed, epoch, matrix)) for matrix in "EG")
        shares.append(E / (E + G))
    return shares


def least_of_E(record: Record) -> ByReading:
    """The least share of E over all epochs and seeds, for each sample size."""
    least = lambda squares: by_size(lambda record, size: min(_shares_of_E(record, size, squares)))
    return ByReading((words, least(squares)(record)) for words, squares in SPECTRA_OF_BOTH.items())


def most_of_E(record: Record) -> ByReading:
    """The largest share of E over all epochs, seeds and sample sizes."""
    sizes = record.config["sizes"]
    return ByReading(
        (words, max(max(_shares_of_E(record, size, own)) for size in sizes)) for words, own in SPECTRA_OF_BOTH.items()
    )


def separation(record: Record, size: int) -> float:
    """ln of the C-th eigenvalue of H over the upper end of its bulk at the last epoch, the mean over the seeds."""
    last, seeds = int(record.arrays["epochs"][-1]), record.config["seeds"]
    names = [prefix(size, seed, last, "H") for seed in seeds]
    ends = [(certified(record, name)[NUM_CLASSES - 1], bulk(record, name).range[1]) for name in names]
    return float(np.mean([np.log(max(abs(least), 1e-30) / max(end, 1e-30)) for least, end in ends]))


def generalisation(record: Record) -> float | None:
    """Spearman's ρ over the sample sizes of H's separation with the last test error; None for fewer than three."""
    sizes = record.config["sizes"]
    if len(sizes) < 3:
        return None
    errors = [float(record.arrays[f"{size}/test_error"][:, -1].mean()) for size in sizes]
    return spearman(np.array([separation(record, size) for size in sizes]), np.array(errors))


def peak_epoch(record: Record, values: np.ndarray) -> int:
    """The epoch at which G is largest."""
    return int(record.arrays["epochs"][int(np.argmax(values))])


def bend_epoch(record: Record, size: int) -> float:
    """The epoch at which the mean train error over the seeds has made nine tenths of its fall."""
    error = record.arrays[f"{size}/train_error"].mean(0)
    fallen = (error[0] - error) >= FALL * (error[0] - error.min())
    return float(record.arrays["error_epochs"][int(np.argmax(fallen))])


def bend_to_peak(record: Record, size: int, values: np.ndarray) -> float:
    """|log₃| of the epoch of the peak over that of the bend: 1 where they are a factor of three apart."""
    return abs(float(np.log(peak_epoch(record, values) / max(bend_epoch(record, size), 1.0)))) / float(np.log(3))


def _fallen(record: Record, size: int, until: float) -> float:
    """The share of the train error's fall that it has made by an epoch."""
    error, at = record.arrays[f"{size}/train_error"].mean(0), record.arrays["error_epochs"]
    early = error[at <= max(until, 1)][-1]
    whole = error[0] - error.min()
    return float((error[0] - early) / whole) if whole > 0 else float("nan")


def early_fall(record: Record) -> ByReading:
    """The share of the train error's fall after "the first few epochs": ten of them, or a tenth of all."""
    ends = {"the first ten epochs": 10.0, "the first tenth of them": float(record.arrays["error_epochs"][-1]) / 10}
    fallen = lambda end: by_size(lambda record, size: _fallen(record, size, end))
    return ByReading((words, fallen(end)(record)) for words, end in ends.items())


def draw_spectra(record: Record) -> Picture:
    """A column for each sample size, a row for each epoch: H, G and E of the first seed, over the edge of E."""
    sizes, at, seed = record.config["sizes"], record.arrays["epochs"].tolist(), record.config["seeds"][0]
    figure, axes = plot.panels(len(sizes), len(at), width=2.2, height=1.5)
    for row, epoch in enumerate(at):
        for column, size in enumerate(sizes):
            _panel(axes[row * len(sizes) + column], record, size, seed, epoch)
    dots = "dots: the C outliers of H, and of G upon them"
    figure.supxlabel(f"eigenvalue λ over the largest |λ| of E{of_seeds(record)}\n{dots}", fontsize=8)
    figure.supylabel("density", fontsize=8)
    legend_above(figure, axes[0], columns=len(MATRICES))
    return figure


def _panel(ax: Axes, record: Record, size: int, seed: int, epoch: int) -> None:
    scale = edge(record, size, seed, epoch)
    for matrix in MATRICES:
        name = prefix(size, seed, epoch, matrix)
        size_of = 4.5 if matrix == "H" else 2.0  # its outliers are behind those of G, at about the same places
        draw_spectrum(ax, record, name, scale=scale, markersize=size_of, color=COLOUR[matrix], label=matrix)
    ax.set(xlabel="", ylabel="")
    write_title(ax, f"{size} a class, epoch {epoch}", size=7)


def draw_errors(record: Record) -> Picture:
    """Train and test error against the epoch, a line for each sample size, with the peak of G as a circle."""
    figure, axes = plot.panels(2, width=4.0, height=3.0)
    at = record.arrays["error_epochs"]
    for ax, part in zip(axes, ("train", "test"), strict=True):
        for place, (size, colour) in enumerate(zip(record.config["sizes"], plot.COLOURS, strict=False)):
            error = record.arrays[f"{size}/{part}_error"].mean(0)
            ax.plot(at[1:], error[1:], color=colour, lw=1.2, label=f"{size} a class")
            when = peak_epoch(record, heights(record, size))
            width = max(11.0 - 1.5 * place, 4.0)  # at one place, the first are behind the next and seen around them
            ax.plot(when, error[np.searchsorted(at, when)], "o", color=colour, markeredgewidth=0, ms=width)
        ax.set(xscale="log", xlabel="epoch", ylabel="misclassified")
        count = len(record.config["seeds"])
        means = f", means over {count} seeds" if count > 1 else ""
        write_title(ax, f"{part}{means} (● the peak of G)")
    legend_above(figure, axes[0], columns=len(record.config["sizes"]))
    return figure


SPECTRA = (
    says(
        "With epochs G rises in magnitude to a peak and falls again (λ_max at its peak over the larger of both ends).",
        where="Fig. 6", measured=by_reading(peak), rule=each(at_least(1.5, partly=1.1)), expected="above 1",
        why="G is largest at the first or the last epoch at which it was measured, or hardly larger in between.",
    ),
    says(
        "G falls to where it is negligible against E (λ_max(G) over the largest |λ(E)| at the last epoch).",
        where="Fig. 6", measured=by_size(fall), rule=each(at_most(0.3, partly=1.0)), expected=0.0,
        why="At the end G is not negligible: its largest eigenvalue is that many times the edge of E.",
    ),
    says(
        "E is never negligible against G (its share of ∫λ² of both, the least of all epochs).",
        where="Sec. 4", measured=least_of_E, rule=each(at_least(0.1, partly=0.01)), expected="not small",
        why="At some epoch G has nearly all of it.",
    ),
    says(
        "… and the opposite is sometimes correct: G is negligible against E (that share, the largest of all epochs and "
        "sample sizes).",
        where="Sec. 4", measured=most_of_E, rule=at_least(0.9, partly=0.5), expected=1.0,
        why="G has a part at every epoch.",
    ),
    says(
        "The separation of the outliers of H from its bulk correlates with generalisation (Spearman's ρ over the "
        "sample sizes of ln λ_C over the end of the bulk with the test error).",
        paper="papyan2020", where="Sec. 9.4", measured=generalisation, rule=at_most(-0.8, partly=-0.3), expected=-1.0,
        why="Networks with a smaller test error do not have their outliers further apart.",
    ),
)  # fmt: skip
ERRORS = (
    says(
        "The train error falls rapidly in the first few epochs, then slowly (share of its whole fall in the first "
        "few).",
        where="Fig. 10", measured=early_fall, rule=each(at_least(0.7, partly=0.4)), expected="most of it",
        why="Few examples make few steps an epoch: their error falls later.",
    ),
    says(
        "The bend is where G reaches its apex (|log₃| of the ratio of both epochs).",
        where="Fig. 10", measured=by_reading(bend_to_peak), rule=each(at_most(1.0, partly=2.0)), expected=0.0,
        why="The two are further apart than a factor of three, or G was measured too seldom to say.",
    ),
)  # fmt: skip


COMPUTATION = "papyan2019.dynamics"
ON_CIFAR = "VGG11 trained on CIFAR10"
PRINTED = printed(network=ON_CIFAR, data=ON_CIFAR, steps="fewer, for its 225 spectra")
PRESETS = {
    "paper": Config(),
    "laptop": Config(
        replace(SMALL, data="cifar10", pauses=(1, 4)),
        (13, 51),
        (0,),
        replace(BRIEF, num_steps=32, num_examples=200),
    ),
    "smoke": Config(replace(TINY, pauses=(1,)), (4,), (0,), SMOKE_METHOD),
}
FIGURES = {
    "papyan2019.fig6": Figure(
        "papyan2019.fig6",
        "H, G and E along training, by sample size",
        PRESETS,
        run,
        draw_spectra,
        SPECTRA,
        COMPUTATION,
        loans=loans,
        printed=PRINTED,
    ),
    "papyan2019.fig10": Figure(
        "papyan2019.fig10",
        "Errors along training, by sample size",
        PRESETS,
        run,
        draw_errors,
        ERRORS,
        COMPUTATION,
        loans=loans,
        printed=PRINTED,
    ),
}
