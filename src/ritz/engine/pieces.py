"""Vectors of parameter space: as rows of numbers, and cut into pieces with the shapes of the parameters."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from ..risk import Risk
from ..risk.parameters import as_pairs

CHUNK, MOST_CHUNKS = 2**16, 64  # numbers converted to float64 at a time, so that no second vector is held
MESSAGES = (  # about operations that PyTorch batches in a loop, and about its own threads
    "There is a performance drop because we have not yet implemented",
    "Attempting to run cuBLAS, but there was no current CUDA context",
)


def pieces_of(risk: Risk, rows: Float[Tensor, "k n"]) -> list[Tensor]:
    """Parameter-shaped views of vectors, with a leading dimension that counts them; without it where there is one."""
    if len(rows) == 1:
        return risk.unflatten(rows[0])
    shapes = risk.shapes.values()
    pieces = rows.split([shape.numel() for shape in shapes], dim=1)
    return [piece.unflatten(1, shape) if shape else piece[:, 0] for piece, shape in zip(pieces, shapes, strict=True)]


def tangents_of(risk: Risk, rows: Float[Tensor, "k n"]) -> list[Tensor]:
    """Parameter-shaped pieces of vectors that can be passed through the network like its parameters."""
    return [as_pairs(piece) for piece in pieces_of(risk, rows)]


def random_row(risk: Risk, seed: int) -> Float[Tensor, "1 n"]:
    """A Gaussian vector, drawn on the device where it is used; the same for the same seed."""
    generator = torch.Generator(risk.device).manual_seed(seed)
    return torch.randn(1, risk.size, generator=generator, dtype=risk.dtype, device=risk.device)


def inner(a: Float[Tensor, "1 n"], b: Float[Tensor, "1 n"]) -> float:
    """⟨a, b⟩, added up in float64."""
    pairs = zip(_chunks(a), _chunks(b), strict=True)
    return float(sum(x.double() @ y.double() for x, y in pairs))


def norm(a: Float[Tensor, "1 n"]) -> float:
    """‖a‖, relative to its largest entry, so that squares of small numbers do not vanish."""
    largest = max(float(a.amax()), -float(a.amin())) if a.numel() else 0.0
    if not 0 < largest < float("inf"):
        return largest
    return largest * float(sum((x.double() / largest).square().sum() for x in _chunks(a))) ** 0.5


def _chunks(a: Float[Tensor, "1 n"]) -> tuple[Tensor, ...]:
    return a[0].split(max(CHUNK, -(-a.shape[1] // MOST_CHUNKS)))


class Quiet:
    """Silence for warnings, a setting of the whole process: the first thread changes it, the last one restores it."""

    def __init__(self) -> None:
        self._lock, self._inside, self._kept = threading.Lock(), 0, contextlib.ExitStack()

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Silence those warnings of PyTorch of which users can make nothing."""
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._kept.enter_context(warnings.catch_warnings())
                for message in MESSAGES:
                    warnings.filterwarnings("ignore", message=message)
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._kept.close()


quiet = Quiet()
