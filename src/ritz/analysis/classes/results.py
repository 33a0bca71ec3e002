"""The place where all results of a class analysis are gathered, with a note for whatever was left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import RitzError
from ...layers.linear import LinearLayer
from ...solvers.stages import Stages

SHOWN = 8  # panels that a page has room for: as many layers as the networks of Papyan (2020), Sec. 7, have
Result = TypeVar("Result")
Item = TypeVar("Item")


@dataclass
class Results:
    """Numbers by layer, arrays by "kind/layer/curve", and a sentence for everything that was left out."""

    layers: dict[str, dict[str, Any]] = field(default_factory=dict)
    arrays: dict[str, Float[Tensor, "..."]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def join(self, other: Results) -> None:
        """Add all results and notes of another one."""
        self.arrays |= other.arrays
        self.notes += other.notes
        for layer, numbers in other.layers.items():
            self.layers.setdefault(layer, {}).update(numbers)

    def add(self, kind: str, layer: str, curves: dict[str, Tensor], **scalars: Any) -> None:
        """Note the curves and numbers of one layer."""
        self.arrays |= {f"{kind}/{layer}/{name}": values for name, values in curves.items()}
        self.layers.setdefault(layer, {}).update(scalars)

    def attempt(self, what: str, run: Callable[[], Result]) -> Result | None:
        """What `run` returns; where it refuses, None and a note that says why."""
        try:
            return run()
        except RitzError as error:
            self.notes.append(f"{what}: left out. {error.seen} {error.why}")
            return None

    def plain(self, what: str, layers: list[LinearLayer]) -> list[LinearLayer]:
        """The layers with a weight that is one matrix, and theirs alone; others are noted."""
        layers = [layer for layer in layers if layer.weight is not None]
        grouped = ", ".join(layer.name for layer in layers if layer.groups > 1)
        if grouped:
            self.notes.append(f"{what}: left out in {grouped}, whose weights are a matrix for each group.")
        tied = ", ".join(layer.name for layer in layers if layer.tied)
        if tied:
            self.notes.append(f"{what}: left out in {tied}, whose parameters enter in several ways.")
        return [layer for layer in layers if layer.groups == 1 and not layer.tied]

    def fitting(
        self, what: str, layers: list[LinearLayer], width: Callable[[LinearLayer], int], limit: int
    ) -> list[LinearLayer]:
        """The layers, 8 at most, whose matrices may be decomposed; the others are noted."""
        wide = [layer for layer in layers if width(layer) > limit]
        if wide:
            names = ", ".join(f"{layer.name} ({width(layer):,})" for layer in wide)
            self.notes.append(
                f"{what}: left out in {names}, because matrices of more than {limit:,} rows are not decomposed; "
                "raise exact_rows (--exact-rows) to include them."
            )
        return spaced([layer for layer in layers if layer not in wide])


def kept(
    stages: Stages, name: str, measure: Callable[[Results], None], generator: torch.Generator | None = None
) -> Results:
    """The results of a part of the measurement, as a stage of its own."""

    def compute() -> Results:
        results = Results()
        measure(results)
        return results

    def read(arrays: dict[str, Tensor], facts: Mapping[str, Any]) -> Results:
        return Results(facts["layers"], arrays, facts["notes"])

    written = lambda own: (own.arrays, {"layers": own.layers, "notes": own.notes})
    return stages.result(name, compute, written, read, generator)


def spaced(items: Sequence[Item]) -> list[Item]:
    """All items up to 8; of more, 8 that are evenly spaced, the first and the last among them."""
    count = len(items)
    if count <= SHOWN:
        return list(items)
    return [items[round(index * (count - 1) / (SHOWN - 1))] for index in range(SHOWN)]
