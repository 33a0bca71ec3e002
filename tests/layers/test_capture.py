"""What layers see: features and errors make up every example's gradient, and nothing of θ is lost."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import ritz
from ritz.errors import ModelError, PrecisionWarning
from ritz.layers.capture import Layers
from ritz.risk import Risk
from tests.layers.unusual_rows import ByLength, Routed, Sorted, Stacked, TokensRouted, by_length
from tests.risk.problem import outputs_at
from tests.zoo import CASES, Centred, case, unequal_batches


def risk_of(name):
    found = case(name)
    shape = found.shape
    targets = torch.randint(shape[-1], shape[:-1], generator=torch.Generator().manual_seed(1))
    loss = nn.CrossEntropyLoss()
    if len(shape) == 3:
        from ritz.risk.losses import CrossEntropy

        loss = CrossEntropy()
    return Risk(found.model, loss, unequal_batches(found.inputs, targets))


def gradients_by_autograd(risk, batch, cotangent):
    """The gradient of every example, one at a time."""
    rows = []
    for i in range(len(batch)):
        leaves = risk.leaves()
        with risk.numerics():
            z = risk.outputs(leaves, batch.rows(slice(i, i + 1)))
        found = torch.autograd.grad(z, leaves, cotangent[i : i + 1], allow_unused=True)
        rows.append(dict(zip(risk.shapes, found, strict=True)))
    return rows


def gradients_by_layers(found, errors, count):
    """The gradient of every example from features and errors, parameter by parameter: (N, ...)."""
    total = {}
    for use, error in zip(found.uses, errors, strict=True):
        h, delta = use.features(), error[0]
        if use.bias:
            total[use.bias] = total.get(use.bias, 0) + delta.sum(1)
        if use.weight is None:
            continue
        if use.kind == "scale":
            weight = (h * delta).sum(1)
        elif use.kind == "embedding":
            weight = torch.einsum("ntv,ntd->nvd", F.one_hot(h, 3).to(delta), delta).flatten(1)
        else:
            blocks = zip(h.chunk(use.groups, -1), delta.chunk(use.groups, -1), strict=True)
            weight = torch.cat([torch.einsum("nto,ntd->nod", d, x) for x, d in blocks], 1).flatten(1)
        total[use.weight] = total.get(use.weight, 0) + weight
    return total


@pytest.mark.parametrize("name", CASES)
def test_features_and_errors_make_up_the_gradient_of_every_example(name):
    risk = risk_of(name)
    known = Layers.of(risk)
    for batch in risk.batches:
        found = known.forward(batch)
        cotangent = torch.randn(found.z.shape, dtype=risk.dtype, generator=torch.Generator().manual_seed(2))
        ours = gradients_by_layers(found, found.errors(cotangent[None]), len(batch))
        for i, expected in enumerate(gradients_by_autograd(risk, batch, cotangent)):
            for parameter, gradient in expected.items():
                if parameter in known.others:
                    assert parameter not in ours
                elif gradient is None or not bool(gradient.any()):
                    assert parameter not in ours or not bool(ours[parameter][i].any())
                else:
                    torch.testing.assert_close(ours[parameter][i].flatten(), gradient.flatten(), rtol=1e-10, atol=1e-12)


def test_parameters_that_enter_in_another_way_are_named():
    assert Layers.of(risk_of("partly_trained")).others == {"scale"}
    assert Layers.of(risk_of("mlp")).others == frozenset()
    assert Layers.of(risk_of("recurrent")).others == {n for n in risk_of("recurrent").shapes if n.startswith("gru")}


def test_a_parameter_that_enters_in_both_ways_counts_as_other():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            return self.layer(x) @ self.layer.weight

    risk = Risk(Both().double(), nn.CrossEntropyLoss(), (torch.randn(5, 3).double(), torch.tensor([0, 1, 2, 0, 1])))
    assert Layers.of(risk).others == {"layer.weight"}


def test_a_layer_whose_second_dimension_is_that_of_the_examples_is_captured_in_this_order():
    class TimeMajor(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.Linear(2, 3), nn.Linear(3, 3)

        def forward(self, x):  # (N, T, 2), used as (T, N, 2)
            return self.head(self.layer(x.transpose(0, 1)).tanh().mean(0))

    x = torch.randn(6, 3, 2).double()  # as many positions as watched examples: the shapes alone do not tell
    risk = Risk(TimeMajor().double(), nn.CrossEntropyLoss(), (x, torch.tensor([0, 1, 2, 0, 1, 2])))
    known = Layers.of(risk)
    assert known.others == frozenset() and known.orders == {"layer.weight": 1, "layer.bias": 1}
    (batch,) = risk.batches
    assert torch.equal(known.forward(batch).uses[0].features(), x)


def test_functions_in_place_do_not_change_what_was_noted():
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 3)

        def forward(self, x):
            h = self.first(x)
            h.relu_()
            z = self.second(h)
            z *= 2
            return z

    x, y = torch.randn(5, 3).double(), torch.tensor([0, 1, 2, 0, 1])
    risk = Risk(InPlace().double(), nn.CrossEntropyLoss(), (x, y))
    batch = next(iter(risk.batches))
    found = Layers.of(risk).forward(batch)
    cotangent = torch.randn_like(found.z)
    ours = gradients_by_layers(found, found.errors(cotangent[None]), 5)
    for i, expected in enumerate(gradients_by_autograd(risk, batch, cotangent)):
        for parameter, gradient in expected.items():
            torch.testing.assert_close(ours[parameter][i].flatten(), gradient.flatten())


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("settings", [{}, {"stride": 2, "padding": 1}, {"padding": "same", "dilation": 2}])
@pytest.mark.parametrize("groups", [1, 2])
def test_patches_reproduce_convolutions_of_any_kind(dims, settings, groups):
    layer = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1](2, 4, 3, groups=groups, **settings).double()
    model = nn.Sequential(layer, nn.Flatten(), nn.LazyLinear(3).double())
    x = torch.randn(4, 2, *[6] * dims).double()
    model(x)
    risk = Risk(model, nn.CrossEntropyLoss(), (x, torch.tensor([0, 1, 2, 0])))
    use = Layers.of(risk).forward(next(iter(risk.batches))).uses[0]
    blocks = zip(use.features().chunk(groups, -1), layer.weight.flatten(1).chunk(groups), strict=True)
    ours = torch.cat([h @ w.T for h, w in blocks], -1) + layer.bias
    torch.testing.assert_close(ours, use.layout(layer(x)))


def test_a_risk_without_independent_examples_is_refused():
    risk = Risk(Centred().double(), nn.CrossEntropyLoss(), (torch.randn(5, 3).double(), torch.tensor([0, 1, 2, 0, 1])))
    with pytest.raises(ModelError, match="depend on the other examples"):
        Layers.of(risk)


def test_an_incomplete_capture_is_refused_by_name():
    with pytest.raises(ModelError, match="scale"):
        Layers.of(risk_of("partly_trained")).check_complete("A Kronecker factor")


@pytest.mark.parametrize("sizes", [(1, 6, 4), (1,) * 11])
def test_batches_of_one_example_do_not_hide_that_rows_are_stacked(sizes):
    x, y = torch.randn(11, 4, generator=torch.Generator().manual_seed(0)).double(), torch.arange(11) % 3
    risk = Risk(Stacked().double(), nn.CrossEntropyLoss(), list(zip(x.split(sizes), y.split(sizes), strict=True)))
    known = Layers.of(risk)
    assert known.others == frozenset() and known.orders == {"layer.weight": 1, "layer.bias": 1}
    batch = max(risk.batches, key=len)
    cotangent = torch.ones(len(batch), 3).double()
    forward = known.forward(batch)
    ours = gradients_by_layers(forward, forward.errors(cotangent[None]), len(batch))
    for i, expected in enumerate(gradients_by_autograd(risk, batch, cotangent)):
        torch.testing.assert_close(ours["layer.weight"][i].flatten(), expected["layer.weight"].flatten())


def test_a_layer_that_sees_sorted_examples_is_not_captured_though_the_first_are_in_order():
    x, y = torch.randn(11, 4, generator=torch.Generator().manual_seed(0)).double(), torch.arange(11) % 3
    x[:3, 0] = torch.tensor([-9.0, -8.0, -7.0])
    risk = Risk(Sorted().double(), nn.CrossEntropyLoss(), [(x[:9], y[:9]), (x[9:], y[9:])])
    assert Layers.of(risk).others == {"layer.weight", "layer.bias"}


def test_a_layer_that_sorts_its_examples_is_not_captured_though_all_that_are_watched_come_sorted():
    x, y = torch.randn(11, 4, generator=torch.Generator().manual_seed(0)).double(), torch.arange(11) % 3
    x[:8] = x[:8][x[:8, 0].argsort()]
    risk = Risk(Sorted().double(), nn.CrossEntropyLoss(), [(x[:8], y[:8]), (x[8:], y[8:])])
    assert Layers.of(risk).others == {"layer.weight", "layer.bias"}


class Reordered(nn.Module):
    """A layer that sees its examples in another order than they come in."""

    def __init__(self, order):
        super().__init__()
        self.order, self.layer = order, nn.Linear(4, 3)

    def forward(self, x):
        order = self.order(torch.arange(len(x)))
        return self.layer(x[order])[order.argsort()]


ORDERS = {
    "from the last to the first": lambda numbers: numbers.flip(0),
    "each a place further": lambda numbers: numbers.roll(1),
    "the odd ones first": lambda numbers: torch.cat([numbers[1::2], numbers[::2]]),
    "two exchanged": lambda numbers: torch.cat([numbers[1:2], numbers[:1], numbers[2:]]),
}


@pytest.mark.parametrize("count", [2, 3, 5, 8, 13])
@pytest.mark.parametrize("order", ORDERS)
def test_a_layer_that_sees_examples_in_another_order_is_not_captured(order, count):
    x, y = torch.randn(count, 4, generator=torch.Generator().manual_seed(0)).double(), torch.arange(count) % 3
    risk = Risk(Reordered(ORDERS[order]).double(), nn.CrossEntropyLoss(), [(x, y)])
    assert Layers.of(risk).others == {"layer.weight", "layer.bias"}


def test_a_layer_that_later_sees_a_part_of_the_examples_is_refused_by_name():
    x, y = torch.randn(15, 4, generator=torch.Generator().manual_seed(0)).double(), torch.arange(15) % 3
    x[:9, 0], x[9:11, 0], x[11:, 0] = 1.0, -1.0, 1.0
    risk = Risk(Routed().double(), nn.CrossEntropyLoss(), [(x[:9], y[:9]), (x[9:], y[9:])])
    known = Layers.of(risk)
    with pytest.raises(ModelError, match="Layer left saw 4 rows of a batch of 6"):
        for batch in risk.batches:
            known.forward(batch)


def test_rows_that_divide_evenly_by_chance_are_not_taken_for_those_of_the_examples_in_order():
    """Of 4 examples with 2 tokens each, the tokens of the first two go elsewhere: a row for each example is left."""
    x, y = torch.randn(12, 2, 4, generator=torch.Generator().manual_seed(0)).double(), torch.arange(12) % 3
    x[:, :, 0], x[8:10, :, 0] = 1.0, -1.0
    risk = Risk(TokensRouted().double(), nn.CrossEntropyLoss(), [(x[:8], y[:8]), (x[8:], y[8:])])
    for factored in (ritz.kfac, ritz.ekfac, ritz.classes.features, ritz.classes.backpropagated_errors):
        with pytest.raises(ModelError, match=r"Layer (left|right) saw 4 rows of a batch of 4 examples"):
            factored(risk)
    assert [*ritz.kfac(risk.restricted_to("head.*")).layers] == ["head"]


def test_parameters_that_enter_later_in_another_way_are_refused_by_name():
    risk = Risk(ByLength().double(), nn.CrossEntropyLoss(), by_length((5, 2)))
    with pytest.raises(ModelError, match=r"examples 9 to 14 .* or not at all: layer.bias, layer.weight\."):
        ritz.kfac(risk)
    assert ritz.kfac(risk.restricted_to("head.*")).operator.size == 18


@pytest.mark.parametrize("padding", [0, -1])
def test_padding_has_no_gradient_and_is_captured(padding):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(3, 4, padding_idx=padding), nn.Flatten(), nn.Linear(12, 3)).double()
        x = torch.randint(3, (9, 3))
    risk = Risk(model, nn.CrossEntropyLoss(), (x, torch.arange(9) % 3))
    known, batch = Layers.of(risk), next(iter(risk.batches))
    assert not known.others
    found = known.forward(batch)
    cotangent = torch.randn(found.z.shape, generator=torch.Generator().manual_seed(2), dtype=risk.dtype)
    ours = gradients_by_layers(found, found.errors(cotangent[None]), 9)["0.weight"]
    expected = gradients_by_autograd(risk, batch, cotangent)
    assert not bool(ours.view(9, 3, 4)[:, padding].any())
    torch.testing.assert_close(ours, torch.stack([row["0.weight"].flatten() for row in expected]))


class Energy(nn.Module):
    """Outputs are the slope of an energy: every weight acts on the way forth and on the way back."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 5), nn.Linear(5, 1), nn.Linear(4, 3)

    def energy(self, x):
        return self.second(self.first(x).tanh())

    def slope(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(self.energy(x).square().sum(), x, create_graph=True)[0]

    def forward(self, x):
        return self.last(self.slope(x))


class TransformedEnergy(Energy):
    """The energy by a transform of functions, inside of which no layer can be watched."""

    def slope(self, x):
        return torch.func.vmap(torch.func.grad(lambda row: self.energy(row).square().sum()))(x)


@pytest.mark.parametrize("kind", [Energy, TransformedEnergy])
def test_weights_that_act_in_a_derivative_inside_the_network_are_named(kind, generator):
    torch.manual_seed(0)
    model, x = kind().double(), torch.randn(7, 4, generator=generator, dtype=torch.float64)
    risk = Risk(model, nn.CrossEntropyLoss(), unequal_batches(x, torch.arange(7) % 3))
    others = Layers.of(risk).others
    assert {"first.weight", "second.weight"} <= others and not others & {"last.weight", "last.bias"}
    for factored in (ritz.kfac, ritz.ekfac):
        with pytest.raises(ModelError, match=r"no layer that can be captured: .*first\.weight"):
            factored(risk)
    assert [*ritz.kfac(risk.restricted_to("last.*")).layers] == ["last"]
    expected = torch.linalg.eigvalsh(ritz.gauss_newton(risk).dense()).clamp(min=0)
    assert torch.allclose(ritz.gram_spectrum(risk).nodes.flatten().sort().values[-6:], expected[-6:], rtol=1e-8)


class Adapted(Energy):
    """What the weight of its energy has for a slope at an example scales that example."""

    def slope(self, x):
        with torch.enable_grad():
            slopes = [
                torch.autograd.grad(self.energy(row).sum(), self.second.weight, create_graph=True)[0].sum() for row in x
            ]
        return x * torch.stack(slopes)[:, None]


def test_a_network_that_differentiates_along_its_weights_has_no_layers_to_watch(generator):
    torch.manual_seed(0)
    model, x = Adapted().double(), torch.randn(7, 4, generator=generator, dtype=torch.float64)
    risk = Risk(model, nn.CrossEntropyLoss(), unequal_batches(x, torch.arange(7) % 3))
    with pytest.raises(ModelError, match=r"no layer that can be captured: .*first\.weight"):
        ritz.kfac(risk)
    expected = torch.linalg.eigvalsh(ritz.gauss_newton(risk).dense()).clamp(min=0)
    assert torch.allclose(ritz.gram_spectrum(risk).nodes.flatten().sort().values[-6:], expected[-6:], rtol=1e-8)


class Unusual(nn.Module):
    """A vector for a weight, one bias for all outputs, and a bottleneck without features."""

    def __init__(self):
        super().__init__()
        self.first, self.vector = nn.Linear(4, 5), nn.Parameter(torch.linspace(-1, 1, 5))
        self.matrix, self.bias = nn.Parameter(torch.randn(3, 5)), nn.Parameter(torch.tensor([0.3]))
        self.empty, self.back = nn.Parameter(torch.zeros(0, 5)), nn.Parameter(torch.zeros(3, 0))
        self.offset = nn.Parameter(torch.linspace(0, 1, 3))

    def forward(self, x):
        h = torch.tanh(self.first(x))
        bottleneck = F.linear(F.linear(h, self.empty), self.back, self.offset)
        return torch.sin(F.linear(h, self.matrix, self.bias) + F.linear(h, self.vector)[:, None] + bottleneck)


def test_layers_of_unusual_shapes_are_no_layers_and_lose_nothing():
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Unusual().double()
    inputs = torch.randn(11, 4, generator=generator, dtype=torch.float64)
    targets = torch.randint(3, (11,), generator=generator)
    risk = Risk(model, nn.CrossEntropyLoss(), unequal_batches(inputs, targets))
    assert Layers.of(risk).others == set(risk.shapes) - {"first.weight", "first.bias"}
    G = ritz.gauss_newton(risk)
    assert G.info.path == "rules"
    J = torch.func.jacrev(lambda theta: outputs_at(risk, theta, inputs))(risk.theta)
    p = outputs_at(risk, risk.theta, inputs).softmax(-1)
    expected = torch.einsum("ncp,ncd,ndq->pq", J, torch.diag_embed(p) - p[:, :, None] * p[:, None], J) / 11
    torch.testing.assert_close(G.dense(), expected)
    spectrum = ritz.gram_spectrum(risk, dtype=torch.float32)
    assert spectrum.moment(1) == pytest.approx(float(expected.trace()) / risk.size)
    assert spectrum.moment(2) == pytest.approx(float((expected @ expected).trace()) / risk.size)
    with pytest.raises(ModelError, match="enter through no layer"):
        ritz.kfac(risk)
    ritz.kfac(risk.restricted_to("first.*"))


class Halved(nn.Module):
    """A layer under autocast, whose errors come back in less precision than its features have."""

    def __init__(self, enabled):
        super().__init__()
        self.inner, self.head, self.enabled = nn.Linear(4, 3), nn.Linear(3, 3), enabled

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.enabled):
            hidden = self.inner(x)
        return self.head(hidden.to(x.dtype).tanh())


class HalvedWhole(Halved):
    """All under autocast, so that a layer's features have less precision than its parameters."""

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.enabled):
            return self.head(self.inner(x).relu()).float()


@pytest.mark.filterwarnings("ignore:The model computes in torch.float32")  # where float64 is tried
@pytest.mark.parametrize("Halved", [Halved, HalvedWhole])
def test_layers_may_compute_in_less_precision_inside(Halved, generator):
    x, y = torch.randn(40, 4, generator=generator), torch.arange(40) % 3
    with torch.random.fork_rng():
        torch.manual_seed(0)
        halved, whole = Halved(True), Halved(False)
    whole.load_state_dict(halved.state_dict())
    with pytest.warns(PrecisionWarning):
        risk = ritz.Risk(halved, nn.CrossEntropyLoss(), [(x[:17], y[:17]), (x[17:], y[17:])])
    expected = ritz.kfac(ritz.Risk(whole, nn.CrossEntropyLoss(), (x, y))).operator.dense()
    assert float((ritz.kfac(risk).operator.dense() - expected).norm()) < 0.01 * float(expected.norm())
    trace = ritz.gauss_newton(risk).dense().trace()
    spectrum = ritz.gram_spectrum(risk, dtype=torch.float32)
    assert spectrum.moment(1) * risk.size == pytest.approx(float(trace), rel=0.02)
