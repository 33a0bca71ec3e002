"""The analysis of one model: its spectrum, its largest eigenvalues, what they sum up to, as one record.

record = analysis.run(risk, analysis.Settings(per_layer=True))
record.save("out/mine")
analysis.draw(record).savefig("mine.png")
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import plot, progress
from .eigen import eigenpairs
from .krylov import spectral_density
from .operators import Operator, hessian
from .record import Record, provenance
from .risk import Risk
from .spectrum import Eigenpairs, Spectrum

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Settings:
    """What is measured, and how finely."""

    operator: Callable[[Risk], Operator] = hessian
    num_eigenpairs: int = 10  # of largest magnitude; they are also the outliers of the density
    num_probes: int = 8
    num_steps: int = 64
    tolerance: float = 1e-4  # of the eigenpairs' residuals, relative to the largest |λ|
    seed: int = 0
    vectors: bool = False  # whether the record keeps the eigenvectors
    per_layer: bool = False  # whether every layer is measured too, as a diagonal block
    log_spectrum: bool = False  # whether the picture shows the density of log |λ|

    def restricted(self, size: int) -> Settings:
        """These settings for a layer, which may have fewer parameters than eigenpairs were asked for."""
        return replace(self, num_eigenpairs=min(self.num_eigenpairs, size))


def run(risk: Risk, settings: Settings | None = None, *, name: str = "analysis") -> Record:
    """Measure a risk, and with `per_layer` each of its layers; everything that was found is in the record."""
    settings = settings or Settings()
    start = time.perf_counter()
    layers = layers_of(risk) if settings.per_layer else {}
    with progress.bar("Spectra", total=1 + len(layers)) as bar:
        scalars, arrays = _measured(risk, settings)
        bar.advance()
        scalars["layers"] = {}
        for layer, parameters in layers.items():
            block = risk.restricted_to(parameters)
            scalars["layers"][layer], found = _measured(block, settings.restricted(block.size))
            arrays |= {f"{layer}/{key}": array for key, array in found.items()}
            bar.advance(layer=layer)
    scalars["seconds"] = time.perf_counter() - start
    return Record(name, "analysis", _config(risk, settings), scalars, arrays, (), provenance(risk.device))


def layers_of(risk: Risk) -> dict[str, list[str]]:
    """The names of a risk's parameters by the module that owns them, in order; the model's own are under "(model)"."""
    layers: dict[str, list[str]] = {}
    for name in risk.shapes:
        layers.setdefault(name.rpartition(".")[0] or "(model)", []).append(name)
    return layers


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
    settings = settings or Settings()
    start = time.perf_counter()
    A = settings.operator(risk)
    V = torch.randn(risk.size, 1, generator=torch.Generator().manual_seed(settings.seed), dtype=risk.dtype)
    V = V.to(risk.device)
    _synchronised(A @ V)
    set_up = time.perf_counter() - start
    _synchronised(A @ V)
    product_seconds = time.perf_counter() - start - set_up
    blocks = 1 + (len(layers_of(risk)) if settings.per_layer else 0)
    pairs = min(risk.size, _PRODUCTS_PER_PAIR * settings.num_eigenpairs)
    count = blocks * (pairs + settings.num_probes * settings.num_steps)
    return Forecast(blocks * set_up + count * product_seconds, count, product_seconds, *_footprint(A, risk, settings))


def _footprint(A: Operator, risk: Risk, settings: Settings) -> tuple[float, str]:
    """Bytes: the kept linearisations, and the vectors of the larger of the two solvers."""
    vectors = max(4 * settings.num_eigenpairs + 20, 100) + settings.num_eigenpairs, 4 * settings.num_probes
    solver = risk.size * risk.theta.element_size() * max(vectors)
    probe = getattr(A.matmat, "probe", None)
    if probe is None:
        return solver, "unknown"
    kept = probe.batch_bytes * (sum(1 for _ in risk.batches) if probe.path.keeps else 1)
    return solver + max(min(kept, risk.memory), probe.batch_bytes), probe.path.name


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
        "resolved_zero": resolved_zero(spectrum),
        **_statistics(spectrum),
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


def resolved_zero(spectrum: Spectrum) -> float:
    """The |λ| above which the sign of an eigenvalue is known: the spacing that the quadrature resolves.

    Most eigenvalues of a network crowd around zero, and one node there stands for thousands of either sign.
    """
    return spectrum.floor if spectrum.resolution is None else max(spectrum.floor, spectrum.resolution)


# What the probes of a spectrum give without another product, by the name it has in a record.
STATISTICS: Mapping[str, Callable[[Spectrum], float]] = {
    "trace": lambda s: s.size * s.moment(1),
    "effective_rank": lambda s: s.size * s.moment(1) ** 2 / s.moment(2) if s.moment(2) else 0.0,
    "negative_mass": lambda s: float((s.weights * (s.nodes < -resolved_zero(s))).sum(1).mean()),
}


def _statistics(spectrum: Spectrum) -> dict[str, float | None]:
    """Each statistic, and its standard error over the probes; None with one probe, which has no scatter."""
    found: dict[str, float | None] = {}
    for name, statistic in STATISTICS.items():
        found[name] = statistic(spectrum)
        error = spectrum.standard_error(statistic) if spectrum.num_probes > 1 else None
        found[f"{name}_error"] = None if error is None else float(error)
    return found


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
        "parameters": list(risk.shapes),
    }


TITLES = {"hessian": "Hessian", "gauss_newton": "Gauss-Newton", "functional_hessian": "Functional Hessian"}


def title_of(record: Record) -> str:
    """The name of the matrix that was analysed, as people write it."""
    return TITLES.get(record.config["operator"], record.config["operator"])
