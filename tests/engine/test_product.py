"""Products over all batches: what is kept, what is joined, and how many columns go together."""

import warnings

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

import ritz
from ritz.engine import CurvatureProduct, Path
from ritz.engine import paths as maps
from ritz.engine import product as products
from ritz.errors import ModelError
from ritz.testing import check_operator
from tests.engine.curvature import class_targets
from tests.zoo import case, dense_hessian, unequal_batches, whole


def test_memory_that_holds_nothing_changes_no_product(generator):
    built = case("cnn")
    data = unequal_batches(built.inputs, class_targets(built.shape))
    plenty, none = (ritz.Risk(built.model, ritz.CrossEntropy(), data, memory=m) for m in (1e9, 0))
    V = torch.randn(plenty.size, 6, generator=generator, dtype=torch.float64)
    for operator in (ritz.hessian, ritz.gauss_newton):
        kept, rebuilt = operator(plenty), operator(none)
        assert_close(rebuilt @ V, kept @ V)
        assert kept.matmat._kept and not rebuilt.matmat._kept


def test_joined_batches_give_the_same_product(generator, monkeypatch):
    built = case("two_inputs")
    data = unequal_batches(built.inputs, class_targets(built.shape))
    risk = ritz.Risk(built.model, ritz.CrossEntropy(), data)
    V = torch.randn(risk.size, 3, generator=generator, dtype=torch.float64)
    results = []
    for busy_seconds, num_batches in ((1e9, 1), (0.0, 2)):
        monkeypatch.setattr(products, "BUSY_SECONDS", busy_seconds)
        A = ritz.hessian(risk)
        results.append(A @ V)
        assert len(A.matmat._kept) == num_batches
    assert_close(*results)


def test_kept_linearisations_stay_within_the_budget(generator, monkeypatch):
    monkeypatch.setattr(products, "BUSY_SECONDS", 0.0)
    built = case("mlp")
    x, y = built.inputs.repeat(8, 1), class_targets(built.shape).repeat(8)
    data = [(x[i : i + 11], y[i : i + 11]) for i in range(0, 88, 11)]
    one = ritz.hessian(ritz.Risk(built.model, ritz.CrossEntropy(), data)).matmat.trial.batch_bytes
    A = ritz.hessian(ritz.Risk(built.model, ritz.CrossEntropy(), data, memory=3.5 * one))
    A @ torch.randn(A.size, generator=generator, dtype=torch.float64)
    assert len(A.matmat._kept) == min(8, int(3.5 * one // A.matmat.trial.batch_bytes))


def wrong_if_batched(risk, batch):
    """The product with H, but for columns that are multiplied together: those come out twice too large."""
    product = maps.hessian_map(risk, batch, rules=False)
    return lambda tangent, batched: [
        None if piece is None else (1 + batched) * piece for piece in product(tangent, batched)
    ]


@pytest.mark.parametrize("count", [4, 7, 40])
def test_columns_that_come_out_wrong_together_are_multiplied_one_by_one(count, generator):
    built = case("mlp")
    risk = ritz.Risk(built.model, ritz.CrossEntropy(), unequal_batches(built.inputs, class_targets(built.shape)))
    product = CurvatureProduct(risk, [Path("wrong if batched", wrong_if_batched)])
    V = torch.randn(risk.size, count, generator=generator, dtype=torch.float64)
    for _ in range(2):  # the first product tries columns together, the second has learned
        assert_close(product(V), ritz.hessian(risk) @ V)


def test_products_warn_of_nothing():
    built = case("transformer")
    risk = ritz.Risk(built.model, ritz.CrossEntropy(), (built.inputs, class_targets(built.shape)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ritz.hessian(risk).dense()


def contrastive(z, y):
    """One term per example, each of which depends on all others of the batch."""
    return F.cross_entropy(z @ z.T, torch.arange(len(z)), reduction="none")


def test_batches_are_not_joined_where_terms_depend_on_each_other():
    built = case("mlp")
    data = unequal_batches(built.inputs, class_targets(built.shape))
    risk = ritz.Risk(built.model, contrastive, data)

    def total(theta):
        outputs = whole(risk, built)(theta)
        return sum(contrastive(outputs[rows], None).sum() for rows in (slice(0, 7), slice(7, None))) / 11

    assert not risk.separable
    assert risk.loss_value() == pytest.approx(float(total(risk.theta)), rel=1e-12)
    check_operator(ritz.hessian(risk), dense_hessian(total, risk.theta))
    with pytest.raises(ModelError, match="depends on several"):
        ritz.empirical_fisher(risk) @ risk.theta
