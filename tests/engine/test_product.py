"""Products against dense autograd: every kind of network, every kind of loss, every path, unequal batches."""

import warnings
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import ritz
from ritz import operators
from ritz.engine import CurvatureProduct, Path
from ritz.engine import paths as maps
from ritz.engine import product as products
from ritz.errors import ModelError
from ritz.testing import check_operator
from tests.zoo import CASES, OUTPUTS, case, dense_hessian, unequal_batches, whole


def cubic(z, y):
    return (z - y).abs().pow(3).sum(-1) + z[..., 0] * z[..., 1]


def class_targets(shape):
    return torch.randint(OUTPUTS, shape[:-1], generator=torch.Generator().manual_seed(1))


def real_targets(shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


LOSSES = {
    "cross entropy": (
        ritz.CrossEntropy(),
        class_targets,
        lambda z, y: F.cross_entropy(z.flatten(0, -2), y.flatten(), reduction="none"),
    ),
    "squared error": (ritz.SquaredError(), real_targets, lambda z, y: 0.5 * (z - y).square().sum(-1)),
    "binary": (
        nn.BCEWithLogitsLoss(),
        lambda s: real_targets(s).sigmoid(),
        lambda z, y: F.binary_cross_entropy_with_logits(z, y, reduction="none").mean(-1),
    ),
    "custom": (cubic, real_targets, cubic),
}  # as ritz takes it; its targets; one value for each term, all of the same weight
MATRICES = {
    "H": (operators.hessian, maps.hessian_map, maps.hessian_forward),
    "G": (operators.gauss_newton, maps.gauss_newton_map, maps.gauss_newton_forward),
    "E": (operators.functional_hessian, maps.functional_map, maps.functional_forward),
    "F": (operators.empirical_fisher, maps.fisher_map, maps.fisher_forward),
}


def dense_matrices(risk, built, y, terms):
    """H, G, E = H - G and the empirical Fisher matrix from dense derivatives of the whole data set."""
    outputs, total = whole(risk, built), lambda z, y: terms(z, y).mean()
    z = outputs(risk.theta).detach()
    H = dense_hessian(lambda t: total(outputs(t), y), risk.theta)
    J = torch.func.jacfwd(lambda t: outputs(t).flatten())(risk.theta)
    B = dense_hessian(lambda u: total(u.view_as(z), y), z.flatten())
    G = J.T @ B @ J
    gradients = torch.func.jacfwd(lambda t: terms(outputs(t), y).flatten())(risk.theta)
    return {"H": H, "G": G, "E": H - G, "F": gradients.T @ gradients / len(gradients)}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("network", CASES)
def test_products_agree_with_dense_autograd(network, loss):
    built, (given, targets, terms) = case(network), LOSSES[loss]
    y = targets(built.shape)
    risk = ritz.Risk(built.model, given, unequal_batches(built.inputs, y))
    expected = dense_matrices(risk, built, y, terms)
    for name, (operator, _, _) in MATRICES.items():
        check_operator(operator(risk), expected[name])


@pytest.mark.parametrize("network", CASES)
@pytest.mark.parametrize("name", MATRICES)
def test_every_path_gives_the_same_matrix(network, name):
    built = case(network)
    y = class_targets(built.shape)
    risk = ritz.Risk(built.model, ritz.CrossEntropy(), unequal_batches(built.inputs, y))
    _, kept, forward = MATRICES[name]
    paths = [Path("rules", partial(kept, rules=True)), Path("graph", partial(kept, rules=False))]
    if network != "recurrent":  # PyTorch has no forward derivative of its fused GRU cell
        paths.append(Path("forward", forward, keeps=False))
    by_rules, *others = (
        operators.Operator(CurvatureProduct(risk, [path]), risk.size, risk.dtype, risk.device).dense() for path in paths
    )
    for other in others:
        assert_close(other, by_rules, rtol=1e-9, atol=1e-12)


def test_empirical_fisher_is_the_second_moment_of_term_gradients():
    built = case("mlp")
    y, weight = class_targets(built.shape), torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    risk = ritz.Risk(built.model, nn.CrossEntropyLoss(weight=weight), unequal_batches(built.inputs, y))
    outputs = whole(risk, built)
    gradients = torch.func.jacfwd(lambda t: F.cross_entropy(outputs(t), y, reduction="none"))(risk.theta)
    expected = (gradients.T * weight[y]) @ gradients / weight[y].sum()
    check_operator(ritz.empirical_fisher(risk), expected)


def test_a_single_output_without_its_dimension_is_one_term_each():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1), nn.Flatten(0)).double()
    x, y = torch.randn(9, 3, dtype=torch.float64), torch.randn(9, dtype=torch.float64)
    flat = ritz.Risk(model, ritz.SquaredError(), (x, y))
    columns = ritz.Risk(model[:3], ritz.SquaredError(), (x, y[:, None]))
    for operator in (ritz.hessian, ritz.gauss_newton, ritz.functional_hessian, ritz.empirical_fisher):
        assert_close(operator(flat).dense(), operator(columns).dense())


def test_rows_of_unused_parameters_are_zero():
    built = case("partly_trained")
    risk = ritz.Risk(built.model, ritz.CrossEntropy(), (built.inputs, class_targets(built.shape)))
    H, start = ritz.hessian(risk).dense(), 0
    for name, shape in risk.shapes.items():
        block = H[start : start + shape.numel()]
        assert bool(block.any()) == ("unused" not in name)
        start += shape.numel()
    assert "first.weight" not in risk.shapes


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


def test_products_warn_of_nothing():
    built = case("transformer")
    risk = ritz.Risk(built.model, ritz.CrossEntropy(), (built.inputs, class_targets(built.shape)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ritz.hessian(risk).dense()


def test_float32_agrees_with_float64(generator):
    built = case("transformer")
    y = class_targets(built.shape)
    double = ritz.Risk(built.model, ritz.CrossEntropy(), (built.inputs, y))
    single = ritz.Risk(built.model.float(), ritz.CrossEntropy(), (built.inputs, y))
    v = torch.randn(double.size, generator=generator, dtype=torch.float64)
    for operator in (ritz.hessian, ritz.gauss_newton):
        assert_close((operator(single) @ v.float()).double(), operator(double) @ v, rtol=1e-3, atol=1e-5)


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


def test_weight_norm_is_differentiated_right():
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), nn.Tanh(), nn.Linear(5, OUTPUTS))
    model.double()
    x, y = torch.randn(9, 4, dtype=torch.float64), torch.randint(OUTPUTS, (9,))
    risk = ritz.Risk(model, nn.CrossEntropyLoss(), (x, y))
    H, step = ritz.hessian(risk).dense(), 1e-6
    v = torch.randn(risk.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def gradient(theta):
        model.load_state_dict(dict(zip(risk.shapes, risk.unflatten(theta), strict=True)), strict=False)
        return ritz.Risk(model, nn.CrossEntropyLoss(), (x, y)).gradient()

    difference = (gradient(risk.theta + step * v) - gradient(risk.theta - step * v)) / (2 * step)
    assert_close(H @ v, difference, rtol=1e-5, atol=1e-7)
