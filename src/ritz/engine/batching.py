"""Several columns in one pass: vectors of parameter space as a stack for each parameter."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

from jaxtyping import Float
from torch import Tensor

from ..risk import Risk
from .paths import Map

MAX_COLUMNS = 16  # beyond that, a batched product gains nothing and costs memory


def add_product(risk: Risk, total: Tensor, product: Map, rows: Tensor) -> None:
    """total += (A_b V)ᵀ for a few rows; a single one is not batched."""
    batched = len(rows) > 1
    pieces = product(_pieces(risk, rows, batched), batched)
    for target, piece in zip(_pieces(risk, total, batched), pieces, strict=True):
        if piece is not None:
            target += piece.to_dense()  # the gradient of an embedding may be sparse


def _pieces(risk: Risk, rows: Float[Tensor, "k n"], batched: bool) -> list[Tensor]:
    """Parameter-shaped views of vectors; with a leading dimension if there are several."""
    if not batched:
        return risk.unflatten(rows[0])
    shapes = risk.shapes.values()
    pieces = rows.split([shape.numel() for shape in shapes], dim=1)
    return [piece.unflatten(1, shape) if shape else piece[:, 0] for piece, shape in zip(pieces, shapes, strict=True)]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence, by message, what PyTorch says of operations that it batches by a loop."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop because we have not yet implemented")
        yield
