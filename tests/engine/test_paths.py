"""Products of every path against dense autograd: every kind of network, every kind of loss, unequal batches."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import ritz
from ritz.testing import check_operator
from tests.engine.curvature import LOSSES, MATRICES, PATH, by_paths, class_targets, dense_matrices
from tests.zoo import CASES, OUTPUTS, case, unequal_batches


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("network", CASES)
def test_products_agree_with_dense_autograd(network, loss):
    built, (given, targets, terms) = case(network), LOSSES[loss]
    y = targets(built.shape)
    risk = ritz.Risk(built.model, given, unequal_batches(built.inputs, y))
    expected = dense_matrices(risk, built, y, terms)
    for name, (operator, _) in MATRICES.items():
        check_operator(operator(risk), expected[name])


@pytest.mark.parametrize("network", CASES)
def test_every_path_gives_the_same_matrices(network):
    built = case(network)
    y = class_targets(built.shape)
    risk = ritz.Risk(built.model, ritz.CrossEntropy(), unequal_batches(built.inputs, y))
    names = ["rules", "plain"] if network == "recurrent" else ["rules", "plain", "forward"]
    # PyTorch has no forward derivative of its fused GRU cell
    for name, (_, kind) in MATRICES.items():
        by_rules, *others = (by_paths(risk, kind, PATH[path]).dense() for path in names)
        for other in others:
            assert_close(other, by_rules, rtol=1e-9, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")


class Filter(nn.Module):
    """Complex weights as pairs, at an odd place of θ, which has an odd size."""

    def __init__(self, as_complex):
        super().__init__()
        self.shift, self.pairs, self.head = (
            nn.Parameter(torch.randn(3)),
            nn.Parameter(torch.randn(3, 2)),
            nn.Linear(4, 4),
        )
        self.as_complex = as_complex

    def forward(self, x):
        filtered = torch.fft.irfft(torch.fft.rfft(x) * self.as_complex(self.pairs), n=4)
        return self.head(filtered.tanh())[:, :OUTPUTS] + self.shift


@pytest.mark.parametrize("path", ["rules", "plain", "forward"])
def test_pairs_may_be_viewed_as_complex_numbers(path):
    viewed = Filter(torch.view_as_complex).double()
    copied = Filter(lambda pairs: torch.complex(pairs[..., 0], pairs[..., 1])).double()
    copied.load_state_dict(viewed.state_dict())
    x, y = torch.randn(9, 4, dtype=torch.float64), class_targets((9, OUTPUTS))
    risks = [ritz.Risk(model, ritz.CrossEntropy(), (x, y), path=path) for model in (viewed, copied)]
    for operator, _ in MATRICES.values():
        ours, expected = (operator(risk) for risk in risks)
        assert ours.size % 2
        assert_close(ours.dense(), expected.dense())
        assert_close(ours @ torch.ones(ours.size).double(), expected.dense().sum(1))


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


def test_float32_agrees_with_float64(generator):
    built = case("transformer")
    y = class_targets(built.shape)
    double = ritz.Risk(built.model, ritz.CrossEntropy(), (built.inputs, y))
    single = ritz.Risk(built.model.float(), ritz.CrossEntropy(), (built.inputs, y))
    v = torch.randn(double.size, generator=generator, dtype=torch.float64)
    for operator in (ritz.hessian, ritz.gauss_newton):
        assert_close((operator(single) @ v.float()).double(), operator(double) @ v, rtol=1e-3, atol=1e-5)


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


class Normed(nn.Module):
    """Two layers of the form g v/‖v‖, by PyTorch's weight norm or by plain operations."""

    def __init__(self, plain):
        super().__init__()
        norm = (lambda layer: layer) if plain else nn.utils.parametrizations.weight_norm
        self.first, self.second = norm(nn.Conv1d(2, 4, 2)), norm(nn.Linear(12, OUTPUTS))
        self.plain, self.lengths = plain, [None, None]

    def forward(self, x):
        if not self.plain:
            return self.second(torch.tanh(self.first(x)).flatten(1))
        directed = lambda v, g: v * g / v.flatten(1).norm(dim=1).view(g.shape)
        weights = [directed(layer.weight, g) for layer, g in zip((self.first, self.second), self.lengths, strict=True)]
        return F.linear(torch.tanh(F.conv1d(x, weights[0], self.first.bias)).flatten(1), weights[1], self.second.bias)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("path", [None, "rules", "plain", "forward"])
def test_weight_norm_has_the_curvature_of_plain_operations_by_every_path(path, dtype):
    x, y = torch.randn(9, 2, 4, dtype=torch.float64), torch.randint(OUTPUTS, (9,))
    for seed in range(4):  # an asymmetry may be small by chance
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model, twin = Normed(plain=False).double(), Normed(plain=True).double()
        risk = ritz.Risk(model, nn.CrossEntropyLoss(), [(x[:7], y[:7]), (x[7:], y[7:])], path=path).to(dtype)
        first, second = (layer.parametrizations.weight for layer in (model.first, model.second))

        def mean_loss(b1, g1, v1, b2, g2, v2, twin=twin):
            twin.lengths = [g1, g2]
            tensors = {"first.weight": v1, "first.bias": b1, "second.weight": v2, "second.bias": b2}
            return F.cross_entropy(torch.func.functional_call(twin, tensors, (x,)), y)

        own = model.first.bias, first.original0, first.original1, model.second.bias, second.original0, second.original1
        expected = torch.autograd.functional.hessian(mean_loss, tuple(p.detach() for p in own))
        sizes = [p.numel() for p in own]
        rows = [torch.cat([b.reshape(n, -1) for b in row], 1) for row, n in zip(expected, sizes, strict=True)]
        H = ritz.hessian(risk).dense().double()
        assert_close(H, torch.cat(rows), rtol=1e-3, atol=1e-5 if dtype == torch.float32 else 1e-10)


class Cumulative(nn.Module):
    """PyTorch takes the logarithm of what comes back to it."""

    def __init__(self):
        super().__init__()
        self.into, self.head = nn.Linear(4, 4), nn.Linear(4, OUTPUTS)

    def forward(self, x):
        return self.head(torch.logcumsumexp(self.into(x), dim=1))


@pytest.mark.parametrize("path", ["rules", "plain"])
def test_derivatives_by_logarithms_are_no_nan(path):
    x, y = torch.randn(9, 4, dtype=torch.float64), class_targets((9, OUTPUTS))
    risk = ritz.Risk(Cumulative().double(), ritz.CrossEntropy(), (x, y))
    G, by_forward = (by_paths(risk, MATRICES["G"][1], PATH[name]).dense() for name in (path, "forward"))
    assert_close(G, by_forward, rtol=1e-10, atol=1e-13)
