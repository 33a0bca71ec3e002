"""A basis stays orthonormal, and grows in pieces of memory that leave no trace in the results."""

import pytest
import torch
from torch.testing import assert_close

from ritz.solvers import eigenpairs
from ritz.solvers.basis import Basis

from .spectra import network_like, random, rotated


@pytest.mark.parametrize("piece, rows", [(100, 3), (7, 16)])
def test_memory_pieces_do_not_change_the_result(piece, rows, monkeypatch):
    A = rotated(network_like(500))
    plain = eigenpairs(A, 6, basis_size=20)
    monkeypatch.setattr("ritz.solvers.vectors.PIECE", piece)
    monkeypatch.setattr("ritz.solvers.basis.ROWS", rows)
    assert_close(eigenpairs(A, 6, basis_size=20).values, plain.values)


def test_what_hardly_leaves_the_basis_is_orthogonal_to_it_all_the_same(generator):
    Q, basis = torch.linalg.qr(random(100, 20, generator=generator)).Q.T, Basis(rotated(network_like(100)), 5, 20)
    for row in Q:
        basis.append(row)
    components = random(3, 20, generator=generator)
    for since in (0, 3, 19):
        W = components[:, since:] @ Q[since:] + 1e-10 * random(3, 100, generator=generator)
        assert_close(basis.orthogonalize(W, since=since), components[:, since:], atol=1e-8, rtol=0)
        assert float((W / W.norm(dim=1, keepdim=True) @ Q[since:].T).abs().max()) < 1e-12
