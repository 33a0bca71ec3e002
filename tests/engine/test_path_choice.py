"""The trial of the paths: what is right is used, what is wrong is noticed, and what is impossible refused."""

import gc
import weakref
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import ritz
from ritz import Risk
from ritz.engine import Path
from ritz.engine.curvatures import HESSIAN
from ritz.engine.linearized import ReverseMode
from ritz.errors import ArgumentError, ModelError
from tests.engine.curvature import PATH, by_paths, class_targets
from tests.risk.problem import C, network
from tests.zoo import OUTPUTS, case


def test_a_custom_loss_keeps_its_linearisation(x, y):
    risk = Risk(network(), lambda z, t: F.cross_entropy(z, t, reduction="none"), (x, y))
    closed = Risk(risk.model, ritz.CrossEntropy(), (x, y))
    for operator in (ritz.hessian, ritz.gauss_newton, ritz.functional_hessian, ritz.empirical_fisher):
        assert_close(operator(risk).dense(), operator(closed).dense())
        assert operator(risk).info.path != "forward"


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
    assert A.info.path == "forward"


class _Power(nn.Module):
    def forward(self, x):
        return x**3


class Hidden(torch.autograd.Function):
    """x³ whose backward reads x without its history."""

    @staticmethod
    def forward(ctx, x):
        ctx.numbers = x.detach()
        return x**3

    @staticmethod
    def backward(ctx, cotangent):
        return 3 * ctx.numbers**2 * cotangent


class Open(Hidden):
    """x³ whose backward reads x with all of its history."""

    @staticmethod
    def forward(ctx, x):
        ctx.numbers = x
        return x**3


class Rounded(torch.autograd.Function):
    """Rounding that lets gradients through."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent


class Applied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function.apply(x)


def _with(function, dtype=torch.float64):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), Applied(function), nn.Linear(4, OUTPUTS)).to(dtype)
    batches = [(torch.randn(n, 3, dtype=dtype), torch.randint(OUTPUTS, (n,))) for n in (5, 3)]
    return model, batches


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("operator", [ritz.hessian, ritz.functional_hessian])
def test_a_backward_that_hides_a_symmetric_part_of_its_derivative_is_refused(operator, dtype):
    risk = Risk(_with(Hidden, dtype)[0], ritz.CrossEntropy(), _with(Hidden, dtype)[1])
    with pytest.raises(ModelError, match="hides part of its derivative"):
        operator(risk) @ torch.ones(risk.size, dtype=dtype)
    twin = Risk(nn.Sequential(risk.model[0], _Power(), risk.model[2]), ritz.CrossEntropy(), _with(Hidden, dtype)[1])
    assert_close(ritz.gauss_newton(risk).dense(), ritz.gauss_newton(twin).dense())  # of first derivatives alone


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_custom_function_that_hides_nothing_is_taken(dtype):
    model, batches = _with(Open, dtype)
    twin = nn.Sequential(model[0], _Power(), model[2])
    A, expected = (ritz.hessian(Risk(m, ritz.CrossEntropy(), batches)).dense() for m in (model, twin))
    assert_close(A, expected)


def test_a_gradient_that_is_a_convention_has_the_second_derivative_of_the_convention():
    model, batches = _with(Rounded)
    risk = Risk(model, ritz.CrossEntropy(), batches)
    theta = list(model.parameters())
    total = sum(F.cross_entropy(model(x), y, reduction="sum") for x, y in batches) / 8
    slope = torch.cat([g.flatten() for g in torch.autograd.grad(total, theta, create_graph=True)])
    v = torch.randn_like(slope)
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(slope @ v, theta)])
    assert_close(ritz.hessian(risk) @ v, expected)


class Equilibrium(nn.Module):
    """z = tanh(W z + U x), with the gradient of the implicit function by a hook, as equilibrium networks have it."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(OUTPUTS, OUTPUTS, bias=False), nn.Linear(3, OUTPUTS)
        self.inner.weight.data *= 0.3

    def forward(self, x):
        with torch.no_grad():
            z = self.solved(x, 60)
        z = torch.tanh(self.inner(z) + self.outer(x))
        if z.requires_grad:
            start = z.detach().requires_grad_()
            end = torch.tanh(self.inner(start) + self.outer(x))
            z.register_hook(lambda cotangent: self.summed(start, end, cotangent))
        return z

    def solved(self, x, count):
        z = torch.zeros(len(x), OUTPUTS, dtype=x.dtype)
        for _ in range(count):
            z = torch.tanh(self.inner(z) + self.outer(x))
        return z

    def summed(self, start, end, cotangent):
        total = cotangent
        for _ in range(60):
            total = torch.autograd.grad(end, start, total, retain_graph=True)[0] + cotangent
        return total


class Unrolled(Equilibrium):
    def forward(self, x):
        return self.solved(x, 60)


@pytest.mark.parametrize("operator", [ritz.hessian, ritz.functional_hessian])
def test_a_hook_that_hides_a_part_of_the_derivative_is_refused(operator):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Equilibrium().double()
    risk = Risk(model, ritz.CrossEntropy(), _with(Hidden)[1])
    with pytest.raises(ModelError, match="hook on a tensor hides part of its derivative"):
        operator(risk).dense()
    twin = Unrolled().double()
    twin.load_state_dict(model.state_dict())
    expected = Risk(twin, ritz.CrossEntropy(), _with(Hidden)[1])
    assert_close(risk.gradient(), expected.gradient())
    G = ritz.gauss_newton(expected).dense()
    assert_close(ritz.gauss_newton(risk).dense(), G)  # of first derivatives alone
    single = ritz.gauss_newton(risk.to(torch.float32))
    assert_close(single.dense().double(), G, rtol=1e-3, atol=1e-6)
    assert single.info.path == "forward"


def squared_hinge(z, y):
    return torch.relu(y - z[:, 0]).square()


class Once(Hidden):
    backward = staticmethod(torch.autograd.function.once_differentiable(Hidden.backward))


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), squared_hinge], ids=["ignored labels", "margins"])
@pytest.mark.parametrize("function", [Hidden, Once])
def test_a_first_batch_without_slope_hides_nothing(function, loss):
    model, [(x, y), (other_x, other_y)] = _with(function)
    if loss is squared_hinge:
        batches = [(x, torch.full((len(x),), -9.0)), (other_x, torch.tensor([-9.0, -9.0, 9.0]))]
    else:
        batches = [(x, torch.full_like(y, -100)), (other_x, other_y)]
    risk = Risk(model, loss, batches)
    for operator in (ritz.hessian, ritz.functional_hessian):
        with pytest.raises(ModelError, match="hides part of its derivative"):
            operator(risk).dense()
    open_risk = Risk(_with(Open)[0], loss, batches)
    twin = Risk(nn.Sequential(open_risk.model[0], _Power(), open_risk.model[2]), loss, batches)
    assert_close(ritz.hessian(open_risk).dense(), ritz.hessian(twin).dense())


class Clipping(nn.Linear):
    """A layer to whose output no large gradient comes back."""

    def forward(self, x):
        y = super().forward(x)
        if y.requires_grad:
            y.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
        return y


@pytest.mark.parametrize("operator", [ritz.hessian, ritz.gauss_newton])
def test_a_hook_that_clips_gradients_is_refused(operator):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(Clipping(3, 4), nn.Tanh(), nn.Linear(4, OUTPUTS)).double()
    with pytest.raises(ModelError, match="hook on a tensor is not linear in the gradient"):
        operator(Risk(model, ritz.CrossEntropy(), _with(Open)[1])).dense()


def test_a_hook_that_only_looks_changes_nothing():
    class Watched(nn.Linear):
        def forward(self, x):
            y = torch.sin(super().forward(x))
            if y.requires_grad:
                y.register_hook(self.look)
            return y

        def look(self, cotangent):
            self.seen = cotangent.detach()

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, batches = nn.Sequential(Watched(3, 4), nn.Linear(4, OUTPUTS)).double(), _with(Open)[1]
    twin = nn.Sequential(nn.Linear(3, 4), Applied(Sine), nn.Linear(4, OUTPUTS)).double()
    twin.load_state_dict({name.replace("1.", "2."): tensor for name, tensor in model.state_dict().items()})
    A, expected = (ritz.hessian(Risk(m, ritz.CrossEntropy(), batches)).dense() for m in (model, twin))
    assert_close(A, expected)


class Sine:
    apply = torch.sin


class OfTheBackward(Hidden):
    """x³ whose backward forgets the history of most of its cotangent."""

    @staticmethod
    def backward(ctx, cotangent):
        return 3 * ctx.numbers**2 * (0.95 * cotangent.detach() + 0.05 * cotangent)


def with_kinks(function, seed):
    """A network in float32 with ReLUs and a custom Function among them, and its data."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), Applied(function), nn.Linear(16, 16), nn.ReLU()]
        model = nn.Sequential(*layers, nn.Linear(16, OUTPUTS))
        return model, [(torch.randn(n, 8), torch.randint(OUTPUTS, (n,))) for n in (16, 9)]


@pytest.mark.parametrize("operator", [ritz.hessian, ritz.functional_hessian])
def test_what_is_hidden_among_kinks_is_seen_in_float32(operator):
    for seed in range(6):
        model, batches = with_kinks(Hidden, seed)
        risk = Risk(model, ritz.CrossEntropy(), batches)
        with pytest.raises(ModelError, match="hides part of its derivative"):
            operator(risk) @ torch.ones(risk.size)
    model, batches = with_kinks(Open, 0)
    twin = nn.Sequential(*model[:3], _Power(), *model[4:])
    A, expected = (operator(Risk(m, ritz.CrossEntropy(), batches)).dense() for m in (model, twin))
    assert_close(A, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("operator", [ritz.gauss_newton, ritz.ntk, ritz.empirical_fisher])
def test_a_derivative_along_theta_that_lacks_something_is_refused_however_symmetric_it_is(operator):
    for seed in range(12):
        model, batches = with_kinks(OfTheBackward, seed)
        A = operator(Risk(model, ritz.CrossEntropy(), batches))
        with pytest.raises(ModelError, match="hides part of its derivative"):
            A @ torch.ones(A.size)


def test_a_derivative_along_theta_is_looked_at_where_all_errors_vanish():
    model, batches = with_kinks(OfTheBackward, 0)
    fitted = [(x, model(x).detach()) for x, _ in batches]
    risk = Risk(model, nn.MSELoss(), fitted)
    assert not risk.gradient().any()
    with pytest.raises(ModelError, match="hides part of its derivative"):
        ritz.gauss_newton(risk) @ torch.ones(risk.size)


class OfFloat32(Open):
    """The same in float32 alone."""

    @staticmethod
    def forward(ctx, x):
        assert x.dtype == torch.float32
        return Open.forward(ctx, x)


def test_a_custom_function_may_be_of_one_precision_alone():
    model, batches = with_kinks(OfFloat32, 0)
    twin = nn.Sequential(*model[:3], _Power(), *model[4:])
    A, expected = (ritz.hessian(Risk(m, ritz.CrossEntropy(), batches)).dense() for m in (model, twin))
    assert_close(A, expected, rtol=1e-3, atol=1e-5)


class _ByLength(nn.Module):
    """Layers for long sequences; for short ones products that have no rule."""

    def __init__(self, length):
        super().__init__()
        self.inner, self.outer, self.length = nn.Linear(3, 4), nn.Linear(4, OUTPUTS), length

    def forward(self, x):
        if x.shape[1] > self.length:
            return self.outer(torch.tanh(self.inner(x)).mean(1))
        return torch.tanh(x @ self.inner.weight.T).mean(1) @ self.outer.weight.T


@pytest.mark.parametrize("lengths", [(5, 2), (2, 5)])
def test_a_batch_that_takes_a_way_without_rules_has_the_same_products(lengths):
    torch.manual_seed(0)
    model = _ByLength(3).double()
    batches = [
        (torch.randn(n, t, 3).double(), torch.randint(OUTPUTS, (n,))) for n, t in zip((5, 3), lengths, strict=True)
    ]
    own, plain = (Risk(model, ritz.CrossEntropy(), batches, path=path) for path in (None, "plain"))
    for operator in (ritz.hessian, ritz.gauss_newton, ritz.functional_hessian, ritz.empirical_fisher):
        assert_close(operator(own).dense(), operator(plain).dense())


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


def test_a_loss_without_second_derivative_is_blamed_itself(x, y):
    risk = Risk(network(), nn.MultiMarginLoss(), (x, y))
    v = torch.ones(risk.size, dtype=risk.dtype)
    for operator in (ritz.hessian, ritz.gauss_newton):
        with pytest.raises(ModelError, match="The loss has no second derivative"):
            operator(risk) @ v
    assert bool((ritz.empirical_fisher(risk) @ v).isfinite().all())
    margins = lambda z, t: (1 - z.gather(1, t[:, None]) + z).clamp(min=0).mul(1 - F.one_hot(t, C)).mean(1)
    assert_close(Risk(risk.model, margins, (x, y)).loss_value(), risk.loss_value())
    assert bool((ritz.hessian(Risk(risk.model, margins, (x, y))) @ v).any())


def test_what_takes_no_second_derivative_of_the_loss_blames_none_of_it(x, y):
    model = nn.Sequential(nn.Linear(x.shape[1], 4), CubeByNumPy(), nn.Linear(4, C)).double()
    risk = Risk(model, nn.MultiMarginLoss(), (x, y))
    for operator in (ritz.empirical_fisher, ritz.functional_hessian):
        with pytest.raises(ModelError, match="The network cannot be differentiated"):
            operator(risk) @ torch.ones(risk.size, dtype=risk.dtype)
    with pytest.raises(ModelError, match="The network cannot be differentiated"):
        ritz.ntk(risk).dense()


def test_memory_that_runs_out_in_the_loss_is_no_lack_of_a_derivative(x, y, monkeypatch):
    curvature, errors = ritz.CrossEntropy.curvature, [torch.OutOfMemoryError("CUDA out of memory.")]

    def short_of_memory(self, z, targets):
        product = curvature(self, z, targets)

        def fail(v):
            if errors and torch.equal(v, torch.ones_like(v)):  # as it is asked what the loss has
                raise errors.pop()
            return product(v)

        return fail

    monkeypatch.setattr(ritz.CrossEntropy, "curvature", short_of_memory)
    model = nn.Sequential(nn.Linear(x.shape[1], 4), CubeByNumPy(), nn.Linear(4, C)).double()
    risk = Risk(model, ritz.CrossEntropy(), (x, y))
    with pytest.raises(ModelError, match="The network cannot be differentiated"):
        ritz.hessian(risk) @ risk.theta
    assert not errors


@pytest.mark.parametrize("factor", [1.1, torch.nan])
def test_a_rule_that_disagrees_is_not_used(factor, monkeypatch):
    built = case("cnn")
    data = (built.inputs, class_targets(built.shape))
    expected = ritz.hessian(ritz.Risk(built.model, ritz.CrossEntropy(), data)).dense()
    monkeypatch.setitem(ritz.engine.rules.dispatch.RULES, F.gelu, lambda second, x, **_: x * factor)
    A = ritz.hessian(ritz.Risk(built.model, ritz.CrossEntropy(), data))
    assert_close(A.dense(), expected)
    assert A.info.path == "plain"


class InPlace(nn.Module):
    """What nearly every convolutional network does: batch norms with operations in place behind them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 3, 3, padding=1, bias=False), nn.Conv2d(3, 3, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(3), nn.BatchNorm2d(3)])
        self.relu, self.head = nn.ReLU(inplace=True), nn.Linear(3, OUTPUTS)

    def forward(self, x):
        h = self.relu(self.norms[0](self.first(x)))
        out = self.norms[1](self.second(h))
        out += h
        return self.head(self.relu(out).mean((2, 3)))


@pytest.mark.parametrize("operator", [ritz.hessian, ritz.gauss_newton, ritz.functional_hessian])
def test_operations_in_place_go_with_the_efficient_rules(operator, generator):
    model = InPlace().double().eval()
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    x = torch.randn(5, 1, 4, 4, generator=generator, dtype=torch.float64)
    data = [(x[:2], class_targets((2, OUTPUTS))), (x[2:], class_targets((3, OUTPUTS)))]
    risk = Risk(model, ritz.CrossEntropy(), data)
    A, plain = operator(risk), operator(Risk(model, ritz.CrossEntropy(), data, path="plain"))
    assert (A.info.path, plain.info.path) == ("rules", "plain")
    assert_close(A.dense(), plain.dense())


class Witness(torch.autograd.Function):
    """x as it is, and an object in the graph by which one sees whether the graph is alive."""

    objects: ClassVar[list] = []

    @staticmethod
    def forward(ctx, x):
        ctx.object = type("Alive", (), {})()
        Witness.objects.append(weakref.ref(ctx.object))
        return x.view_as(x)

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent


class Watched(nn.Module):
    def forward(self, x):
        return Witness.apply(x)


@pytest.mark.parametrize("operator", [ritz.hessian, ritz.gauss_newton])
def test_an_operator_that_is_dropped_leaves_no_graph_behind(operator, x, y):
    model = nn.Sequential(network(), Watched(), nn.Sigmoid())  # which saves its own output
    Witness.objects.clear()
    A = operator(Risk(model, ritz.CrossEntropy(), (x, y)))
    A @ torch.ones(A.size, dtype=A.dtype)
    assert any(reference() is not None for reference in Witness.objects)
    del A
    gc.collect()
    assert Witness.objects and not any(reference() is not None for reference in Witness.objects)


class Doubled(ReverseMode):
    """Products twice too large."""

    def hessian(self, V, into=None):
        return super().hessian(2 * V, into)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_wrong_path_is_not_taken_wherever_it_stands(place, x, y):
    risk = Risk(network(), ritz.CrossEntropy(), (x, y))
    expected, paths = ritz.hessian(risk), [PATH["rules"], PATH["plain"]]
    paths.insert(place, Path("wrong", Doubled))
    risk.choices.clear()
    A = by_paths(risk, HESSIAN, *paths)
    assert_close(A.dense(), expected.dense())
    assert A.info.path == "rules"


def test_a_path_that_was_not_compared_has_no_disagreement(x, y):
    disagreements = []
    for names in (["rules"], ["plain"], ["rules", "plain"]):
        risk = Risk(network(), ritz.CrossEntropy(), (x, y))
        disagreements.append(by_paths(risk, HESSIAN, *(PATH[name] for name in names)).info.disagreement)
    assert disagreements[:2] == [None, None]
    assert 0 <= disagreements[2] < 1e-12


@pytest.mark.parametrize("path", ["rules", "plain", "forward"])
def test_a_path_that_is_pinned_is_taken(path, x, y):
    A = ritz.hessian(Risk(network(), ritz.CrossEntropy(), (x, y), path=path))
    assert A.info.path == path
    assert_close(A.dense(), ritz.hessian(Risk(network(), ritz.CrossEntropy(), (x, y))).dense())


class ByDifferential(nn.Module):
    """A network with a derivative along its inputs, by forward differentiation, where our rules do not go."""

    def __init__(self):
        super().__init__()
        self.inner = network()

    def forward(self, x):
        return torch.func.jvp(self.inner, (x,), (torch.ones_like(x),))[1]


def test_a_pinned_path_that_does_not_go_is_to_be_left_out(x, y):
    model = ByDifferential()
    with pytest.raises(ModelError) as caught:
        ritz.hessian(Risk(model, ritz.CrossEntropy(), (x, y), path="rules")).dense()
    assert "path='rules'" in caught.value.why and caught.value.ways_out[0].startswith("Leave it out")
    assert ritz.hessian(Risk(model, ritz.CrossEntropy(), (x, y))).info.path != "rules"


def test_a_path_of_another_name_is_refused(x, y):
    with pytest.raises(ArgumentError, match="path='fast'"):
        Risk(network(), ritz.CrossEntropy(), (x, y), path="fast")


class Attending(nn.Module):
    """Attention, in which a bias of the keys changes nothing, for a softmax does not see it."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(3, 3) for _ in range(3))

    def forward(self, x):
        return F.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x)).mean(1)


class Centring(nn.Module):
    """A bias in front of a norm, which takes it away again."""

    def __init__(self):
        super().__init__()
        self.key, self.norm, self.last = nn.Conv1d(4, 2, 2), nn.InstanceNorm1d(2), nn.Linear(2, 3)

    def forward(self, x):
        return self.last(self.norm(self.key(x)).tanh().mean(-1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("operator", [ritz.hessian, ritz.gauss_newton, ritz.functional_hessian, ritz.empirical_fisher])
@pytest.mark.parametrize("kind", [Attending, Centring])
def test_a_matrix_that_is_nothing_but_rounding_is_taken_for_zero(kind, operator, dtype, generator):
    torch.manual_seed(0)
    model, x = kind().to(dtype), torch.randn(6, 4, 3, generator=generator).to(dtype)
    A = operator(ritz.Risk(model, nn.CrossEntropyLoss(), (x, torch.arange(6) % 3), parameters="key.bias"))
    assert float(A.dense().norm()) < 1e3 * torch.finfo(dtype).eps


class Scan(nn.Module):
    """A recurrence hₜ = aₜ hₜ₋₁ + bₜ in logarithms, of whose sum PyTorch's double backward is NaN."""

    def __init__(self):
        super().__init__()
        self.decay, self.input, self.head = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, OUTPUTS)

    def sums(self, t):
        return torch.logcumsumexp(t, 1)

    def forward(self, x):
        decay = F.logsigmoid(self.decay(x)).cumsum(1)
        return self.head(torch.exp(decay + self.sums(F.logsigmoid(self.input(x)) - decay))[:, -1])


class PlainScan(Scan):
    def sums(self, t):
        return torch.stack([t[:, : k + 1].logsumexp(1) for k in range(t.shape[1])], 1)


@pytest.mark.parametrize("operator", [ritz.hessian, ritz.gauss_newton, ritz.functional_hessian])
def test_products_that_are_nan_are_no_products(operator):
    torch.manual_seed(0)
    model, twin = Scan().double(), PlainScan().double()
    twin.load_state_dict(model.state_dict())
    batches = [(torch.randn(n, 6, 3, dtype=torch.float64), torch.randint(OUTPUTS, (n,))) for n in (5, 3)]
    A, expected = (operator(Risk(m, ritz.CrossEntropy(), batches)) for m in (model, twin))
    assert_close(A.dense(), expected.dense())
    with pytest.raises(ModelError, match="plain: its products hold NaN"):
        ritz.hessian(Risk(model, ritz.CrossEntropy(), batches, path="plain")).dense()


class Lengths(nn.Module):
    """The lengths of features, which are zero for an example of zeros; PyTorch's double backward is NaN there."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(3, 4, bias=False), nn.Linear(1, OUTPUTS)

    def forward(self, x):
        return self.head(self.first(x).norm(dim=-1, keepdim=True))


@pytest.mark.parametrize("place", [0, 21])
@pytest.mark.parametrize("operator", [ritz.hessian, ritz.functional_hessian])
def test_a_path_that_is_nan_on_a_later_example_gives_way(operator, place):
    torch.manual_seed(0)
    model, x, y = Lengths().double(), torch.randn(23, 3, dtype=torch.float64), torch.randint(OUTPUTS, (23,))
    x[place] = 0.0
    others = torch.arange(23) != place  # whose features are the same for every θ, and so are the slopes of its outputs
    A = operator(Risk(model, ritz.CrossEntropy(reduction="sum"), [(x[:20], y[:20]), (x[20:], y[20:])]))
    rest, bias = (
        operator(Risk(model, ritz.CrossEntropy(reduction="sum"), data, parameters=names))
        for data, names in (((x[others], y[others]), "*"), ((x[[place]], y[[place]]), "head.bias"))
    )
    expected = rest.dense()
    expected[-OUTPUTS:, -OUTPUTS:] += bias.dense()
    assert_close(A.dense(), expected)
    assert A.info.path == "forward"
