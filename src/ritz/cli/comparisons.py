"""`ritz compare`: spectra side by side, what changed, and whether it is more than noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import torch

from .. import report
from ..analysis.comparison import Entry, changes, distance
from ..errors import FileError
from ..record import Record, read_arrays
from ..report.differences import NOISE, check, columns_of
from ..report.spectra import TYPED, command
from ..spectrum import Spectrum
from ..spectrum.measure import lent_width
from .tables import columns_table, show


def run(places: Sequence[str], out: Path) -> Path:
    """Print what changed from the first to each other, and write the page."""
    entries = [entry(place) for place in places]
    check(entries)
    first, *others = entries
    for other in others:
        columns = columns_of(changes(first, other))
        show(columns_table(f"From {first.name} to {other.name}", columns, left=("number", "verdict")))
        show(f"The spectra differ by {distance(first, other).sentence}.\n")
    show(f"{NOISE}\n")
    return report.compare(entries, out)


def entry(place: str) -> Entry:
    """FOLDER, FOLDER:LAYER, or an .npz file of nodes and weights."""
    path = Path(place)
    if path.suffix == ".npz" and path.is_file():
        return Entry.of_spectrum(place, _spectrum(path))
    folder, _, layer = (place, "", "") if path.exists() else place.rpartition(":")
    folder = folder or place
    record = _record(Path(folder))
    if record.preset != "analysis":
        raise FileError(
            f"{place} is a record of another kind: {record.id}, {record.preset}.",
            "Only spectra can be compared, and this record has none of its own.",
            "Name records of ritz spectrum, or of analysis.spectrum.run.",
        )
    layers = record.scalars["layers"]
    if layer and layer not in layers:
        raise FileError(
            f"{folder} has no layer {layer!r}.",
            "Only layers that were measured can be compared.",
            f"Its layers are: {', '.join(layers)}." if layers else f"Measure them: {_again(record, folder)}",
        )
    return Entry.of(record, layer=layer or None, name=place)


def _record(folder: Path) -> Record:
    if folder.name != "record.json" and not (folder / "record.json").exists():
        raise FileError(
            f"{folder} holds no record.",
            "Spectra are compared that were measured: records of ritz spectrum, or .npz files.",
            "Measure it first: ritz spectrum mine.py:risk --out out/after",
        )
    return Record.load(folder)


def _again(record: Record, folder: str) -> str:
    """The command that measures layers too, into the same folder: by itself it would take another for its --dtype."""
    if record.config["operator"] not in TYPED:
        return "Settings(per_layer=True)"
    return f"{command(record)} --per-layer --out {quote(folder)}"


def _spectrum(path: Path) -> Spectrum:
    """A spectrum that ritz saved, or nodes and weights of another tool: a row for each probe, and the `size`."""
    arrays, header = read_arrays(path)
    if header.get("kind") == "Spectrum":
        return Spectrum.load(path)
    if not _is_spectrum(arrays):
        raise FileError(
            f"{path} holds {', '.join(map(_shown, arrays.items())) or 'nothing'}.",
            "A spectrum of another tool is given by its nodes and weights, one row for each probe, and by its size.",
            "numpy.savez(path, nodes=nodes, weights=weights, size=num_parameters)",
        )
    nodes, weights = (torch.atleast_2d(torch.as_tensor(arrays[name]).double()) for name in ("nodes", "weights"))
    if not bool(
        nodes.isfinite().all() and weights.isfinite().all() and (weights >= 0).all() and (weights.sum(1) > 0).all()
    ):
        raise FileError(
            f"{path} holds nodes that are NaN or infinite, or weights that no probe can have.",
            "Weights are not negative, and those of a probe have a positive sum.",
            "Look for NaN in what the other tool returned, and write the file again.",
        )
    spread = float(nodes.max() - nodes.min()) or float(nodes.abs().max()) or 1.0
    width = lent_width(spread, max(2, nodes.shape[1]))  # one node has no neighbour that would tell how fine it is
    return Spectrum(nodes, weights / weights.sum(1, keepdim=True), int(arrays["size"].item()), width)


def _is_spectrum(arrays: Mapping[str, Any]) -> bool:
    """Whether there are nodes with a weight each, and a whole number of parameters."""
    if not {"nodes", "weights", "size"} <= {*arrays}:
        return False
    nodes, weights, size = (np.asarray(arrays[name]) for name in ("nodes", "weights", "size"))
    real = all(array.dtype.kind in "fiu" for array in (nodes, weights, size))
    return real and nodes.ndim in (1, 2) and nodes.size > 0 and nodes.shape == weights.shape and _is_whole(size)


def _is_whole(size: np.ndarray) -> bool:
    return size.size == 1 and float(size.item()).is_integer()


def _shown(item: tuple[str, Any]) -> str:
    name, array = item[0], np.asarray(item[1])
    return f"{name} ({' × '.join(map(str, array.shape)) or 'one'}, {array.dtype})"
