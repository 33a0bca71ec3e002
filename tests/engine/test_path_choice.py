"""The trial of the paths: what is right is used, what is wrong is noticed, and what is impossible refused."""

import gc
import weakref
from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import ritz
from ritz import Risk
from ritz.engine import CurvatureProduct
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


class InPlace(nn.Module):
    """What nearly every convolutional network does: batch norms with operations in place behind them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 3, 3, padding=1, bias=False), nn.Conv2d(3, 3, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(3), nn.BatchNorm2d(3)])
        self.relu, self.head = nn.ReLU(inplace=True), nn.Linear(3, OUTPUTS)

    def forward(self, x):
        h = self.relu(self.norms[0](self.first(x)))
        out = self.norms[1](self.second(h))
        out += h
        return self.head(self.relu(out).mean((2, 3)))


@pytest.mark.parametrize("operator", [ritz.hessian, ritz.gauss_newton, ritz.functional_hessian])
def test_operations_in_place_go_with_the_efficient_rules(operator, generator):
    model = InPlace().double().eval()
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    x = torch.randn(5, 1, 4, 4, generator=generator, dtype=torch.float64)
    risk = Risk(
        model, ritz.CrossEntropy(), [(x[:2], class_targets((2, OUTPUTS))), (x[2:], class_targets((3, OUTPUTS)))]
    )
    A = operator(risk)
    efficient, plain = (replace(A, matmat=CurvatureProduct(risk, [path])) for path in A.matmat.paths[:2])
    assert_close(efficient.dense(), plain.dense())


class Witness(torch.autograd.Function):
    """x as it is, and an object in the graph by which one sees whether the graph is alive."""

    objects: ClassVar[list] = []

    @staticmethod
    def forward(ctx, x):
        ctx.object = type("Alive", (), {})()
        Witness.objects.append(weakref.ref(ctx.object))
        return x.view_as(x)

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent


class Watched(nn.Module):
    def forward(self, x):
        return Witness.apply(x)


@pytest.mark.parametrize("operator", [ritz.hessian, ritz.gauss_newton])
def test_an_operator_that_is_dropped_leaves_no_graph_behind(operator, x, y):
    model = nn.Sequential(network(), Watched(), nn.Sigmoid())  # which saves its own output
    Witness.objects.clear()
    A = operator(Risk(model, ritz.CrossEntropy(), (x, y)))
    A @ torch.ones(A.size, dtype=A.dtype)
    assert any(reference() is not None for reference in Witness.objects)
    del A
    gc.collect()
    assert Witness.objects and not any(reference() is not None for reference in Witness.objects)


def doubled(path):
    """The same path, twice too large."""

    def linearize(risk, batch):
        product = path.linearize(risk, batch)
        return lambda *arguments: [piece if piece is None else 2 * piece for piece in product(*arguments)]

    return replace(path, name="wrong", linearize=linearize, reference=False)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_wrong_path_is_not_taken_wherever_it_stands(place, x, y):
    A = ritz.hessian(Risk(network(), ritz.CrossEntropy(), (x, y)))
    paths = A.matmat.paths[:2]
    product = CurvatureProduct(A.matmat.risk, [*paths[:place], doubled(paths[0]), *paths[place:]])
    assert_close(replace(A, matmat=product).dense(), A.dense())
    assert product.trial.path.name != "wrong"


def test_what_was_not_compared_has_no_disagreement(x, y):
    risk = Risk(network(), ritz.CrossEntropy(), (x, y))
    paths = ritz.hessian(risk).matmat.paths
    trials = [CurvatureProduct(risk, [path]).trial for path in paths[:2]]
    assert [trial.disagreement for trial in trials] == [None, None]
    both = CurvatureProduct(risk, paths[:2]).trial
    assert both.disagreement is None if both.path.reference else 0 <= both.disagreement < 1e-7
