"""What the record of a class analysis holds: spectra, lines with their shares, numbers by layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...classes.lines.knockout_spectra import SYMBOLS
from ...errors import ArgumentError
from ...record import Record
from ...record.arrays import under
from ...spectrum import Spectrum

_SHARES = {str(part): symbol for part, symbol in SYMBOLS.items()} | {"functional": "E"}


def array_of(record: Record, key: str) -> Tensor:
    """An array in a record, in float64 on the CPU."""
    return torch.as_tensor(record.arrays[key]).double().cpu()


def spectra_of(record: Record) -> dict[str, Spectrum]:
    """The spectra of G, whole and knocked out, in a record."""
    if "spectra" not in record.scalars:
        raise ArgumentError(
            f"The record {record.id!r} has no class structure.",
            "Only what `analysis.classes.run` measured can be drawn here.",
            "Draw the record of a spectrum with `analysis.spectrum.draw`.",
        )
    names = ("nodes", "weights", "reach")  # the last is in newer records of quadratures alone
    array = lambda name, key: torch.as_tensor(record.arrays[f"spectra/{name}/{key}"])

    def arrays(name: str) -> dict[str, Any]:
        return {key: array(name, key) for key in names if f"spectra/{name}/{key}" in record.arrays}

    return {name: Spectrum(**arrays(name), **facts) for name, facts in record.scalars["spectra"].items()}


def lines_of(record: Record, matrix: str) -> dict[str, Any]:
    """The lines of "hessian" or "gauss_newton": values, residuals, whether they converged, and what else is known."""
    return under(f"{matrix}/", record.arrays)


def shares_of(record: Record, matrix: str) -> dict[str, Any]:
    """The share of every part, by its symbol, in each of these lines; E has a share only in those of H."""
    rows = record.arrays[f"{matrix}/shares"]
    parts = record.scalars["shares"][: len(rows)]
    return {_SHARES[part]: row for part, row in zip(parts, rows, strict=True)}


def layers_with(record: Record, kind: str) -> list[str]:
    """The layers of which a record has the curves of some kind."""
    first = "G/nodes" if kind == "kronecker" else "whole"
    return [layer for layer in record.scalars["layers"] if f"{kind}/{layer}/{first}" in record.arrays]


def layer_spectra_of(record: Record, layer: str) -> dict[str, Spectrum]:
    """The spectra of G^l, KFAC and CFAC of a layer in a record; none where the layer was left out."""
    scalars = record.scalars["layers"][layer]
    array = lambda kind, key: torch.as_tensor(record.arrays[f"kronecker/{layer}/{kind}/{key}"])
    return {
        kind: Spectrum(array(kind, "nodes"), array(kind, "weights"), scalars["num_parameters"], resolution)
        for kind, resolution in scalars.get("resolutions", {}).items()
    }


def layer_columns(record: Record, shown: Mapping[str, tuple[tuple[str, ...], str]]) -> dict[str, list[str]]:
    """Numbers of all layers as columns of text; for each heading, the place of the number and its format.

    A layer that was left out has a dash, and a heading without any numbers is omitted.
    """
    layers = record.scalars["layers"]
    columns = {"layer": [name or "(model)" for name in layers]}
    for heading, (place, digits) in shown.items():
        values = [_at(numbers, place) for numbers in layers.values()]
        if any(value is not None for value in values):
            columns[heading] = ["-" if value is None else format(value, digits) for value in values]
    return columns


def _at(numbers: Mapping[str, Any], place: tuple[str, ...]) -> float | None:
    value: Any = numbers
    for key in place:
        value = None if value is None else value.get(key)
    return value
