"""A basis grows in pieces of memory that leave no trace in the results."""

import pytest
from torch.testing import assert_close

from ritz.solvers import (
    eigenpairs,
)

from .spectra import (
    network_like,
    rotated,
)


@pytest.mark.parametrize("piece, rows", [(100, 3), (7, 16)])
def test_memory_pieces_do_not_change_the_result(piece, rows, monkeypatch):
    A = rotated(network_like(500))
    plain = eigenpairs(A, 6, basis_size=20)
    monkeypatch.setattr("ritz.solvers.basis.PIECE", piece)
    monkeypatch.setattr("ritz.solvers.vectors.PIECE", piece)
    monkeypatch.setattr("ritz.solvers.basis.ROWS", rows)
    assert_close(eigenpairs(A, 6, basis_size=20).values, plain.values)
