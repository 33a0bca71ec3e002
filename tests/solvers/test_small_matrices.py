"""All eigenvalues of small matrices, and the file that a killed computation goes on from."""

import pytest
import torch
from torch.testing import assert_close

from ritz.errors import FileError, NumericalError
from ritz.operators import Operator
from ritz.record import checkpoints, read_arrays, write_arrays
from ritz.solvers.small_matrices import columns, whole_spectrum


def symmetric(size=150, dtype=torch.float64):
    matrix = torch.randn(size, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (matrix + matrix.T).to(dtype)


def counted(matrix, limit=10**9):
    """The operator of a matrix, the columns that it has multiplied, and an end after so many."""
    made = []

    def multiply(V):
        made.append(V.shape[1])
        if sum(made) > limit:
            raise KeyboardInterrupt
        return matrix @ V

    return Operator(multiply, len(matrix), matrix.dtype, matrix.device), made


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 64, 150])
def test_every_eigenvalue_is_there_with_a_product_for_each_column(size, dtype):
    matrix = symmetric(size, dtype)
    A, made = counted(matrix)
    spectrum, pairs = whole_spectrum(A, min(size, 3), 1e-4)
    truth = torch.linalg.eigvalsh(matrix.double())
    truth = truth[truth.abs().argsort(descending=True)]
    assert spectrum.is_exact and spectrum.num_products == sum(made) == size
    assert_close(spectrum.nodes[0], truth, atol=1e-12, rtol=1e-12)
    assert_close(pairs.values.double(), truth[:3], atol=1e-5, rtol=1e-6)
    assert bool((pairs.residuals <= 1e-5 * truth[0].abs()).all()) and bool(pairs.converged.all())
    assert len(whole_spectrum(A, 0, 1e-4)[1]) == 0


def test_nan_is_refused():
    with pytest.raises(NumericalError):
        whole_spectrum(Operator.from_matrix(torch.eye(3)) * 1e300 * 1e300, 1, 1e-4)


def test_columns_that_are_in_the_file_are_not_multiplied_again(tmp_path, monkeypatch):
    ticks = iter(range(0, 10**9, 1000))
    monkeypatch.setattr(checkpoints, "SHARE", 0)
    monkeypatch.setattr(checkpoints, "monotonic", lambda: float(next(ticks)))
    matrix, file = symmetric(), tmp_path / "columns.npz"
    killed, _ = counted(matrix, limit=140)  # one tells the operator, 128 are two pieces
    with pytest.raises(KeyboardInterrupt):
        columns(killed, file)
    A, made = counted(matrix)
    assert torch.equal(columns(A, file), columns(A)) and made[:2] == [1, 22]
    again, made = counted(matrix)
    assert torch.equal(columns(again, file), columns(A)) and made == [1]


@pytest.mark.parametrize("over, count", [(False, 3), (False, 149), (False, 151), (True, 149), (True, 151)])
def test_a_file_with_other_columns_is_refused(tmp_path, over, count):
    matrix, file = symmetric(), tmp_path / "columns.npz"
    columns(Operator.from_matrix(matrix), file)
    with pytest.raises(FileError, match="another computation"):
        columns(Operator.from_matrix(2 * matrix), file)
    arrays, header = read_arrays(file)
    rows = torch.from_numpy(arrays["rows"]).repeat(2, 1)[:count]
    layout = {"rows": [*header["layout"]["rows"][:1], [count, 150], 0]}
    write_arrays(file, {"rows": rows}, {**header, "over": over, "layout": layout})
    with pytest.raises(FileError, match=r"damaged: ValueError (it has|rows is)"):
        columns(Operator.from_matrix(matrix), file)
