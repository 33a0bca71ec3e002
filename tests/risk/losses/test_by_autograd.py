"""Losses that are differentiated by autograd."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

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
