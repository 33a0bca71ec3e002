"""All eigenvalues of a small matrix, from a product with each of its columns."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from .. import progress
from ..errors import check_finite
from ..operators import Operator
from ..operators.operator import COLUMNS
from ..record.checkpoints import State
from ..record.layouts import check_arrays, like
from ..spectrum import Eigenpairs, Spectrum
from .resumption import Likeness, Resumption
from .ritz_pairs import as_eigenpairs, ranking, rayleigh_ritz, selection
from .vectors import check_range, check_symmetry, product

COPIES = 10  # of the matrix while it is decomposed, in its own precision; some are in float64
Decomposition = tuple[Float[Tensor, " n"], Float[Tensor, "n n"]]


def whole_spectrum(
    A: Operator, num_pairs: int, tolerance: float, checkpoint: Path | None = None
) -> tuple[Spectrum, Eigenpairs]:
    """The exact spectrum of A, largest |λ| first, and its leading eigenpairs with their residuals.

    With a checkpoint, a file, the columns computed so far are kept in it.
    """
    D = columns(A, checkpoint)
    values, vectors = decomposition(D)
    pairs = pairs_of(D, (values, vectors), num_pairs, "magnitude", tolerance)
    order = ranking(values, "magnitude")
    spectrum = Spectrum.of_eigenvalues(values[order], precision=torch.finfo(A.dtype).eps)
    return replace(spectrum, num_products=A.size), pairs


def eigenvalues(A: Operator) -> tuple[Float[Tensor, " n"], float]:
    """All eigenvalues of A, ascending, in float64, and by how much noise in the products may have moved them."""
    matrix = A.dense().double()
    check_finite(float(matrix.abs().max()))
    _check_symmetric(A, matrix.T)
    part = _symmetric_part(matrix)
    return torch.linalg.eigvalsh(part), float((matrix - part).norm())  # noise has as much skew as symmetric part


def columns(A: Operator, checkpoint: Path | None = None) -> Float[Tensor, "n n"]:
    """The columns of A as rows, computed many at a time; columns in the file are not computed again."""
    identity = {"solver": "columns"}
    file = None if checkpoint is None else Resumption.at(checkpoint, identity, Likeness.of(A))
    if file is not None and file.is_over:
        return file.read(lambda arrays, _: _rows_of_file(A, arrays["rows"], A.size))
    D = torch.zeros(A.size, A.size, dtype=A.dtype, device=A.device)
    done = 0
    if file is not None and file.under_way is not None:
        done = file.read(lambda arrays, _: _take_rows(A, D, arrays["rows"]))
    with progress.bar("Columns", total=A.size) as bar:
        bar.advance(done)
        for first in range(done, A.size, COLUMNS):
            rows = D[first : first + COLUMNS]
            unit = torch.zeros_like(rows)
            unit.diagonal(first).fill_(1.0)
            rows.copy_(product(A, unit))
            bar.advance(len(rows))
            if file is not None:
                file.keep(partial(_state, D[: first + len(rows)]))
    _check_symmetric(A, D)
    if file is not None:
        file.keep(partial(_state, D), over=True)
    return D


def decomposition(D: Float[Tensor, "n n"]) -> Decomposition:
    """The eigenvalues of a matrix, ascending, and its eigenvectors in columns, in float64."""
    check_range(D)
    values, vectors = torch.linalg.eigh(_symmetric_part(D))
    return values, vectors


def _symmetric_part(D: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """(D + Dᵀ)/2 in float64, where a sum of large entries cannot overflow."""
    return D.to(torch.float64, copy=True).add_(D.T).div_(2)


def _check_symmetric(A: Operator, D: Float[Tensor, "n n"]) -> None:
    """Refuse an operator whose columns, the rows of D, are far from its rows."""
    v = torch.randn(1, A.size, generator=torch.Generator().manual_seed(0), dtype=A.dtype).to(A.device)
    v /= A.size**0.5
    skew, scale = (float(torch.linalg.vector_norm(one, dtype=torch.float64)) / A.size**0.5 for one in (D - D.T, D))
    check_symmetry(skew, scale, lambda: float((product(A, v).double() - v.double() @ D.double()).norm()))


def pairs_of(D: Float[Tensor, "n n"], whole: Decomposition, k: int, which: str, tolerance: float) -> Eigenpairs:
    """The requested k of all eigenpairs, in the precision of the matrix; none was missed."""
    values, vectors = whole
    if not k:
        none = torch.zeros(0, dtype=D.dtype)
        return Eigenpairs(none, torch.zeros(len(D), 0, dtype=D.dtype), none, none.bool(), len(D), len(D))
    X = vectors[:, selection(values, which, k)].T.to(D)
    pairs = rayleigh_ritz(X, (D.double() @ X.T.double()).T, which)
    limit = tolerance * float(values.abs().max())
    return replace(as_eigenpairs(*pairs, limit, len(D), len(D)), doubts=torch.zeros_like(pairs[0], dtype=D.dtype))


def _state(rows: Tensor) -> State:
    return {"rows": rows}, {}


def _take_rows(A: Operator, D: Tensor, rows: Tensor) -> int:
    """Copy the rows from a file into the matrix; returns how many there are."""
    count = len(rows)
    if count > A.size or (count % COLUMNS and count < A.size):
        raise ValueError(f"it has {count} of {A.size} columns")
    D[:count] = _rows_of_file(A, rows, count)
    return count


def _rows_of_file(A: Operator, rows: Tensor, count: int) -> Tensor:
    """The rows from a file, checked to be this many rows of A."""
    check_arrays({"rows": rows}, {"rows": like(A.dtype, count, A.size)})
    return rows.to(A.device)
