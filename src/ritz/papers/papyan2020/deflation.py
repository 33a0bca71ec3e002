"""Figure 17, and Figure 5 of papyan2019: what deflation shows of the train Hessian of ResNet-18 on part of MNIST.

ritz run papyan2020.fig17 --preset paper --device cuda
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ... import plot
from ...record import Picture, Record
from ..frame.figure import Context, Figure
from ..frame.loans import Loan
from ..frame.pictures import write_title
from ..frame.statements import Statement, at_most, each, near
from . import spectra
from .hessian_numbers import finer, largest_residual, misaligned, num_outliers, shown
from .hessians import HIDDEN
from .networks import sweep_on_shelf, training
from .paper import BEYOND, PAPER
from .pictures import draw_spectrum, mark_outliers, network_in_words, of_seeds
from .setting import NUM_CLASSES, SMALL, TINY, Piece, check_ten_classes
from .spectra import LANCZOS, SMOKE_METHOD, Measurement, Method, certified, measured

RESNET = Piece("resnet18", per_class=136)
KINDS = {"deflated": NUM_CLASSES, "plain": 0}
ERRORS = ("last_train_error", "last_test_error")


@dataclass(frozen=True)
class Config:
    """Networks trained on part of MNIST, and their train Hessian."""

    network: Piece = RESNET
    seeds: tuple[int, ...] = (0,)  # open: print shows one network; more of them say how much it differs from the next
    method: Method = LANCZOS

    @property
    def pieces(self) -> list[Piece]:
        """The network from each seed."""
        return [self.network.with_seed(seed) for seed in self.seeds]


def run(config: Config, context: Context) -> dict[str, Any]:
    """Train a network from each seed; its train Hessian with C outliers taken out, and as it is."""
    check_ten_classes(config.network)
    records = sweep_on_shelf(training, config.pieces, context)
    errors = np.array([[record.scalars[name] for name in ERRORS] for record in records])
    return {"last_errors": errors, **measured(_measurements(config), context)}


def loans(config: Config) -> list[Loan]:
    """The results of sweeps in a record of this config."""
    trainings = [
        Loan(training, piece, partial(_last_errors, at=at), "last errors") for at, piece in enumerate(config.pieces)
    ]
    return trainings + spectra.loans(_measurements(config))


def _last_errors(record: Record, *, at: int) -> dict[str, Any]:
    """The last errors of one training, for the seed at this place."""
    return dict(zip(ERRORS, record.arrays["last_errors"][at], strict=True))


def _measurements(config: Config) -> dict[str, Measurement]:
    return {
        f"seed {piece.seed}/{kind}": Measurement(piece, piece.num_epochs, "train", "H", count, config.method)
        for piece in config.pieces
        for kind, count in KINDS.items()
    }


def draw(record: Record) -> Picture:
    """Above with the outliers taken out, below without, on one axis; the first network."""
    figure, axes = plot.panels(1, len(KINDS), width=6.0, height=2.2)
    first, piece = _deflated(record)[0].removesuffix("/deflated"), record.config["network"]
    network = f"{network_in_words(piece)}, {piece['per_class']} a class"
    for ax, kind in zip(axes, KINDS, strict=True):
        draw_spectrum(ax, record, f"{first}/{kind}", color=plot.COLOURS[0])
        words = "C outliers by a search of their own" if kind == "deflated" else "Lanczos alone (ticks: the C outliers)"
        write_title(ax, f"{network}{of_seeds(record)}: {words}", size=8)
    mark_outliers(axes[-1], certified(record, f"{first}/deflated")[:NUM_CLASSES], "")
    ends = [end for ax in axes for end in ax.get_xlim()]
    for ax in axes:
        ax.set_xlim(min(ends), max(ends))
    return figure


def _deflated(record: Record) -> list[str]:
    return [f"seed {seed}/deflated" for seed in record.config["seeds"]]


def every_seed(number: Any) -> Any:
    """A number for every network, deflated and not."""
    return lambda record: {name.removesuffix("/deflated"): number(record, name) for name in _deflated(record)}


def statements(paper: str, where: str) -> tuple[Statement, ...]:
    """The statements of both papers, and those of ours on which they rest."""
    says = partial(Statement, paper=paper, where=where)
    return (
        says(
            "The top eigenvalues align with the outliers of Lanczos alone (largest distance of one to a node, "
            "relative).",
            measured=every_seed(misaligned), rule=each(at_most(0.02, partly=0.2)), expected=0.0,
            why="One Lanczos run from one vector does not resolve each of C outliers.",
        ),
        says(
            "Deflation improves the resolution of the bulk (spacing of the nodes with it over that without).",
            measured=every_seed(finer), rule=each(at_most(0.5, partly=0.9)), expected="below 1",
            why="The outliers are not much larger than the bulk: there is little to gain.",
        ),
        replace(
            says(
                "Deflation detects the outliers precisely (largest residual ‖Hv - λv‖, relative to the largest).",
                measured=every_seed(largest_residual), rule=each(at_most(2e-3, partly=2e-2)), expected=0.0,
                why="A search ended before it had converged.",
            ),
            paper=BEYOND,
        ),
        replace(HIDDEN, where=where, measured=every_seed(shown)),
        Statement(
            "There are C outliers (the place of the largest gap among the eigenvalues behind the first).",
            paper, "Sec. C.8" if paper == PAPER else "Sec. 5.7", measured=every_seed(num_outliers),
            rule=each(near(NUM_CLASSES, relative=0.1, partly=0.3)), expected=NUM_CLASSES,
            why="The widest gap lies elsewhere: fewer lines, or more, stand apart.",
        ),
    )  # fmt: skip


COMPUTATION = "papyan2020.deflation"
PRINTED = {
    f"network.{name}": '"ResNet18 trained on MNIST with 136 examples per class"'
    for name in ("network", "data", "per_class")
}
PRESETS = {
    "paper": Config(seeds=(0, 1, 2)),
    "laptop": Config(replace(SMALL, network="resnet18", per_class=30), (0,), Method(num_steps=64)),
    "smoke": Config(replace(TINY, network="resnet18", narrow=64), (0,), SMOKE_METHOD),
}
TITLE = "The train Hessian of ResNet-18 with and without deflation"
FIGURES = {
    "papyan2020.fig17": Figure(
        "papyan2020.fig17",
        TITLE,
        PRESETS,
        run,
        draw,
        statements(PAPER, "Fig. 17"),
        COMPUTATION,
        loans=loans,
        printed=PRINTED,
    )
}
