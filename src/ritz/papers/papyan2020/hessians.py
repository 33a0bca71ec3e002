"""Figures 3 and 14, and Figures 2 and 9 of papyan2019: train and test Hessian of VGG11 on three data sets.

ritz run papyan2020.fig3 papyan2020.fig14 --preset paper --device cuda
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from ... import plot
from ...record import Picture, Record
from ..frame.figure import Context, Figure
from ..frame.loans import Loan
from ..frame.pictures import write_title
from ..frame.statements import Statement, at_least, at_most, each, near
from . import spectra
from .hessian_numbers import (
    PARTS,
    change_of_precision,
    change_of_sample,
    each_panel,
    excess_error,
    finer,
    mass_at_zero,
    misaligned,
    negative_end,
    num_classes,
    off_centre,
    outliers_by_class,
    panels,
    shown,
    test_over_train,
    title,
    train_panels,
    worst_residual,
)
from .networks import sweep_on_shelf, training
from .paper import BEYOND, PAPER
from .pictures import draw_spectrum, mark_outliers
from .setting import NUM_CLASSES, SMALL, TINY, WHOLE, Data, Part, Piece
from .spectra import LANCZOS, SMOKE_METHOD, Measurement, Method, certified, measured, spectrum_of

STEMS, TICKS = "C outliers, certified", "C outliers, by deflation"


@dataclass(frozen=True)
class Config:
    """VGG11 on whole data sets, CIFAR-100 too where its files are given, and how its Hessians are measured."""

    data: tuple[Data, ...] = ("mnist", "fashion_mnist", "cifar10")  # "Each row of panels documents a … dataset"
    network: Piece = WHOLE
    method: Method = LANCZOS
    checked: int | None = 5000  # open: examples on which TF32 is compared with float32, for the first data set
    whole: bool = True  # open: the first train Hessian over all examples, too, to see what 10,000 change

    def piece(self, name: Data) -> Piece:
        """The network of a data set."""
        return self.network.on(name)

    def hessian(self, name: Data, part: Part, *, deflated: bool = True) -> Measurement:
        """One of its Hessians, with C outliers apart or none; the search of a hundred is longer than that of ten."""
        piece, more = self.piece(name), self.piece(name).num_classes // NUM_CLASSES
        pairs, products = more * self.method.num_pairs, more * self.method.max_products
        method = replace(self.method, num_pairs=pairs, max_products=products)
        return Measurement(piece, piece.num_epochs, part, "H", piece.num_classes if deflated else 0, method)


def run(config: Config, context: Context) -> dict[str, Any]:
    """Train a network for each data set; both its Hessians, with C outliers treated separately, and their checks."""
    return _hessians(config, context, {"deflated": True}) | measured(_checks(config), context)


def run_plain(config: Config, context: Context) -> dict[str, Any]:
    """Measure the Hessians of `run` both deflated and plain."""
    return _hessians(config, context, {"deflated": True, "plain": False})


def loans(config: Config) -> list[Loan]:
    """The results of sweeps in a record of the deflated Hessians."""
    return _trainings(config) + spectra.loans(_measurements(config, {"deflated": True}) | _checks(config))


def plain_loans(config: Config) -> list[Loan]:
    """The results of sweeps in a record of the Hessians, deflated and plain."""
    return _trainings(config) + spectra.loans(_measurements(config, {"deflated": True, "plain": False}))


def _trainings(config: Config) -> list[Loan]:
    return [Loan(training, config.piece(name), partial(_outcome, name=name), "outcome") for name in config.data]


def _outcome(record: Record, *, name: Data) -> dict[str, Any]:
    """The errors of one training."""
    rates = record.scalars["rates"][name]
    return {**record.scalars["errors"][name], "rate": rates["taken"], "tried": rates["tried"]}


def _measurements(config: Config, kinds: Mapping[str, bool]) -> dict[str, Measurement]:
    return {
        f"{name}/{part}/{kind}": config.hessian(name, part, deflated=k)
        for name in config.data
        for part in PARTS
        for kind, k in kinds.items()
    }


def _hessians(config: Config, context: Context, kinds: Mapping[str, bool]) -> dict[str, Any]:
    result: dict[str, Any] = {"errors": {}, "rates": {}}
    for name in config.data:
        (record,) = sweep_on_shelf(training, [config.piece(name)], context)
        facts = {key: record.scalars[key] for key in ("last_train_error", "last_test_error", "identity")}
        result["errors"][name] = facts
        result["rates"][name] = {"taken": record.scalars["rate"], "tried": record.scalars["tried"]}
        result |= measured(_measurements(replace(config, data=(name,)), kinds), context)
    return result


def _checks(config: Config) -> dict[str, Measurement]:
    """Checks on the first Hessian: in TF32 and in float32 on few examples, and over all examples."""
    first = config.hessian(config.data[0], "train")
    few = replace(first.method, num_examples=config.checked)
    checks = {
        "check/tf32": replace(first, method=replace(few, precision="high")),
        "check/float32": replace(first, method=replace(few, precision="highest")),
    }
    every = replace(first.method, num_examples=None, num_pairs=first.outliers)  # no more pairs than are compared
    whole = {"check/whole": replace(first, method=every)} if config.whole else {}
    return (checks if config.checked else {}) | whole


def draw(record: Record, *, kind: str) -> Picture:
    """A row for each data set, train left and test right, with the outliers as stems where they were taken out."""
    places = panels(record)
    figure, axes = plot.panels(len(PARTS), len(places) // len(PARTS), width=4.0, height=2.1)
    for ax, (name, part) in zip(axes, places, strict=True):
        _panel(ax, record, name, part, kind)
    axes[0].legend(frameon=False, fontsize=7, loc="upper right")
    return figure


def _panel(ax: Axes, record: Record, name: str, part: str, kind: str) -> None:
    prefix = f"{name}/{part}/{kind}"
    draw_spectrum(ax, record, prefix, color=plot.COLOURS[0], stems="" if kind == "plain" else STEMS)
    if kind == "plain":
        other = f"{name}/{part}/deflated"
        mark_outliers(ax, certified(record, other)[: num_classes(record, other)], TICKS)
    error = record.scalars["errors"][name][f"last_{part}_error"]
    write_title(ax, f"{title(name, part)} (error {100 * error:.2g} %)")


FEW_PARAMETERS = "A network with few parameters has fewer directions that do nothing."


def deflated_statements(paper: str, where: str) -> tuple[Statement, ...]:
    """The statements about the deflated spectra, under their figure's number in one of the papers."""
    says = partial(Statement, paper=paper, where=where)
    return (
        says(
            "VGG11 has 28 million parameters (in millions).",
            measured=lambda record: spectrum_of(record, f"{record.config['data'][0]}/train/deflated").size / 1e6,
            rule=near(28.0, relative=0.02, partly=0.1), expected=28.0, why="It is a narrower one, or has other layers.",
        ),
        says(
            "There are C outliers (the place of the largest gap among the eigenvalues behind the first, over C).",
            measured=each_panel(outliers_by_class), rule=each(near(1.0, relative=0.1, partly=0.3)), expected=1.0,
            why="The widest gap lies elsewhere: fewer lines, or more, stand apart.",
        ),
        says(
            "The bulk is centred around zero (|∫λ|/∫|λ|).",
            measured=each_panel(off_centre), rule=each(at_most(0.1, partly=0.4)), expected=0.0,
            why="The bulk leans to one side.",
        ),
        says(
            "There is a big concentration of eigenvalues at zero (share within a thousandth of the largest).",
            measured=each_panel(mass_at_zero), rule=each(at_least(0.9, partly=0.5)), expected=1.0, why=FEW_PARAMETERS,
        ),
        says(
            "The train Hessian has negative eigenvalues, after hundreds of epochs (-λ_min/λ_max).",
            measured=train_panels(negative_end), rule=each(at_least(1e-4, partly=1e-6)), expected="positive",
            why="None, or none that rounding would leave.",
        ),
        says(
            "Train and test Hessian clearly differ in magnitude (largest eigenvalue of test over train).",
            measured=test_over_train, rule=each(at_least(2.0, partly=1.2)), expected="above 1",
            why="The two are of the same magnitude, or the train Hessian is the larger one.",
        ),
    )  # fmt: skip


HIDDEN = Statement(
    "Without deflation, one probe shows each outlier (the share of those with a hump that is drawn: a tenth of an "
    "eigenvalue's mass).",
    BEYOND, "", measured=each_panel(shown), rule=each(at_least(1.0, partly=0.5)), expected=1.0,
    why="A random vector has next to nothing of some eigenvectors: their humps are too low to be drawn.",
)  # fmt: skip


def plain_statements(paper: str, where: str) -> tuple[Statement, ...]:
    """The statements about the spectra without deflation."""
    says = partial(Statement, paper=paper, where=where)
    return (
        says(
            "Without deflation, the outliers are where deflation has them (largest distance of one to a node, "
            "relative).",
            measured=each_panel(misaligned), rule=each(at_most(0.02, partly=0.2)), expected=0.0,
            why="One Lanczos run from one vector does not resolve each of C outliers.",
        ),
        says(
            "With deflation the bulk is resolved more finely (spacing of the nodes with it over that without).",
            measured=each_panel(finer), rule=each(at_most(0.5, partly=0.9)), expected="below 1",
            why="The outliers are not much larger than the bulk: there is little to gain.",
        ),
        replace(HIDDEN, where=where, measured=each_panel(shown)),
    )  # fmt: skip


OURS = (
    Statement(
        "The networks are as good as is usual without augmentation (test error over the usual one).",
        BEYOND, "App. D.1", measured=excess_error, rule=each(at_most(1.25, partly=2.0)), expected=1.0,
        why="Trained on less, for less long, or from a rate of a coarser choice.",
    ),
    Statement(
        "Every outlier is an eigenvalue (largest residual ‖Hv - λv‖, relative to the largest).",
        BEYOND, "Fig. 3", measured=worst_residual, rule=at_most(2e-3, partly=2e-2), expected=0.0,
        why="A search ended before it had converged.",
    ),
    Statement(
        "TF32 in the linear maps changes nothing that is seen (against float32, on fewer examples).",
        BEYOND, "Fig. 3", measured=change_of_precision,
        rule=each(at_most(0.01, partly=0.05)), expected=0.0, why="TF32 moves the spectrum.",
    ),
    Statement(
        "Some of the examples, 10,000 of 50,000 at preset paper, show the train Hessian (against all of them).",
        BEYOND, "Fig. 3", measured=change_of_sample, rule=each(at_most(0.01, partly=0.2)), expected=0.0,
        why="So much do the outliers of these examples differ from those of all.",
    ),
)  # fmt: skip

COMPUTATION, PLAIN_COMPUTATION = "papyan2020.hessians", "papyan2020.plain_hessians"
PRESETS = {
    "paper": Config(),
    "laptop": Config(network=SMALL, method=Method(num_steps=64, num_examples=300), checked=100),
    "smoke": Config(("digits",), TINY, SMOKE_METHOD, checked=10, whole=False),
}
TITLE = "Train and test Hessian of VGG11 on three data sets"
PLAIN_TITLE = f"{TITLE}, not deflated"
draw_deflated, draw_plain = partial(draw, kind="deflated"), partial(draw, kind="plain")
FIGURES = {
    "papyan2020.fig3": Figure(
        "papyan2020.fig3", TITLE, PRESETS, run, draw_deflated, (*deflated_statements(PAPER, "Sec. 4.1, Fig. 3"), *OURS),
        COMPUTATION, loans=loans,
    ),
    "papyan2020.fig14": Figure(
        "papyan2020.fig14", PLAIN_TITLE, PRESETS, run_plain, draw_plain, plain_statements(PAPER, "App. C, Fig. 14"),
        PLAIN_COMPUTATION, loans=plain_loans,
    ),
}  # fmt: skip
