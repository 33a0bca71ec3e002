"""Tasks of sweeps: the spectrum of G of one trained network by class, exactly from its Gram matrix or by Lanczos."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ...classes import ClassDecomposition, class_decomposition
from ...classes.lines.shares import Lines, lines_of, part_eigenvalues
from ...factored import Gram
from ...factored.gram_parts import PARTS, Part, directions
from ...operators import Operator, gauss_newton, hessian
from ...record import Record
from ...risk import Risk
from ...risk.precision import Precision
from ...solvers import eigenpairs, spectral_density
from ...spectrum import Eigenpairs, Spectrum
from ..frame.figure import Context
from ..frame.loans import FACTS, Loan, below
from .networks import Place, sweep_on_shelf
from .setting import NUM_CLASSES, Piece, check_ten_classes
from .spectra import risk_of

Measurement = tuple[Callable[..., Any], Any]  # a task, and its config
Digits = Literal["float64", "float32"]
OTHERS: tuple[Part, ...] = PARTS[:3]  # all but G_within
SPECTRA: dict[str, tuple[Part, ...]] = {  # what is subtracted from G
    "G": (),
    "class": ("between_class",),
    "cross": ("cross_class",),
    "within": ("within",),
    "own": ("own_class",),
    "only_within": OTHERS,
    "only_cross": ("between_class", "own_class", "within"),
    "only_class": ("cross_class", "own_class", "within"),
}
BINS = 400  # of log λ, into which a long list of eigenvalues is gathered
TOP = 200  # of the largest that are kept as they are


@dataclass(frozen=True)
class Network:
    """A network at one epoch, with its training examples or some of them."""

    piece: Piece
    epoch: int
    num_examples: int | None = None


@dataclass(frozen=True)
class Exact:
    """The config of an exact spectrum: the network, the precision of the Gram matrix, and the knockouts."""

    network: Network
    spectra: tuple[str, ...] = tuple(SPECTRA)
    digits: Digits = "float64"


@dataclass(frozen=True)
class Quadrature:
    """The config of Lanczos on G: the network, the number of steps, and the outliers to treat separately."""

    network: Network
    num_steps: int = 2048  # 2020, App. D.2: of logarithms
    outliers: int = NUM_CLASSES
    seed: int = 0
    precision: Precision = "highest"  # of the steps; what certifies an outlier is in float32


def measured(measurements: Mapping[str, Measurement], context: Context) -> dict[str, Any]:
    """The results of these tasks, each under its prefix, taken from the shelf if they are there."""
    result = dict[str, Any]()
    for task in dict.fromkeys(task for task, _ in measurements.values()):
        own = {prefix: config for prefix, (its, config) in measurements.items() if its is task}
        for prefix, record in zip(own, sweep_on_shelf(task, own.values(), context), strict=True):
            result |= {f"{prefix}/{name}": value for name, value in record.arrays.items()}
            result[f"{prefix}/{FACTS}"] = dict(record.scalars)
    return result


def loans(measurements: Mapping[str, Measurement]) -> list[Loan]:
    """The results of sweeps in a record; a prefix may lie below another."""
    inner = {prefix.rpartition("/")[2] for prefix in measurements if prefix.rpartition("/")[0] in measurements}
    return [Loan(task, config, below(prefix, but=inner)) for prefix, (task, config) in measurements.items()]


def exact(measurement: Exact, *, place: Place) -> dict[str, Any]:
    """The eigenvalues of G and of its knockouts, the traces by class, and what it took."""
    start = time.perf_counter()
    risk, identity = _risk(measurement.network, place)
    gram = Gram.of(risk, dtype=getattr(torch, measurement.digits))
    built, result = time.perf_counter(), dict[str, Any]()
    for name in measurement.spectra:
        values = gram.eigenvalues(subtract=SPECTRA[name])
        result |= {f"{name}/nodes": (kept := gathered(values))[0], f"{name}/counts": kept[1]}
    return result | {
        "within_traces": within_traces(gram),
        "size": gram.size,
        "rows": len(gram.matrix),
        "error": gram.error,
        "identity": identity,
        "seconds_of_matrix": built - start,
        "seconds_of_spectra": time.perf_counter() - built,
    }


def quadrature(measurement: Quadrature, *, place: Place) -> dict[str, Any]:
    """Nodes and weights of G, its outliers, and the eigenvalues of its parts from their means."""
    start = time.perf_counter()
    risk, identity = _risk(measurement.network, place)
    G, generator = gauss_newton(risk), torch.Generator().manual_seed(measurement.seed)
    cheap = G.rough if measurement.precision == "high" and G.rough is not None else G
    pairs = _largest(G, measurement.outliers, generator, mixed=cheap is not G) if measurement.outliers else None
    spectrum = spectral_density(
        cheap, num_steps=measurement.num_steps, num_probes=1, outliers=pairs or 0, generator=generator
    )
    made = time.perf_counter()
    nodes, counts = binned(spectrum.nodes[0], spectrum.weights[0] * spectrum.size)
    return {
        "G/nodes": nodes,
        "G/counts": counts,
        "outliers": torch.zeros(0) if pairs is None else pairs.values.double().cpu(),
        "size": spectrum.size,
        "resolution": spectrum.resolution,
        "identity": identity,
        "seconds_of_products": made - start,
    }


def parts(measurement: Network, *, place: Place) -> dict[str, Any]:
    """The eigenvalues of the parts made of means, if no Gram matrix fits; traces of G_within from a sample."""
    risk, identity = _risk(measurement, place)
    values = {f"{name}/nodes": values.cpu() for name, values in part_eigenvalues(class_decomposition(risk)).items()}
    few, _ = _risk(Network(measurement.piece, measurement.epoch, _SAMPLE * NUM_CLASSES), place)
    within = class_decomposition(few).within_traces * _SAMPLE / (_SAMPLE - 1)  # its means are those of few, too
    return {**values, "within_traces": within.cpu(), "identity": identity}


def origins(measurement: Network, *, place: Place) -> dict[str, Any]:
    """The composition of the largest eigenvectors of G and H: shares of the parts, and overlaps with the means."""
    risk, identity = _risk(measurement, place)
    classes, H = class_decomposition(risk), hessian(risk)
    result: dict[str, Any] = {"identity": identity}
    for name, A, whole in (("G", gauss_newton(risk), None), ("H", H, H)):
        lines = lines_of(_largest(A, 2 * NUM_CLASSES), whole, classes)
        result |= {f"{name}/values": lines.pairs.values.double().cpu()}
        result |= {f"{name}/shares/{part}": share.cpu() for part, share in lines.shares.items()}
        if lines.in_class_means is not None:
            result[f"{name}/in_class"] = lines.in_class_means.cpu()
        if name == "G":
            result |= _by_layer(risk, lines, classes)
    return result


_SAMPLE = 51  # examples a class whose gradients are formed one by one


def _largest(A: Operator, count: int, generator: torch.Generator | None = None, *, mixed: bool = False) -> Eigenpairs:
    """The largest eigenpairs, in blocks of C: early in training C - 1 are nearly equal, and one start misses some.

    Found by cheap products, if mixed, they are certified to a tolerance that those lead to.
    """
    precision, tolerance = ("mixed", 1e-3) if mixed else ("own", 1e-4)
    return eigenpairs(A, count, tolerance=tolerance, generator=generator, block_size=NUM_CLASSES, precision=precision)


def _risk(network: Network, place: Place) -> tuple[Risk, str]:
    check_ten_classes(network.piece)
    return risk_of(network.piece, network.epoch, "train", place, num_examples=network.num_examples)


def _by_layer(risk: Risk, lines: Lines, classes: ClassDecomposition) -> dict[str, Any]:
    """Each layer's share in the C largest eigenvectors of G, and how much of that share lies in the layer's means."""
    means, V = classes.class_means, lines.pairs.vectors[:, :NUM_CLASSES]
    if means is None:
        return {}
    lengths, inside, first = [], [], 0
    for shape in risk.shapes.values():
        rows = slice(first, first := first + shape.numel())
        if len(shape) < 2:  # biases and norms
            continue
        v, Q = V[rows].double(), torch.linalg.qr(means[:, rows].double().T).Q
        lengths.append(v.square().sum(0))
        inside.append((Q.T @ v).square().sum(0) / lengths[-1].clamp(min=1e-30))
    names = [name for name, shape in risk.shapes.items() if len(shape) > 1]
    return {"layers": names, "layer_lengths": torch.stack(lengths).cpu(), "layer_inside": torch.stack(inside).cpu()}


def within_traces(gram: Gram) -> Tensor:
    """tr G_within of each class, from the Gram matrix: the trace of its rows less those of the means."""
    assert gram.classes is not None  # of a classifier
    K, classes = gram.matrix.double(), gram.classes
    rows = classes.labels.repeat_interleave(classes.probabilities.shape[1] - 1)
    total = K.new_zeros(classes.probabilities.shape[1]).index_add_(0, rows, K.diagonal())
    B = directions(classes, OTHERS)
    means = ((K @ B) * B).sum(0)
    owner = rows[B.abs().argmax(0)]  # the columns of B belong to one class each
    return total.index_add_(0, owner, -means).cpu()


def gathered(values: Tensor) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues as they are, and the others in bins of log |λ| with their counts."""
    values = values[values.abs().argsort(descending=True)]
    if len(values) <= TOP + BINS:
        return values, torch.ones_like(values)
    nodes, counts = binned(values[TOP:], torch.ones_like(values[TOP:]))
    return torch.cat([values[:TOP], nodes]), torch.cat([torch.ones_like(values[:TOP]), counts])


def binned(values: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted values in bins of log |λ|, each at the mean of what is in it, so that count and trace stay."""
    if len(values) <= BINS:
        return values, counts
    if not bool(values.any()):  # G is zero if the network is sure of every example to the last digit
        return values[:1], counts.sum()[None]
    u = values.abs().clamp(min=float(values.abs().max()) * 1e-14).log()
    place = ((u - u.min()) / (u.max() - u.min()).clamp(min=1e-300) * (BINS - 1)).round().long()
    masses, sums = (torch.zeros(BINS).double().index_add_(0, place, x.double()) for x in (counts, counts * values))
    used = masses > 0
    return sums[used] / masses[used], masses[used]


def spectrum_of(record: Record, prefix: str, size: int, resolution: float | None = None) -> Spectrum:
    """A spectrum of a record, with the zeros that its list of eigenvalues leaves out."""
    nodes, counts = (torch.as_tensor(np.asarray(record.arrays[f"{prefix}/{part}"])) for part in ("nodes", "counts"))
    zeros = size - float(counts.sum())
    if zeros > 0.5:
        nodes, counts = torch.cat([nodes, nodes.new_zeros(1)]), torch.cat([counts, counts.new_tensor([zeros])])
    return Spectrum(nodes[None], (counts / counts.sum())[None], size, resolution)


def with_zeros(spectrum: Spectrum, rank: int) -> Spectrum:
    """A quadrature of a matrix of at most this rank: what it has beyond so many eigenvalues from above is zero.

    Lanczos sees millions of zeros at the size of its rounding, on both sides of zero, where a log spectrum would show
    them as a bulk.
    """
    order = spectrum.nodes[0].argsort(descending=True)
    nodes, weights = spectrum.nodes[0][order], spectrum.weights[0][order]
    nonzero = (weights * spectrum.size).cumsum(0) <= rank + 0.5
    return Spectrum((nodes * nonzero)[None], weights[None], spectrum.size, spectrum.resolution)


def eigenvalues(record: Record, prefix: str) -> np.ndarray:
    """The eigenvalues of a record, largest first, each as often as it occurs (those in bins at their mean)."""
    nodes, counts = (np.asarray(record.arrays[f"{prefix}/{part}"]) for part in ("nodes", "counts"))
    return np.sort(np.repeat(nodes, np.round(counts).astype(int)))[::-1]
