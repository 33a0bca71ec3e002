"""The measurement of a classifier's class structure: an attribution, then layer by layer, all into one record."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ... import progress
from ...classes.lines.attributions import EXACT_ROWS, attribution
from ...errors import ArgumentError, check_positive
from ...record import Record, provenance
from ...risk import Risk
from ...solvers.stages import stages_of_risk
from ..risk_facts import accuracy, config_of
from . import attribution_arrays, kronecker_spectra, layer_spectra
from .layer_choice import linear_layers_of
from .results import Results, kept


@dataclass(frozen=True)
class ClassSettings:
    """What is measured, and up to which size exactly.

    >>> ClassSettings(weight_decay=5e-4)
    ClassSettings(num_lines=None, exact_rows=3000, weight_decay=0.0005, seed=0)
    """

    num_lines: int | None = None  # eigenpairs of H and of G; None: the number of classes and two more
    exact_rows: int = EXACT_ROWS  # the largest matrix that is decomposed
    weight_decay: float | None = None  # η of the training, for the structure of the weights; None: left out
    seed: int = 0

    def check(self) -> None:
        """Refuse what no analysis could satisfy."""
        if self.weight_decay is not None:
            check_positive(weight_decay=self.weight_decay)
        if self.exact_rows < 0 or (self.num_lines is not None and self.num_lines < 1):
            raise ArgumentError(
                f"num_lines={self.num_lines} and exact_rows={self.exact_rows} were given.",
                "At least one eigenvalue must be attributed, and a matrix cannot have a negative number of rows.",
                "Pass num_lines=1 or more and exact_rows=0 or more, or leave them out.",
            )


def run(
    risk: Risk,
    settings: ClassSettings | None = None,
    *,
    name: str = "classes",
    source: Mapping[str, Any] | None = None,
    checkpoint: str | Path | None = None,
) -> Record:
    """Attribute the eigenvalues of a classifier, and measure the class structure of its layers.

    What this model does not have, or what would cost too much, is left out, and `scalars["notes"]` says why. `source`
    is kept in the record's config: where the risk comes from, in the caller's words. With `checkpoint`, a folder, a
    measurement that was killed goes on from the files in it, to the same bits.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False)).double()
    >>> _ = torch.nn.init.zeros_(model[0].weight)
    >>> risk = Risk(model, torch.nn.CrossEntropyLoss(), (torch.eye(2).double(), torch.tensor([0, 1])))
    >>> run(risk, ClassSettings(num_lines=2)).scalars["counts"]
    {'outliers': 2, 'mini-bulk': 0, 'bulk': 0, 'zero': 2}
    """
    settings = settings or ClassSettings()
    settings.check()
    start = time.perf_counter()
    scalars, results = _results(risk, settings, checkpoint)
    layers = {name: numbers for name, numbers in results.layers.items() if numbers}
    scalars |= {"layers": layers, "notes": results.notes, "accuracy": accuracy(risk)}
    scalars["seconds"] = time.perf_counter() - start
    config = {**asdict(settings), **config_of(risk), **(source or {})}
    return Record(name, "classes", config, scalars, results.arrays, (), provenance(risk.device))


def _results(risk: Risk, settings: ClassSettings, checkpoint: str | Path | None) -> tuple[dict[str, Any], Results]:
    """The scalars of the whole, and all other results; the attribution is freed before the layers are measured."""
    generator = torch.Generator().manual_seed(settings.seed)
    options: dict[str, Any] = {"exact_rows": settings.exact_rows, "generator": generator}
    stages = stages_of_risk(checkpoint, risk, settings=settings)
    files = None if checkpoint is None else Path(checkpoint) / "attribution"
    with progress.bar("Class structure", total=3) as bar:
        bar.advance(0, part="attribution")
        lines = attribution(risk, num_lines=settings.num_lines, checkpoint=files, **options)
        scalars, results = attribution_arrays.results_of(lines)
        del lines
        bar.advance(part="features, errors, weights")
        layers, results.notes = linear_layers_of(risk)
        results.layers = {layer.name: {} for layer in layers}
        measure = partial(layer_spectra.measure, risk=risk, layers=layers, exact_rows=settings.exact_rows)
        results.join(kept(stages, "layers", lambda own: measure(own, weight_decay=settings.weight_decay)))
        bar.advance(part="Kronecker factors")
        kronecker_spectra.measure(results, risk, layers, stages=stages, **options)
        bar.advance()
    return scalars, results
