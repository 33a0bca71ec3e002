"""Measures of train and test Hessians, deflated and not: outliers, bulks, and how far measurements agree."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...record import Record
from .setting import TITLES, Data, Part
from .spectra import bulk, certified, mean_size, spacing, spectrum_of

PARTS: tuple[Part, ...] = ("train", "test")
SAME, LEAST_DRAWN = 0.02, 0.1  # relative distance of a node, and mass in eigenvalues: where axes begin
USUAL = {  # test errors without augmentation
    "mnist": 0.006,
    "fashion_mnist": 0.07,
    "cifar10": 0.16,
    "cifar100": 0.45,
    "digits": 0.05,
}


def panels(record: Record) -> list[tuple[Data, Part]]:
    """The panels of a figure: data sets by parts."""
    return [(name, part) for name in record.config["data"] for part in PARTS]


def title(name: str, part: str) -> str:
    """A panel's name."""
    return f"{TITLES[name]}, {part}"


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
