"""The first evaluation: what is refused before the first product, and what is not."""

import contextlib
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import ritz
from ritz import Risk
from ritz.errors import ArgumentError, DataError, ModelError, NumericalError
from tests.risk.problem import CE, INF, NAN, C, N, check_against_pytorch, check_refusal, network, with_value
from tests.zoo import unequal_batches


@pytest.mark.parametrize("form", ["list", "tensors"])
def test_a_loss_that_is_not_finite_is_refused(form, x, generator):
    y = with_value(torch.randn(N, C, generator=generator, dtype=torch.float64), NAN)
    data = (x, y) if form == "tensors" else unequal_batches(x, y)
    with pytest.raises(NumericalError, match="The loss over all data is nan") as caught:
        Risk(network(), ritz.SquaredError(), data)
    check_refusal(caught, NumericalError)
    with pytest.raises(NumericalError, match="The loss over all data is inf"):
        Risk(network(), lambda z, t: (z / 0.0).abs().sum(-1), (x, x))


def test_missing_targets_may_be_nan_where_the_loss_knows(x, generator):
    y = with_value(torch.randn(N, C, generator=generator, dtype=torch.float64), NAN)
    loss = lambda z, t: torch.where(t.isnan(), 0.0, z - t.nan_to_num()).square().sum(-1)
    model = network()
    check_against_pytorch(Risk(model, loss, unequal_batches(x, y)), model, loss(model(x), y).mean())


@pytest.mark.parametrize("weight", [[0.0, 0.0, 0.0], [1.0, NAN, 1.0], [1.0, INF, 1.0], [1.0, 1.0]])
def test_class_weights_that_give_no_average_are_refused(weight, x, y):
    with pytest.raises(ritz.RitzError) as caught:
        Risk(network(), nn.CrossEntropyLoss(torch.tensor(weight, dtype=torch.float64)), (x, y))
    kind = DataError if not any(weight) else ArgumentError if len(weight) == 2 else NumericalError
    check_refusal(caught, kind)


class Centred(nn.Module):
    """A squared distance from targets and from a running mean of the outputs."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(C, dtype=torch.float64))

    def forward(self, z, y):
        self.mean = 0.9 * self.mean + 0.1 * z.detach().mean(0)
        return (z - self.mean - y).square().sum(-1)


CHANGING_LOSSES = {
    "random": (lambda z, y: (z - y).square().sum(-1) * torch.rand(len(z), dtype=z.dtype), "two results"),
    "random numbers of terms": (lambda z, y: (z - y).square().sum(-1)[torch.rand(len(z)) < 0.5], "two results"),
    "dropout": (nn.Sequential(nn.Dropout(), nn.Flatten()), "two results"),
    "a running mean": (Centred(), "two results"),
    "into its targets": (lambda z, y: (z - y.mul_(0.5)).square().sum(-1), "writes into its outputs or targets"),
}


@pytest.mark.parametrize("name", CHANGING_LOSSES)
def test_a_loss_that_is_another_when_it_is_called_again_is_refused(name, x, generator):
    y = torch.randn(N, C, generator=generator, dtype=torch.float64)
    function, seen = CHANGING_LOSSES[name]
    loss = (lambda z, t: function(z - t).square()) if name == "dropout" else function
    with pytest.raises(ModelError, match=seen) as caught:
        Risk(network(), loss, unequal_batches(x, y))
    check_refusal(caught, ModelError)


def test_a_loss_that_changes_is_seen_behind_a_batch_that_does_not_count(x, y):
    ignored = torch.cat([torch.full_like(y[:7], -100), y[7:]])
    loss = lambda z, t: F.cross_entropy(z, t, reduction="none")[t >= 0] * torch.rand(int((t >= 0).sum()))
    with pytest.raises(ModelError, match="two results"):
        Risk(network(), loss, unequal_batches(x, ignored))


def test_a_loss_that_draws_the_same_numbers_every_time_is_fine(x, generator):
    y = torch.randn(N, C, generator=generator, dtype=torch.float64)
    weigh = lambda n: torch.rand(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model, loss = network(), lambda z, t: (z - t).square().sum(-1) * weigh(N)[: len(z)]
    value = torch.cat([loss(model(x[:7]), y[:7]), loss(model(x[7:]), y[7:])]).mean()
    check_against_pytorch(Risk(model, loss, unequal_batches(x, y)), model, value)


def test_outputs_in_more_precision_than_the_parameters_are_fine(x, y):
    model = nn.Sequential(network().float(), Doubled())
    risk = Risk(model, CE, (x, y))
    twin = Risk(model[0], CE, (x, y))
    v = torch.ones(risk.size)
    for operator in (ritz.hessian, ritz.gauss_newton):
        assert_close(operator(risk) @ v, operator(twin) @ v, rtol=1e-4, atol=1e-6)


class Doubled(nn.Module):
    def forward(self, z):
        return z.double()


def test_rounding_that_depends_on_the_batch_does_not_look_like_dependence_between_examples_at_zero_loss():
    class Rounded(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            z = self.layer(x)
            return z if len(x) > 1 else z * (1 + 4e-16)  # as another kernel might round

    model = Rounded().double()
    x = torch.randn(600, 3).double()  # more than one of our own batches
    risk = Risk(model, ritz.SquaredError(), (x, model(x).detach()))
    assert risk.separable
    assert risk.loss_value() == 0.0


class Slopes(nn.Module):
    """u and u' of a network u(t), as a physics-informed network has them."""

    def __init__(self, graph):
        super().__init__()
        self.net, self.graph = nn.Sequential(nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 1)).double(), graph

    def forward(self, t):
        with torch.enable_grad() if self.graph else contextlib.nullcontext():
            t = t.clone().requires_grad_()
            u = self.net(t)
            (slope,) = torch.autograd.grad(u.sum(), t, create_graph=True)
            return torch.cat([u, slope], -1)


@pytest.mark.parametrize("graph", [False, True], ids=["as it is", "under enable_grad"])
def test_a_model_that_differentiates_its_outputs_is_exact(graph, generator):
    t = torch.rand(11, 1, generator=generator, dtype=torch.float64)
    data, loss = unequal_batches(t, -t), lambda z, y: (z[:, :1] ** 2 + (z[:, 1:] - y) ** 2).sum(-1)
    model = Slopes(graph)
    risk = Risk(model, loss, data)
    check_against_pytorch(risk, model, loss(model(t), -t).mean())
    exact = torch.func.hessian(partial(mean_loss_of_slopes, model, t))(risk.theta)
    assert_close(ritz.hessian(risk).dense(), exact)


def mean_loss_of_slopes(model, t, theta):
    """The risk by torch.func alone: the derivative of u with respect to t is that of each example."""
    pieces = theta.split([p.numel() for p in model.parameters()])
    weights = {name: piece.view_as(p) for (name, p), piece in zip(model.net.named_parameters(), pieces, strict=True)}
    u = lambda one: torch.func.functional_call(model.net, weights, (one[None],))[0, 0]
    slopes = torch.func.vmap(torch.func.grad(u))(t)[:, 0]
    return (torch.func.vmap(u)(t) ** 2 + (slopes + t[:, 0]) ** 2).mean()
