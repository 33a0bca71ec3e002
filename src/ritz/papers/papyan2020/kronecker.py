"""Figures 11 and 12: the spectra of G^l, KFAC and CFAC of every layer of an MLP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes

from ... import plot
from ...record import Picture, Record
from ...spectrum import Spectrum
from ..frame.figure import Figure
from ..frame.pictures import write_title
from ..frame.statements import at_least, at_most, each, near
from ..frame.statistics import spearman
from .layer_blocks import KINDS, LINES
from .layer_numbers import log_ratios
from .layer_results import (
    C,
    Measure,
    at_layer,
    by_layer,
    data_sets,
    depth,
    first_seed,
    of_panels,
    seeds,
    titled,
)
from .layers import COMPUTATION, PRESETS, loans, run
from .paper import BEYOND, says
from .pictures import of_seeds, resolved_from
from .setting import TITLES

LOWEST = 1e-6  # of the largest eigenvalue: where axes begin
WIDTH = 0.2  # of a Gaussian in log λ
ROUNDING = float(np.finfo(np.float32).eps)  # of the largest eigenvalue: products are in float32
SHALLOW = [1, 2, 3]  # layers
PAIRS = {"KFAC": plot.COLOURS[1], "CFAC": plot.COLOURS[3]}


def spectrum_of(record: Record, prefix: str) -> Spectrum:
    """The spectrum of a matrix of a layer, from the arrays under a prefix."""
    nodes, counts = (torch.as_tensor(np.asarray(record.arrays[f"{prefix}/{part}"])) for part in ("nodes", "counts"))
    size, resolution = (record.scalars[f"{prefix}/{part}"] for part in ("size", "resolution"))
    return Spectrum(nodes[None], (counts / counts.sum())[None], int(size), resolution)


def distance(kind: str, first: int = 0, last: int = LINES) -> Measure:
    """The mean |ln| of the ratio of eigenvalues of KFAC or CFAC and of G^l, paired by rank, between two ranks."""

    def measure(record: Record, data: str, seed: int, layer: int) -> float:
        prefix = f"{data}/{seed}/blocks/{layer}"
        a, b = (np.asarray(record.arrays[f"{prefix}/{name}/top"])[first:last] for name in (kind, "G"))
        count = min(len(a), len(b))
        floor = 1e-12 * max(a.max(initial=0.0), b.max(initial=0.0), 1e-300)
        return float(np.abs(np.log(np.maximum(a[:count], floor) / np.maximum(b[:count], floor))).mean())

    return measure


def shift(record: Record, data: str, seed: int, layer: int) -> np.ndarray:
    """ln of the ratio of CFAC's C largest eigenvalues to those of G^l."""
    a, b = (
        np.asarray(record.arrays[f"{data}/{seed}/blocks/{layer}/{kind}/top"], dtype=float)[:C] for kind in ("CFAC", "G")
    )
    return log_ratios(a, b)


def product_error(name: str) -> Measure:
    """√(Σ w ‖g - δφᵀ‖² / Σ w ‖g‖²) of class or cross-class means."""
    return lambda record, data, seed, layer: float(record.scalars[f"{data}/{seed}/blocks/{layer}/products/{name}"])


def widest_gap(record: Record) -> dict[str, float]:
    """The rank after which the widest gap in ln λ of G^l comes, of its first 3C eigenvalues; last layer, over C."""

    def rank(data: str) -> float:
        places = []
        for seed in seeds(record):
            values = np.asarray(record.arrays[f"{data}/{seed}/blocks/{depth(record)}/G/top"], dtype=float)[: 3 * C]
            places.append(np.argmax(-np.diff(np.log(np.maximum(values, 1e-30)))) + 1)
        return float(np.median(places)) / C

    return titled(record, rank)


def last_layer(kind: str) -> Callable[[Record], dict[str, float]]:
    """The distance of the outliers in the last layer, on every data set: the caption's is MNIST, where it is there."""
    return at_layer(distance(kind, 0, C))


def better(record: Record) -> dict[str, float]:
    """The share of layers in which CFAC is nearer to G^l than KFAC is, outliers and mini-bulk."""
    nearer = lambda data: by_layer(record, data, distance("CFAC")) < by_layer(record, data, distance("KFAC"))
    return titled(record, lambda data: float(nearer(data).mean()))


def deeper(record: Record) -> dict[str, float]:
    """Spearman's ρ of ln of KFAC's distance over CFAC's with the layer."""
    which = np.arange(1, depth(record) + 1)

    def rho(data: str) -> float:
        far, near_g = (by_layer(record, data, distance(kind)) for kind in ("KFAC", "CFAC"))
        return spearman(which, np.log(np.maximum(far, 1e-12) / np.maximum(near_g, 1e-12)))

    return titled(record, rho)


def gain_of_the_deeper_half(record: Record) -> dict[str, float]:
    """KFAC's distance over CFAC's, the least of the deeper half of the layers."""
    which = range(depth(record) // 2 + 1, depth(record) + 1)

    def least(data: str) -> float:
        far, near_g = (by_layer(record, data, distance(kind), which) for kind in ("KFAC", "CFAC"))
        return float((far / np.maximum(near_g, 1e-12)).min())

    return titled(record, least)


def one_shift(record: Record, data: str, seed: int, layer: int) -> float:
    """|mean| of ln of the ratios of CFAC's C largest eigenvalues to those of G^l: their common shift."""
    return abs(float(shift(record, data, seed, layer).mean()))


def shape_error(record: Record, data: str, seed: int, layer: int) -> float:
    """The standard deviation of ln of these C ratios of CFAC to G^l: what a common shift leaves."""
    return float(shift(record, data, seed, layer).std())


def small_shift(record: Record) -> dict[str, float] | None:
    """The shift of the C outliers, and what it leaves, in the sixth and seventh layer on Fashion-MNIST."""
    both = {"shift": one_shift, "what it leaves": shape_error}
    found = {name: of_panels(record, "fashion_mnist", [6, 7], one) for name, one in both.items()}
    known = {f"{layer}, {name}": v for name, values in found.items() for layer, v in (values or {}).items()}
    return known or None


def as_bad(record: Record, data: str, seed: int, layer: int) -> float:
    """CFAC's distance over KFAC's, of the C outliers."""
    ours, theirs = (distance(kind, 0, C)(record, data, seed, layer) for kind in ("CFAC", "KFAC"))
    return ours / max(theirs, 1e-12)


def middle(name: str) -> Callable[[Record], dict[str, float]]:
    """The median over layers of the error of g as a product of means."""
    return lambda record: titled(record, lambda d: float(np.median(by_layer(record, d, product_error(name)))))


def whole_cosine(record: Record) -> dict[str, float]:
    """A lower bound of the cosine of all g_cc' and h_c ⊙ δ_cc', over all layers at once.

    The relative error ε of all layers together is no more than the largest of one, and the cosine no less than
    √(1 - ε²).
    """
    errors = product_error("cross")
    which = range(1, depth(record) + 1)

    def bound(data: str) -> float:
        largest = [max(errors(record, data, seed, layer) for layer in which) for seed in seeds(record)]
        return float(np.sqrt(max(1 - np.median(largest) ** 2, 0.0)))

    return titled(record, bound)


def draw_last(record: Record) -> Picture:
    """The last layer on the first data set: G against KFAC with its groups by name, and against CFAC."""
    figure, axes = plot.panels(2, width=3.9, height=2.7, shared=True)
    data = data_sets(record)[0]
    for ax, kind in zip(axes, PAIRS, strict=True):
        _panel(ax, record, data, depth(record), kind)
        write_title(ax, f"{TITLES[data]}, l = {depth(record)}: G and {kind}{of_seeds(record)}", size=8)
    _name_groups(axes[0], record, data)
    _legend(figure, axes)
    return figure


def draw_all(record: Record) -> Picture:
    """Every layer (rows) of every data set: G against KFAC, and against CFAC (columns)."""
    names, count = data_sets(record), depth(record)
    figure, axes = plot.panels(2 * len(names), count, width=2.2, height=1.25)
    for i, ax in enumerate(axes):
        layer, column = divmod(i, 2 * len(names))
        data, kind = names[column // 2], list(PAIRS)[column % 2]
        _panel(ax, record, data, layer + 1, kind)
        ax.set(xlabel="eigenvalue λ" if layer == count - 1 else "", ylabel="" if column else "per decade")
        ax.set_title(f"{TITLES[data]}, l = {layer + 1}: {kind}", fontsize=6, loc="left", pad=2)
    if words := of_seeds(record).removeprefix("; "):
        figure.supxlabel(words, fontsize=8)
    _legend(figure, axes)
    return figure


def _panel(ax: Axes, record: Record, data: str, layer: int, kind: str) -> None:
    """Draw G and one of its approximations on a common axis."""
    prefix = f"{data}/{first_seed(record)}/blocks/{layer}"
    floor, end = _axis(record, prefix)
    for name, colour in (("G", plot.COLOURS[0]), (kind, PAIRS[kind])):
        spectrum = spectrum_of(record, f"{prefix}/{name}")
        plot.counts(ax, spectrum, floor=floor, width=WIDTH, color=colour, linewidth=0.9, label=name)
    ax.set_xlim(floor, end)


def _axis(record: Record, prefix: str) -> tuple[float, float]:
    """The ends of a layer's axis, which reaches as far down as all three spectra are resolved."""
    spectra = {kind: spectrum_of(record, f"{prefix}/{kind}") for kind in KINDS}
    top = max(spectrum.range[1] for spectrum in spectra.values())
    rests = (_rest(record, f"{prefix}/{kind}", own) for kind, own in spectra.items() if own.resolution is not None)
    return max([LOWEST * top, *(resolved_from(rest, WIDTH) for rest in rests)]), top * np.exp(4 * WIDTH)


def _rest(record: Record, prefix: str, spectrum: Spectrum) -> Spectrum:
    """The spectrum below the certified eigenvalues; only among certified ones is a gap one of the spectrum."""
    below = spectrum.nodes[0] < _certified(record, prefix)[-1]
    weights = spectrum.weights[0][below]
    return Spectrum(spectrum.nodes[0][below][None], (weights / weights.sum())[None], spectrum.size, spectrum.resolution)


def _certified(record: Record, prefix: str) -> np.ndarray:
    """The C(C - 1) largest eigenvalues of a layer's matrix."""
    return np.asarray(record.arrays[f"{prefix}/top"], dtype=float)


def _name_groups(ax: Axes, record: Record, data: str) -> None:
    """The groups of eigenvalues of G that the caption names, over the place where they are."""
    values = _certified(record, f"{data}/{first_seed(record)}/blocks/{depth(record)}/G")
    low, high = ax.get_ylim()
    ax.set_ylim(low, 8 * high)
    for name, group in (("C", values[:C]), ("C²", values[C:])):
        ax.plot([group.min(), group.max()], [1.5 * high] * 2, color="black", lw=1.0, marker="|", ms=5)
        ax.annotate(name, (np.sqrt(group.min() * group.max()), 2.2 * high), ha="center", fontsize=8)
    left, largest = ax.get_xlim()[0], main_bulk(record, data, first_seed(record), depth(record))
    if largest < left:
        ax.annotate("← main bulk", (1.2 * left, 1.4 * high), fontsize=8)


def _legend(figure: Any, axes: Sequence[Axes]) -> None:
    lines = {line.get_label(): line for ax in axes[: len(PAIRS)] for line in ax.lines if line.get_label() in KINDS}
    figure.legend(lines.values(), lines.keys(), loc="outside upper center", ncols=3, frameon=False, fontsize=8)


def main_bulk(record: Record, data: str, seed: int, layer: int) -> float:
    """The largest eigenvalue of G^l below the C(C - 1) largest, as its quadrature has it, but no less than rounding.

    NaN where the nodes that are kept of a seed end above it.
    """
    prefix = f"{data}/{seed}/blocks/{layer}/G"
    nodes, lines = np.asarray(record.arrays[f"{prefix}/nodes"], dtype=float), _certified(record, prefix)
    below = nodes[nodes < (1 - 1e-4) * lines[-1]]
    return float(max(below.max(), min(ROUNDING * lines[0], lines[-1]))) if len(below) else float("nan")


def mini_bulk_gap(record: Record, data: str, seed: int, layer: int) -> float:
    """λ_{C(C-1)}/λ_{C(C-1)+1} of G^l."""
    last = _certified(record, f"{data}/{seed}/blocks/{layer}/G")[-1]
    return float(last / main_bulk(record, data, seed, layer))


def bulk_reach(record: Record, data: str, seed: int, layer: int) -> float:
    """The upper end of the main bulk of G^l, relative to the largest eigenvalue."""
    return main_bulk(record, data, seed, layer) / float(_certified(record, f"{data}/{seed}/blocks/{layer}/G")[0])


def misaligned(record: Record) -> dict[str, float]:
    """The distance of KFAC from G^l, outliers and mini-bulk, of the median layer."""
    return titled(record, lambda data: float(np.median(by_layer(record, data, distance("KFAC")))))


def shallow_spread(record: Record) -> float | None:
    """The range over data sets of ln of KFAC's distance over CFAC's, the mean of the first three layers."""
    if len(data_sets(record)) < 2:
        return None
    gain = lambda data: (
        np.log(by_layer(record, data, distance("KFAC"), SHALLOW))
        - np.log(by_layer(record, data, distance("CFAC"), SHALLOW))
    )
    return float(np.ptp([gain(data).mean() for data in data_sets(record)]))


FIGURE_11 = (
    says(
        "The spectrum of G^l has C outliers (rank of the widest gap among its first 3C eigenvalues, over C).",
        where="Fig. 11", measured=widest_gap, rule=each(near(1.0, relative=0.11, partly=0.5)), expected=1.0,
        why="One eigenvalue stands further apart than the C together, or none does.",
    ),
    says(
        "With a mini-bulk these are C(C - 1) that stand apart (λ_{C(C-1)}/λ_{C(C-1)+1}).",
        where="Fig. 11", measured=at_layer(mini_bulk_gap), rule=each(at_least(1.5, partly=1.1)),
        expected="above 1", why="It passes into the main bulk.",
    ),
    says(
        "The main bulk is a narrow bump around the origin (its largest eigenvalue over that of all).",
        where="Fig. 11", measured=at_layer(bulk_reach), rule=each(at_most(0.05, partly=0.2)), expected=0.0,
        why="It reaches far towards the outliers.",
    ),
    says(
        "Outliers of KFAC do not align with those of G (mean |ln| of the ratio of the C largest eigenvalues).",
        where="Fig. 11", measured=last_layer("KFAC"), rule=each(at_least(0.3, partly=0.1)), expected=1.0,
        why="They align after all.",
    ),
    says(
        "Outliers of CFAC align with those of G (mean |ln| of the ratio of the C largest eigenvalues).",
        where="Fig. 11", measured=last_layer("CFAC"), rule=each(at_most(0.1, partly=0.3)), expected=0.0,
        why="Within a class, examples of large features have other errors than the rest.",
    ),
)  # fmt: skip
FIGURE_12 = (
    says(
        "The spectra of G and KFAC do not align (mean |ln| of the ratio of the C(C - 1) largest, the median layer).",
        where="Fig. 12", measured=misaligned, rule=each(at_least(0.3, partly=0.1)), expected="above 0",
        why="They align after all.",
    ),
    says(
        "At shallower layers the gain depends on the data set (range over MNIST, Fashion-MNIST and CIFAR-10 of ln of "
        "KFAC's distance over CFAC's, the mean of three layers).",
        where="Sec. 7.11", measured=shallow_spread, rule=at_least(0.2, partly=0.1), expected="above 0",
        why="The gain is the same for all.",
    ),
    says(
        "CFAC aligns better with G than KFAC (share of layers where its C(C - 1) largest eigenvalues are nearer).",
        where="Fig. 12", measured=better, rule=each(at_least(0.9, partly=0.5)), expected=1.0,
        why="In some layers the classes share their features.",
    ),
    says(
        "… especially at deeper layers (Spearman's ρ of ln of KFAC's distance over CFAC's with the layer).",
        where="Fig. 12", measured=deeper, rule=each(at_least(0.5, partly=0.0)), expected=1.0,
        why="The gain does not grow with depth.",
    ),
    says(
        "At deeper layers CFAC aligns much better (KFAC's distance over CFAC's, the least of the deeper half).",
        where="Sec. 7.11", measured=gain_of_the_deeper_half, rule=each(at_least(2.0, partly=1.1)), expected="above 1",
        why="In one of these layers at least the gain is small, or there is none.",
    ),
    says(
        "In the seventh and eighth layer on CIFAR-10 G and CFAC align almost perfectly (mean |ln| of C(C - 1) ratios).",
        where="Fig. 12", measured=lambda record: of_panels(record, "cifar10", [7, 8], distance("CFAC")),
        rule=each(at_most(0.1, partly=0.3)), expected=0.0, why="A shift or a spread is left.",
    ),
    says(
        "In the sixth and seventh layer on Fashion-MNIST outliers of CFAC align up to a small shift (|mean| of ln of "
        "the C ratios, and their standard deviation).",
        where="Fig. 12", measured=small_shift, rule=each(at_most(0.15, partly=0.4)), expected=0.0,
        why="The shift is not small, or they differ by more than one shift.",
    ),
    says(
        "In the third layer on MNIST outliers of CFAC align with those of G (mean |ln| of the C ratios).",
        where="Fig. 12", measured=lambda record: of_panels(record, "mnist", [3], distance("CFAC", 0, C)),
        rule=each(at_most(0.1, partly=0.3)), expected=0.0, why="Shallow layers depend on the data set.",
    ),
    says(
        "In the second layer on CIFAR-10 outliers of CFAC misalign as badly as those of KFAC (ratio of the distances).",
        where="Fig. 12", measured=lambda record: of_panels(record, "cifar10", [2], as_bad),
        rule=each(at_least(0.8, partly=0.5)), expected=1.0, why="CFAC is nearer there, too.",
    ),
    says(
        "g_c ≈ h_c ⊗ δ_c (√(Σ w ‖difference‖² / Σ w ‖g_c‖²), the median layer).",
        where="Sec. 7.12", measured=middle("class"), rule=each(at_most(0.3, partly=0.7)), expected=0.0,
        why="Examples that carry the error of a class are not its average ones.",
    ),
    says(
        "g_cc' ≈ h_c ⊗ δ_cc' (√(Σ w ‖difference‖² / Σ w ‖g_cc'‖²), the median layer).",
        where="Sec. 7.12", measured=middle("cross"), rule=each(at_most(0.3, partly=0.7)), expected=0.0,
        why="Examples of c that look like c' have features of their own.",
    ),
    says(
        "Over all layers at once the Khatri-Rao product of h_c and δ_cc' approximates g_cc' (their cosine is at least "
        "√(1 - ε²), with ε the relative error above, of the worst layer).",
        where="Sec. 1.12", measured=whole_cosine, rule=each(at_least(0.9, partly=0.0)), expected=1.0,
        why="This is a lower bound, which the worst layer alone makes low: the cosine itself may be higher.",
    ),
    says(
        "With the features of a class weighted as its gradients are, g_c ≈ h_c ⊗ δ_c (√(Σ w ‖difference‖² / Σ w "
        "‖g_c‖²), the median layer).",
        where="Sec. 7.12", paper=BEYOND, measured=middle("class, weighted"), rule=each(at_most(0.3, partly=0.7)),
        expected=0.0, why="Features and errors of a class vary together.",
    ),
)  # fmt: skip

_figure = partial(Figure, presets=PRESETS, run=run, computation=COMPUTATION, loans=loans)
FIGURES = {
    "papyan2020.fig11": _figure(
        "papyan2020.fig11", "G, KFAC and CFAC of the last layer of an MLP", draw=draw_last, statements=FIGURE_11
    ),
    "papyan2020.fig12": _figure(
        "papyan2020.fig12", "G, KFAC and CFAC of every layer of an MLP", draw=draw_all, statements=FIGURE_12
    ),
}
