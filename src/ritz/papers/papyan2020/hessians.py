"""Figures 3 and 14, and Figures 2 and 9 of papyan2019: train and test Hessian of VGG11 on three data sets.

ritz run papyan2020.fig3 papyan2020.fig14 --preset paper --device cuda
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ... import plot
from ...record import Picture, Record
from ..frame.figure import Context, Figure
from ..frame.loans import Loan
from ..frame.pictures import write_title
from ..frame.statements import Statement, at_least, at_most, each, near
from . import spectra
from .networks import sweep_on_shelf, training
from .paper import BEYOND, PAPER
from .pictures import draw_spectrum, mark_outliers
from .setting import NUM_CLASSES, SMALL, TINY, TITLES, WHOLE, Data, Part, Piece
from .spectra import LANCZOS, Measurement, Method, bulk, certified, mean_size, measured, spacing, spectrum_of

PARTS: tuple[Part, ...] = ("train", "test")
SAME, LEAST_DRAWN = 0.02, 0.1  # relative distance of a node, and mass in eigenvalues: where axes begin
STEMS, TICKS = "C outliers, certified", "C outliers, by deflation"
USUAL = {  # test errors without augmentation
    "mnist": 0.006,
    "fashion_mnist": 0.07,
    "cifar10": 0.16,
    "cifar100": 0.45,
    "digits": 0.05,
}


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


def panels(record: Record) -> list[tuple[Data, Part]]:
    """The panels of a figure: data sets by parts."""
    return [(name, part) for name in record.config["data"] for part in PARTS]


def title(name: str, part: str) -> str:
    """A panel's name."""
    return f"{TITLES[name]}, {part}"


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


def each_panel(number: Callable[[Record, str], float]) -> Callable[[Record], dict[str, float]]:
    """A number for every deflated panel."""
    return lambda record: {
        title(name, part): number(record, f"{name}/{part}/deflated") for name, part in panels(record)
    }


def train_panels(number: Callable[[Record, str], float]) -> Callable[[Record], dict[str, float]]:
    """A number for every train Hessian."""
    return lambda record: {TITLES[name]: number(record, f"{name}/train/deflated") for name in record.config["data"]}


def num_classes(record: Record, prefix: str) -> int:
    """C of the network under a prefix: as many outliers as were taken out of its deflated spectrum."""
    return int(record.scalars[f"{prefix}/facts"]["outliers"])


def outliers_by_class(record: Record, prefix: str) -> float:
    """How many outliers there are, over C."""
    return num_outliers(record, prefix) / num_classes(record, prefix)


def num_outliers(record: Record, prefix: str) -> float:
    """The k with the largest |λ_k|/|λ_{k+1}| among the certified, except the first, which is isolated by itself."""
    sizes = np.abs(certified(record, prefix))
    ratios = sizes[1:-1] / np.maximum(sizes[2:], np.finfo(float).tiny)
    return float(np.argmax(ratios) + 2) if len(ratios) else float("nan")


def off_centre(record: Record, prefix: str) -> float:
    """|∫λ|/∫|λ| of the bulk: 0 if it is centred, 1 if all of it lies on one side, however much of it is zero."""
    spectrum = bulk(record, prefix)
    return abs(spectrum.moment(1)) / max(mean_size(spectrum), np.finfo(float).tiny)


def mass_at_zero(record: Record, prefix: str) -> float:
    """The share of eigenvalues within a thousandth of the largest."""
    return bulk(record, prefix).zero_mass(1e-3 * float(np.abs(certified(record, prefix)).max()))


def negative_end(record: Record, prefix: str) -> float:
    """-λ_min/λ_max, λ_min being the smallest node: a Rayleigh quotient, so that H has an eigenvalue below it."""
    spectrum = spectrum_of(record, prefix)
    return -spectrum.range[0] / spectrum.range[1]


def test_over_train(record: Record) -> dict[str, float]:
    """The largest eigenvalue of the test Hessian over that of the train Hessian."""
    top = lambda name, part: float(np.abs(certified(record, f"{name}/{part}/deflated")).max())
    return {TITLES[name]: top(name, "test") / top(name, "train") for name in record.config["data"]}


def misaligned(record: Record, prefix: str) -> float:
    """The largest distance of one of C outliers from the nearest node of the spectrum that was not deflated, over λ."""
    values = certified(record, prefix)[: num_classes(record, prefix)]
    nodes = spectrum_of(record, prefix.replace("/deflated", "/plain")).nodes.numpy().ravel()
    return float((np.abs(nodes[:, None] - values).min(0) / np.abs(values)).max())


def shown(record: Record, prefix: str) -> float:
    """The share of C outliers in which one probe has at least a tenth of an eigenvalue's mass, enough to be drawn."""
    plain = spectrum_of(record, prefix.replace("/deflated", "/plain"))
    values = certified(record, prefix)[: num_classes(record, prefix)]
    nodes, weights = plain.nodes.numpy().ravel(), plain.weights.numpy().ravel() / plain.num_probes
    near_by = np.abs(nodes[:, None] - values) <= SAME * np.abs(values)
    return float(((near_by * weights[:, None]).sum(0) * plain.size >= LEAST_DRAWN).mean())


def finer(record: Record, prefix: str) -> float:
    """The spacing of the deflated density over that of the plain one."""
    return spacing(record, prefix) / spacing(record, prefix.replace("/deflated", "/plain"))


def excess_error(record: Record) -> dict[str, float]:
    """The test error over the usual one, for each data set."""
    return {TITLES[name]: facts["last_test_error"] / USUAL[name] for name, facts in record.scalars["errors"].items()}


def largest_residual(record: Record, prefix: str) -> float:
    """The largest residual of a certified eigenvalue, relative to the largest of its matrix."""
    return float(record.arrays[f"{prefix}/residuals"].max() / np.abs(certified(record, prefix)).max())


def worst_residual(record: Record) -> float:
    """The largest relative residual of a certified eigenvalue in any panel."""
    return max(each_panel(largest_residual)(record).values())


def difference(record: Record, first: str, second: str) -> dict[str, float]:
    """How far two measurements of a Hessian are apart: W₁ over the range, and the outliers, relative."""
    a, b = spectrum_of(record, first), spectrum_of(record, second)
    low, high = b.range
    count = num_classes(record, first)
    values, others = (np.sort(certified(record, name))[::-1][:count] for name in (first, second))
    return {
        "Wasserstein distance over the range": a.wasserstein(b) / (high - low),
        "outliers": float(np.abs(values / others - 1).max()),
    }


def change_of_precision(record: Record) -> dict[str, float] | None:
    """The train Hessian with TF32 in its linear maps against that in float32, where both were measured."""
    return difference(record, "check/tf32", "check/float32") if record.config["checked"] else None


def change_of_sample(record: Record) -> dict[str, float] | None:
    """The train Hessian over 10,000 examples against that over all, where it was measured."""
    if not record.config["whole"]:
        return None
    return difference(record, f"{record.config['data'][0]}/train/deflated", "check/whole")


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
SMOKE_METHOD = Method(num_steps=4, num_pairs=11, tolerance=0.3, num_examples=20)
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
