"""The empirical Fisher matrix of terms of every kind."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import ritz
from ritz import Risk
from ritz.errors import ModelError
from ritz.testing import check_operator
from tests.engine.curvature import class_targets
from tests.risk.problem import C, D, N, network, outputs_at
from tests.zoo import case, unequal_batches, whole


@pytest.mark.parametrize("loss", [nn.SmoothL1Loss(), nn.SmoothL1Loss(reduction="none")])
def test_the_fisher_matrix_of_an_entrywise_loss_has_one_gradient_per_row(loss, x, generator):
    y = torch.randn(N, C, generator=generator, dtype=torch.float64)
    risk = Risk(network(), loss, unequal_batches(x, y))
    terms = lambda t: F.smooth_l1_loss(outputs_at(risk, t, x), y, reduction="none").mean(-1)
    gradients = torch.func.jacfwd(terms)(risk.theta)
    assert_close(ritz.empirical_fisher(risk).dense(), gradients.T @ gradients / N)


def test_the_fisher_matrix_of_terms_that_are_whole_sequences(generator):
    x = torch.randn(N, 6, D, generator=generator, dtype=torch.float64)
    y = torch.randint(C, (N, 6), generator=generator)
    sequence = lambda z, t: F.cross_entropy(z.mT, t, reduction="none").sum(1).square()
    risk = Risk(network(), sequence, unequal_batches(x, y))
    gradients = torch.func.jacfwd(lambda t: sequence(outputs_at(risk, t, x), y))(risk.theta)
    assert risk.num_terms == N
    assert_close(ritz.empirical_fisher(risk).dense(), gradients.T @ gradients / N)


def test_empirical_fisher_is_the_second_moment_of_term_gradients():
    built = case("mlp")
    y, weight = class_targets(built.shape), torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    risk = ritz.Risk(built.model, nn.CrossEntropyLoss(weight=weight), unequal_batches(built.inputs, y))
    outputs = whole(risk, built)
    gradients = torch.func.jacfwd(lambda t: F.cross_entropy(outputs(t), y, reduction="none"))(risk.theta)
    expected = (gradients.T * weight[y]) @ gradients / weight[y].sum()
    check_operator(ritz.empirical_fisher(risk), expected)


def test_rows_that_see_each_other_are_seen_where_the_first_sentences_are_of_one_word(generator):
    lengths = (1, 4)
    batches = [
        (torch.randn(n, t, D, generator=generator, dtype=torch.float64), torch.randint(C, (n, t), generator=generator))
        for n, t in zip((7, 4), lengths, strict=True)
    ]
    smooth = lambda z: (z[:, 1:] - z[:, :-1]).square().sum((1, 2))[:, None] / z.shape[1]
    loss = lambda z, y: F.cross_entropy(z.mT, y, reduction="none") + smooth(z)
    with pytest.raises(ModelError, match="each of which depends on several rows"):
        ritz.empirical_fisher(Risk(network(), loss, batches)).dense()
