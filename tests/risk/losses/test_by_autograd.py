"""Losses that are differentiated by autograd."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import ritz
from ritz.errors import ModelError
from ritz.risk.losses.conversion import loss_from
from tests.risk.losses.derivatives import C, check_derivatives, refused


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
