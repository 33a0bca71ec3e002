"""Losses that are differentiated by autograd."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import ritz
from ritz.errors import ModelError, PaddingWarning
from ritz.risk.losses.conversion import loss_from
from tests.risk.losses.derivatives import C, check_derivatives, refused
from tests.risk.problem import outputs_at


def test_a_term_of_an_entrywise_loss_is_a_row_of_outputs(normal):
    z, y = normal(11, C), normal(11, C)
    for entrywise in (nn.SmoothL1Loss(), nn.SmoothL1Loss(reduction="none"), lambda a, b: (a - b).abs()):
        loss = loss_from(entrywise)
        assert loss.terms(z, y).shape == (11,) and bool((loss.weights(z, y) == C).all())


def test_a_callable_is_differentiated_also_without_grad_mode(normal):
    z, y, loss = normal(7, C), normal(7, C), loss_from(lambda a, b: (a - b).pow(4).sum(-1))
    with torch.no_grad():
        assert_close(loss.gradient(z, y), 4 * (z - y) ** 3)
        assert_close(loss.hessian_product(z, y, z), 12 * (z - y) ** 2 * z)


def test_a_callable_that_is_linear_has_no_curvature(normal):
    z, y, loss = normal(7, C), normal(7, C), loss_from(lambda a, b: (a * b).sum(-1))
    assert not loss.hessian_product(z, y, z).any()
    assert not loss.square_root(z, y).any()


def test_zeros_of_padding_that_count_as_terms_are_warned_of(normal, recwarn):
    z, y = normal(2, 3, C), torch.tensor([[0, 1, -100], [2, -100, -100]])
    entropy = lambda z, y: F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="none")
    with pytest.warns(PaddingWarning, match="3 of 6 targets of a batch are -100"):
        loss_from(entropy).check(z, y)
    recwarn.clear()
    loss_from(lambda z, y: entropy(z, y)[y.flatten() != -100]).check(z, y)
    loss_from(nn.CrossEntropyLoss()).check(z.mT, y)
    loss_from(lambda z, y: (z - y).square()).check(torch.full((2, 1), -100.0), torch.full((2, 1), -100.0))
    assert not recwarn.list


def test_a_loss_that_averages_over_the_batch_is_refused(normal, labels):
    z, y = normal(7, C), labels(7)
    for average in (F.cross_entropy, lambda a, b: F.cross_entropy(a, b).reshape(1), lambda a, b: 1.0):
        with refused(ModelError, "one value per term") as caught:
            loss_from(average).check(z, y)
        assert any("reduction" in way for way in caught.value.ways_out)


def test_a_single_example_may_have_a_single_value(normal, labels):
    loss_from(lambda a, b: F.cross_entropy(a, b, reduction="none")).check(normal(1, C), labels(1))


def test_terms_that_join_several_rows_have_no_square_root_by_rows(normal, labels):
    z, y = normal(5, 4, C), labels(5, 4)
    loss = loss_from(lambda a, b: F.cross_entropy(a.mT, b, reduction="none").sum(1).square())
    check_derivatives(loss, z, y, lambda t: F.cross_entropy(t.mT, y, reduction="none").sum(1).square().sum())
    with refused(ModelError, "5 terms for 20 rows"):
        loss.square_root(z, y)


class Shaped(nn.Linear):
    """Outputs of any shape that are linear in the inputs."""

    def __init__(self, *shape):
        super().__init__(2, math.prod(shape))
        self.shape = shape

    def forward(self, x):
        return super().forward(x).unflatten(1, self.shape)


def along_the_second(z, y):
    return F.cross_entropy(z, y, reduction="none")


def along_the_last(z, y):
    return F.cross_entropy(z.flatten(0, -2), y.flatten(), reduction="none")


def entry_by_entry(z, y):
    return -F.one_hot(y, z.shape[1]).movedim(-1, 1) * z.log_softmax(1)


BY_CLASSES = {
    "as many positions as classes": (along_the_second, 1, (3, 3)),
    "fewer": (along_the_second, 1, (3, 2)),
    "more": (along_the_second, 1, (3, 4)),
    "one": (along_the_second, 1, (3, 1)),
    "images": (along_the_second, 1, (3, 3, 2)),
    "tokens": (along_the_last, -1, (3, 3)),
    "more tokens": (along_the_last, -1, (4, 3)),
    "one token": (along_the_last, -1, (1, 3)),
    "a value for each output": (entry_by_entry, 1, (3, 3)),
}


@pytest.mark.parametrize("name", BY_CLASSES)
def test_the_dimension_of_the_classes_is_seen_at_the_outputs(name, normal, labels):
    function, dim, shape = BY_CLASSES[name]
    model, x = Shaped(*shape).double(), normal(5, 2)
    y = labels(5, *torch.empty(1, *shape).movedim(dim, -1).shape[1:-1])
    batches = [(x[:3], y[:3]), (x[3:], y[3:])]
    risk, known = (ritz.Risk(model, loss, batches) for loss in (function, ritz.CrossEntropy(class_dim=dim)))
    assert risk.num_classes == known.num_classes == C
    scale = C if function is entry_by_entry else 1.0  # each output has a weight there
    assert_close(risk.gradient() * scale, known.gradient())
    assert_close(ritz.empirical_fisher(risk).dense() * scale**2, ritz.empirical_fisher(known).dense())
    assert_close(ritz.kfac(risk).operator.dense() * scale, ritz.kfac(known).operator.dense())
    assert_close(top_of(risk) * scale, top_of(known))
    v = normal(risk.size)
    samples = [ritz.monte_carlo_fisher(risk, generator=torch.Generator().manual_seed(s)) @ v for s in range(40)]
    error = (torch.stack(samples).mean(0) - ritz.gauss_newton(risk) @ v) / torch.stack(samples).std(0) * 40**0.5
    assert float(error.abs().max()) < 6


def top_of(risk):
    """The largest eigenvalues of G, by its Gram matrix."""
    return ritz.gram_spectrum(risk).nodes[0].sort(descending=True).values[:3]


def with_neighbours(z, y):
    """As many values as rows of outputs, none of which depends on one row alone."""
    return F.cross_entropy(z.mT, y, reduction="none") + 0.1 * (z - z.roll(1, 1)).square().sum(-1)


@pytest.mark.parametrize("shape", [(3, 3), (4, 3)])
def test_terms_that_see_other_rows_have_neither_fisher_nor_square_root(shape, normal, labels):
    model, x, y = Shaped(*shape).double(), normal(5, 2), labels(5, shape[0])
    risk = ritz.Risk(model, with_neighbours, (x, y))
    for matrix in (ritz.empirical_fisher, ritz.monte_carlo_fisher, ritz.kfac):
        with refused(ModelError, "each of which depends on several rows"):
            matrix(risk).operator if matrix is ritz.kfac else matrix(risk) @ risk.theta
    value = lambda t: with_neighbours(outputs_at(risk, t, x), y).mean()
    assert_close(ritz.hessian(risk).dense(), torch.func.hessian(value)(risk.theta))


def test_a_network_that_is_sure_is_convex_though_rounding_is_all_there_is(normal):
    z = torch.diag(torch.full((C,), 40.0)).double() + normal(C, C)
    loss = loss_from(along_the_second)
    root = loss.square_root(z, torch.arange(C))
    assert_close(root @ root.mT, torch.zeros(C, C, C).double(), rtol=0, atol=1e-14)


def plain_ctc(z, y):
    """CTC by the forward algorithm over labels with blanks between them, in operations that PyTorch differentiates."""
    states = torch.zeros(len(y), 2 * y.shape[1] + 1, dtype=torch.long)
    states[:, 1::2] = y
    skips = torch.zeros_like(states, dtype=torch.bool)
    skips[:, 2:] = (states[:, 2:] != 0) & (states[:, 2:] != states[:, :-2])
    never = torch.full_like(z[:, 0, :1], -1e9)
    emitted = z.gather(2, states[:, None].expand(-1, z.shape[1], -1))
    alpha = torch.cat([emitted[:, 0, :2], never.expand(-1, states.shape[1] - 2)], 1)
    for t in range(1, z.shape[1]):
        one, two = torch.cat([never, alpha[:, :-1]], 1), torch.cat([never, never, alpha[:, :-2]], 1)
        ways = torch.stack([alpha, one, torch.where(skips, two, -1e9)])
        alpha = ways.logsumexp(0) + emitted[:, t]
    return -alpha[:, -2:].logsumexp(1)


def test_ctc_has_no_second_derivative_and_both_ways_out_work(normal):
    model = nn.Sequential(nn.Linear(3, 4), nn.LogSoftmax(-1)).double()
    x, y = normal(5, 7, 3), torch.tensor([[1, 2], [3, 3], [2, 1], [1, 1], [3, 2]])

    def ctc(z, y):
        lengths = [torch.full((len(y),), size) for size in (z.shape[1], y.shape[1])]
        return F.ctc_loss(z.transpose(0, 1), y, *lengths, reduction="none")

    risk = ritz.Risk(model, ctc, (x, y))
    with refused(ModelError, "(?s)The loss has no second derivative.*ctc_loss.*empirical_fisher"):
        ritz.hessian(risk) @ risk.theta
    plain = ritz.Risk(model, plain_ctc, (x, y))
    assert_close(plain.gradient(), risk.gradient())
    assert_close(ritz.empirical_fisher(risk).dense(), ritz.empirical_fisher(plain).dense())
    step = 1e-5 * torch.randn(risk.size, generator=torch.Generator().manual_seed(0)).double()
    difference = (risk.at(risk.theta + step).gradient() - risk.at(risk.theta - step).gradient()) / 2
    assert_close(ritz.hessian(plain) @ step, difference, rtol=1e-6, atol=1e-14)


@pytest.mark.parametrize("form", ["gram_spectrum", "kfac", "ekfac", "monte_carlo_fisher", "gauss_newton"])
def test_whatever_needs_the_second_derivative_of_a_loss_says_that_there_is_none(form, normal, labels):
    batches = [(normal(n, 2), labels(n)) for n in (7, 4)]
    risk = ritz.Risk(nn.Linear(2, C).double(), nn.MultiMarginLoss(), batches)
    with refused(ModelError, "The loss has no second derivative.*multi_margin_loss"):
        result = getattr(ritz, form)(risk)
        result.dense()
    assert bool(ritz.empirical_fisher(risk).dense().any())


@pytest.mark.parametrize(
    "loss",
    [
        lambda z, y: (z.argmax(-1) != y).float(),
        lambda z, y: F.cross_entropy(z, y, reduction="none").detach(),
    ],
    ids=["errors counted", "detached"],
)
def test_a_loss_without_a_gradient_is_refused_where_all_curvature_would_be_zero(loss):
    x, y = torch.randn(12, 4), torch.arange(12) % 3
    with pytest.raises(ModelError, match="no gradient"):
        ritz.Risk(nn.Linear(4, 3), loss, (x, y))


def test_a_batch_without_loss_needs_no_gradient():
    x, y = torch.randn(6, 4), torch.tensor([0, 1, 2, -1, -1, -1])

    def loss(z, y):
        return torch.zeros(len(z)) if bool((y < 0).all()) else F.cross_entropy(z, y, reduction="none")

    assert ritz.Risk(nn.Linear(4, 3), loss, [(x[:3], y[:3]), (x[3:], y[3:])]).num_examples == 6


def test_the_refusal_of_a_mean_says_that_padding_would_count(normal, labels):
    with pytest.raises(ModelError, match=r"values\[targets != -100\]"):
        loss_from(F.cross_entropy).check(normal(4, C), labels(4))


def slope_of_entropy(z, y):
    return z.softmax(-1) - F.one_hot(y, C)


class Fused(torch.autograd.Function):
    """Cross-entropy that keeps its gradient for the backward pass, as fused kernels do."""

    @staticmethod
    def forward(ctx, z, y):
        ctx.save_for_backward(slope_of_entropy(z, y))
        return F.cross_entropy(z, y, reduction="none")

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent[:, None] * ctx.saved_tensors[0], None


class Complete(torch.autograd.Function):
    """The same with a backward pass of the outputs themselves."""

    @staticmethod
    def forward(ctx, z, y):
        ctx.save_for_backward(z, y)
        return F.cross_entropy(z, y, reduction="none")

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent[:, None] * slope_of_entropy(*ctx.saved_tensors), None


class Once(Complete):
    backward = staticmethod(torch.autograd.function.once_differentiable(Complete.backward))


class Rounds(torch.autograd.Function):
    """Rounding with the gradient of the identity."""

    @staticmethod
    def forward(ctx, z):
        return z.round()

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent


def of_rows(function):
    return lambda z, y: function.apply(z, y) + 0.1 * z.square().sum(-1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("function", [Fused, Once])
def test_a_loss_that_hides_its_second_derivative_has_a_fisher_and_no_curvature(function, dtype, normal, labels):
    model, data = nn.Linear(2, C).to(dtype), [(normal(n, 2).to(dtype), labels(n)) for n in (7, 4)]
    risk = ritz.Risk(model, of_rows(function), data)
    twin = ritz.Risk(model, lambda z, y: F.cross_entropy(z, y, reduction="none") + 0.1 * z.square().sum(-1), data)
    for curvature in (lambda r: ritz.hessian(r).dense(), lambda r: ritz.gauss_newton(r).dense(), ritz.gram_spectrum):
        with refused(ModelError, "custom autograd Function in the loss hides"):
            curvature(risk)
    assert_close(risk.gradient(), twin.gradient())
    assert_close(ritz.empirical_fisher(risk).dense(), ritz.empirical_fisher(twin).dense())


def test_a_first_batch_without_slope_does_not_hide_that_a_loss_is_incomplete(normal, labels):
    loss = loss_from(lambda z, y: Fused.apply(z, y.clamp(min=0)) * (y >= 0))
    x, y = normal(11, 2), labels(11)
    ignored = torch.cat([torch.full_like(y[:7], -1), y[7:]])
    batches = [(x[:7], ignored[:7]), (x[7:], ignored[7:])]
    with refused(ModelError, "custom autograd Function in the loss hides"):
        ritz.gauss_newton(ritz.Risk(nn.Linear(2, C).double(), loss, batches)).dense()


def test_a_loss_with_a_custom_function_that_hides_nothing_is_taken(normal, labels):
    z, y = normal(7, C), labels(7)
    loss = loss_from(of_rows(Complete)).settled(z, y)
    check_derivatives(loss, z, y, lambda t: F.cross_entropy(t, y, reduction="sum") + 0.1 * t.square().sum())


def test_a_loss_whose_gradient_is_a_convention_has_the_second_derivative_of_the_convention(normal):
    z, y = normal(7, C), normal(7, C)
    loss = loss_from(lambda a, b: (Rounds.apply(3 * a) - b).square()).settled(z, y)
    assert_close(loss.hessian_product(z, y, z), 18 * z)


def test_a_loss_with_weights_of_its_own_may_be_linear_in_the_outputs(normal):
    z, y, layer = normal(7, C), normal(7, C), nn.Linear(C, C).double()
    assert not loss_from(lambda a, b: layer(a) * b).hessian_product(z, y, z).any()
