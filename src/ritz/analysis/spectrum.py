"""The analysis of one model: its spectrum, its largest eigenvalues, what they sum up to, as one record.

record = analysis.run(risk, analysis.Settings(per_layer=True))
analysis.draw(record)  # in a notebook
analysis.write(record, "out/mine")  # with the picture
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .. import plot, progress
from ..errors import ArgumentError
from ..operators import Operator, hessian
from ..record import Record, provenance, write_picture
from ..risk.risk import Risk
from ..solvers import eigenpairs, spectral_density
from ..solvers.eigen import usual_basis
from ..solvers.masses import mass_from, resolved_zero
from ..solvers.probes import mean_of
from ..solvers.ranks import rank_from
from ..spectrum import Eigenpairs, Estimate, Spectrum

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULT_EIGENPAIRS = 10  # or all, where there are fewer


@dataclass(frozen=True)
class Settings:
    """What is measured, and how finely."""

    operator: Callable[[Risk], Operator] = hessian
    num_eigenpairs: int | None = None  # of largest magnitude, also the outliers of the density; None: 10, or all
    num_probes: int = 8
    num_steps: int = 64
    tolerance: float = 1e-4  # of the eigenpairs' residuals, relative to the largest |λ|
    seed: int = 0
    vectors: bool = False  # whether the record keeps the eigenvectors
    per_layer: bool = False  # whether every layer is measured too, as a diagonal block
    log_spectrum: bool = False  # whether the picture shows the density of log |λ|

    def fitted(self, size: int) -> Settings:
        """These settings for so many parameters; more eigenpairs than that are refused where they were asked for."""
        if self.num_eigenpairs is not None and not 0 <= self.num_eigenpairs <= size:
            raise ArgumentError(
                f"{self.num_eigenpairs} eigenpairs of a matrix of size {size} were asked for.",
                "A symmetric matrix has as many as it has rows.",
                f"Ask for 0 to {size}.",
            )
        return self.restricted(size)

    def restricted(self, size: int) -> Settings:
        """These settings for a layer, which may have fewer parameters than eigenpairs were asked for."""
        wanted = DEFAULT_EIGENPAIRS if self.num_eigenpairs is None else self.num_eigenpairs
        return replace(self, num_eigenpairs=min(wanted, size))


def run(
    risk: Risk, settings: Settings | None = None, *, name: str = "analysis", source: Mapping[str, Any] | None = None
) -> Record:
    """Measure a risk, and with `per_layer` each of its layers; everything that was found is in the record.

    `source` is kept in the record's config: where the risk comes from, in the caller's words.
    """
    settings = (settings or Settings()).fitted(risk.size)
    start = time.perf_counter()
    layers = layers_of(risk) if settings.per_layer else {}
    with progress.bar("Spectra", total=1 + len(layers)) as bar:
        scalars, arrays = _measured(risk, settings)
        bar.advance()
        scalars["layers"] = {}
        for layer, parameters in layers.items():
            bar.advance(0, layer=layer)
            block = risk.restricted_to(parameters)
            scalars["layers"][layer], found = _measured(block, settings.restricted(block.size))
            arrays |= {f"{layer}/{key}": array for key, array in found.items()}
            bar.advance()
    scalars["seconds"] = time.perf_counter() - start
    config = {**_config(risk, settings), **(source or {})}
    return Record(name, "analysis", config, scalars, arrays, (), provenance(risk.device))


def write(record: Record, folder: str | Path) -> Path:
    """Write spectrum.png and then the record into the folder, so that no record lacks its picture."""
    folder = Path(folder)
    write_picture(folder / "spectrum.png", draw(record))
    return record.save(folder)


def layers_of(risk: Risk) -> dict[str, list[str]]:
    """The names of a risk's parameters by the module that owns them, in order; the model's own are under "(model)".

    What `torch.nn.utils.parametrize` keeps in modules of its own belongs to the layer it parametrises.
    """
    layers: dict[str, list[str]] = {}
    for name in risk.shapes:
        *path, _ = name.split(".")
        path = path[: path.index("parametrizations")] if "parametrizations" in path else path
        layers.setdefault(".".join(path) or "(model)", []).append(name)
    return layers


def num_products(record: Record) -> int:
    """The products of the whole and of all layers."""
    scalars = record.scalars
    return scalars["num_products"] + sum(layer["num_products"] for layer in scalars["layers"].values())


def spectrum_of(record: Record, layer: str | None = None) -> Spectrum:
    """The spectrum in a record, of the whole or of one layer."""
    scalars = record.scalars if layer is None else record.scalars["layers"][layer]
    nodes, weights = (torch.as_tensor(array_of(record, key, layer)) for key in ("nodes", "weights"))
    return Spectrum(nodes, weights, scalars["num_parameters"], scalars["resolution"])


def array_of(record: Record, key: str, layer: str | None = None) -> Tensor:
    """An array in a record, of the whole or of one layer, as a tensor."""
    return torch.as_tensor(record.arrays[key if layer is None else f"{layer}/{key}"])


def num_outliers(record: Record) -> int:
    """How many of the eigenpairs stand apart from everything that the probes saw of the rest."""
    spectrum, asked = spectrum_of(record), len(record.arrays["eigenvalues"])
    first = min(asked, spectrum.size - 1)  # `spectral_density` puts the atoms first in every row
    atoms, rest = spectrum.nodes[0, :first].abs(), spectrum.nodes[:, first:][spectrum.weights[:, first:] > 0].abs()
    return int((atoms > float(rest.max())).sum())


def draw(record: Record) -> Figure:
    """The figure of a record: the density with its outliers, the bulk alone or log |λ|, and a comparison of layers."""
    spectrum, layers, outliers = spectrum_of(record), record.scalars["layers"], num_outliers(record)
    figure, axes = plot.panels(2 + bool(layers))
    plot.density(axes[0], spectrum, outliers=outliers)
    if outliers:
        axes[0].legend(frameon=False, fontsize="small")
    if record.config["log_spectrum"]:
        plot.log_spectrum(axes[1], spectrum)
    else:
        plot.density(axes[1], spectrum.split(outliers)[1])
        axes[1].set_xlabel("eigenvalue λ" + f", without the {outliers} outliers" * bool(outliers))
    if layers:
        plot.comparison(axes[2], {layer: spectrum_of(record, layer) for layer in layers}, log=True)
    sizes = f"n = {record.scalars['num_parameters']:,}, N = {record.scalars['num_terms']:,}"
    axes[0].set_title(f"{title_of(record)}: {sizes}", fontsize="medium", loc="left")
    return figure


@dataclass(frozen=True)
class Forecast:
    """What an analysis will cost, from one product that was made."""

    seconds: float
    num_products: int
    product_seconds: float
    bytes: float
    path: str  # how products are computed


_PRODUCTS_PER_PAIR = 5  # seen on trained classifiers, whose largest eigenvalues are well separated


def forecast(risk: Risk, settings: Settings | None = None) -> Forecast:
    """Set the products up, time one, and say what the whole analysis will take. Nothing else is computed."""
    settings = (settings or Settings()).fitted(risk.size)
    start = time.perf_counter()
    A = settings.operator(risk)
    V = torch.randn(risk.size, 1, generator=torch.Generator().manual_seed(settings.seed), dtype=risk.dtype)
    V = V.to(risk.device)
    _synchronised(A @ V)
    set_up = time.perf_counter() - start
    _synchronised(A @ V)
    product_seconds = time.perf_counter() - start - set_up
    blocks = 1 + (len(layers_of(risk)) if settings.per_layer else 0)
    pairs = min(risk.size, _PRODUCTS_PER_PAIR * (settings.num_eigenpairs or 0))
    count = blocks * (pairs + settings.num_probes * settings.num_steps)
    return Forecast(blocks * set_up + count * product_seconds, count, product_seconds, *_footprint(A, risk, settings))


def _footprint(A: Operator, risk: Risk, settings: Settings) -> tuple[float, str]:
    """Bytes: the kept linearisations, and the vectors of the larger of the two solvers."""
    k = settings.num_eigenpairs or 0
    vectors = usual_basis(k) + k, 4 * settings.num_probes
    solver = risk.size * risk.theta.element_size() * max(vectors)
    trial = getattr(A.matmat, "trial", None)
    if trial is None:
        return solver, "unknown"
    kept = trial.batch_bytes * (sum(1 for _ in risk.batches) if trial.path.keeps else 1)
    return solver + max(min(kept, risk.memory), trial.batch_bytes), trial.path.name


def _synchronised(result: Tensor) -> float:
    return float(result[0, 0])  # reading a number waits for the device


def _measured(risk: Risk, settings: Settings) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The scalars and arrays of one risk."""
    generator = torch.Generator().manual_seed(settings.seed)
    with _counted(settings.operator(risk)) as (A, products):
        pairs = _pairs(A, settings, generator)
        spectrum = spectral_density(
            A, num_steps=settings.num_steps, num_probes=settings.num_probes, outliers=pairs, generator=generator
        )
    scalars = {
        "num_parameters": risk.size,
        "num_terms": risk.num_terms,
        "loss": risk.loss_value(),
        "gradient_norm": float(risk.gradient().norm()),
        "num_products": products[0],
        "resolution": spectrum.resolution,
        "range": list(spectrum.range),
        "resolved_zero": resolved_zero(spectrum, A.dtype),
        **_statistics(spectrum, len(pairs), settings.num_steps, A.dtype),
    }
    arrays = {"eigenvalues": pairs.values, "residuals": pairs.residuals, "converged": pairs.converged}
    arrays |= {"nodes": spectrum.nodes, "weights": spectrum.weights}
    return scalars, arrays | ({"eigenvectors": pairs.vectors} if settings.vectors else {})


def _pairs(A: Operator, settings: Settings, generator: torch.Generator) -> Eigenpairs:
    if settings.num_eigenpairs:
        options: dict[str, Any] = {"tolerance": settings.tolerance, "generator": generator}
        return eigenpairs(A, settings.num_eigenpairs, which="magnitude", **options)
    none = torch.zeros(0, dtype=A.dtype)
    return Eigenpairs(none, torch.zeros(A.size, 0, dtype=A.dtype), none, none.bool())


def _statistics(spectrum: Spectrum, atoms: int, num_steps: int, dtype: torch.dtype) -> dict[str, float | None]:
    """What the probes give without another product, each with its standard error; None with one probe.

    An error covers the scatter over the probes, the rounding of products in `dtype` (‖A‖_F eps in A, so √n ‖A‖_F eps
    in its trace), and for the negative mass what the quadrature leaves open around zero. The first `atoms` nodes of
    every row are eigenvalues.
    """
    first, second = (spectrum.size * (spectrum.weights * spectrum.nodes**degree).sum(1) for degree in (1, 2))
    eps, total, square = torch.finfo(dtype).eps, float(first.mean()), float(second.mean())
    trace, rank = mean_of(first, spectrum.num_probes), rank_from(first, second)
    slope = 2 * (math.sqrt(spectrum.size / square) * abs(total) + rank.value) if square else 0.0
    found = {
        "trace": _rounded(trace, eps * math.sqrt(spectrum.size * square)),
        "effective_rank": _rounded(rank, eps * slope),
        "negative_mass": mass_from(spectrum, resolved_zero(spectrum, dtype), num_steps, atoms=atoms),
    }
    known = spectrum.num_probes > 1
    errors = {f"{name}_error": estimate.standard_error if known else None for name, estimate in found.items()}
    return {name: estimate.value for name, estimate in found.items()} | errors


def _rounded(estimate: Estimate, rounding: float) -> Estimate:
    """With the error that rounding adds."""
    error = math.hypot(estimate.standard_error, rounding) if estimate.has_error else None
    return Estimate(estimate.value, error, estimate.num_products)


@contextmanager
def _counted(A: Operator) -> Iterator[tuple[Operator, list[int]]]:
    """The operator, and a list whose one entry counts the vectors it has multiplied."""
    count = [0]

    def matmat(V: Tensor) -> Tensor:
        count[0] += V.shape[1]
        return A.matmat(V)

    yield replace(A, matmat=matmat), count


def _config(risk: Risk, settings: Settings) -> dict[str, Any]:
    told = {name: getattr(settings, name) for name in settings.__dataclass_fields__ if name != "operator"}
    return {
        "operator": settings.operator.__name__,
        **told,
        "dtype": str(risk.dtype).removeprefix("torch."),
        "num_examples": risk.num_examples,
        "num_batches": None if risk.batches.held is None else len(risk.batches.held),  # counting would read the data
        "parameters": list(risk.shapes),
    }


TITLES = {"hessian": "Hessian", "gauss_newton": "Gauss-Newton", "functional_hessian": "Functional Hessian"}


def title_of(record: Record) -> str:
    """The name of the matrix that was analysed, as people write it."""
    return TITLES.get(record.config["operator"], record.config["operator"])
