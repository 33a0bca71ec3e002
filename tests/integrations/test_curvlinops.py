"""Other libraries' operators in, ours out."""

import importlib
import sys

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import ritz
from ritz.errors import ArgumentError
from ritz.testing import check_operator

curvlinops = pytest.importorskip("curvlinops")
from ritz.integrations.curvlinops import linear_operator, operator  # noqa: E402


@pytest.fixture
def problem(generator):
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    x = torch.randn(11, 4, generator=generator, dtype=torch.float64)
    y = torch.randint(3, (11,), generator=generator)
    return model, nn.CrossEntropyLoss(), [(x[:7], y[:7]), (x[7:], y[7:])]


def theirs(kind, model, loss, data):
    return kind(model, loss, list(model.parameters()), data)


@pytest.mark.parametrize(
    "ours, name", [(ritz.hessian, "HessianLinearOperator"), (ritz.gauss_newton, "GGNLinearOperator")]
)
def test_operators_of_curvlinops_come_in_and_agree_with_ours(ours, name, problem):
    A = operator(theirs(getattr(curvlinops, name), *problem))
    check_operator(A, ours(ritz.Risk(*problem)).dense())


def test_a_square_operator_that_is_not_symmetric_is_refused(generator):
    model, x = nn.Linear(4, 5, bias=False).double(), torch.randn(4, 4, generator=generator, dtype=torch.float64)
    J = curvlinops.JacobianLinearOperator(model, list(model.parameters()), [(x, torch.zeros(4, 5))])
    with pytest.raises(ArgumentError, match="not symmetric"):
        operator(J)
    square = operator(J.adjoint() @ J)
    assert_close(square.dense(), square.dense().T)


def test_an_operator_that_came_in_has_eigenpairs(problem):
    A = operator(theirs(curvlinops.HessianLinearOperator, *problem))
    pairs = ritz.eigenpairs(A, 3)
    assert_close(pairs.values, torch.linalg.eigvalsh(A.dense()).flip(0)[:3], rtol=1e-6, atol=1e-9)


def test_operators_of_ritz_work_in_curvlinops(problem, generator):
    H = ritz.hessian(ritz.Risk(*problem))
    L = linear_operator(H)
    V = torch.randn(H.size, 3, generator=generator, dtype=torch.float64)
    assert tuple(L.shape) == (H.size, H.size) and L.dtype == H.dtype and L.device == H.device
    assert_close(L @ V, H @ V)
    assert_close(L @ V[:, 0], H @ V[:, 0])
    assert_close(L.adjoint() @ V, H @ V)
    assert_close(torch.as_tensor(L.to_scipy() @ V.numpy()), H @ V)


def test_our_operators_combine_with_theirs(problem, generator):
    H = ritz.hessian(ritz.Risk(*problem))
    v = torch.randn(H.size, generator=generator, dtype=torch.float64)
    assert_close((linear_operator(H) + 2.0 * linear_operator(H)) @ v, 3.0 * (H @ v))


def test_out_and_in_again_is_the_same(problem):
    H = ritz.hessian(ritz.Risk(*problem))
    check_operator(operator(linear_operator(H)), H.dense())


def test_a_rectangular_operator_is_refused(problem):
    model, _, data = problem
    J = curvlinops.JacobianLinearOperator(model, list(model.parameters()), data)
    with pytest.raises(ArgumentError, match=r"J\.adjoint\(\) @ J"):
        operator(J)


def test_without_curvlinops_the_import_says_what_to_install(monkeypatch):
    name = "ritz.integrations.curvlinops"
    monkeypatch.delitem(sys.modules, name)
    for module in [m for m in sys.modules if m.split(".")[0] == "curvlinops"]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"pip install 'ritz\[curvlinops\]'"):
        importlib.import_module(name)
