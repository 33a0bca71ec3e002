"""What reaches its parameters on a way that cannot be followed is refused, and the user's own are as before."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import ritz
from ritz import Risk
from ritz.errors import ModelError, OutputsWarning, PrecisionWarning
from tests.risk.problem import CE, C, D, N, Returns, check_refusal, network, outputs_at
from tests.risk.unchanged import nothing_changes
from tests.zoo import dense_hessian


class Scale(torch.autograd.Function):
    """A custom Function, which tells no one what it is given."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        return g * scale, (g * x).sum()


class Flow(torch.autograd.Function):
    """A step along a function that a closure keeps, whose backward pass evaluates it again, as adjoint solvers do."""

    @staticmethod
    def forward(ctx, x, function, *parameters):
        ctx.function, ctx.parameters = function, parameters
        ctx.save_for_backward(x)
        return x + function(x)

    @staticmethod
    def backward(ctx, g):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            slopes = torch.autograd.grad(ctx.function(x), (x, *ctx.parameters), g)
        return g + slopes[0], None, *slopes[1:]


class CarelessFlow(Flow):
    """The same, which takes it for granted that the function depends on what it was given."""

    @staticmethod
    def backward(ctx, g):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            slopes = torch.autograd.grad(ctx.function(x), (x, *ctx.parameters), g, allow_unused=True)
        return g + slopes[0], None, *(1.0 * slope for slope in slopes[1:])


class Flowing(nn.Module):
    def __init__(self, flow=Flow):
        super().__init__()
        self.step, self.inner, self.flow = nn.Linear(D, D).double(), network(), flow

    def forward(self, x):
        return self.inner(self.flow.apply(x, lambda t: self.step(t).tanh(), *self.step.parameters()))


class Scaled(nn.Module):
    """A network and a scale, which `reach` finds."""

    def __init__(self, reach, scale=0.5):
        super().__init__()
        self.inner, self.scale = network(), nn.Parameter(torch.tensor(scale, dtype=torch.float64))
        self.reach = reach(self)

    def forward(self, x):
        return self.reach(self.inner(x))


class Own(Scaled):
    """As above, with the parameter from the module itself."""

    def forward(self, x):
        return Scale.apply(self.inner(x), self.scale)


class Penalised(nn.Module):
    """A loss that looks at the weights of the model, too."""

    def __init__(self, model, penalty):
        super().__init__()
        self.model, self.penalty = model, penalty

    def forward(self, z, y):
        return nn.functional.cross_entropy(z, y, reduction="none") + self.penalty(self.model)


def squares(model):
    return 0.1 * sum(p.square().sum() for p in model.parameters())


@pytest.mark.parametrize("parameters", ["*", "2.weight"])
@pytest.mark.parametrize("penalty", [squares, lambda m: m[2].weight.norm(), lambda m: 0.0 * m[2].weight.sum()])
def test_a_loss_that_takes_parameters_of_the_model_is_refused(penalty, parameters, x, y):
    model = network()
    with nothing_changes(model), pytest.raises(ModelError, match=r"The loss depends on .*2\.weight") as caught:
        Risk(model, Penalised(model, penalty), (x, y), parameters=parameters)
    check_refusal(caught, ModelError)


def test_a_loss_may_take_parameters_that_are_not_theta(x, y):
    model = network()
    risk = Risk(model, Penalised(model, lambda m: m[2].weight.square().sum()), (x, y), parameters="0.*")
    expected = dense_hessian(lambda t: CE(outputs_at(risk, t, x), y), risk.theta)
    assert_close(ritz.hessian(risk).dense(), expected)


def test_what_a_penalty_of_squares_adds_is_added_to_the_operator(x, y):
    """The way out that is said."""
    risk = Risk(network(), CE, (x, y))
    expected = dense_hessian(lambda t: CE(outputs_at(risk, t, x), y) + 0.1 * t.square().sum(), risk.theta)
    assert_close((ritz.hessian(risk) + 0.2).dense(), expected)


def of_detached_view():
    model = network()
    weight = model[2].weight.detach()
    model.register_forward_hook(lambda module, inputs, out: out @ weight @ weight.T)
    return model


def checkpointed_closure():
    model = network()
    old = model.forward
    model.forward = lambda t: checkpoint(old, t, use_reentrant=False)
    return model


class Checkpointed(nn.Module):
    def __init__(self, reentrant, whole=False):
        super().__init__()
        self.inner, self.reentrant, self.whole = network(), reentrant, whole

    def forward(self, x):
        if self.whole:
            return checkpoint(self.inner, x, use_reentrant=self.reentrant)
        return checkpoint(self.inner[1:], self.inner[0](x), use_reentrant=self.reentrant)


class Beginning(nn.Module):
    """The first layers checkpointed, which autograd takes for ones without parameters."""

    def __init__(self, **options):
        super().__init__()
        self.inner, self.options = network(), options or {"use_reentrant": True}

    def forward(self, x):
        return self.inner[2](checkpoint(self.inner[:2], x.requires_grad_(), **self.options))


class Backbone(nn.Module):
    """The first layers fixed, as where only a head is trained."""

    def __init__(self, *, frozen=False):
        super().__init__()
        self.inner = network()
        self.inner[0].requires_grad_(not frozen)

    def forward(self, x):
        with torch.no_grad():
            hidden = self.inner[:2](x)
        return self.inner[2](hidden)


class Routed(nn.Module):
    """Two layers, of which a third chooses: a choice has the derivative zero."""

    def __init__(self):
        super().__init__()
        self.router, self.ways = nn.Linear(D, 2).double(), nn.ModuleList(nn.Linear(D, C).double() for _ in range(2))

    def forward(self, x):
        first = (self.router(x).argmax(-1) == 0)[:, None]
        return torch.where(first, *(way(x) for way in self.ways))


def test_a_choice_has_no_gradient_and_needs_none(x, y):
    torch.manual_seed(0)
    risk = Risk(Routed(), CE, (x, y))
    assert not ritz.hessian(risk).dense()[: 2 * (D + 1)].any()


class WithoutSlope(torch.autograd.Function):
    """Signs with a gradient of zero: a step whose outputs autograd connects to what goes in."""

    @staticmethod
    def forward(ctx, z):
        return z.sign()

    @staticmethod
    def backward(ctx, g):
        return torch.zeros_like(g)


FLAT = {
    "steps": torch.sign,
    "a comparison": lambda z: (z > 0).to(z.dtype),
    "a choice": lambda z: 5 * nn.functional.one_hot(z.argmax(-1), C).to(z.dtype),
    "a Function": WithoutSlope.apply,
    "dead units": lambda z: (z - 100).relu(),
}


@pytest.mark.parametrize("name", FLAT)
def test_outputs_without_a_slope_are_warned_of(name, x, y):
    with pytest.warns(OutputsWarning, match="No output of the model has a slope in θ"):
        risk = Risk(Returns(FLAT[name]), CE, [(x[:7], y[:7]), (x[7:], y[7:])])
    assert not ritz.hessian(risk).dense().any()


def zeroed():
    """Two layers of zeros, without a slope at θ, and with one nearby."""
    model = nn.Sequential(nn.Linear(D, 2, bias=False), nn.Linear(2, C, bias=False)).double()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def test_a_spectrum_of_zeros_that_is_meant_is_not_warned_of(x, y):
    fitted = nn.Linear(D, C).double()
    Risk(fitted, nn.MSELoss(), (x, fitted(x).detach()))  # warnings are errors here
    assert ritz.hessian(Risk(zeroed(), CE, (x, y))).dense().any()  # a saddle, where gradient and G are zero


def test_a_slope_on_late_examples_alone_is_a_slope(x, y):
    late = torch.cat([x.new_zeros(2 * N, D), x])
    model = nn.Sequential(nn.Linear(D, 2, bias=False), nn.ReLU(), nn.Linear(2, C, bias=False)).double()
    risk = Risk(model, CE, (late, torch.cat([y, y, y])), parameters="0.*")
    assert ritz.hessian(risk).dense().any()


class Constant(nn.Module):
    """Outputs that lie in the memory of a parameter."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.linspace(0, 1, C, dtype=torch.float64))

    def forward(self, x):
        return self.bias.expand(len(x), C)


def test_outputs_may_be_a_view_of_a_parameter(x, y):
    risk = Risk(Constant(), CE, (x, y))
    assert_close(ritz.hessian(risk).dense(), dense_hessian(lambda t: CE(t.expand(N, C), y), risk.theta))


class Summed(nn.Module):
    """A linear map whose sums are taken in another order where gradients are recorded, as kernels may do it."""

    def __init__(self, size, precision=torch.float64):
        super().__init__()
        self.precision, generator = precision, torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(1e3 * torch.randn(size, generator=generator, dtype=torch.float64))

    def forward(self, x):
        products = (x * self.weight).to(self.precision)
        products = products if torch.is_grad_enabled() else products.flip(1)
        return sum(products.unbind(1)).to(x.dtype)[:, None]


def fitted(generator, precision=torch.float64):
    """A model and data that it fits to the last digits, by sums in which most of each cancels."""
    model, x = Summed(300, precision), torch.randn(N, 300, generator=generator, dtype=torch.float64)
    x[:, 299] -= x @ model.weight.detach() / model.weight.detach()[299]
    return model, x, model(x).detach()


def test_data_that_are_fitted_to_the_last_digits_may_be_rounded_otherwise(generator):
    model, x, y = fitted(generator)
    risk = Risk(model, nn.MSELoss(), (x, y))
    assert_close(ritz.hessian(risk).dense(), 2 * x.T @ x / N)
    assert risk.gradient().isfinite().all()


def test_last_digits_are_those_of_the_precision_that_the_model_computes_in(generator):
    model, x, y = fitted(generator, torch.bfloat16)
    with pytest.warns(PrecisionWarning):
        risk = Risk(model, nn.MSELoss(), (x, y))
    assert risk.gradient().isfinite().all()


def test_a_loss_that_changed_is_refused_where_data_are_fitted_to_the_last_digits(generator):
    model, x, y = fitted(generator)
    factors = [torch.ones(())]
    risk = Risk(model, lambda z, y: factors[0] * (z - y).square().squeeze(1), (x, y))
    factors[0] = torch.full((), 3.0)
    with pytest.raises(ModelError, match="other values on a batch of 11"):
        risk.gradient()


def in_inference_mode():
    with torch.inference_mode():
        return network()


def fed_by_closure():
    return Scaled(lambda model: lambda z: Scale.apply(z, model.scale))


def zero():
    return Scaled(lambda model: lambda z: Scale.apply(z * model.scale, model.scale), 0.0)


REFUSED = {
    "another function without gradients": (
        lambda: Returns(lambda z: z * (1 + torch.is_grad_enabled())),
        "other values on a batch of 11[\\s\\S]*otherwise where gradients are recorded",
    ),
    "a Function fed from a closure": (fed_by_closure, "gradient .* in scale, at θ"),
    "an adjoint with a closure": (Flowing, "its copy fails: .* not have been used in the graph"),
    "an adjoint that fails": (lambda: Flowing(CarelessFlow), "its copy fails: unsupported operand"),
    "what is zero at θ": (zero, "gradient .* at a θ nearby"),
    "a view outside of the model": (of_detached_view, "outputs .* at a θ nearby"),
    "recomputed from a closure": (checkpointed_closure, "gradient .* at a θ nearby"),
    "reentrant checkpointing": (lambda: Checkpointed(True), "in its reentrant form"),
    "the beginning checkpointed": (Beginning, r"change with inner\.0\.bias, inner\.0\.weight, but have no gradient"),
    "the beginning without gradients": (Backbone, r"change with inner\.0\.bias, inner\.0\.weight, but have no"),
    "all of it checkpointed": (lambda: Checkpointed(True, whole=True), "change with θ, but have no gradient"),
}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("name", REFUSED)
def test_models_that_use_parameters_in_other_ways_are_refused(name, x, y):
    build, message = REFUSED[name]
    model = build()
    with nothing_changes(model), pytest.raises(ModelError, match=message) as caught:
        Risk(model, CE, (x, y))
    check_refusal(caught, ModelError)


def test_parameters_made_in_inference_mode_are_refused(x, y):
    with pytest.raises(ModelError, match="made in inference mode") as caught:
        Risk(in_inference_mode(), CE, (x, y))
    check_refusal(caught, ModelError)


WAYS_OUT = {
    "an argument from self": lambda: (Own(lambda m: None), Scaled(lambda m: lambda z: z * m.scale)),
    "use_reentrant=False": lambda: (Checkpointed(False), network()),
    "use_reentrant=False of all": lambda: (Checkpointed(False, whole=True), network()),
    "use_reentrant=False of the beginning": lambda: (Beginning(use_reentrant=False), network()),
    "a copy outside": lambda: (copy.deepcopy(in_inference_mode()), network()),
}


@pytest.mark.parametrize("name", WAYS_OUT)
def test_the_ways_out_lead_out(name, x, y):
    model, plain = WAYS_OUT[name]()
    risk, expected = Risk(model, CE, (x, y)), Risk(plain, CE, (x, y))
    assert_close(risk.gradient(), expected.gradient())
    v = torch.ones(risk.size, dtype=torch.float64)
    assert_close(ritz.hessian(risk) @ v, ritz.hessian(expected) @ v)


def test_layers_that_are_fixed_may_be_frozen_or_left_out(x, y):
    """The other ways out."""
    frozen, left_out = Risk(Backbone(frozen=True), CE, (x, y)), Risk(Backbone(), CE, (x, y), parameters="inner.2.*")
    expected = ritz.hessian(Risk(network(), CE, (x, y)).restricted_to("2.*")).dense()
    for risk in (frozen, left_out):
        assert_close(ritz.hessian(risk).dense(), expected)


class Interrupted(nn.Module):
    """Keeps what it sees, counts in a buffer, and is interrupted at one of its calls."""

    def __init__(self, at):
        super().__init__()
        self.inner, self.at, self.last, self.seen = network(), at, None, []
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        CALLS.append(1)
        self.last = self.inner(x)
        self.seen.append(self.last)
        self.calls += 1
        if len(CALLS) == self.at:
            raise KeyboardInterrupt
        return self.last + 0.0 * self.calls


CALLS = []


@pytest.mark.parametrize("at", range(1, 9))
def test_nothing_changes_after_an_interrupt(at, x, y):
    CALLS.clear()
    model = Interrupted(at)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    with nothing_changes(model):
        try:
            Risk(model, CE, (x, y))
        except KeyboardInterrupt:
            assert len(CALLS) == at
    assert model.last is None and model.seen == [] and model.calls == 0


@pytest.mark.parametrize("kind", ["shared by processes", "overlapping"])
def test_parameters_that_cannot_be_moved_are_left_alone(kind, x, y):
    model = nn.Linear(D, C).double()
    if kind == "overlapping":
        model.bias = nn.Parameter(torch.ones(1, dtype=torch.float64).expand(C))
    else:
        model.share_memory()
    with nothing_changes(model):
        assert Risk(model, CE, (x, y)).gradient().norm() > 0


def test_gradients_that_wait_for_their_backward_pass_are_not_disturbed(x, y):
    model = network()
    loss = CE(model(x), y)
    Risk(model, CE, (x, y))
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
