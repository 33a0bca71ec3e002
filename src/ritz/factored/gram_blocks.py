"""The finished blocks of a Gram matrix, in memory and in a file from which the rest can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ..record.checkpoints import State
from ..record.layouts import check_arrays, check_facts, like
from ..risk import Risk
from ..risk.class_terms import ClassTerms
from ..solvers.resumption import Resumption

NAMES = tuple(field.name for field in fields(ClassTerms))
ROUNDING = 1e-3  # of a sum of probabilities, far above rounding in any precision


class Assembly(NamedTuple):
    """K, the terms of its rows where they have labels, and its error against a product with G."""

    matrix: Tensor
    classes: ClassTerms | None
    error: float


@dataclass(frozen=True)
class Extent:
    """The size of a block of examples and its part of K, seen on the first example."""

    size: int  # examples
    rows_each: int  # of each example
    terms: ClassTerms | None  # of the first example; None where there are no labels

    @property
    def rows(self) -> int:
        """The rows of K that belong to the block."""
        return self.size * self.rows_each

    def layout(self) -> dict[str, Tensor]:
        """Shapes and types of the terms of the whole block; empty if there are no labels."""
        parts = {} if self.terms is None else {name: getattr(self.terms, name) for name in NAMES}
        return {name: like(part.dtype, self.size * len(part), *part.shape[1:]) for name, part in parts.items()}


@dataclass(eq=False)
class FinishedBlocks:
    """The finished lower blocks of K, and the terms of the rows seen so far."""

    sizes: list[int]  # examples of each block of rows
    pieces: dict[tuple[int, int], Float[Tensor, "a b"]]
    labelled: dict[int, ClassTerms]

    @classmethod
    def of(cls, sizes: list[int], extents: list[Extent], risk: Risk, file: Resumption | None) -> FinishedBlocks:
        """What a file has, if it was cut into the same blocks; else no blocks."""
        if file is None or file.under_way is None or file.header.get("sizes") != sizes:
            return cls(sizes, {}, {})
        return file.read(partial(cls._of_state, extents, risk))

    @classmethod
    def _of_state(
        cls, extents: list[Extent], risk: Risk, arrays: Mapping[str, Tensor], header: Mapping[str, Any]
    ) -> FinishedBlocks:
        places = _places(header, len(extents))
        with_terms = list(dict.fromkeys(i for i, _ in places))
        check_arrays(arrays, _layout(extents, places, with_terms, risk.dtype))
        here = {name: array.to(risk.device) for name, array in arrays.items()}
        pieces = {(i, j): here[f"pieces/{i}/{j}"] for i, j in places}
        labelled = {} if extents[0].terms is None else {i: _terms(here, f"/{i}") for i in with_terms}
        return cls([extent.size for extent in extents], pieces, labelled)

    def written(self) -> State:
        """Its state for a file."""
        arrays = {f"pieces/{i}/{j}": piece for (i, j), piece in self.pieces.items()}
        arrays |= {f"{name}/{i}": getattr(own, name) for i, own in self.labelled.items() for name in NAMES}
        return arrays, {"sizes": self.sizes, "pieces": [list(place) for place in self.pieces]}

    def missing(self, rows: range, columns: range) -> Iterator[tuple[int, int]]:
        """The unfinished blocks of the lower half among these rows and columns."""
        return ((i, j) for i in rows for j in columns if j <= i and (i, j) not in self.pieces)

    def note_terms(self, number: int, make: Callable[[], ClassTerms | None]) -> None:
        """Note the terms of a block of rows, once."""
        if number not in self.labelled and (own := make()) is not None:
            self.labelled[number] = own

    def terms(self) -> ClassTerms | None:
        """The terms of all rows; None if there are no labels, or not of the same classes in all blocks."""
        own = [self.labelled[i] for i in range(len(self.sizes))] if self.labelled else []
        if len({part.probabilities.shape[1] for part in own}) != 1:
            return None
        return ClassTerms(*(torch.cat([getattr(part, name) for part in own]) for name in NAMES))

    def symmetric(self) -> Float[Tensor, "m m"]:
        """The whole matrix from its lower blocks, which are freed one by one, being as large as the matrix."""
        count = len(self.sizes)
        ends = torch.tensor([0, *(len(self.pieces[i, 0]) for i in range(count))]).cumsum(0).tolist()
        K = self.pieces[0, 0].new_empty(ends[-1], ends[-1])
        for place in sorted(self.pieces):
            rows, columns = (slice(ends[number], ends[number + 1]) for number in place)
            piece = self.pieces.pop(place)
            piece = (piece + piece.T) / 2 if rows == columns else piece
            K[rows, columns], K[columns, rows] = piece, piece.T
        return K


def _places(header: Mapping[str, Any], num_blocks: int) -> list[tuple[int, int]]:
    """The places of the pieces that a file claims to hold; refuses any outside the lower half, or there twice."""
    check_facts(header, pieces=list)
    places = [(i, j) for i, j in header["pieces"]]
    lower_half = {(i, j) for i in range(num_blocks) for j in range(i + 1)}
    if not {*places} <= lower_half or len({*places}) < len(places):
        raise ValueError(f"it has the blocks {places!r:.80}")
    return places


def _layout(
    extents: list[Extent], places: list[tuple[int, int]], with_terms: list[int], dtype: torch.dtype
) -> dict[str, Tensor]:
    """Shapes and types of pieces at these places, and of the terms of these blocks of rows."""
    layout = {f"pieces/{i}/{j}": like(dtype, extents[i].rows, extents[j].rows) for i, j in places}
    return layout | {f"{name}/{i}": part for i in with_terms for name, part in extents[i].layout().items()}


def written_assembly(result: Assembly) -> State:
    """The whole matrix for a file."""
    arrays = {"matrix": result.matrix}
    if result.classes is not None:
        arrays |= {name: getattr(result.classes, name) for name in NAMES}
    return arrays, {"error": result.error}


def read_assembly(
    extents: list[Extent], risk: Risk, arrays: Mapping[str, Tensor], header: Mapping[str, Any]
) -> Assembly:
    """The whole matrix from its file, in the risk's place."""
    check_facts(header, error=float)
    rows, parts = sum(extent.rows for extent in extents), [extent.layout() for extent in extents]
    joint = {n: like(p.dtype, sum(len(part[n]) for part in parts), *p.shape[1:]) for n, p in parts[0].items()}
    check_arrays(arrays, {"matrix": like(risk.dtype, rows, rows), **joint})
    if not torch.equal(arrays["matrix"], arrays["matrix"].T):
        raise ValueError("its matrix is not symmetric")
    here = {name: array.to(risk.device) for name, array in arrays.items()}
    return Assembly(here["matrix"], _terms(here) if joint else None, header["error"])


def _terms(arrays: Mapping[str, Tensor], suffix: str = "") -> ClassTerms:
    """The terms from a file; refuses values that terms of classes cannot have."""
    labels, masses, probabilities = (arrays[f"{name}{suffix}"] for name in NAMES)
    sums = probabilities.sum(-1)
    if bool((labels < 0).any() | (labels >= probabilities.shape[-1]).any() | (masses < 0).any()):
        raise ValueError("a term has a class that there is not, or a negative weight")
    if bool((probabilities < 0).any() | ((sums - 1).abs() > ROUNDING).any()):
        raise ValueError("the probabilities of a term do not sum to one")
    return ClassTerms(labels, masses, probabilities)
