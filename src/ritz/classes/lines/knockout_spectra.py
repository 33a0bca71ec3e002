"""The spectrum of G after each knockout: what disappears with a part is attributed to it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from ...factored.gram import Gram
from ...factored.gram_parts import Part
from ...operators import Operator, low_rank
from ...risk import Risk
from ...solvers import spectral_density
from ...solvers.stages import Stages
from ...spectrum import Spectrum
from ..gradients.decomposition import ClassDecomposition
from ..knockouts import project, subtract

STEPS, PROBES = 128, 4  # of the quadratures that stand in for spectra that would be too large
SYMBOLS: dict[Part, str] = {
    "between_class": "G_class", "cross_class": "G_cross", "own_class": "G_own", "within": "G_within",
}  # fmt: skip
SUBTRACTED: dict[str, list[Part]] = {"G": []} | {f"G - {name}": [part] for part, name in SYMBOLS.items()}
PROJECTED: dict[str, list[Part]] = {
    "G off G_class": ["between_class"],
    "G off all means": ["between_class", "cross_class"],
}


def spectra_of_gram(gram: Gram, stages: Stages) -> dict[str, Spectrum]:
    """The exact spectra, all from one Gram matrix."""
    ways = {name: partial(gram.spectrum, subtract=parts) for name, parts in SUBTRACTED.items()}
    ways |= {name: partial(gram.spectrum, project=parts) for name, parts in PROJECTED.items()}
    return {name: stages.spectrum(_file_of(name), way) for name, way in ways.items()}


def spectra_of_products(
    risk: Risk,
    G: Operator,
    classes: ClassDecomposition,
    exact_rows: int,
    generator: torch.Generator | None,
    stages: Stages,
) -> dict[str, Spectrum]:
    """The spectrum of G, and those after each of its parts was subtracted, or the span of its means projected out."""
    if risk.size > exact_rows:
        return {
            name: _quadrature(A, generator, stages.file(_file_of(name))) for name, A in _knockouts(G, classes).items()
        }
    G = Operator.from_matrix(G.dense())  # each knockout would multiply all of it again
    return {name: stages.spectrum(_file_of(name), partial(_exact, A)) for name, A in _knockouts(G, classes).items()}


def _knockouts(G: Operator, classes: ClassDecomposition) -> dict[str, Operator]:
    """G without each of its parts; without G_within it is the sum of the others, which needs no product with G."""
    knockouts = dict.fromkeys(SUBTRACTED, G)
    for name, parts in SUBTRACTED.items():
        for part in parts:
            knockouts[name] = subtract(knockouts[name], getattr(classes, part))
    knockouts["G - G_within"] = classes.between_class + classes.cross_class + classes.own_class
    for name, parts in PROJECTED.items():
        factors = [getattr(classes, part).factor for part in parts]
        if all(factor is not None for factor in factors):
            knockouts[name] = project(G, low_rank(torch.cat(factors, 1)))
    return knockouts


def _exact(A: Operator) -> Spectrum:
    """All eigenvalues; where a knockout leaves nothing, the matrix is rounding, which need not be symmetric."""
    matrix = A.dense()
    return Spectrum.of_matrix((matrix + matrix.T) / 2)


def _quadrature(A: Operator, generator: torch.Generator | None, file: Path | None) -> Spectrum:
    steps = min(STEPS, A.size)
    return spectral_density(A, num_steps=steps, num_probes=PROBES, generator=generator, checkpoint=file)


def _file_of(name: str) -> str:
    return f"spectrum-of-{name.replace(' ', '-')}"
