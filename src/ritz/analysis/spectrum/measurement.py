"""The measurement of a model's spectrum, layer by layer too: everything goes into one record."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ... import progress
from ...operators import Operator
from ...record import Record, provenance
from ...risk import Risk
from ...solvers import eigenpairs, spectral_density
from ...solvers.masses import mass_below, resolved_zero
from ...solvers.probes import mean_of
from ...solvers.ranks import rank_from
from ...solvers.small_matrices import whole_spectrum
from ...solvers.vectors import room
from ...spectrum import Eigenpairs, Estimate, Spectrum
from ...theory import ClosedForm
from ..risk_facts import accuracy, config_of, scalars_of
from .settings import Settings
from .theories import closed_form


def run(
    risk: Risk,
    settings: Settings | None = None,
    *,
    name: str = "analysis",
    source: Mapping[str, Any] | None = None,
    checkpoint: str | Path | None = None,
) -> Record:
    """Measure a risk, and with `per_layer` each of its layers; all results are in the record.

    `source` is kept in the record's config: where the risk comes from, in the caller's words. With `checkpoint`, a
    folder, a measurement that was killed goes on from the files in it, to the same bits.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False)).double()
    >>> _ = torch.nn.init.zeros_(model[0].weight)
    >>> risk = Risk(model, torch.nn.CrossEntropyLoss(), (torch.eye(2).double(), torch.tensor([0, 1])))
    >>> record = run(risk, Settings(num_eigenpairs=1, num_probes=2, num_steps=2))
    >>> record.arrays["eigenvalues"], record.scalars["num_parameters"]
    (tensor([0.2500], dtype=torch.float64), 4)
    """
    settings = settings or Settings()
    settings.check()
    settings = settings.for_size(risk.size)
    start = time.perf_counter()
    layers = layers_of(risk) if settings.per_layer else {}
    with progress.bar("Spectra", total=1 + len(layers)) as bar:
        scalars, arrays = _results(risk, settings, _files(checkpoint, 0))
        bar.advance()
        scalars["layers"] = {}
        for number, (layer, parameters) in enumerate(layers.items(), 1):
            bar.advance(0, layer=layer)
            block, files = risk.restricted_to(parameters), _files(checkpoint, number)
            scalars["layers"][layer], block_arrays = _results(block, settings.for_layer(block.size), files)
            arrays |= {f"{layer}/{key}": array for key, array in block_arrays.items()}
            bar.advance()
    known = closed_form(risk, settings.operator)
    if known is not None:
        scalars["closed_form"], arrays["closed_form/values"] = _theory(*known)
    scalars |= {"accuracy": accuracy(risk), "seconds": time.perf_counter() - start}
    config = {**_config(risk, settings), **(source or {})}
    return Record(name, "analysis", config, scalars, arrays, (), provenance(risk.device))


def layers_of(risk: Risk) -> dict[str, list[str]]:
    """The names of a risk's parameters by the module that owns them, in order; the model's own are under "(model)".

    What `torch.nn.utils.parametrize` keeps in modules of its own belongs to the layer it parametrises.

    >>> data = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1)
    >>> risk = ritz.Risk(torch.nn.Linear(2, 1, bias=False), torch.nn.MSELoss(), data)
    >>> layers_of(risk)
    {'(model)': ['weight']}
    """
    layers: dict[str, list[str]] = {}
    for name in risk.shapes:
        *path, _ = name.split(".")
        path = path[: path.index("parametrizations")] if "parametrizations" in path else path
        layers.setdefault(".".join(path) or "(model)", []).append(name)
    return layers


def _files(checkpoint: str | Path | None, number: int) -> dict[str, Path | None]:
    """The files in which the parts of one risk's measurement are kept on their way."""
    names = ("eigenpairs", "density", "columns")
    return {name: None if checkpoint is None else Path(checkpoint) / f"{name}-{number}.npz" for name in names}


def _results(
    risk: Risk, settings: Settings, files: Mapping[str, Path | None]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The scalars and arrays of one risk."""
    A = settings.matrix(risk)
    if is_solved(A, settings):
        spectrum, pairs = whole_spectrum(A, settings.num_eigenpairs or 0, settings.tolerance, files["columns"])
    else:
        spectrum, pairs = _estimated(A, settings, files)
    arrays, facts = spectrum.state()
    scalars = {
        **scalars_of(risk),
        "num_products": spectrum.num_products,
        "products": _products(A),
        **{name: fact for name, fact in facts.items() if name not in ("size", "num_products")},
        "range": list(spectrum.range),
        "resolved_zero": resolved_zero(spectrum),
        **statistics(spectrum, A.dtype),
    }
    arrays |= {"eigenvalues": pairs.values, "residuals": pairs.residuals, "converged": pairs.converged}
    return scalars, arrays | ({"eigenvectors": pairs.vectors} if settings.vectors else {})


def is_solved(A: Operator, settings: Settings, size: int | None = None) -> bool:
    """Whether all eigenvalues of A are computed, or of a block of it that has this size."""
    return settings.solves(A.size if size is None else size, room(A) * A.size)


def _estimated(A: Operator, settings: Settings, files: Mapping[str, Path | None]) -> tuple[Spectrum, Eigenpairs]:
    """The spectrum as estimated by probes, and the requested pairs, which are its outliers."""
    generator = torch.Generator().manual_seed(settings.seed)
    pairs = _pairs(A, settings, generator, files["eigenpairs"])
    numbers: dict[str, Any] = {"num_steps": settings.num_steps, "num_probes": settings.num_probes}
    spectrum = spectral_density(A, outliers=pairs, generator=generator, checkpoint=files["density"], **numbers)
    return replace(spectrum, num_products=pairs.num_products + spectrum.num_products), pairs


def _theory(title: str, form: ClosedForm) -> tuple[dict[str, Any], Tensor]:
    """A closed form as scalars and the values of its lines."""
    names, counts = zip(*((line.name, line.multiplicity) for line in form.groups), strict=True)
    values = torch.tensor([line.value for line in form.groups], dtype=torch.float64)
    return {"of": title, "lines": list(names), "multiplicities": list(counts)}, values


def _products(A: Operator) -> dict[str, Any] | None:
    """How products were computed and how accurate they are, as far as that is the same in every run.

    Their time is not, nor how many columns went together: what was read from a file multiplied none.
    """
    if A.info is None:
        return None
    return {name: fact for name, fact in asdict(A.info).items() if name not in ("seconds", "columns")}


def _pairs(A: Operator, settings: Settings, generator: torch.Generator, file: Path | None) -> Eigenpairs:
    if settings.num_eigenpairs:
        options: dict[str, Any] = {"tolerance": settings.tolerance, "generator": generator, "checkpoint": file}
        return eigenpairs(A, settings.num_eigenpairs, which="magnitude", **options)
    none = torch.zeros(0, dtype=A.dtype)
    return Eigenpairs(none, torch.zeros(A.size, 0, dtype=A.dtype), none, none.bool())


def statistics(spectrum: Spectrum, dtype: torch.dtype) -> dict[str, float | None]:
    """Statistics of the probes that need no further product, each with its standard error; None with one probe.

    An error covers the scatter over the probes, the rounding of products in `dtype` (‖A‖_F eps in A, so √n ‖A‖_F eps
    in its trace), and for the negative mass what the quadrature leaves open around zero. Exact spectra have that of
    rounding alone; of the negative mass, that is the share near its end.
    """
    first, second = (spectrum.size * (spectrum.weights * spectrum.nodes**degree).sum(1) for degree in (1, 2))
    eps, total, square = torch.finfo(dtype).eps, float(first.mean()), float(second.mean())
    trace, rank = mean_of(first, spectrum.num_probes), rank_from(first, second)
    slope = 2 * (math.sqrt(spectrum.size / square) * abs(total) + rank.value) if square else 0.0
    zero = resolved_zero(spectrum)
    exact = spectrum.is_exact
    estimates = {
        "trace": _rounded(trace, eps * math.sqrt(spectrum.size * square), exact),
        "effective_rank": _rounded(rank, eps * slope, exact),
        "negative_mass": _rounded(
            mass_below(spectrum, zero), _undecided_share(spectrum, zero) if exact else 0.0, exact
        ),
    }
    known = exact or spectrum.num_probes > 1
    errors = {f"{name}_error": estimate.standard_error if known else None for name, estimate in estimates.items()}
    return {name: estimate.value for name, estimate in estimates.items()} | errors


def _rounded(estimate: Estimate, rounding: float, exact: bool) -> Estimate:
    """An estimate with the error of rounding added, which is the only error of an exact spectrum."""
    if exact or not estimate.has_error:
        return Estimate(estimate.value, rounding if exact else None, estimate.num_products)
    return Estimate(estimate.value, math.hypot(estimate.standard_error, rounding), estimate.num_products)


def _undecided_share(spectrum: Spectrum, zero: float) -> float:
    """The share of the eigenvalues of an exact spectrum that rounding may have put on the other side of -zero."""
    return spectrum.mass(-1.5 * zero, -0.5 * zero).value if zero else 0.0


def _config(risk: Risk, settings: Settings) -> dict[str, Any]:
    values = {name: getattr(settings, name) for name in settings.__dataclass_fields__ if name != "operator"}
    return {
        "operator": settings.operator_name,
        **values,
        **config_of(risk),
        "num_batches": None if risk.batches.held is None else len(risk.batches.held),  # counting would read the data
    }
