"""Measures of the panels of epochs and sample sizes: distances between the parts of G, and alignments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from ...record import Record
from ...spectrum import Spectrum
from ..frame.statistics import spearman
from .gradients import eigenvalues, spectrum_of
from .knockout_numbers import curve_distance, peaks
from .setting import NUM_CLASSES, SIZES

C = NUM_CLASSES
FLOOR = 1e-5  # "we approximate the spectrum of log(G + 1e-5 I)"
MEANS = C * (C - 2)  # eigenvalues of G_cross; the C that are printed as those of G_c=c' are zero
WIDTH = 0.25  # of a Gaussian in log λ


def cells_of(record: Record) -> list[tuple[int, int, int]]:
    """The (seed, examples a class, epoch) of every panel in a record."""
    names = {tuple(name.split("/")[:3]) for name in record.arrays}
    return sorted((int(seed), int(size), int(epoch)) for seed, size, epoch in names)


def seen_cells(record: Record) -> list[tuple[int, int, int]]:
    """The panels where G is not zero: in test mode, a network after two steps may be sure of everything."""
    return [cell for cell in cells_of(record) if panel(record, *cell).top[0] > 0]


@dataclass(frozen=True)
class Panel:
    """The content of a panel: the eigenvalues of G and of its class and cross-class means, and averages of G_within."""

    top: np.ndarray  # the C largest of G
    means: np.ndarray  # of G_class + G_cross + G_c=c', largest first
    within: np.ndarray  # tr G_within,c / N by class, as printed, of Σ_c' w_cc' G_within,c,c'
    exact: bool


def panel(record: Record, seed: int, size: int, epoch: int) -> Panel:
    """The numbers of one panel."""
    name = f"{seed}/{size}/{epoch}"
    if f"{name}/G/nodes" in record.arrays:
        values, means = (eigenvalues(record, f"{name}/{part}") for part in ("G", "within"))
        return Panel(values[:C], means, record.arrays[f"{name}/within_traces"] / size, True)
    means = np.sort(record.arrays[f"{name}/parts/together/nodes"])[::-1]
    top = np.sort(record.arrays[f"{name}/lanczos/outliers"])[::-1]
    return Panel(top, means, record.arrays[f"{name}/parts/within_traces"] / size, False)


def cross_distance(one: Panel) -> float:
    """log₁₀ of the median eigenvalue of the cross-class means over the average of G_within."""
    cross = one.means[C : C + MEANS]
    return float(np.log10(max(np.median(cross), 1e-30) / one.within.mean()))


def class_distance(one: Panel) -> float:
    """log₁₀ of the mean eigenvalue of the class means over the average of G_within."""
    return float(np.log10(one.means[:C].mean() / one.within.mean()))


def alignment(one: Panel) -> float:
    """The mean |log₁₀| of the ratio of the C largest eigenvalues of G and of its means."""
    return float(np.abs(np.log10(one.top / one.means[:C])).mean())


def over_seeds(record: Record, measure: Callable[[Panel], float]) -> dict[tuple[int, int], float]:
    """The mean of a panel's number over the seeds, by examples a class and epoch; panels where G is zero have none."""
    numbers: dict[tuple[int, int], list[float]] = {}
    for seed, size, epoch in seen_cells(record):
        numbers.setdefault((size, epoch), []).append(measure(panel(record, seed, size, epoch)))
    return {cell: float(np.mean(values)) for cell, values in numbers.items()}


def along(record: Record, axis: str, measure: Callable[[Panel], float]) -> dict[str, float]:
    """Spearman's ρ of a panel's number, the mean over its seeds, with the epoch or the sample size, the other fixed."""
    values = over_seeds(record, measure)
    sizes, epochs = (sorted({cell[i] for cell in values}) for i in range(2))
    rows = {f"{size} a class": [(size, epoch) for epoch in epochs] for size in sizes}
    columns = {f"epoch {epoch}": [(size, epoch) for size in sizes] for epoch in epochs}
    moving = np.array(epochs if axis == "epoch" else sizes, dtype=float)
    result: dict[str, float] = {}
    for name, cells in (rows if axis == "epoch" else columns).items():
        result[name] = spearman(moving, np.array([values.get(cell, float("nan")) for cell in cells]))
    return {name: rho for name, rho in result.items() if not np.isnan(rho)}


def separation(axis: str) -> Callable[[Record], dict[str, float] | None]:
    """How |log₁₀| of G_cross over G_within changes with epochs or sample sizes; None for fewer than three."""
    return lambda record: along(record, axis, lambda one: abs(cross_distance(one))) or None


def class_change(record: Record) -> dict[str, float]:
    """The median range of log₁₀ of G_class over G_within over all epochs, and over all sizes: means over seeds."""
    values = over_seeds(record, class_distance)
    panels = np.array([[*cell, number] for cell, number in values.items()])
    ranges = lambda column: [np.ptp(panels[panels[:, column] == at, 2]) for at in np.unique(panels[:, column])]
    return {"epochs, a size fixed": float(np.median(ranges(0))), "sizes, an epoch fixed": float(np.median(ranges(1)))}


def largest_alignment(record: Record) -> dict[str, float]:
    """The median over seeds and epochs of the distance between the C largest of G and of its means, by size."""
    cells = seen_cells(record)
    sizes = sorted({size for _, size, _ in cells})
    return {
        f"{size} a class": float(np.median([alignment(panel(record, *cell)) for cell in cells if cell[1] == size]))
        for size in sizes
    }


def _eigenvalues(record: Record, cell: tuple[int, int, int]) -> np.ndarray | None:
    """All eigenvalues of G in a panel that has its Gram matrix."""
    name = "/".join(map(str, cell))
    return eigenvalues(record, f"{name}/G") if f"{name}/G/nodes" in record.arrays else None


def exactly(measure: Callable[[Panel, np.ndarray], float]) -> Callable[[Record], dict[str, float] | None]:
    """The median over seeds and epochs of a number of exact panels, by size; None where there are none."""

    def measured(record: Record) -> dict[str, float] | None:
        result: dict[str, list[float]] = {}
        for cell in seen_cells(record):
            if (values := _eigenvalues(record, cell)) is not None:
                result.setdefault(f"{cell[1]} a class", []).append(measure(panel(record, *cell), values))
        return {name: float(np.median(numbers)) for name, numbers in result.items()} or None

    return measured


def cross_alignment(one: Panel, values: np.ndarray) -> float:
    """|log₁₀| of the median eigenvalue of G_cross over the nearest bulk of G, other than its main one if possible."""
    u, y = _curve(values)
    places = peaks(y)
    others = np.delete(places, np.argmax(y[places])) if len(places) > 1 else places
    centre = np.log(max(np.median(one.means[C : C + MEANS]), 1e-30))
    return float(np.abs(u[others] - centre).min() / np.log(10)) if len(others) else float("nan")


def _curve(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of eigenvalues per unit of log λ without the C largest, from 1e-5 on."""
    rest = Spectrum.of_eigenvalues(torch.from_numpy(np.ascontiguousarray(values[C:])))
    u = torch.linspace(float(np.log(FLOOR)), float(np.log(max(values[0], 10 * FLOOR))), 2000, dtype=torch.float64)
    return u.numpy(), (rest.size * rest.log_density(u, width=WIDTH, floor=1e-3 * FLOOR)).numpy()


def spread_alignment(one: Panel, values: np.ndarray) -> float:
    """|log₁₀| of where the main bulk of G is highest, over the average eigenvalue of G_within."""
    u, y = _curve(values)
    return float(abs(u[int(np.argmax(y))] / np.log(10) - np.log10(one.within.mean())))


def num_bulks(one: Panel, values: np.ndarray) -> float:
    """How many bulks the log spectrum of G has above 1e-5, without its C largest eigenvalues."""
    return float(len(peaks(_curve(values)[1])))


def last_eigenvalues(record: Record) -> float:
    """The largest of the C last eigenvalues of G_class + G_cross + G_c=c', of all panels."""
    last = (panel(record, *cell).means[C + MEANS : C * C] for cell in cells_of(record))
    return float(max((values.max(initial=0.0) for values in last), default=0.0))


def in_the_gap(record: Record) -> float | None:
    """The least number of a seed's eigenvalues from 1e-5 to 1e-4, 13 a class, last epoch; None if not measured."""
    cells = [cell for cell in cells_of(record) if cell[1] == SIZES[0]]
    last = [values for cell in cells if cell[2] == cells[-1][2] if (values := _eigenvalues(record, cell)) is not None]
    return min((float(((values > FLOOR) & (values < 10 * FLOOR)).sum()) for values in last), default=None)


def variation(record: Record) -> dict[str, float]:
    """The largest tr G over the least along training, by size: medians over seeds."""
    result: dict[str, list[float]] = {}
    for seed, size in sorted({cell[:2] for cell in seen_cells(record)}):
        epochs = [cell for cell in seen_cells(record) if cell[:2] == (seed, size)]
        totals = [one.means.sum() + one.within.sum() * size for one in (panel(record, *cell) for cell in epochs)]
        result.setdefault(f"{size} a class", []).append(max(totals) / min(totals))
    return {name: float(np.median(values)) for name, values in result.items()}


def beside(record: Record) -> dict[str, float] | None:
    """∫ |q - q̂| d log λ over half of ∫ q + q̂ above 1e-5, of Lanczos beside the Gram matrix; None for none."""
    names = sorted(name.removesuffix("/lanczos/G/nodes") for name in record.arrays if name.endswith("lanczos/G/nodes"))
    names = [name for name in names if f"{name}/G/nodes" in record.arrays]
    return {_title(name): _curve_distance(record, name) for name in names} or None


def _title(name: str) -> str:
    seed, size, epoch = name.split("/")
    return f"{size} a class, epoch {epoch}, seed {seed}"


def _curve_distance(record: Record, name: str) -> float:
    size = int(record.scalars[f"{name}/facts"]["size"])
    resolution = record.scalars[f"{name}/lanczos/facts"]["resolution"]
    exact, ours = spectrum_of(record, f"{name}/G", size), spectrum_of(record, f"{name}/lanczos/G", size, resolution)
    u = torch.linspace(float(np.log(FLOOR)), float(np.log(exact.range[1])) + 4 * WIDTH, 3000, dtype=torch.float64)
    a, b = (s.log_density(u, width=WIDTH, floor=1e-3 * FLOOR).numpy() for s in (exact, ours))
    return curve_distance(u.numpy(), a, b)


def in_means(record: Record) -> dict[str, float] | None:
    """The mean ‖Pv‖² of the C largest eigenvectors of G, P the projection on its class means, by epoch."""
    names = [name for name in record.arrays if name.endswith("/origins/G/in_class")]
    epochs = {int(name.split("/")[2]): name for name in names}
    return {f"epoch {epoch}": float(record.arrays[epochs[epoch]][:C].mean()) for epoch in sorted(epochs)} or None
