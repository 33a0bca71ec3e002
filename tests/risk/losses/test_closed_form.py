"""Losses in closed form against torch.nn.functional and dense autograd."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from ritz.errors import ArgumentError, DataError, NumericalError, OutputsWarning
from ritz.risk.losses import BinaryCrossEntropy, CrossEntropy, SquaredError
from ritz.risk.losses.conversion import loss_from
from tests.risk.losses.derivatives import CLASS_WEIGHTS, C, check_derivatives, check_square_root, dense_hessian, refused

CROSS_ENTROPIES = {
    "plain": {},
    "weight": {"weight": CLASS_WEIGHTS},
    "ignore_index": {"ignore_index": 1},
    "label_smoothing": {"label_smoothing": 0.3},
    "all combined": {"weight": CLASS_WEIGHTS, "ignore_index": 2, "label_smoothing": 0.3},
}


@pytest.mark.parametrize("options", CROSS_ENTROPIES.values(), ids=CROSS_ENTROPIES)
def test_cross_entropy_is_that_of_pytorch(options, normal, labels):
    z, y, loss = normal(7, C), labels(7), CrossEntropy(**options)
    check_derivatives(loss, z, y, lambda t: F.cross_entropy(t, y, reduction="sum", **options))
    assert_close(loss.terms(z, y), F.cross_entropy(z, y, reduction="none", **options))
    assert_close(loss.terms(z, y).sum() / loss.weights(z, y).sum(), F.cross_entropy(z, y, **options))
    check_square_root(loss, z, y)


@pytest.mark.parametrize("options", CROSS_ENTROPIES.values(), ids=CROSS_ENTROPIES)
def test_cross_entropy_of_tokens_has_its_classes_last_or_second(options, normal, labels):
    z, y = normal(2, C, 4), labels(2, 4)
    second, last = CrossEntropy(**options, class_dim=1), CrossEntropy(**options)
    total = lambda t: F.cross_entropy(t, y, reduction="sum", **options)
    for loss, outputs, by_torch in [(second, z, total), (last, z.mT.contiguous(), lambda t: total(t.mT))]:
        loss.check(outputs, y)
        check_derivatives(loss, outputs, y, by_torch)
        check_square_root(loss, outputs, y, class_dim=loss.class_dim)
        assert_close(loss.terms(outputs, y).sum() / loss.weights(outputs, y).sum(), F.cross_entropy(z, y, **options))


@pytest.mark.parametrize("options", [{}, {"weight": CLASS_WEIGHTS, "label_smoothing": 0.2}])
@pytest.mark.parametrize("shape", [(7, C), (2, C, 4)])
def test_cross_entropy_takes_probabilities_as_targets(options, shape, normal):
    z, y = normal(*shape), normal(*shape).softmax(1)
    loss = CrossEntropy(**options, class_dim=1)
    loss.check(z, y)
    check_derivatives(loss, z, y, lambda t: F.cross_entropy(t, y, reduction="sum", **options))
    check_square_root(loss, z, y, class_dim=1)
    assert_close(loss.terms(z, y).sum() / loss.weights(z, y).sum(), F.cross_entropy(z, y, **options))


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 6),
    width=st.integers(1, 5),
    smoothing=st.floats(0.0, 1.0),
    scale=st.floats(1e-3, 60.0),
    weighted=st.booleans(),
    seed=st.integers(0, 2**20),
)
def test_cross_entropy_agrees_with_pytorch_for_any_shape_smoothing_and_weights(
    count, width, smoothing, scale, weighted, seed
):
    generator = torch.Generator().manual_seed(seed)
    z = scale * torch.randn(count, width, generator=generator, dtype=torch.float64)
    y = torch.randint(width, (count,), generator=generator)
    weight = torch.rand(width, generator=generator, dtype=torch.float64) + 0.1 if weighted else None
    loss = CrossEntropy(weight, label_smoothing=smoothing)
    total = lambda t: F.cross_entropy(t, y, weight, label_smoothing=smoothing, reduction="sum")
    assert_close(loss.terms(z, y).sum(), total(z))
    assert_close(loss.gradient(z, y), torch.func.grad(total)(z), rtol=1e-9, atol=1e-12)
    H, S = dense_hessian(total, z), loss.square_root(z, y)
    assert_close(torch.block_diag(*(S @ S.mT)), H, rtol=1e-8, atol=1e-10)


def test_large_logits_neither_overflow_nor_lose_their_terms():
    z, y = torch.tensor([[1e4, -1e4, 0.0]], dtype=torch.float64), torch.tensor([1])
    loss = CrossEntropy()
    assert_close(loss.terms(z, y), torch.tensor([2e4], dtype=torch.float64))
    assert all(torch.isfinite(t).all() for t in (loss.gradient(z, y), loss.square_root(z, y)))
    binary = BinaryCrossEntropy()
    assert_close(
        binary.terms(z, torch.zeros_like(z)), torch.tensor([1e4 + torch.log(torch.tensor(2.0)).item()]).double()
    )


def test_labels_of_any_integer_type(normal, labels):
    z, y = normal(7, C), labels(7)
    for dtype in (torch.int32, torch.uint8):
        assert_close(CrossEntropy(CLASS_WEIGHTS).gradient(z, y.to(dtype)), CrossEntropy(CLASS_WEIGHTS).gradient(z, y))


@pytest.mark.parametrize(
    "dtype, label, ignored", [(torch.uint8, 156, -100), (torch.uint8, 44, 300), (torch.int8, 44, 300)]
)
def test_a_label_is_not_ignored_because_its_type_has_no_room_for_the_index_to_ignore(dtype, label, ignored, normal):
    z, y = normal(2, 200), torch.tensor([label, 3])
    loss = CrossEntropy(ignore_index=ignored)
    loss.check(z, y.to(dtype))
    assert_close(loss.terms(z, y.to(dtype)), F.cross_entropy(z, y, reduction="none"))
    assert loss.weights(z, y.to(dtype)).tolist() == [1.0, 1.0]
    with pytest.raises(DataError, match="Labels run from 3"):
        loss.check(z[:, :10], y.to(dtype))


@pytest.mark.parametrize("shape", [(7, C), (7,), (2, 4, C)])
def test_squared_error_is_half_the_square_of_the_distance(shape, normal):
    z, y, loss = normal(*shape), normal(*shape), SquaredError()
    check_derivatives(loss, z, y, lambda t: 0.5 * (t - y).square().sum())
    check_square_root(loss, z, y)
    assert loss.weights(z, y).sum() == (z.numel() if z.ndim == 1 else z.numel() // C)


@pytest.mark.parametrize("shape", [(7, C), (7,), (2, 4, C)])
def test_elementwise_squared_error_is_that_of_pytorch(shape, normal):
    z, y, loss = normal(*shape), normal(*shape), SquaredError(elementwise=True)
    check_derivatives(loss, z, y, lambda t: F.mse_loss(t, y, reduction="sum"))
    check_square_root(loss, z, y)
    assert_close(loss.terms(z, y).sum() / loss.weights(z, y).sum(), F.mse_loss(z, y))


@pytest.mark.parametrize("options", [{}, {"pos_weight": CLASS_WEIGHTS}, {"weight": CLASS_WEIGHTS.flip(0)}, "both"])
@pytest.mark.parametrize("elementwise", [False, True])
def test_binary_cross_entropy_is_that_of_pytorch(options, elementwise, normal):
    options = {"pos_weight": CLASS_WEIGHTS, "weight": CLASS_WEIGHTS.flip(0)} if options == "both" else options
    z, y = normal(7, C), normal(7, C).sigmoid()
    loss = BinaryCrossEntropy(**options, elementwise=elementwise)
    loss.check(z, y)
    check_derivatives(loss, z, y, lambda t: F.binary_cross_entropy_with_logits(t, y, reduction="sum", **options))
    check_square_root(loss, z, y)
    assert loss.weights(z, y).sum() == (21 if elementwise else 7)
    if elementwise:
        mean = F.binary_cross_entropy_with_logits(z, y, **options)
        assert_close(loss.terms(z, y).sum() / loss.weights(z, y).sum(), mean)


def test_binary_labels_may_be_integers_and_outputs_one_dimensional(normal, labels):
    z, y = normal(7), labels(7).clamp(max=1)
    loss = BinaryCrossEntropy()
    loss.check(z, y)
    check_derivatives(loss, z, y, lambda t: F.binary_cross_entropy_with_logits(t, y.double(), reduction="sum"))
    check_square_root(loss, z, y)


@pytest.mark.parametrize("loss", [SquaredError(), BinaryCrossEntropy(), nn.L1Loss(), nn.HuberLoss()])
def test_targets_that_would_broadcast_are_refused(loss, normal):
    with warnings.catch_warnings(), refused(DataError, r"\(7, 1\).*\(7,\)"):
        warnings.simplefilter("ignore")  # PyTorch's own warning of the same
        loss_from(loss).check(normal(7, 1), normal(7).sigmoid())


@pytest.mark.parametrize("low, high", [(0, C), (-1, 1), (1, 10)])
def test_labels_out_of_range_are_refused(low, high, normal):
    with refused(DataError, f"Labels run from {low} to {high}"):
        CrossEntropy().check(normal(2, C), torch.tensor([low, high]))


def test_ignored_labels_are_never_out_of_range(normal):
    CrossEntropy().check(normal(3, C), torch.tensor([0, -100, 2]))
    CrossEntropy(ignore_index=C).check(normal(2, C), torch.tensor([0, C]))


@pytest.mark.parametrize(
    "outputs, targets", [((7, C), (7, 1)), ((7, C), (6,)), ((7,), (7,)), ((2, 4, C), (2, C)), ((2, C, 4), (2, 4))]
)
def test_labels_of_another_shape_are_refused(outputs, targets, normal, labels):
    with refused(DataError, "The outputs have shape"):
        CrossEntropy().check(normal(*outputs), labels(*targets))


def test_labels_given_as_floats_are_refused_with_the_remedy(normal, labels):
    with refused(DataError, r"y\.long\(\)"):
        CrossEntropy().check(normal(7, C), labels(7).double())


def test_ignore_index_with_probabilities_is_refused_as_in_pytorch(normal):
    z, y = normal(7, C), normal(7, C).softmax(-1)
    with pytest.raises(RuntimeError):
        F.cross_entropy(z, y, ignore_index=1)
    with refused(ArgumentError, "ignore_index=1"):
        CrossEntropy(ignore_index=1).check(z, y)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(bad, normal, labels):
    weight = torch.tensor([1.0, bad, 1.0], dtype=torch.float64)
    z = normal(7, C)
    with refused(NumericalError, "class weights hold NaN or infinity"):
        CrossEntropy(weight).check(z, labels(7))
    for options in ({"pos_weight": weight}, {"weight": weight}):
        with refused(NumericalError, "weight hold NaN or infinity"):
            BinaryCrossEntropy(**options).check(z, z.sigmoid())


def test_weights_of_another_length_are_refused(normal, labels):
    z = normal(7, C)
    with refused(ArgumentError, r"\(4,\) came with 3 outputs"):
        CrossEntropy(torch.ones(4)).check(z, labels(7))
    for shape in [(4,), (7, 7, C), (6, C)]:
        with refused(ArgumentError, "whatever its size"):
            BinaryCrossEntropy(weight=torch.ones(shape)).check(z, z.sigmoid())


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_binary_targets_outside_of_the_unit_interval_are_refused(value, normal):
    with refused(DataError, "between 0 and 1"):
        BinaryCrossEntropy().check(normal(1, 2), torch.tensor([[0.0, value]], dtype=torch.float64))


def test_a_loss_that_is_not_convex_has_no_square_root(normal, labels):
    z, negative = normal(7, C), -CLASS_WEIGHTS
    for loss, y in [
        (loss_from(lambda a, b: a[:, 0] * a[:, 1]), z),
        (CrossEntropy(negative), labels(7)),
        (BinaryCrossEntropy(weight=negative), z.sigmoid()),
    ]:
        with refused(NumericalError, "convex"):
            loss.square_root(z, y)


def test_probabilities_in_place_of_logits_are_warned_of(normal, labels, recwarn):
    """Softmax twice is a model like another, so that it is no error; it is hardly ever the one that was meant."""
    z, y = normal(7, C), labels(7)
    tokens = normal(2, C, 4).softmax(1), labels(2, 4)
    for loss, doubled in ((CrossEntropy(), (z.softmax(1), y)), (loss_from(nn.CrossEntropyLoss()), tokens)):
        with pytest.warns(OutputsWarning, match="applied twice"):
            loss.check(*doubled)
    recwarn.clear()
    for outputs in (z, z.log_softmax(1), z.sigmoid(), torch.zeros(7, C), z.softmax(1) * 1.001):
        CrossEntropy().check(outputs, y)
    assert not recwarn.list


def test_probabilities_in_place_of_logits_of_two_classes_are_warned_of(normal, recwarn):
    z, y = 5 * normal(40, 1), torch.ones(40, 1)
    with pytest.warns(OutputsWarning, match="applied twice"):
        BinaryCrossEntropy().check(z.sigmoid(), y)
    recwarn.clear()
    for outputs in (z, torch.zeros(40, 1), 0.3 + 0.01 * normal(40, 1), z.abs()):  # the third are of no training
        BinaryCrossEntropy().check(outputs, y)
    assert not recwarn.list


def test_logits_in_place_of_log_probabilities_are_warned_of(normal, labels, recwarn):
    z, y, loss = normal(7, C), labels(7), loss_from(nn.NLLLoss())
    for outputs in (z, z.softmax(1)):
        with pytest.warns(OutputsWarning, match="NLLLoss takes log-probabilities"):
            loss.check(outputs, y)
    recwarn.clear()
    loss.check(z.log_softmax(1).float(), y)
    loss_from(nn.NLLLoss()).check(normal(2, C, 4).log_softmax(1), labels(2, 4))
    assert not recwarn.list


def test_targets_of_another_shape_are_refused_with_what_makes_them_fit(normal, labels):
    for loss, z, y, way in (
        (SquaredError(), normal(7, 1), normal(7), "unsqueeze"),
        (BinaryCrossEntropy(), normal(7, 1), labels(7), "unsqueeze"),
        (SquaredError(), normal(7, C), labels(7), f"one_hot.y, {C}"),
        (CrossEntropy(), normal(7, C), F.one_hot(labels(7), C), "argmax"),
    ):
        with pytest.raises(DataError, match=way):
            loss.check(z, y)


@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.2}])
def test_labels_need_no_number_for_each_class(normal, options, monkeypatch):
    z, y = normal(6, C), torch.tensor([0, 2, 1, -100, 2, 0])
    loss = CrossEntropy(weight=CLASS_WEIGHTS, **options)
    total = lambda z: torch.nn.functional.cross_entropy(z, y, CLASS_WEIGHTS, reduction="sum", **options)
    monkeypatch.setattr(CrossEntropy, "_coefficients", None)
    check_derivatives(loss, z, y, total)
    assert not bool(loss.masses(z, y)[3]) and not bool(loss.curvature(z, y)(z)[3].any())
