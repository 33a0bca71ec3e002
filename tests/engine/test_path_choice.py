"""The trial of the paths: what is right is used, what is wrong is noticed, and what is impossible refused."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import ritz
from ritz import Risk
from ritz.errors import ModelError
from tests.engine.curvature import class_targets
from tests.risk.problem import network
from tests.zoo import OUTPUTS, case


def test_a_custom_loss_keeps_its_linearisation(x, y):
    risk = Risk(network(), lambda z, t: F.cross_entropy(z, t, reduction="none"), (x, y))
    closed = Risk(risk.model, ritz.CrossEntropy(), (x, y))
    for operator in (ritz.hessian, ritz.gauss_newton, ritz.functional_hessian, ritz.empirical_fisher):
        assert_close(operator(risk).dense(), operator(closed).dense())
        assert operator(risk).matmat.trial.path.keeps


class OnlyForward(torch.autograd.Function):
    """x³ with a forward derivative, and a backward that cannot be differentiated."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, cotangent):
        return 3 * ctx.saved_tensors[0] ** 2 * cotangent

    @staticmethod
    def jvp(ctx, tangent):
        return 3 * ctx.saved_tensors[0] ** 2 * tangent


class Cube(nn.Module):
    def forward(self, x):
        return OnlyForward.apply(x)


@pytest.mark.parametrize("operator", [ritz.hessian, ritz.gauss_newton, ritz.functional_hessian])
def test_a_backward_that_cannot_be_differentiated_is_noticed_and_replaced(operator):
    model = nn.Sequential(nn.Linear(3, 4), Cube(), nn.Linear(4, OUTPUTS)).double()
    twin = nn.Sequential(model[0], _Power(), model[2])
    x, y = torch.randn(8, 3, dtype=torch.float64), torch.randint(OUTPUTS, (8,))
    A, expected = (operator(ritz.Risk(m, ritz.CrossEntropy(), (x, y))) for m in (model, twin))
    assert_close(A.dense(), expected.dense())
    assert not A.matmat.trial.path.keeps


class _Power(nn.Module):
    def forward(self, x):
        return x**3


class OutsideOfPyTorch(torch.autograd.Function):
    """x³ with a first derivative only, computed by NumPy."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, cotangent):
        return torch.from_numpy(3 * ctx.saved_tensors[0].numpy() ** 2) * cotangent


class CubeByNumPy(nn.Module):
    def forward(self, x):
        return OutsideOfPyTorch.apply(x)


@pytest.mark.parametrize("operator", [ritz.hessian, ritz.gauss_newton])
def test_an_operation_without_second_derivative_is_refused(operator):
    model = nn.Sequential(nn.Linear(3, 4), CubeByNumPy(), nn.Linear(4, OUTPUTS)).double()
    risk = ritz.Risk(model, ritz.CrossEntropy(), (torch.randn(8, 3, dtype=torch.float64), torch.randint(OUTPUTS, (8,))))
    with pytest.raises(ModelError, match="second derivative"):
        operator(risk) @ torch.ones(risk.size, dtype=torch.float64)


def test_a_rule_that_disagrees_is_not_used(monkeypatch):
    built = case("cnn")
    risk = ritz.Risk(built.model, ritz.CrossEntropy(), (built.inputs, class_targets(built.shape)))
    expected = ritz.hessian(risk).dense()
    monkeypatch.setitem(ritz.engine.rules.dispatch.RULES, F.gelu, lambda second, x, **_: x * 1.1)
    A = ritz.hessian(risk)
    assert_close(A.dense(), expected)
    assert A.matmat.trial.path.name == "kept graph"
