"""One spectrum of one curvature matrix of one trained network, as a task of a sweep and as part of a record."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from ...operators import Operator, functional_hessian, gauss_newton, hessian
from ...record import Record
from ...risk import CrossEntropy, Risk
from ...risk.precision import Precision
from ...solvers import eigenpairs, spectral_density
from ...spectrum import Eigenpairs, Spectrum
from ..frame.figure import Context
from ..frame.loans import Loan, below
from .networks import Place, identity, sweep_on_shelf, trained_network
from .setting import NUM_CLASSES, Part, Piece, examples

Matrix = Literal["H", "G", "E"]  # 2020: Hess, G, E; 2019: Hess, G, H
MATRICES = {"H": hessian, "G": gauss_newton, "E": functional_hessian}
KAPPA = 3.0  # App. D.2
ARRAYS = ("nodes", "weights", "values", "residuals")


@dataclass(frozen=True)
class Method:
    """How a spectrum is computed. 2020: App. D.2; 2019: C.2."""

    num_steps: int = 128  # "M ∈ {128, 256}"
    num_probes: int = 1  # "n_vec = 1"
    tolerance: float = 1e-3  # "SubspaceIteration(A, C, T=128)": thick-restart Lanczos with certified residuals instead
    num_pairs: int = 2 * NUM_CLASSES  # "rank-C deflated": C are taken out; more show where outliers end
    max_products: int = 500  # open: of a search
    precision: Precision = "high"  # open: TF32 in the linear maps on a GPU, but for what certifies an outlier
    num_examples: int | None = 10_000  # open: of 50,000; the test sets have as many


LANCZOS = Method()
SMOKE_METHOD = Method(num_steps=4, num_pairs=11, tolerance=0.3, num_examples=20)  # for tests


@dataclass(frozen=True)
class Measurement:
    """The config of one spectrum: the matrix, the examples, the network, and the outliers treated separately."""

    piece: Piece
    epoch: int
    part: Part
    matrix: Matrix
    outliers: int = NUM_CLASSES  # C; 0: not deflated
    method: Method = LANCZOS
    seed: int = 0  # of the probes


def spectrum(measurement: Measurement, *, place: Place) -> dict[str, Any]:
    """Nodes and weights of the density, the outliers with their residuals, and what it took."""
    start, A, network = time.perf_counter(), *operator(measurement, place)
    made = time.perf_counter()
    method, generator = measurement.method, torch.Generator().manual_seed(measurement.seed)
    pairs = None
    if measurement.outliers:
        pairs = _outliers(A, max(method.num_pairs, measurement.outliers), method, generator)
    apart = 0 if pairs is None else _first(pairs, measurement.outliers)
    density = spectral_density(
        _cheap(A, method), num_steps=method.num_steps, num_probes=method.num_probes, outliers=apart, generator=generator
    )
    none, info = torch.zeros(0), A.info
    return {
        "nodes": density.nodes,
        "weights": density.weights,
        "values": none if pairs is None else pairs.values.double().cpu(),
        "residuals": none if pairs is None else pairs.residuals.double().cpu(),
        "size": density.size,
        "outliers": measurement.outliers,
        "num_steps": method.num_steps,
        "resolution": density.resolution,
        "identity": network,
        "products": 0 if pairs is None else pairs.num_products,
        "rough_products": 0 if pairs is None else pairs.num_rough_products,
        "path": info and info.path,
        "seconds_before": made - start,
        "seconds_of_products": time.perf_counter() - made,
    }


def _cheap(A: Operator, method: Method) -> Operator:
    """The matrix with TF32 in its linear maps, if that is requested and a GPU supports it."""
    return A.rough if method.precision == "high" and A.rough is not None else A


def _outliers(A: Operator, count: int, method: Method, generator: torch.Generator) -> Eigenpairs:
    """The pairs of largest |λ|, found by cheap products where there are any, and certified in float32."""
    precision = "own" if _cheap(A, method) is A else "mixed"
    options: dict[str, Any] = {"tolerance": method.tolerance, "max_products": method.max_products}
    return eigenpairs(A, count, which="magnitude", precision=precision, generator=generator, **options)


def _first(pairs: Eigenpairs, count: int) -> Eigenpairs:
    """The first `count` pairs, of largest |λ|."""
    values, residuals, converged = pairs.values[:count], pairs.residuals[:count], pairs.converged[:count]
    return Eigenpairs(values, pairs.vectors[:, :count], residuals, converged)


def operator(measurement: Measurement, place: Place) -> tuple[Operator, str]:
    """The matrix, and the fingerprint of the network that it is of."""
    risk, network = risk_of(
        measurement.piece,
        measurement.epoch,
        measurement.part,
        place,
        num_examples=measurement.method.num_examples,
    )
    return MATRICES[measurement.matrix](risk), network


def risk_of(
    piece: Piece,
    epoch: int | None,
    part: Part,
    place: Place,
    *,
    num_examples: int | None = None,
    precision: Precision = "highest",
) -> tuple[Risk, str]:
    """The risk of a trained network over its training or test examples, and the network's fingerprint."""
    model = trained_network(piece, epoch, place)
    data = examples(piece, part, place.data_dir, place.device, num_examples=num_examples)
    precision = precision if place.device.type == "cuda" else "highest"
    return Risk(model, CrossEntropy(), data, tangent_precision=precision), identity(model)


def named(prefix: str, record: Record) -> dict[str, Any]:
    """A measured spectrum among the results of a figure: arrays under a prefix of their own."""
    return {f"{prefix}/{name}": record.arrays.get(name, np.zeros(0)) for name in ARRAYS} | {
        f"{prefix}/facts": {name: value for name, value in record.scalars.items() if name not in ARRAYS}
    }


def loans(measurements: Mapping[str, Measurement]) -> list[Loan]:
    """Spectra that a record has under their prefixes."""
    return [Loan(spectrum, measurement, below(prefix)) for prefix, measurement in measurements.items()]


def spectrum_of(record: Record, prefix: str) -> Spectrum:
    """The spectrum under a prefix of a figure's record."""
    facts: Mapping[str, Any] = record.scalars[f"{prefix}/facts"]
    nodes, weights = (torch.from_numpy(np.asarray(record.arrays[f"{prefix}/{name}"])) for name in ("nodes", "weights"))
    return Spectrum(nodes, weights, facts["size"], facts["resolution"])


def certified(record: Record, prefix: str) -> np.ndarray:
    """The certified eigenvalues under a prefix, of largest magnitude first."""
    values = np.asarray(record.arrays.get(f"{prefix}/values", np.zeros(0)))
    return values[np.argsort(-np.abs(values), kind="stable")]


def bulk(record: Record, prefix: str) -> Spectrum:
    """The spectrum under a prefix without the outliers that were taken out of it."""
    whole, count = spectrum_of(record, prefix), record.scalars[f"{prefix}/facts"]["outliers"]
    weights = whole.weights[:, count:]  # before them stand the outliers
    return Spectrum(
        whole.nodes[:, count:], weights / weights.sum(1, keepdim=True), whole.size - count, whole.resolution
    )


def mean_size(spectrum: Spectrum) -> float:
    """∫|λ|, the mean size of eigenvalues."""
    return float((spectrum.weights * spectrum.nodes.abs()).sum(1).mean())


def spacing(record: Record, prefix: str) -> float:
    """What M steps resolve of the bulk under a prefix: (λ_max - λ_min)/(M - 1). Alg. 3, de-normalised."""
    rest, facts = bulk(record, prefix), record.scalars[f"{prefix}/facts"]
    low, high = rest.range
    return (high - low) / max(facts.get("num_steps", rest.nodes.shape[1]) - 1, 1)


def printed_width(record: Record, prefix: str) -> float:
    """σ of Alg. 3: a Gaussian that has fallen to 1/κ half a spacing away; κ = 3 in App. D.2."""
    return spacing(record, prefix) / math.sqrt(8 * math.log(KAPPA))


def measured(measurements: Mapping[str, Measurement], context: Context) -> dict[str, Any]:
    """All of these spectra, each under its prefix, from the shelf where they are there."""
    records = sweep_on_shelf(spectrum, measurements.values(), context)
    result: dict[str, Any] = {}
    for prefix, record in zip(measurements, records, strict=True):
        result |= named(prefix, record)
    return result
