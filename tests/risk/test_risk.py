"""The value and the gradient of plain PyTorch, for every loss and every cut of the data."""

import functools
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import ritz
from ritz import Risk
from ritz.errors import ArgumentError, DataError, ModelError, NumericalError, OutputsWarning
from ritz.risk.batches import Batch
from tests.risk.problem import (
    CE,
    CLASS_WEIGHTS,
    NAN,
    C,
    D,
    N,
    check_against_pytorch,
    check_refusal,
    network,
    outputs_at,
)
from tests.zoo import case, dense_hessian, unequal_batches


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_class_weights_and_ignored_labels_in_unequal_batches(reduction, x, y):
    y[[1, 8, 9, 10]] = -100
    model, loss = network(), nn.CrossEntropyLoss(CLASS_WEIGHTS, reduction=reduction, label_smoothing=0.1)
    risk = Risk(model, loss, unequal_batches(x, y))
    check_against_pytorch(risk, model, loss(model(x), y))
    H = dense_hessian(lambda t: loss(outputs_at(risk, t, x), y), risk.theta)
    assert_close(ritz.hessian(risk).dense(), H)


def test_a_batch_whose_labels_are_all_ignored(x, y):
    y[7:] = -100
    model = network()
    risk = Risk(model, nn.CrossEntropyLoss(), unequal_batches(x, y))
    check_against_pytorch(risk, model, F.cross_entropy(model(x[:7]), y[:7]))


def test_token_level_losses_with_padding():
    built = case("transformer")
    y = built.inputs.roll(-1, 1)
    y[::2, 2:] = -100
    risk = Risk(built.model, ritz.CrossEntropy(), unequal_batches(built.inputs, y))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        value = F.cross_entropy(built.model(built.inputs).flatten(0, 1), y.flatten())
    check_against_pytorch(risk, built.model, value)
    assert risk.num_targets == 44 and risk.num_examples == N
    assert risk.num_terms == risk.total_weight == int((y >= 0).sum())
    assert f"N = {risk.num_terms} terms" in repr(risk)


def test_only_targets_with_a_weight_make_terms(x, y):
    y[:5], y[5:7] = -100, 0
    loss = nn.CrossEntropyLoss(weight=torch.tensor([0.0] + [2.0] * (C - 1)).double())
    risk = Risk(network(), loss, unequal_batches(x, y))
    assert (risk.num_targets, risk.num_terms) == (N, int((y > 0).sum()))
    assert Risk(network(), nn.CrossEntropyLoss(reduction="sum"), (x, y)).num_terms == int((y >= 0).sum())


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.HuberLoss(), nn.BCEWithLogitsLoss(), nn.L1Loss(reduction="sum")])
def test_a_regression_in_unequal_batches_agrees_with_pytorch(loss, x, generator):
    model, y = network(), torch.rand(N, C, generator=generator, dtype=torch.float64)
    check_against_pytorch(Risk(model, loss, unequal_batches(x, y)), model, loss(model(x), y))


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(1, N - 1), max_size=4, unique=True), ignored=st.sets(st.integers(0, N - 2)))
def test_the_risk_does_not_depend_on_how_data_are_cut(cuts, ignored):
    generator = torch.Generator().manual_seed(len(cuts))
    x = torch.randn(N, D, generator=generator, dtype=torch.float64)
    y = torch.randint(C, (N,), generator=generator)
    y[list(ignored)] = -100
    bounds = [0, *sorted(cuts), N]
    data = [(x[a:b], y[a:b]) for a, b in itertools.pairwise(bounds)]
    loss = nn.CrossEntropyLoss(CLASS_WEIGHTS)
    one, many = Risk(network(), loss, (x, y)), Risk(network(), loss, data)
    assert many.loss_value() == pytest.approx(one.loss_value(), rel=1e-12)
    assert_close(many.gradient(), one.gradient(), rtol=1e-10, atol=1e-14)


def test_the_risk_on_the_first_examples_is_that_of_a_shorter_data_set(x, y):
    model = network()
    risk = Risk(model, ritz.CrossEntropy(), unequal_batches(x, y))
    assert len(risk.labels) == N
    for count in (1, 7, 9):
        first = risk.first(count)
        check_against_pytorch(first, model, F.cross_entropy(model(x[:count]), y[:count]))
        assert first.num_examples == count and torch.equal(first.labels, y[:count])
    assert risk.first(100).num_examples == risk.num_examples == N
    with pytest.raises(ArgumentError, match="0 examples"):
        risk.first(0)


def test_terms_are_those_of_the_first_evaluation_or_not(x, y):
    risk = Risk(network(), CE, unequal_batches(x, y))
    for batch in risk.batches:
        z = risk.outputs(risk.leaves(), batch).detach()
        assert risk.has_terms(z, batch) and not risk.has_terms(z + torch.eye(C)[0].to(z), batch)
        assert not risk.has_terms(z, Batch(batch.inputs, batch.targets))  # it does not say which examples these are


def test_labels_and_the_number_of_classes_are_those_of_data_and_outputs(x, y):
    risk = Risk(network(), nn.CrossEntropyLoss(), unequal_batches(x, y))
    assert torch.equal(risk.labels, y) and risk.num_classes == C
    tokens = case("transformer")
    risk = Risk(tokens.model, ritz.CrossEntropy(), unequal_batches(tokens.inputs, tokens.inputs))
    assert torch.equal(risk.labels, tokens.inputs.flatten()) and risk.num_classes == 3
    images = Risk(
        nn.Conv1d(2, C, 1), nn.CrossEntropyLoss(), (torch.randn(5, 2, 4), torch.zeros(5, 4, dtype=torch.long))
    )
    assert images.num_classes == C and len(images.labels) == 20


def test_every_target_has_a_label_and_those_to_ignore_have_the_index_for_it(x, y):
    y[[1, 7]] = -100
    risk = Risk(network(), nn.CrossEntropyLoss(), unequal_batches(x, y))
    assert torch.equal(risk.labels, y) and len(risk.labels) == risk.num_targets == risk.num_terms + 2
    bytes_of = Risk(network(), nn.CrossEntropyLoss(ignore_index=156), unequal_batches(x, (y % 256).to(torch.uint8)))
    assert bytes_of.labels.dtype == torch.int64 and bytes_of.num_terms == N - 2


def test_a_regression_has_no_labels(x):
    with pytest.raises(DataError, match="Only class indices can serve as labels"):
        Risk(network(), ritz.SquaredError(), (x, x[:, :C])).labels


def test_a_risk_stays_where_it_is_while_training_goes_on(x, y):
    built = case("cnn")
    y = torch.arange(N) % C
    risk = Risk(built.model, ritz.CrossEntropy(), (built.inputs, y))
    H, gradient = ritz.hessian(risk).dense(), risk.gradient()
    with torch.no_grad():
        for tensor in [*built.model.parameters(), *built.model.buffers()]:
            tensor.fill_(7)
    assert_close(risk.gradient(), gradient, rtol=0, atol=0)
    assert_close(ritz.hessian(risk).dense(), H, rtol=1e-9, atol=1e-12)
    assert risk.restricted_to("0.*").gradient().abs().max() > 0
    assert risk.first(5).loss_value() != risk.loss_value()


class Weighted(nn.Module):
    """A loss with weights of its own."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, z, y):
        return self.weight[y] * F.cross_entropy(z, y, reduction="none")


def closed_over(weight):
    """A loss that calls a function of an enclosing scope, which calls it in turn."""

    def weighted(values, y):
        return weight[y] * values if values.ndim == 1 else loss(values, y)

    def loss(z, y):
        return weighted(F.cross_entropy(z, y, reduction="none"), y)

    return loss


class Called:
    """A loss that is an object with a setting."""

    def __init__(self, weight):
        self.weight = weight

    def __call__(self, z, y):
        return self.weight[y] * F.cross_entropy(z, y, reduction="none")

    def method(self, z, y):
        return self(z, y)


WITH_WEIGHTS = {
    "of ritz": lambda weight: ritz.CrossEntropy(weight),
    "of PyTorch": lambda weight: nn.CrossEntropyLoss(weight),
    "by autograd": lambda weight: nn.NLLLoss(weight),
    "a module": Weighted,
    "a module in a partial": lambda weight: functools.partial(Weighted(weight)),
    "an enclosing variable": closed_over,
    "an object": Called,
    "a default": lambda weight: lambda z, y, *, w=weight: w[y] * F.cross_entropy(z, y, reduction="none"),
}


@pytest.mark.parametrize("name", WITH_WEIGHTS)
def test_a_risk_keeps_its_loss_while_that_of_the_user_changes(name, x, y):
    weight = CLASS_WEIGHTS.clone()
    loss, model = WITH_WEIGHTS[name](weight), nn.Sequential(network(), nn.LogSoftmax(1))
    risk = Risk(model, loss, (x, y))
    before = ritz.hessian(risk).dense(), risk.gradient()
    weight.copy_(weight.flip(0))
    assert_close((ritz.hessian(risk).dense(), risk.gradient()), before, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("anew", [lambda r: r.at(r.theta), lambda r: r.first(3), lambda r: r.to(torch.float32)])
def test_a_loss_that_changed_is_not_evaluated_anew(anew, x, y):
    loss = Called(CLASS_WEIGHTS.clone())
    risk = Risk(network(), loss.method, [(x[:7], y[:7]), (x[7:], y[7:])])
    assert anew(risk).num_examples in (3, N)
    loss.weight *= 2  # of which a method has no copy: its object may be the whole trainer
    with pytest.raises(ModelError, match=r"other values on a batch of 7[\s\S]* has changed since"):
        anew(risk)


def test_a_risk_keeps_the_value_that_an_enclosing_variable_had(x, y):
    risks, losses = [], []
    for power in (1, 2):  # of which functions made in a loop see the last alone
        loss = lambda z, y: F.cross_entropy(z, y, reduction="none") ** power
        risks.append(Risk(network(), loss, (x, y)))
        losses.append(risks[-1].loss_value())
    for risk, value in zip(risks, losses, strict=True):
        assert risk.at(risk.theta).loss_value() == value


@pytest.mark.parametrize("options", [{"tangent_precision": "low"}, {"memory": -1}, {"memory": NAN}])
def test_options_that_mean_nothing_are_refused(options, x, y, unchecked):
    with pytest.raises(ArgumentError) as caught:
        Risk(network(), CE, (x, y), **options)
    check_refusal(caught, ArgumentError)


def test_losses_that_are_none_are_refused(x, y):
    for loss, kind in [
        ("ce", ArgumentError),
        (F.cross_entropy, ModelError),
        (nn.CTCLoss(), ModelError),
    ]:
        with pytest.raises(ritz.RitzError) as caught:
            Risk(network(), loss, (x, y))
        check_refusal(caught, kind)


def test_a_selection_that_no_output_depends_on_has_no_slope():
    model = nn.ModuleDict({"used": nn.Linear(3, 2), "idle": nn.Linear(2, 2)})
    model.forward = lambda x: model["used"](x)
    data = torch.randn(6, 3), torch.arange(6) % 2
    with pytest.warns(OutputsWarning, match="parameters that outputs depend on"):
        risk = ritz.Risk(model, nn.CrossEntropyLoss(), data, parameters="idle.*")
    assert not bool(risk.gradient().any()) and not bool(ritz.hessian(risk).dense().any())


class Length(nn.Module):
    """The length of the outputs of a layer, without a slope where these are zero, beside another layer's."""

    def __init__(self):
        super().__init__()
        self.at_zero, self.other = nn.Linear(3, 2, bias=False), nn.Linear(3, 2)
        nn.init.zeros_(self.at_zero.weight)

    def forward(self, x):
        return self.at_zero(x).square().sqrt() + self.other(x)


def test_a_gradient_that_is_nan_is_refused_by_the_name_of_its_parameter():
    risk = ritz.Risk(Length(), nn.CrossEntropyLoss(), (torch.randn(6, 3), torch.arange(6) % 2))
    for result in (risk.gradient, lambda: ritz.gradient_covariance(risk)):
        with pytest.raises(NumericalError, match=r"6 entries that are NaN or infinite, the first in at_zero\.weight"):
            result()
    assert bool(risk.restricted_to("other.*").gradient().any())


def test_sparse_embeddings_have_a_gradient():
    model = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Flatten(), nn.Linear(6, 2))
    risk = ritz.Risk(model, nn.CrossEntropyLoss(), (torch.randint(5, (8, 2)), torch.randint(2, (8,))))
    assert bool(risk.gradient()[:15].any())


def test_another_precision_gives_the_same_risk_and_leaves_the_first_as_it_was():
    built = case("cnn")
    x, y = built.inputs, torch.arange(11) % 3
    risk = Risk(built.model, nn.CrossEntropyLoss(), [(x[:7], y[:7]), (x[7:], y[7:])])
    single = risk.to(torch.float32)
    assert single.dtype == single.theta.dtype == torch.float32
    assert risk.dtype == risk.theta.dtype == torch.float64
    assert single.loss_value() == pytest.approx(risk.loss_value(), rel=1e-6)
    assert single.loss_value() != risk.loss_value()
    again = single.to(torch.float64)
    torch.testing.assert_close(again.gradient(), risk.gradient(), rtol=1e-5, atol=1e-7)
    assert risk.to(torch.float64) is risk


class Weighted(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, z, y):
        return F.cross_entropy(z, y, self.weight, reduction="none")


LOSSES_WITH_WEIGHTS = {
    "NLLLoss": lambda weight: nn.NLLLoss(weight),
    "a module": Weighted,
    "a function": lambda weight: functools.partial(F.cross_entropy, weight=weight, reduction="none"),
}


@pytest.mark.parametrize("name", LOSSES_WITH_WEIGHTS)
def test_another_precision_is_that_of_the_loss_too(name, x, y):
    model, weight = nn.Sequential(network(), nn.LogSoftmax(1)), torch.linspace(0.5, 2, C, dtype=torch.float64)
    loss = LOSSES_WITH_WEIGHTS[name](weight)
    risk = Risk(model, loss, (x, y))
    single = risk.to(torch.float32)
    assert single.loss_value() == pytest.approx(risk.loss_value(), rel=1e-6)
    torch.testing.assert_close(single.to(torch.float64).gradient(), risk.gradient(), rtol=1e-5, atol=1e-7)
    assert weight.dtype == torch.float64 and getattr(loss, "weight", weight) is weight


META = torch.device("meta")  # which computes nothing, but tells where tensors lie


@pytest.fixture
def on_another_device(monkeypatch):
    """A risk of images with its labels looked at, moved."""
    built = case("cnn")
    risk = Risk(built.model, nn.CrossEntropyLoss(), unequal_batches(built.inputs, torch.arange(11) % 3))
    assert next(iter(risk.batches)).inputs.is_contiguous(memory_format=torch.channels_last)  # as a CPU likes it
    assert len(risk.labels) == 11
    monkeypatch.setattr(Risk, "_first_evaluation", lambda self: risk._evaluation)
    return risk.to(torch.float32, device=META)


def test_all_of_a_risk_lies_on_its_new_device(on_another_device):
    risk = on_another_device
    tensors = [risk.theta, risk.labels, *risk.leaves(), *(t for batch in risk.batches for t in batch.tensors())]
    assert {t.device for t in (*tensors, *risk.model.state_dict().values())} == {META} == {risk.device}


def test_images_are_laid_out_as_the_new_device_likes_them(on_another_device):
    assert all(batch.inputs.is_contiguous() for batch in on_another_device.batches)


def test_a_device_that_does_not_work_is_refused(x, y):
    with pytest.raises(ArgumentError, match="device='cuda:99' cannot be used"):
        Risk(network(), CE, (x, y)).to(torch.float64, device="cuda:99")


def test_a_device_is_the_same_under_its_other_name(x, y):
    risk = Risk(network(), CE, (x, y))
    assert risk.to(risk.dtype, device=torch.device("cpu:0")) is risk
    assert risk.to(torch.float32, device=torch.device("cpu:0")).device == risk.device


def test_a_risk_goes_to_a_precision_or_to_a_device_as_a_tensor_does(x, y):
    risk = Risk(network(), CE, (x, y))
    assert risk.to("cpu") is risk is risk.to(torch.device("cpu"))
    with pytest.raises(ArgumentError, match="'cuda:99' cannot be used"):
        risk.to("cuda:99")
    with pytest.raises(ArgumentError, match=r"converted to torch\.float16"):
        risk.to(torch.float16)
    with pytest.raises(ArgumentError, match="Two devices were given: 'cpu' and device='cuda'"):
        risk.to("cpu", device="cuda")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_number_of_theta_is_rounded_otherwise_in_its_own_precision(dtype, x, y):
    risk = Risk(network(), CE, (x, y)).to(dtype)
    change = (risk.rounded_otherwise().theta - risk.theta).abs() / risk.theta.abs() / torch.finfo(dtype).eps
    assert change.min() > 60 and change.max() < 68
