"""What the record of an analysis holds: its spectra, arrays, counts, title."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ...errors import ArgumentError
from ...record import Record
from ...spectrum import Spectrum
from ...theory import ClosedForm, Group

TITLES = {
    "hessian": "Hessian",
    "gauss_newton": "Gauss-Newton",
    "functional_hessian": "Functional Hessian",
    "empirical_fisher": "Empirical Fisher",
    "monte_carlo_fisher": "Monte Carlo Fisher",
    "gradient_covariance": "Gradient covariance",
}


def title_of(record: Record) -> str:
    """The name of the analysed matrix, as people write it.

    >>> data = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1)
    >>> risk = ritz.Risk(torch.nn.Linear(2, 1, bias=False), torch.nn.MSELoss(), data)
    >>> record = ritz.analysis.spectrum.run(risk)
    >>> title_of(record)
    'Hessian'
    """
    operator = _fact(record, record.config, "operator")
    return TITLES.get(operator, operator)


def num_products(record: Record) -> int:
    """The products of the whole and of all layers.

    >>> data = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1)
    >>> risk = ritz.Risk(torch.nn.Linear(2, 1, bias=False), torch.nn.MSELoss(), data)
    >>> record = ritz.analysis.spectrum.run(risk)
    >>> num_products(record)
    2
    """
    layers = _fact(record, record.scalars, "layers").values()
    return sum(_fact(record, scalars, "num_products") for scalars in (record.scalars, *layers))


def spectrum_of(record: Record, layer: str | None = None) -> Spectrum:
    """The spectrum in a record, of the whole or of one layer.

    >>> data = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1)
    >>> risk = ritz.Risk(torch.nn.Linear(2, 1, bias=False), torch.nn.MSELoss(), data)
    >>> record = ritz.analysis.spectrum.run(risk)
    >>> spectrum_of(record)
    Spectrum(2 eigenvalues, exact: λ from 1 to 4, mean 2.5, root mean square 2.915, zeros 0)
    """
    nodes, weights = (array_of(record, key, layer) for key in ("nodes", "weights"))
    scalars = record.scalars if layer is None else _fact(record, _fact(record, record.scalars, "layers"), layer)
    size, resolution = (_fact(record, scalars, name) for name in ("num_parameters", "resolution"))
    if "num_atoms" not in scalars:  # an older record: the eigenpairs are its atoms
        return Spectrum(nodes, weights, size, resolution, len(array_of(record, "eigenvalues", layer)))
    has_reach = resolution is not None or _key("reach", layer) in record.arrays
    reach = array_of(record, "reach", layer) if has_reach else None
    return Spectrum(nodes, weights, size, resolution, scalars["num_atoms"], reach, scalars["precision"])


def array_of(record: Record, key: str, layer: str | None = None) -> Tensor:
    """An array in a record, of the whole or of one layer, as a tensor.

    >>> data = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1)
    >>> risk = ritz.Risk(torch.nn.Linear(2, 1, bias=False), torch.nn.MSELoss(), data)
    >>> record = ritz.analysis.spectrum.run(risk)
    >>> array_of(record, "eigenvalues")
    tensor([4., 1.])
    """
    return torch.as_tensor(_fact(record, record.arrays, _key(key, layer)))


def _key(key: str, layer: str | None) -> str:
    return key if layer is None else f"{layer}/{key}"


def _fact(record: Record, facts: Mapping[str, Any], name: str) -> Any:
    if name not in facts:
        raise ArgumentError(
            f"{name} was requested from the record {record.id!r}.",
            f"It holds {', '.join(list(facts)[:8]) or 'nothing of the kind'}.",
            "Ask for one of these, or take a record that `analysis.spectrum.run` made.",
        )
    return facts[name]


def theory_of(record: Record) -> ClosedForm | None:
    """The closed form of the spectrum in a record, where the model is one that theory knows.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 1, bias=False), torch.nn.Linear(1, 1, bias=False)).double()
    >>> risk = ritz.Risk(model, torch.nn.MSELoss(), (torch.eye(2).double(), torch.zeros(2, 1).double()))
    >>> theory_of(ritz.analysis.spectrum.run(risk)).size
    3
    """
    known = record.scalars.get("closed_form")
    if known is None:
        return None
    lines = zip(known["lines"], array_of(record, "closed_form/values").tolist(), known["multiplicities"], strict=True)
    return ClosedForm([Group(*line) for line in lines])


def largest_of(record: Record, layer: str | None = None) -> tuple[float, float | None]:
    """λ_max of a record, and its residual; None if it is not among the eigenpairs but a node of the quadrature.

    Eigenpairs are those of largest magnitude. Where all of them are negative, and there are more, the largest of all is
    another.

    >>> data = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1)
    >>> risk = ritz.Risk(torch.nn.Linear(2, 1, bias=False), torch.nn.MSELoss(), data)
    >>> record = ritz.analysis.spectrum.run(risk)
    >>> round(largest_of(record)[0], 4)
    4.0
    """
    values, residuals = (array_of(record, key, layer) for key in ("eigenvalues", "residuals"))
    scalars = record.scalars if layer is None else _fact(record, _fact(record, record.scalars, "layers"), layer)
    top = int(values.argmax()) if len(values) else None
    if top is None or (float(values[top]) <= 0 and len(values) < scalars["num_parameters"]):
        return float(scalars["range"][1]), None
    return float(values[top]), float(residuals[top])


def num_outliers(record: Record) -> int:
    """How many of the eigenpairs exceed everything that the probes saw of the rest: these are drawn as stems.

    >>> data = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1)
    >>> risk = ritz.Risk(torch.nn.Linear(2, 1, bias=False), torch.nn.MSELoss(), data)
    >>> record = ritz.analysis.spectrum.run(risk, ritz.analysis.spectrum.Settings(num_eigenpairs=1, num_steps=1))
    >>> num_outliers(record)
    1
    """
    atoms, rest = _sizes(record)
    return int((atoms > rest).sum())


def widest_gap(record: Record) -> tuple[int, float]:
    """After how many of the eigenpairs, largest first, |λ| falls most, and by which factor; (0, 1.0) without any.

    After the last pair follows the largest value that the probes saw of the rest.

    >>> data = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1)
    >>> risk = ritz.Risk(torch.nn.Linear(2, 1, bias=False), torch.nn.MSELoss(), data)
    >>> record = ritz.analysis.spectrum.run(risk, ritz.analysis.spectrum.Settings(num_eigenpairs=1, num_steps=1))
    >>> widest_gap(record)
    (1, 4.0)
    """
    atoms, rest = _sizes(record)
    sizes = [*atoms.sort(descending=True).values.tolist(), rest]
    factors = [first / second if second > 0 else math.inf for first, second in pairwise(sizes) if first > 0]
    return (factors.index(max(factors)) + 1, max(factors)) if factors else (0, 1.0)


def _sizes(record: Record) -> tuple[Tensor, float]:
    """|λ| of the eigenpairs, and the largest that was seen of all others."""
    spectrum, count = spectrum_of(record), len(record.arrays["eigenvalues"])
    first = min(count, spectrum.size - 1)  # `spectral_density` puts the atoms first in every row
    rest = spectrum.nodes[:, first:][spectrum.weights[:, first:] > 0]
    return spectrum.nodes[0, :first].abs(), float(rest.abs().max())
