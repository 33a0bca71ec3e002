"""The blocks of a Gram matrix that are done, in memory and in a file from which the rest can be computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ..record.checkpoints import State
from ..risk.class_terms import ClassTerms
from ..solvers.resumption import Resumption

NAMES = tuple(field.name for field in fields(ClassTerms))


class Assembly(NamedTuple):
    """K with the terms of its rows, where they have labels, and how far it is from a product with G."""

    matrix: Tensor
    classes: ClassTerms | None
    error: float


@dataclass(eq=False)
class Course:
    """The lower blocks of K that are done, and the terms of the rows that were looked at."""

    sizes: list[int]  # examples of each block of rows
    pieces: dict[tuple[int, int], Float[Tensor, "a b"]]
    labelled: dict[int, ClassTerms]

    @classmethod
    def of(cls, sizes: list[int], device: torch.device, file: Resumption | None) -> Course:
        """What a file has, if it was cut into the same blocks; nothing where there is none."""
        if file is None or file.under_way is None or file.header.get("sizes") != sizes:
            return cls(sizes, {}, {})
        return file.read(partial(cls._made, sizes, device))

    @classmethod
    def _made(
        cls, sizes: list[int], device: torch.device, arrays: Mapping[str, Tensor], header: Mapping[str, Any]
    ) -> Course:
        pieces, labelled = {}, {}
        for i, j in header["pieces"]:
            piece = arrays[f"pieces/{i}/{j}"].to(device)
            rows = [int(header["rows"][str(number)]) for number in (i, j)]
            if not 0 <= j <= i < len(sizes) or list(piece.shape) != rows:
                raise ValueError(f"block {i}, {j} is {tuple(piece.shape)}")
            pieces[i, j] = piece
        for i in header["labelled"]:
            labelled[i] = ClassTerms(*(arrays[f"{name}/{i}"].to(device) for name in NAMES))
        return cls(sizes, pieces, labelled)

    def written(self) -> State:
        """All of it for a file."""
        arrays = {f"pieces/{i}/{j}": piece for (i, j), piece in self.pieces.items()}
        arrays |= {f"{name}/{i}": getattr(own, name) for i, own in self.labelled.items() for name in NAMES}
        rows = {str(place[k]): piece.shape[k] for place, piece in self.pieces.items() for k in (0, 1)}
        facts = {"sizes": self.sizes, "pieces": [list(place) for place in self.pieces], "rows": rows}
        return arrays, {**facts, "labelled": list(self.labelled)}

    def missing(self, rows: range, columns: range) -> Iterator[tuple[int, int]]:
        """The blocks of the lower half that are not done, of these rows and columns."""
        return ((i, j) for i in rows for j in columns if j <= i and (i, j) not in self.pieces)

    def note_terms(self, number: int, make: Callable[[], ClassTerms | None]) -> None:
        """Note the terms of a block of rows, once."""
        if number not in self.labelled and (own := make()) is not None:
            self.labelled[number] = own

    def terms(self) -> ClassTerms | None:
        """Those of all rows; None where there are no labels."""
        if not self.labelled:
            return None
        return ClassTerms(
            *(torch.cat([getattr(self.labelled[i], name) for i in range(len(self.sizes))]) for name in NAMES)
        )

    def symmetric(self) -> Float[Tensor, "m m"]:
        """The whole matrix from its lower blocks, which are given up one by one: they are as large as the matrix."""
        count = len(self.sizes)
        ends = torch.tensor([0, *(len(self.pieces[i, 0]) for i in range(count))]).cumsum(0).tolist()
        K = self.pieces[0, 0].new_empty(ends[-1], ends[-1])
        for place in sorted(self.pieces):
            rows, columns = (slice(ends[number], ends[number + 1]) for number in place)
            piece = self.pieces.pop(place)
            piece = (piece + piece.T) / 2 if rows == columns else piece
            K[rows, columns], K[columns, rows] = piece, piece.T
        return K


def written_assembly(result: Assembly) -> State:
    """The whole matrix for a file."""
    arrays = {"matrix": result.matrix}
    if result.classes is not None:
        arrays |= {name: getattr(result.classes, name) for name in NAMES}
    return arrays, {"error": result.error}


def read_assembly(device: torch.device, arrays: Mapping[str, Tensor], header: Mapping[str, Any]) -> Assembly:
    """The whole matrix from its file, in the risk's place."""
    K = arrays["matrix"].to(device)
    if K.ndim != 2 or K.shape[0] != K.shape[1]:
        raise ValueError(f"its matrix is {tuple(K.shape)}")
    classes = ClassTerms(*(arrays[name].to(device) for name in NAMES)) if NAMES[0] in arrays else None
    return Assembly(K, classes, float(header["error"]))
