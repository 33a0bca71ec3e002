"""Operators: their algebra, their ways in and out, and the check that maintainers run on new ones."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
import torch
from torch import nn
from torch.testing import assert_close

import ritz
from ritz import Operator
from ritz.engine import Info
from ritz.errors import ArgumentError
from ritz.testing import check_operator

N = 12


@pytest.fixture
def symmetric(generator):
    def matrix(size=N, dtype=torch.float64):
        M = torch.randn(size, size, generator=generator, dtype=dtype)
        return M + M.T

    return matrix


# Algebra --------------------------------------------------------------------------------------------------------------


def test_operators_form_a_vector_space_with_shifts(symmetric):
    MA, MB = symmetric(), symmetric()
    A, B, eye = Operator.from_matrix(MA), Operator.from_matrix(MB), torch.eye(N, dtype=torch.float64)
    for operator, matrix in [
        (A + B, MA + MB),
        (A - B, MA - MB),
        (2 * A, 2 * MA),
        (A * 2.5, 2.5 * MA),
        (A / 2, MA / 2),
        (-A, -MA),
        (A + 0.3, MA + 0.3 * eye),
        (0.3 + A, MA + 0.3 * eye),
        (A - 3, MA - 3 * eye),
        (3 - A, 3 * eye - MA),
        (2 * (A - B) / 4 + 1, (MA - MB) / 2 + eye),
        (A - A, 0 * MA),
        (0 * A, 0 * MA),
    ]:
        check_operator(operator, matrix)


@pytest.mark.parametrize("scalar", [np.float64(2), np.float32(2), torch.tensor(2.0), torch.tensor(2.0).double(), True])
def test_numbers_of_every_library_are_scalars(scalar, symmetric):
    M = symmetric()
    A, eye = Operator.from_matrix(M), torch.eye(N, dtype=torch.float64)
    value = float(scalar)
    for operator, matrix in [(A * scalar, value * M), (A / scalar, M / value), (A + scalar, M + value * eye)]:
        check_operator(operator, matrix)
    for operator, matrix in [(scalar * A, value * M), (scalar + A, M + value * eye), (scalar - A, value * eye - M)]:
        check_operator(operator, matrix)


def test_operators_are_multiplied_by_numbers_alone(symmetric, unchecked):
    A = Operator.from_matrix(symmetric())
    for nonsense in (lambda: A * A, lambda: A / A, lambda: A + "1", lambda: A * torch.ones(3)):
        with pytest.raises(TypeError, match="unsupported operand"):
            nonsense()


def test_an_array_beside_an_operator_is_no_number(symmetric, unchecked):
    M = symmetric()
    A, array = Operator.from_matrix(M), np.ones(len(M))
    for nonsense in (lambda: A + array, lambda: array - A, lambda: A * array, lambda: array * A, lambda: array @ A):
        with pytest.raises(TypeError, match="operand"):
            nonsense()
    check_operator(A * np.array(2.0), 2 * M)
    check_operator(np.array(2.0) * A, 2 * M)


def test_operators_of_different_spaces_are_not_added(symmetric):
    A = Operator.from_matrix(symmetric())
    for B in (Operator.from_matrix(symmetric(5)), Operator.from_matrix(symmetric(dtype=torch.float32))):
        for combined in (lambda B=B: A + B, lambda B=B: A - B):
            with pytest.raises(ArgumentError, match="were combined"):
                combined()


def test_a_sum_knows_what_either_of_its_operands_knows(symmetric):
    plain = Operator.from_matrix(symmetric())
    small, large = (
        replace(plain, inform=lambda: Info("p", None, None, 1, 1, 0, 0), room=lambda r=r: r) for r in (7, 9)
    )
    for A, B, room in ((plain, small, 7), (small, plain, 7), (small, large, 7), (large, small, 7)):
        for combined in (A + B, A - B, 2 * (A + B) + 1):
            assert combined.room() == room and combined.info.path == "p"
    assert (plain + plain).room is None and (plain + plain).info is None


def test_the_operands_stay_as_they_are(symmetric):
    M = symmetric()
    A = Operator.from_matrix(M)
    _ = 2 * A, A + 1, -A
    check_operator(A, M)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), np.float64("nan"), torch.tensor(float("inf"))])
def test_numbers_that_are_not_finite_are_refused(bad, symmetric):
    A = Operator.from_matrix(symmetric())
    for combined in (lambda: A + bad, lambda: bad - A, lambda: bad * A, lambda: A / (0 * bad)):
        with pytest.raises(ArgumentError, match="combined with the number"):
            combined()


@pytest.mark.parametrize("zero", [0, 0.0, np.float64(0), torch.tensor(0.0)])
def test_division_by_zero_is_refused(zero, symmetric):
    with pytest.raises(ArgumentError, match="divided by zero"):
        Operator.from_matrix(symmetric()) / zero


def test_an_operator_prints_its_size_precision_and_place():
    A = Operator(lambda V: V, 5018, torch.float32, torch.device("cpu"))
    assert repr(A) == "Operator(n = 5,018, float32, cpu)"


def test_an_operator_says_which_matrix_it_is_where_that_is_known():
    risk = ritz.Risk(nn.Linear(2, 3), nn.CrossEntropyLoss(), (torch.randn(6, 2), torch.arange(6) % 3))
    for name in ("hessian", "gauss_newton", "functional_hessian", "empirical_fisher", "monte_carlo_fisher", "ntk"):
        A = getattr(ritz, name)(risk)
        assert repr(A).startswith(f"Operator({name}: n = ") and f"Operator: {name}" in A._repr_html_()
    assert repr(ritz.gradient_covariance(risk)).startswith("Operator(gradient_covariance: n = 9")
    H, Q = ritz.hessian(risk), torch.eye(9)[:, :2]
    for changed in (2 * H, H + 1, -H, H - H, ritz.deflated(H, Q), ritz.preconditioned(H, torch.ones(9))):
        assert repr(changed) == "Operator(n = 9, float32, cpu)"


# Products -------------------------------------------------------------------------------------------------------------


def test_a_vector_gives_a_vector_and_columns_give_columns(symmetric, generator):
    M = symmetric()
    A, V = Operator.from_matrix(M), torch.randn(N, 3, generator=generator, dtype=torch.float64)
    assert_close(A @ V, M @ V)
    assert_close(A @ V[:, 0], M @ V[:, 0])
    assert (A @ V[:, :1]).shape == (N, 1) and (A @ V[:, :0]).shape == (N, 0)
    assert A.shape == (N, N)
    assert_close(A.dense(), M)


@pytest.mark.parametrize("shape", [(5,), (3, N), (N, 2, 2), ()])
def test_vectors_of_another_shape_are_refused(shape, symmetric, unchecked):
    with pytest.raises(ArgumentError, match=f"size {N} was multiplied by a tensor of shape"):
        Operator.from_matrix(symmetric()) @ torch.ones(shape, dtype=torch.float64)


def test_vectors_of_another_precision_are_refused(symmetric):
    with pytest.raises(ArgumentError, match=r"V\.to\(torch\.float64\)"):
        Operator.from_matrix(symmetric()) @ torch.ones(N)


def test_vectors_elsewhere_are_refused(symmetric):
    with pytest.raises(ArgumentError, match="on cpu was multiplied by a tensor on meta"):
        Operator.from_matrix(symmetric()) @ torch.ones(N, dtype=torch.float64, device="meta")


def test_arrays_are_refused_with_the_remedy(symmetric, unchecked):
    with pytest.raises(ArgumentError, match=r"torch\.as_tensor"):
        Operator.from_matrix(symmetric()) @ np.ones(N)


def tracked(generator, *shape):
    """A tensor that gradients follow."""
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def of_tracked_tensors(generator):
    """Operators of such tensors, each with its matrix."""
    M, U, s = tracked(generator, N, N), tracked(generator, N, 2), tracked(generator, 2)
    S = M + M.T
    A, Q, D = Operator.from_matrix(S.detach()), torch.linalg.qr(U).Q, U[:, 0].abs()
    P = torch.eye(N).double() - Q @ Q.T
    return {
        "matrix": (Operator.from_matrix(S), S),
        "low rank": (ritz.low_rank(U), U @ U.T),
        "values": (ritz.low_rank(U, s), U * s @ U.T),
        "deflated": (ritz.deflated(A, Q), P @ S @ P),
        "preconditioned": (ritz.preconditioned(A, D), D.sqrt()[:, None] * S * D.sqrt()),
        "a product of one's own": (Operator(lambda V: S @ V, N, S.dtype, S.device), S),
    }


@pytest.mark.parametrize(
    "kind", ["matrix", "low rank", "values", "deflated", "preconditioned", "a product of one's own"]
)
def test_operators_of_tensors_that_gradients_follow_are_those_of_their_values(kind, generator):
    A, matrix = of_tracked_tensors(generator)[kind]
    check_operator(A, matrix.detach())
    largest = torch.linalg.eigvalsh(matrix.detach())[-1:]
    assert_close(ritz.eigenpairs(A, 1).values, largest)
    assert_close(A.to_scipy() @ np.ones(N), matrix.detach().sum(1).numpy())
    assert not (A @ torch.ones(N, dtype=torch.float64)).requires_grad
    assert ritz.Spectrum.of_matrix((matrix + matrix.T) / 2).range[1] == pytest.approx(float(largest))


# Low rank, deflated, preconditioned -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 8, 9])
@pytest.mark.parametrize("by_rows", [True, False])
def test_any_number_of_columns_has_the_products_of_the_matrix(count, by_rows, generator):
    U, V = (torch.randn(30, k, generator=generator).double() for k in (5, count))
    Q = torch.linalg.qr(U).Q
    U, Q = (t.contiguous() if by_rows else t.T.contiguous().T for t in (U, Q))
    A = ritz.low_rank(U)
    assert_close(A @ V, U @ (U.T @ V))
    rest = torch.eye(30).double() - Q[:, :2] @ Q[:, :2].T
    assert_close(ritz.deflated(A, Q[:, :2]) @ V, rest @ (A.dense() @ (rest @ V)))


def test_a_low_rank_operator_has_a_factor_of_its_matrix(generator):
    U = torch.randn(N, 3, generator=generator, dtype=torch.float64)
    values = torch.tensor([3.0, 0.0, 0.5], dtype=torch.float64)
    for operator, matrix in [
        (ritz.low_rank(U), U @ U.T),
        (ritz.low_rank(U, values), U * values @ U.T),
        (4 * ritz.low_rank(U, values), 4 * (U * values @ U.T)),
        (ritz.low_rank(U, values) / 4, U * values @ U.T / 4),
        (0 * ritz.low_rank(U), 0 * (U @ U.T)),
    ]:
        check_operator(operator, matrix)
        assert_close(operator.factor @ operator.factor.T, matrix)


def test_a_factor_is_forgotten_where_it_would_be_wrong(generator):
    U = torch.randn(N, 3, generator=generator, dtype=torch.float64)
    A = ritz.low_rank(U)
    Q = torch.linalg.qr(U).Q
    indefinite = ritz.low_rank(U, torch.tensor([3.0, -1.0, 0.5], dtype=torch.float64))
    check_operator(indefinite, U * torch.tensor([3.0, -1.0, 0.5], dtype=torch.float64) @ U.T)
    for changed in (-A, -2 * A, A + 1, A - 1, 1 - A, A + A, A - A, indefinite):
        assert changed.factor is None
    assert ritz.deflated(A, Q[:, :1]).factor is None
    assert ritz.preconditioned(A, torch.ones(N, dtype=torch.float64)).factor is None


def test_deflation_removes_exactly_the_given_eigenpairs(symmetric):
    M = symmetric()
    values, vectors = torch.linalg.eigh(M)
    deflated = ritz.deflated(Operator.from_matrix(M), vectors[:, [0, N - 1]])
    kept = vectors[:, 1:-1]
    check_operator(deflated, kept * values[1:-1] @ kept.T)


def test_deflation_by_any_orthonormal_vectors_is_a_projection(symmetric, generator):
    M, Q = symmetric(), torch.linalg.qr(torch.randn(N, 2, generator=generator, dtype=torch.float64)).Q
    P = torch.eye(N, dtype=torch.float64) - Q @ Q.T
    check_operator(ritz.deflated(Operator.from_matrix(M), Q), P @ M @ P)


def test_deflation_by_vectors_that_are_not_orthonormal_is_refused(symmetric, generator):
    V = torch.randn(N, 2, generator=generator, dtype=torch.float64)
    for bad in (V, 1.01 * torch.linalg.qr(V).Q, V * float("nan")):
        with pytest.raises(ArgumentError, match="orthonormal"):
            ritz.deflated(Operator.from_matrix(symmetric()), bad)


def test_eigenpairs_are_deflated_by_their_vectors(symmetric):
    A = Operator.from_matrix(symmetric())
    pairs = ritz.eigenpairs(A, 3)
    check_operator(ritz.deflated(A, pairs), ritz.deflated(A, pairs.vectors).dense())


def test_factors_of_another_size_or_precision_are_refused_at_once(symmetric, unchecked):
    A, one = Operator.from_matrix(symmetric()), torch.ones(N, dtype=torch.float64)
    small = ritz.eigenpairs(Operator.from_matrix(symmetric(5)), 2)
    U = torch.ones(N, 2, dtype=torch.float64)
    for wrong in (
        *(lambda Q=Q: ritz.deflated(A, Q) for Q in (small, small.vectors, one, U[:0], torch.eye(N))),
        *(lambda d=d: ritz.preconditioned(A, d) for d in (one[:5], one[:1], U, one.float(), one.to("meta"))),
        *(lambda v=v: ritz.low_rank(U, v) for v in (one, one[:1], one[0], torch.ones(2))),
        lambda: ritz.low_rank(one),
    ):
        with pytest.raises(ArgumentError) as caught:
            wrong()
        assert caught.value.seen and caught.value.why and caught.value.ways_out


def test_preconditioning_multiplies_from_both_sides(symmetric, generator):
    M, d = symmetric(), torch.rand(N, generator=generator, dtype=torch.float64)
    d[3] = 0.0
    check_operator(ritz.preconditioned(Operator.from_matrix(M), d), d.sqrt()[:, None] * M * d.sqrt())


@pytest.mark.parametrize("bad", [-1e-3, float("nan"), float("inf")])
def test_a_preconditioner_without_a_root_is_refused(bad, symmetric):
    d = torch.ones(N, dtype=torch.float64)
    d[5] = bad
    with pytest.raises(ArgumentError, match="has 1 entries that are negative, infinite or NaN"):
        ritz.preconditioned(Operator.from_matrix(symmetric()), d)


# Inverses -------------------------------------------------------------------------------------------------------------


def invertible(generator):
    """Operators whose inverse is known, of every kind and as the algebra makes them, with a damping for each."""
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
    M, U, wide = draw(N, N), draw(N, 4), draw(N, N + 3)
    A = Operator.from_matrix(M + M.T)
    signed = ritz.low_rank(U, torch.tensor([2.0, -0.5, 0.0, 1.0], dtype=torch.float64))
    return {
        "matrix": (A, 0.1),
        "matrix alone": (A, 0.0),
        "low rank": (ritz.low_rank(U), 1e-3),
        "low rank of both signs": (signed, 0.2),
        "columns more than rows": (ritz.low_rank(wide), 0.0),
        "columns none": (ritz.low_rank(U[:, :0]), 0.5),
        "shifted": (ritz.low_rank(U) + 0.3, 0.0),
        "scaled": (2.5 * ritz.low_rank(U), 0.01),
        "negated": (1 - ritz.low_rank(U) / 50, 0.0),
        "both": (-(3 * A - 0.7) / 2 + 0.1, 0.05),
    }


KINDS = [*invertible(torch.Generator().manual_seed(0))]


@pytest.mark.parametrize("kind", KINDS)
def test_inverses_are_those_of_the_dense_matrix(kind, generator):
    A, damping = invertible(generator)[kind]
    unit = torch.eye(N, dtype=torch.float64)
    exact = torch.linalg.inv(A.dense() + damping * unit)
    inverse = A.inverse(damping)
    check_operator(inverse, exact, tolerance=1e-10)
    assert_close(inverse.inverse(0.7).dense(), torch.linalg.inv(exact + 0.7 * unit), rtol=0, atol=1e-10)


def test_an_operator_without_a_formula_for_its_inverse_has_none(symmetric):
    A = Operator.from_matrix(symmetric())
    Q = torch.eye(N, 2, dtype=torch.float64)
    risk = ritz.Risk(torch.nn.Linear(2, 1), ritz.SquaredError(), (torch.eye(2), torch.zeros(2, 1)))
    for operator in (A + A, 0 * A, ritz.deflated(A, Q), ritz.preconditioned(A, Q[:, 0]), ritz.hessian(risk) + 1):
        assert operator.inverse is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_singular_matrix_is_not_inverted_and_the_way_out_works(dtype, generator):
    U = torch.randn(N, 4, generator=generator, dtype=dtype)
    values = torch.tensor([2.0, -1.0, 1.0, 1.0], dtype=dtype)
    matrix = torch.diag(torch.arange(N, dtype=dtype))
    for A, damping in [
        (ritz.low_rank(U), 0.0),
        (ritz.low_rank(torch.linalg.qr(U).Q, values), 1.0),
        (Operator.from_matrix(matrix), -3.0),
        (Operator.from_matrix(matrix), -1e-30),
        (Operator.from_matrix(0 * matrix), 0.0),
    ]:
        with pytest.raises(ArgumentError, match="singular") as error:
            A.inverse(damping)
        enough = float(error.value.ways_out[0].split()[-3])
        product = (A + enough) @ A.inverse(enough).dense()
        assert_close(product, torch.eye(N, dtype=dtype), rtol=0, atol=2e4 * torch.finfo(dtype).eps)
    with pytest.raises(ArgumentError, match="singular"):
        (2 * Operator.from_matrix(matrix) - 4).inverse(0.0)
    with pytest.raises(ArgumentError, match="nan"):
        ritz.low_rank(U).inverse(float("nan"))


# In and out -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["rectangular", "vector", "asymmetric", "nan", "infinite", "integers", "half"])
def test_matrices_that_are_not_square_symmetric_floats_are_refused(bad, symmetric, generator, unchecked):
    M = symmetric()
    matrix = {
        "rectangular": M[:, :-1],
        "vector": M[0],
        "asymmetric": M.triu(),
        "nan": M * float("nan"),
        "infinite": M * float("inf"),
        "integers": torch.eye(N, dtype=torch.int64),
        "half": M.half(),
    }[bad]
    with pytest.raises(ArgumentError) as caught:
        Operator.from_matrix(matrix)
    assert caught.value.ways_out


def test_rounding_is_not_asymmetry(symmetric, generator):
    for dtype in (torch.float32, torch.float64):
        X = torch.randn(50, N, generator=generator, dtype=dtype)
        check_operator(Operator.from_matrix(X.T @ X))
    Operator.from_matrix(torch.zeros(3, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_operator_comes_back_from_scipy_as_it_was(dtype, symmetric):
    M = symmetric(dtype=dtype)
    there = Operator.from_matrix(M).to_scipy()
    back = Operator.from_scipy(there)
    assert there.dtype == M.numpy().dtype and back.dtype == dtype
    check_operator(back, M)
    assert (there @ np.ones(N, dtype=there.dtype)).dtype == there.dtype
    assert there.matvec(np.ones(N)).shape == (N,) and there.matmat(np.ones((N, 2))).shape == (N, 2)
    np.testing.assert_allclose(there.rmatvec(np.ones(N)), M.numpy().T @ np.ones(N), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-4), (torch.float64, 1e-10)])
def test_scipy_finds_the_eigenvalues_of_our_operators(dtype, tolerance, symmetric):
    M = symmetric(40, dtype)
    start = np.ones(40, dtype=M.numpy().dtype)
    values = scipy.sparse.linalg.eigsh(Operator.from_matrix(M).to_scipy(), k=4, which="LA", v0=start)[0]
    assert values.dtype == M.numpy().dtype
    assert_close(torch.from_numpy(values), torch.linalg.eigvalsh(M)[-4:], rtol=tolerance, atol=0)


def test_a_curvature_matrix_goes_to_scipy(generator):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()
    x = torch.randn(9, 3, generator=generator, dtype=torch.float64)
    y = torch.randint(2, (9,), generator=generator)
    H = ritz.hessian(ritz.Risk(model, ritz.CrossEntropy(), [(x[:6], y[:6]), (x[6:], y[6:])]))
    values = scipy.sparse.linalg.eigsh(H.to_scipy(), k=3, which="LA", v0=np.ones(H.size))[0]
    assert_close(torch.from_numpy(values), torch.linalg.eigvalsh(H.dense())[-3:])


def test_sparse_and_dense_arrays_of_scipy_come_in(symmetric):
    M = symmetric()
    for array in (
        scipy.sparse.csr_matrix(M.numpy()),
        scipy.sparse.coo_array(M.numpy()),
        M.numpy(),
        M.numpy()[::-1, ::-1],
    ):
        expected = torch.as_tensor(np.ascontiguousarray(array if isinstance(array, np.ndarray) else array.toarray()))
        check_operator(Operator.from_scipy(array), expected)


def test_an_operator_of_scipy_that_is_not_symmetric_is_refused(symmetric):
    M = symmetric().triu().numpy()
    for array in (M, scipy.sparse.csr_matrix(M), scipy.sparse.linalg.aslinearoperator(M), M * np.nan):
        with pytest.raises(ArgumentError, match="not symmetric"):
            Operator.from_scipy(array)
    Operator.from_scipy(np.zeros((3, 3)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_matrix_of_numpy_comes_in(dtype, symmetric):
    M = symmetric().numpy().astype(dtype)
    check_operator(Operator.from_matrix(M[::-1, ::-1]), torch.from_numpy(M[::-1, ::-1].copy()))
    with pytest.raises(ArgumentError, match="int64"):
        Operator.from_matrix(np.eye(3, dtype=np.int64))


@pytest.mark.parametrize("array", [np.ones((3, 4)), np.eye(3) * 1j])
def test_arrays_of_scipy_that_are_no_operators_are_refused(array):
    with pytest.raises(ArgumentError):
        Operator.from_scipy(array)


# The maintainers' check -----------------------------------------------------------------------------------------------


def shifted_columns(M):
    return lambda V: M @ V + V.roll(1, dims=1) * (V.shape[1] > 2)


def only_for_blocks(M):
    return lambda V: M @ V if V.shape[1] > 1 else 1.01 * (M @ V)


def changing(M):
    calls = iter(range(100))
    return lambda V: (M + 1e-6 * next(calls) * torch.eye(len(M), dtype=M.dtype)) @ V


def writing(M):
    def product(V):
        result = M @ V
        V.mul_(2.0)
        return result

    return product


BROKEN = {
    "not linear": lambda M: lambda V: M @ V * (1 + 1e-3 * V.abs().max()),
    "not linear, affine": lambda M: lambda V: M @ V + 1e-3,
    "not symmetric": lambda M: lambda V: (M + 1e-6 * torch.ones_like(M).triu(1)) @ V,
    "columns that depend on their neighbours": shifted_columns,
    "vectors unlike columns": only_for_blocks,
    "another precision": lambda M: lambda V: (M @ V).float(),
    "another shape": lambda M: lambda V: (M @ V)[:-1],
    "NaN": lambda M: lambda V: (M @ V).index_fill(0, torch.tensor([2]), float("nan")),
    "different at every call": changing,
    "writes into its input": writing,
}


@pytest.mark.parametrize("fault", BROKEN)
def test_the_check_catches_an_operator_that_is_broken(fault, symmetric, unchecked):
    A = Operator.from_matrix(symmetric())
    with pytest.raises(AssertionError):
        check_operator(replace(A, matmat=BROKEN[fault](symmetric())))


def test_the_check_catches_an_operator_of_another_matrix(symmetric):
    M = symmetric()
    with pytest.raises(AssertionError, match="disagree with the dense matrix"):
        check_operator(Operator.from_matrix(M), M * (1 + 1e-6))
    check_operator(Operator.from_matrix(M), M * (1 + 1e-6), tolerance=1e-5)
    with pytest.raises(AssertionError):
        check_operator(Operator.from_matrix(M), M * (1 + 1e-12), tolerance=0.0)


def test_the_check_accepts_zero_and_both_precisions(symmetric):
    check_operator(Operator.from_matrix(torch.zeros(N, N)), torch.zeros(N, N))
    for dtype in (torch.float32, torch.float64):
        M = symmetric(dtype=dtype)
        check_operator(Operator.from_matrix(M), M)


def test_the_cpu_may_be_given_with_a_number():
    A = Operator(lambda V: 2 * V, 3, torch.float32, torch.device("cpu:0"))
    assert A.device == torch.device("cpu")
    torch.testing.assert_close(A @ torch.ones(3), torch.full((3,), 2.0))


@pytest.mark.parametrize(
    "loss", [torch.nn.CrossEntropyLoss(), torch.nn.CrossEntropyLoss(weight=torch.tensor([0.0, 1.0, 2.0]))]
)
def test_semidefinite_operators_are_known_to_be_semidefinite(loss):
    risk = ritz.Risk(torch.nn.Linear(4, 3), loss, (torch.randn(8, 4), torch.arange(8) % 3))
    G = ritz.gauss_newton(risk)
    for A in (
        G,
        ritz.empirical_fisher(risk),
        ritz.ntk(risk),
        2 * G,
        G + 1,
        G + G,
        ritz.deflated(G, torch.eye(15)[:, :1]),
    ):
        assert A.semidefinite
    for A in (ritz.hessian(risk), -G, G - 1, G - G, G + ritz.hessian(risk)):
        assert not A.semidefinite


def test_a_gauss_newton_matrix_of_a_loss_of_ones_own_may_be_indefinite():
    risk = ritz.Risk(torch.nn.Linear(4, 3), lambda z, y: z.cos().sum(1), (torch.randn(8, 4), torch.arange(8)))
    assert not ritz.gauss_newton(risk).semidefinite


@pytest.mark.parametrize(
    "product, message",
    [
        (lambda V: None, "is a NoneType"),
        (lambda V: V[:-1], "has shape"),
        (lambda V: V.sum(1, keepdim=True), "has shape"),
        (lambda V: V.bfloat16(), "returned torch.bfloat16"),
    ],
)
def test_a_product_unlike_its_columns_is_refused(product, message):
    A = Operator(product, 6, torch.float32, torch.device("cpu"))
    with pytest.raises(ritz.errors.OperatorError, match=message):
        A @ torch.ones(6, 2)
