"""Modules of torch.nn keep their convention; what is no loss is refused."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from ritz.errors import ArgumentError, ModelError
from ritz.risk.losses import BinaryCrossEntropy, CrossEntropy, SquaredError
from ritz.risk.losses.by_autograd import Autodiff
from ritz.risk.losses.conversion import loss_from
from tests.risk.losses.derivatives import CLASS_WEIGHTS, C, check_derivatives, check_square_root, dense_hessian, refused


def classes(normal, labels):
    return labels(11)


def tokens(normal, labels):
    return labels(11, 2)


def reals(normal, labels):
    return normal(11, C)


def probabilities(normal, labels):
    return normal(11, C).softmax(-1)


def signs(normal, labels):
    return normal(11, C).sign()


MODULES = {
    "CrossEntropyLoss": (nn.CrossEntropyLoss, {}, classes),
    "CrossEntropyLoss, all options": (
        nn.CrossEntropyLoss, {"weight": CLASS_WEIGHTS, "ignore_index": 1, "label_smoothing": 0.2}, classes),
    "CrossEntropyLoss of tokens": (nn.CrossEntropyLoss, {"weight": CLASS_WEIGHTS, "ignore_index": 0}, tokens),
    "CrossEntropyLoss of probabilities": (nn.CrossEntropyLoss, {"weight": CLASS_WEIGHTS}, probabilities),
    "MSELoss": (nn.MSELoss, {}, reals),
    "BCEWithLogitsLoss": (nn.BCEWithLogitsLoss, {"pos_weight": CLASS_WEIGHTS, "weight": CLASS_WEIGHTS}, probabilities),
    "NLLLoss": (nn.NLLLoss, {}, classes),
    "NLLLoss, all options": (nn.NLLLoss, {"weight": CLASS_WEIGHTS, "ignore_index": 1}, classes),
    "NLLLoss of tokens": (nn.NLLLoss, {"weight": CLASS_WEIGHTS, "ignore_index": 1}, tokens),
    "L1Loss": (nn.L1Loss, {}, reals),
    "SmoothL1Loss": (nn.SmoothL1Loss, {"beta": 0.7}, reals),
    "HuberLoss": (nn.HuberLoss, {"delta": 0.7}, reals),
    "KLDivLoss": (nn.KLDivLoss, {"log_target": True}, reals),
    "PoissonNLLLoss": (nn.PoissonNLLLoss, {}, probabilities),
    "SoftMarginLoss": (nn.SoftMarginLoss, {}, signs),
    "MultiLabelSoftMarginLoss": (nn.MultiLabelSoftMarginLoss, {}, probabilities),
}  # fmt: skip


def sums(loss, z, y):
    """The risk on two unequal batches, as `Risk` adds it up."""
    parts = [(z[:7], y[:7]), (z[7:], y[7:])]
    total = sum(loss.terms(*part).sum() for part in parts)
    return total if loss.reduction == "sum" else total / sum(loss.weights(*part).sum() for part in parts)


@pytest.mark.filterwarnings("ignore::ritz.errors.OutputsWarning")  # outputs are any numbers here
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss")  # PyTorch, of its own KLDivLoss
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", MODULES)
def test_a_module_keeps_its_value_gradient_and_hessian(name, reduction, normal, labels):
    kind, options, targets = MODULES[name]
    module = kind(**options, reduction=reduction)
    y = targets(normal, labels)
    z = normal(11, C, 2) if y.shape == (11, 2) else normal(11, C)
    by_torch = lambda t: module(t, y).mean() if reduction == "none" else module(t, y)
    loss = loss_from(module)
    loss.check(z, y)
    scale = 1.0 if loss.reduction == "sum" else loss.weights(z, y).sum()
    assert_close(sums(loss, z, y), by_torch(z))
    assert_close(loss.gradient(z, y) / scale, torch.func.grad(by_torch)(z))
    H = dense_hessian(by_torch, z)
    product = loss.curvature(z, y)
    columns = torch.stack([product(unit.view_as(z)).flatten() for unit in torch.eye(z.numel(), dtype=z.dtype)])
    assert_close(columns / scale, H)
    check_square_root(loss, z, y, class_dim=getattr(loss, "class_dim", -1))


def test_weights_of_labels_in_bytes_are_those_of_their_classes(normal):
    z, y = normal(2, 200).log_softmax(-1), torch.tensor([156, 3])
    weight = normal(200).abs()
    loss = loss_from(nn.NLLLoss(weight))
    assert_close(loss.weights(z, y.to(torch.uint8)), weight[y])
    assert_close(sums(loss, z, y.to(torch.uint8)), nn.NLLLoss(weight)(z, y))


def test_batchmean_divides_by_the_batch_alone(normal):
    module, z, y = nn.KLDivLoss(reduction="batchmean"), normal(11, C).log_softmax(-1), normal(11, C).softmax(-1)
    assert_close(sums(loss_from(module), z, y), module(z, y))
    assert_close(loss_from(module).gradient(z, y) / 11, torch.func.grad(lambda t: module(t, y))(z))


def test_the_users_module_keeps_its_reduction():
    module = nn.SmoothL1Loss()
    loss_from(module)
    assert module.reduction == "mean"


def test_a_subclass_of_a_module_is_a_callable(normal, labels):
    class Sharpened(nn.CrossEntropyLoss):
        def forward(self, z, y):
            return F.cross_entropy(2.0 * z, y, reduction="none")

    z, y, loss = normal(7, C), labels(7), loss_from(Sharpened())
    assert isinstance(loss, Autodiff)
    check_derivatives(loss, z, y, lambda t: F.cross_entropy(2.0 * t, y, reduction="sum"))


def test_a_loss_of_ritz_is_taken_as_it_is():
    loss = CrossEntropy()
    assert loss_from(loss) is loss


@pytest.mark.parametrize("module", [nn.GaussianNLLLoss(), nn.MarginRankingLoss(), nn.TripletMarginLoss(), nn.CTCLoss()])
def test_modules_of_three_inputs_are_refused(module, normal):
    with refused(ModelError, "outputs, targets"):
        loss_from(module).check(normal(7, C), normal(7, C))


def test_the_name_of_a_loss_is_refused_in_place_of_a_loss():
    with refused(ArgumentError, "The loss is a str"):
        loss_from("cross_entropy")


def test_the_class_of_a_loss_is_refused_in_place_of_a_loss():
    with pytest.raises(ArgumentError, match=r"CrossEntropyLoss\(\)"):
        loss_from(nn.CrossEntropyLoss)


@pytest.mark.parametrize(
    "loss, name",
    [
        (nn.CrossEntropyLoss(), "CrossEntropy"),
        (nn.CrossEntropyLoss(torch.ones(3), ignore_index=-1), "CrossEntropy(weight=(3 values), ignore_index=-1)"),
        (nn.CrossEntropyLoss(reduction="sum"), "CrossEntropy(reduction='sum')"),
        (nn.MSELoss(), "SquaredError(elementwise)"),
        (nn.L1Loss(), "L1Loss"),
        (nn.KLDivLoss(reduction="batchmean"), "KLDivLoss"),
        (F.huber_loss, "huber_loss"),
    ],
)
def test_a_loss_is_named_as_its_user_knows_it(loss, name):
    assert loss_from(loss).name == name


@pytest.mark.parametrize(
    "loss, given", [(CrossEntropy, (CLASS_WEIGHTS, 0)), (BinaryCrossEntropy, (CLASS_WEIGHTS,)), (SquaredError, (True,))]
)
def test_options_that_pytorch_has_in_another_order_are_passed_by_name(loss, given):
    with pytest.raises(TypeError, match="positional"):
        loss(*given)
