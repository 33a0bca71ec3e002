"""However a forward pass reaches its parameters, the risk is a function of them, and stays where it was built."""

import copy
import functools
import inspect

import pytest
import torch
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import ritz
from ritz import Risk
from tests.processes import run_alone
from tests.risk.problem import CE, C, D, N, network
from tests.risk.unchanged import everything, nothing_changes
from tests.shapes import unchecked
from tests.zoo import unequal_batches


class Block(nn.Module):
    """Two layers and a scale, for which there are several ways to the same function."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(D, 5), nn.Linear(5, C)
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.register_buffer("shift", torch.linspace(-1, 1, 5))

    def hidden(self, x):
        return torch.tanh(self.scale * self.first(x) + self.shift)

    def forward(self, x):
        return self.second(self.hidden(x))


def block(kind=Block):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return kind().double()


def lambda_forward():
    model = block()
    old = model.forward
    model.forward = lambda t: old(t)
    return model


class Activation(Block):
    def __init__(self):
        super().__init__()
        self.act = lambda t: torch.tanh(self.scale * t + self.shift)

    def forward(self, x):
        return self.second(self.act(self.first(x)))


class Table(Block):
    def __init__(self):
        super().__init__()
        self.steps = {"hidden": self.hidden, "out": lambda h: self.second(h)}

    def forward(self, x):
        return self.steps["out"](self.steps["hidden"](x))


class Partial(Block):
    def __init__(self):
        super().__init__()
        self.step = functools.partial(Block.hidden, self)

    def forward(self, x):
        return self.second(self.step(x))


class Listed(Block):
    def __init__(self):
        super().__init__()
        self.tensors = [self.first.weight, {"bias": self.first.bias}]

    def forward(self, x):
        return self.second(torch.tanh(self.scale * F.linear(x, self.tensors[0], self.tensors[1]["bias"]) + self.shift))


class Uncopied(Listed):
    """What cannot be copied deeply is copied module by module, the list shared."""

    def __init__(self):
        super().__init__()
        self.stream = (number for number in range(3))


def hooked():
    model = block(Hooked)
    model.first.register_forward_hook(lambda _, inputs, out: torch.tanh(model.scale * out + model.shift))
    return model


class Hooked(Block):
    def hidden(self, x):
        return self.first(x)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRU(2, 4, batch_first=True), nn.Linear(4, C)
        self.run = lambda x: self.cell(x)[0][:, -1]

    def forward(self, x):
        return self.out(self.run(x.reshape(-1, 2, 2)))


def eager(function):
    return torch.compile(function, backend="eager")


def compiled_forward():
    model = block()
    model.forward = eager(model.forward)
    return model


def compiled_part():
    model = block()
    model.first = eager(model.first)
    return model


def compiled_in_place():
    model = block()
    model.compile(backend="eager")
    return model


def parallel_part():
    model = block()
    model.first = nn.DataParallel(model.first)
    return model


REACHED = {
    "a lambda as forward": lambda_forward,
    "a lambda as activation": lambda: block(Activation),
    "a table of methods": lambda: block(Table),
    "a partial": lambda: block(Partial),
    "a list of parameters": lambda: block(Listed),
    "a list of parameters that is shared": lambda: block(Uncopied),
    "a hook": hooked,
    "a recurrent cell in a lambda": lambda: block(Recurrent),
    "a compiled module": lambda: eager(block()),
    "a compiled forward": compiled_forward,
    "a compiled layer": compiled_part,
    "compiled in place": compiled_in_place,
    "DataParallel": lambda: nn.DataParallel(block()),
    "a layer in DataParallel": parallel_part,
}


def plain_curvature(model, x, y):
    """The Hessian by PyTorch's own double backward, on the user's module as it is."""
    parameters = list(model.parameters())
    with torch.compiler.set_stance("force_eager"), torch.enable_grad():
        gradient = torch.autograd.grad(F.cross_entropy(model(x), y), parameters, create_graph=True)
        flat = torch.cat([g.flatten() for g in gradient])
        rows = [torch.autograd.grad(g, parameters, retain_graph=True, allow_unused=True) for g in flat]
    zeros = [torch.zeros_like(p) for p in parameters]
    H = [torch.cat([(z if g is None else g).flatten() for g, z in zip(row, zeros, strict=True)]) for row in rows]
    return flat.detach(), torch.stack(H)


@pytest.mark.parametrize("name", REACHED)
def test_every_way_to_the_parameters_is_followed(name, x, y):
    model = REACHED[name]()
    gradient, H = plain_curvature(model, x, y)
    with nothing_changes(model):
        risk = Risk(model, CE, unequal_batches(x, y))
        eye = torch.eye(risk.size, dtype=torch.float64)
        assert_close(risk.gradient(), gradient)
        assert_close(ritz.hessian(risk) @ eye, H)
        G, E = ritz.gauss_newton(risk) @ eye, ritz.functional_hessian(risk) @ eye
        assert_close(G + E, H)
        everything(risk)


@pytest.mark.parametrize("name", REACHED)
def test_a_risk_stays_where_it_was_built(name, x, y):
    model = REACHED[name]()
    risk = Risk(model, CE, unequal_batches(x, y))
    weights = risk.restricted_to("*weight*")
    before = numbers(risk) + numbers(weights)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.add_(0.1)
    model.train()
    assert_close(numbers(risk) + numbers(weights), before, rtol=1e-12, atol=1e-14)


def numbers(risk):
    v = torch.linspace(-1, 1, risk.size, dtype=torch.float64)
    return [risk.gradient(), ritz.hessian(risk) @ v, ritz.gauss_newton(risk) @ v]


@pytest.mark.parametrize("name", ["a compiled module", "a compiled layer", "DataParallel", "a layer in DataParallel"])
def test_names_are_those_without_wrappers(name, x, y):
    assert list(Risk(REACHED[name](), CE, (x, y)).shapes) == [name for name, _ in block().named_parameters()]


def test_parameters_that_are_exchanged_afterwards_do_not_matter(x, y):
    model = lambda_forward()
    risk = Risk(model, CE, (x, y))
    v = torch.ones(risk.size, dtype=torch.float64)
    before = ritz.hessian(risk) @ v
    model.first.weight = nn.Parameter(torch.zeros_like(model.first.weight))
    assert_close(ritz.hessian(risk) @ v, before, rtol=1e-12, atol=1e-14)


def test_the_efficient_rules_see_what_a_lambda_reaches(x, y):
    model = network()
    old = model.forward
    model.forward = lambda t: old(t)
    H, plain = ritz.hessian(Risk(model, CE, (x, y))), ritz.hessian(Risk(network(), CE, (x, y)))
    v = torch.ones(H.size, dtype=torch.float64)
    assert_close(H @ v, plain @ v)


class Remembering(Block):
    """Looks its scale up in a table that the first forward pass fills, as networks do for evaluation."""

    def __init__(self):
        super().__init__()
        self.known = {}

    def hidden(self, x):
        scale = self.known.setdefault("scale", 1.0 * self.scale)
        return torch.tanh(scale * self.first(x) + self.shift)


class Kept(Block):
    """Keeps its scale as an attribute."""

    def __init__(self):
        super().__init__()
        self.known = None

    def hidden(self, x):
        self.known = 1.0 * self.scale if self.known is None else self.known
        return torch.tanh(self.known * self.first(x) + self.shift)


@pytest.mark.parametrize("kind", [Remembering, Kept])
def test_what_a_forward_pass_keeps_of_parameters_is_forgotten(kind, x, y):
    model = block(kind)
    gradient, H = plain_curvature(block(), x, y)
    with nothing_changes(model):
        risk = Risk(model, CE, unequal_batches(x, y))
        assert_close(risk.gradient(), gradient)
        assert_close(ritz.hessian(risk).dense(), H)
        assert_close(ritz.hessian(risk.to(torch.float32)).dense().double(), H, rtol=1e-4, atol=1e-5)
    assert not model.known
    moved = block()
    with torch.no_grad():
        moved.scale.add_(0.3)
    theta = torch.cat([p.flatten() for p in moved.parameters()])
    assert_close(ritz.hessian(risk.at(theta)).dense(), plain_curvature(moved, x.clone(), y)[1])
    assert not x.requires_grad


class Checkpointed(Block):
    def forward(self, x):
        return self.second(checkpoint(self.hidden, x, use_reentrant=False))


@pytest.mark.parametrize("parameters", ["*", "first.*"])
def test_checkpointed_models_stay_at_their_parameters(parameters, x, y):
    model = block(Checkpointed)
    risk, plain = Risk(model, CE, (x, y), parameters=parameters), Risk(block(), CE, (x, y), parameters=parameters)
    H, G, v = ritz.hessian(risk), ritz.gauss_newton(risk), torch.ones(risk.size, dtype=torch.float64)
    assert_close(H @ v, ritz.hessian(plain) @ v)
    part = ritz.hessian(risk.restricted_to("first.weight"))
    before = H @ v, G @ v, risk.gradient(), part @ v[: part.size]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    after = H @ v, G @ v, risk.gradient(), part @ v[: part.size]
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))


def test_hooks_that_change_gradients_are_not_part_of_the_function(x, y):
    model = block()
    expected = Risk(copy.deepcopy(model), CE, (x, y)).gradient()
    model.first.weight.register_hook(lambda g: 0 * g)
    model.second.register_full_backward_hook(lambda module, inputs, outputs: tuple(2 * g for g in inputs))
    with nothing_changes(model):
        assert_close(Risk(model, CE, (x, y)).gradient(), expected)


def test_a_signature_is_read_once_for_all_passes(x, y, monkeypatch):
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network()

        def forward(self, a, b):
            return self.inner(a + b)

    risk = Risk(Sum(), CE, [((x[:6], x[:6]), y[:6]), ((x[6:], x[6:]), y[6:])])
    counts, signature = [], inspect.signature
    monkeypatch.setattr(inspect, "signature", lambda *args, **kw: counts.append(1) or signature(*args, **kw))
    with unchecked():
        for _ in range(3):
            risk.gradient()
        risk.at(2 * risk.theta)
    assert not counts


class Slope(Block):
    """The slope of a scalar network along its inputs, as where forces come from an energy."""

    def forward(self, x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(super().forward(x).square().sum(), x, create_graph=True)[0]


class SlopeAtItsInput(Block):
    """A slope with respect to the very tensor that it is given."""

    def forward(self, x):
        x.requires_grad_()
        return torch.autograd.grad(super().forward(x).square().sum(), x, create_graph=True)[0]


class Adapted(Block):
    """The outputs after a step of gradient descent on its own parameters, for each example one of its own."""

    def forward(self, x):
        with torch.enable_grad():
            return torch.cat([self.adapted(row) for row in x.split(1)])

    def adapted(self, x):
        own = dict(self.second.named_parameters())
        z = torch.func.functional_call(self.second, own, self.hidden(x))
        slopes = torch.autograd.grad(z.square().sum(), list(own.values()), create_graph=True)
        moved = {name: p - 0.1 * slope for (name, p), slope in zip(own.items(), slopes, strict=True)}
        return torch.func.functional_call(self.second, moved, self.hidden(x))


class FastWeights(nn.Module):
    """A layer that begins at a parameter, taken with or without gradients, and learns from every example by itself."""

    def __init__(self):
        super().__init__()
        self.start, self.keys, self.out = nn.Parameter(torch.eye(4)), nn.Linear(D, 4), nn.Linear(4, C)

    def forward(self, x):
        fast = self.start.expand(len(x), 4, 4)
        with torch.enable_grad():
            fast = fast if fast.requires_grad else fast.detach().requires_grad_()
            keys = torch.tanh(self.keys(x))
            error = (torch.einsum("nij,nj->ni", fast, keys) - keys.roll(1, 1)).square().sum()
            fast = fast - 0.1 * torch.autograd.grad(error, fast, create_graph=True)[0]
        return self.out(torch.einsum("nij,nj->ni", fast, keys))


def test_a_network_that_learns_inside_is_evaluated_without_gradients_as_with_them(x, y):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = FastWeights().double()
    risk = Risk(model, CE, unequal_batches(x, y))
    gradient, H = plain_curvature(model, x, y)
    assert_close(risk.gradient(), gradient)
    assert_close(ritz.hessian(risk).dense(), H)
    G = ritz.gauss_newton(risk).dense()
    assert risk.num_classes == C
    assert ritz.gram_spectrum(risk).moment(1) == pytest.approx(float(G.trace()) / risk.size)
    parts = ritz.class_decomposition(risk)
    assert_close((parts.between_class + parts.own_class + parts.cross_class + parts.within).dense(), G)


@pytest.mark.parametrize("form", [lambda x, y: (x, y), unequal_batches])
@pytest.mark.parametrize("kind", [Slope, SlopeAtItsInput, Adapted])
def test_a_network_may_differentiate_itself(kind, form, x, y):
    model = block(kind)
    gradient, H = plain_curvature(block(kind), x.clone(), y)
    with nothing_changes(model):
        risk = Risk(model, CE, form(x, y))
        assert_close(risk.gradient(), gradient)
        assert_close(ritz.hessian(risk).dense(), H)
        part = torch.cat([torch.full(s, n == "first.weight").flatten() for n, s in risk.shapes.items()])
        for own in (risk.restricted_to("first.weight"), Risk(model, CE, form(x, y), parameters="first.weight")):
            assert_close(ritz.hessian(own).dense(), H[part][:, part])
        moved = block(kind)
        with torch.no_grad():
            _ = [p.mul_(1.1) for p in moved.parameters()]
        assert_close(ritz.hessian(risk.at(moved)).dense(), plain_curvature(moved, x.clone(), y)[1])
    assert not x.requires_grad


class Laplacian(nn.Module):
    """The network and its Laplacian along its inputs, a forward derivative of a backward pass, as in equations."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(D, 4), nn.SiLU(), nn.Linear(4, C))

    def forward(self, x):
        curvature = torch.func.vmap(torch.func.hessian(self.inner))(x)
        return self.inner(x) + curvature.diagonal(dim1=-2, dim2=-1).sum(-1)


def test_a_backward_pass_may_be_differentiated_forward_inside(x, y):
    """Without a graph, PyTorch takes another backward pass of SiLU, which has no forward derivative."""
    model = block(Laplacian)
    gradient, H = plain_curvature(model, x, y)
    with nothing_changes(model):
        risk = Risk(model, CE, unequal_batches(x, y))
        assert_close(risk.gradient(), gradient)
        assert_close(ritz.hessian(risk).dense(), H)


class Branching(nn.Module):
    """A branch and a loop of PyTorch's own control flow, or of Python's."""

    def __init__(self, compiled):
        super().__init__()
        self.first, self.loop = nn.Linear(D, C), nn.Linear(C, C)
        self.compiled = compiled
        self.double()

    def yes(self, x):
        return torch.tanh(self.first(x))

    def no(self, x):
        return self.first(x)

    def step(self, count, h):
        return count + 1, torch.sin(self.loop(h))

    def forward(self, x):
        many = x.new_tensor(x.shape[1]) > 2
        if self.compiled:
            h = torch.cond(many, self.yes, self.no, (x,))
            return while_loop(lambda i, h: i < 3, self.step, (torch.tensor(0), h))[1]
        count, h = 0, self.yes(x) if many else self.no(x)
        while count < 3:
            count, h = self.step(count, h)
        return h


def test_control_flow_is_differentiated_as_the_python_it_stands_for(x, y):
    model, twin = Branching(True), Branching(False)
    twin.load_state_dict(model.state_dict())
    gradient, H = plain_curvature(twin, x, y)
    risk = Risk(model, CE, unequal_batches(x, y))
    assert risk.separable
    assert_close(risk.gradient(), gradient)
    assert_close(ritz.hessian(risk).dense(), H)
    moved = risk.at(1.1 * risk.theta)
    assert_close(ritz.hessian(moved).dense(), ritz.hessian(Risk(twin, CE, (x, y)).at(moved.theta)).dense())
    assert_close(ritz.gram_spectrum(risk).moment(1), float(ritz.gauss_newton(risk).dense().trace()) / risk.size)


BEFORE_THE_COMPILER = """
import sys, torch, ritz

class Branching(torch.nn.Linear):
    def forward(self, x):
        return torch.cond(x.new_tensor(x.shape[1]) > 2, torch.sin, torch.cos, (super().forward(x),))

x, y = torch.eye(4), torch.arange(4) % 3
risk = ritz.Risk(Branching(4, 3), torch.nn.CrossEntropyLoss(), (x, y))
assert bool((ritz.hessian(risk) @ torch.ones(15)).any())
"""


def test_control_flow_may_be_the_first_to_import_the_compiler():
    run_alone(BEFORE_THE_COMPILER)


class Counted(nn.Module):
    """Words, or bags of them, whose gradient an option divides by how often a word occurs in the batch."""

    def __init__(self, bags):
        super().__init__()
        kind = nn.EmbeddingBag if bags else nn.Embedding
        self.table, self.head = kind(5, 4, scale_grad_by_freq=True), nn.Linear(4, C)

    def forward(self, words):
        rows = self.table(words)
        return self.head(torch.tanh(rows if rows.ndim == 2 else rows.sum(1)))


@pytest.mark.parametrize("bags", [False, True])
def test_gradients_by_the_frequency_of_words_are_not_part_of_the_function(bags, generator, y):
    words = torch.randint(5, (N, 3), generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Counted(bags).double()
    plain = copy.deepcopy(model)
    plain.table.scale_grad_by_freq = False
    own, expected = (Risk(each, CE, unequal_batches(words, y)) for each in (model, plain))
    assert_close(own.gradient(), expected.gradient())
    assert_close(ritz.hessian(own).dense(), ritz.hessian(expected).dense())
    assert_close(ritz.gram_spectrum(own).nodes, ritz.gram_spectrum(expected).nodes)
    assert model.table.scale_grad_by_freq
