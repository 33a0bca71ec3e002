"""The model of a risk: what is refused, and that the user's own stays apart."""

import copy
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import ritz
from ritz import Risk
from ritz.errors import DataError, ModelError, NumericalError
from ritz.risk.model import prefers_channels_last
from tests.risk.problem import (
    CE,
    INF,
    NAN,
    C,
    D,
    N,
    Returns,
    changed_network,
    check_against_pytorch,
    check_refusal,
    network,
)
from tests.risk.unchanged import nothing_changes
from tests.zoo import dense_hessian


class Noisy(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.5)


class Overwrites(nn.Module):
    def forward(self, x):
        return x.mul_(0.5)


class Asks(nn.Linear):
    def __init__(self):
        super().__init__(D, C)

    def forward(self, x):
        return x @ self.get_parameter("weight").T


def asserting(z):
    assert z.shape[1] == 5, "5 classes are expected"
    return z


BAD_MODELS = {
    "a function": (lambda: torch.tanh, ModelError, "The model is a builtin_function_or_method"),
    "a tuple": (lambda: Returns(lambda z: (z, z)), ModelError, r"return self.model\(\*args, \*\*kwargs\)\[0\]"),
    "dropout in train mode": (lambda: nn.Sequential(network(), nn.Dropout(0.1)), ModelError, r"model\.eval\(\)"),
    "batch norm in train mode": (lambda: nn.Sequential(network(), nn.BatchNorm1d(C)), ModelError, "BatchNorm1d"),
    "functional dropout": (lambda: nn.Sequential(network(), Noisy()).eval(), ModelError, "Two evaluations"),
    "dropout inside of attention": (lambda: nn.Sequential(network(), Attends()), ModelError, "Two evaluations"),
    "writes into its inputs": (lambda: nn.Sequential(Overwrites(), network()), ModelError, "writes into its inputs"),
    "half precision": (lambda: network().half(), ModelError, r"float32 copy"),
    "bfloat16": (lambda: network().bfloat16(), ModelError, r"float32 copy"),
    "complex": (lambda: nn.Linear(D, C, dtype=torch.complex64), ModelError, "view_as_complex"),
    "sparse": (lambda: Sparse(), ModelError, "Parameter weight is sparse"),
    "integers": (lambda: Integers(), ModelError, "has no trainable parameter"),
    "mixed precision": (lambda: changed_network(lambda m: m[0].float()), ModelError, "several kinds: cpu"),
    "partly half": (lambda: changed_network(lambda m: m[2].half()), ModelError, "2.weight is torch.float16"),
    "on the meta device": (lambda: network().to("meta"), ModelError, "meta device"),
    "on two devices": (lambda: changed_network(lambda m: m[2].to("meta")), ModelError, "several kinds: cpu"),
    "buffers elsewhere": (lambda: with_buffer(), ModelError, "different devices"),
    "not initialised": (lambda: nn.Sequential(network(), nn.LazyLinear(2)), ModelError, "not initialised"),
    "all frozen": (lambda: network().requires_grad_(False), ModelError, "Unfreeze some"),
    "without parameters": (lambda: nn.Flatten(), ModelError, "has no trainable parameter"),
    "NaN parameters": (lambda: filled(NAN), NumericalError, "Parameter 0.bias holds NaN"),
    "infinite parameters": (lambda: filled(INF), NumericalError, "Parameter 0.bias holds NaN"),
    "returns a tuple": (lambda: Returns(lambda z: (z, z)), ModelError, "returned a tuple"),
    "returns a dict": (lambda: Returns(lambda z: {"out": z}), ModelError, "returned a dict"),
    "returns several": (lambda: Returns(lambda z: {"out": z, "h": z}), ModelError, r"\['out'\][\s\S]*torch.cat"),
    "is a class": (lambda: nn.Linear, ModelError, r"the class Linear[\s\S]*Make an instance: Linear\("),
    "is a state dict": (lambda: network().state_dict(), ModelError, "load_state_dict"),
    "is the loss": (lambda: nn.MSELoss(), ModelError, r"Risk\(model, loss, data\)"),
    "takes two inputs": (lambda: TakesTwo(), ModelError, r"\(\(a, b\), y\) for model\(a, b\)"),
    "asks for a parameter": (lambda: Asks(), ModelError, r"not by self\.get_parameter\('weight'\)"),
    "reads an attribute that is not there": (lambda: Returns(lambda z: z.logits), ModelError, "no attribute 'logits'"),
    "returns a scalar": (lambda: Returns(lambda z: z.mean()), ModelError, "returned a scalar"),
    "returns nothing": (lambda: Returns(lambda z: None), ModelError, "returned a NoneType"),
    "returns integers": (lambda: Returns(lambda z: z.argmax(1)), ModelError, "returns torch.int64"),
    "returns half precision": (lambda: Returns(lambda z: z.half()), ModelError, "returns torch.float16"),
    "returns complex": (lambda: Returns(lambda z: torch.complex(z, z)), ModelError, "returns torch.complex128"),
    "returns one dimension": (lambda: Returns(lambda z: z[:, 0]), DataError, "one for the classes"),
    "returns NaN": (lambda: Returns(lambda z: z / 0), NumericalError, "NaN or infinity on batch 0."),
    "fails": (lambda: Returns(lambda z: z @ z), ModelError, "The model failed on batch 0"),
    "writes into a parameter": (lambda: Clamped("in place"), ModelError, "writes into parameter weight"),
    "exchanges a parameter": (lambda: Clamped("by its data"), ModelError, "writes into parameter weight"),
    "asserts a shape": (lambda: Returns(asserting), ModelError, "failed on batch 0: 5 classes are expected"),
    "asks for an entry": (lambda: Returns(lambda z: {"out": z}["logits"]), ModelError, "failed on batch 0: 'logits'"),
}  # fmt: skip


class Clamped(nn.Linear):
    """Keeps its weight within bounds by writing into it, as critics do."""

    def __init__(self, way):
        super().__init__(D, C, dtype=torch.float64)
        self.way = way

    def forward(self, x):
        if self.way == "in place":
            with torch.no_grad():
                self.weight.clamp_(-0.1, 0.1)
        else:
            self.weight.data = self.weight.data.clamp(-0.1, 0.1)
        return super().forward(x)


class Moved(nn.Linear):
    """Its weight goes to other memory, as recurrent layers on a GPU do it to lie together."""

    def forward(self, x):
        self.weight.data = self.weight.data.clone()
        return super().forward(x)


def test_parameters_may_move_to_other_memory(x, y):
    risk = Risk(Moved(D, C).double(), CE, (x, y))
    H = dense_hessian(lambda t: CE(x @ t[: C * D].view(C, D).T + t[C * D :], y), risk.theta)
    assert_close(ritz.hessian(risk).dense(), H)


class TakesTwo(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, C).double()

    def forward(self, first, second):
        return self.layer(first - second)


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(C, 1, dropout=0.5, batch_first=True).double()

    def forward(self, x):
        return self.attention(x[:, None], x[:, None], x[:, None])[0][:, 0]


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(D, C, dtype=torch.float64).to_sparse())

    def forward(self, x):
        return torch.sparse.mm(self.weight.mT, x.T).T


class Integers(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(D, C, dtype=torch.int64), requires_grad=False)


def with_buffer():
    model = Returns(lambda z: z)
    model.register_buffer("scale", torch.ones(C, device="meta", dtype=torch.float64))
    model.change = lambda z: z * model.scale
    return model


def filled(value):
    return changed_network(lambda m: m[0].bias.data.fill_(value))


@pytest.mark.parametrize("name", BAD_MODELS)
def test_bad_models_are_refused(name, x, y, unchecked):
    build, kind, message = BAD_MODELS[name]
    model = build()
    with pytest.raises(ritz.RitzError, match=message) as caught:
        Risk(model, CE, (x, y))
    check_refusal(caught, kind)


def test_train_mode_without_randomness_is_fine(x, y):
    model = nn.Sequential(network(), nn.Dropout(0.0), nn.LayerNorm(C).double()).train()
    check_against_pytorch(Risk(model, CE, (x, y)), model, F.cross_entropy(model(x), y))


def test_a_risk_does_not_follow_its_model_into_train_mode():
    layers = [nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3)]
    model = nn.Sequential(*layers).double().eval()
    x, y = torch.randn(7, 5, dtype=torch.float64), torch.randint(3, (7,))
    risk = ritz.Risk(model, nn.CrossEntropyLoss(), (x, y))
    gradient, product = risk.gradient(), ritz.hessian(risk) @ risk.theta
    model.train()
    assert_close(risk.gradient(), gradient)
    assert_close(ritz.hessian(risk) @ risk.theta, product)


class Remembering(nn.Module):
    """A model that counts its calls, keeps an activation, and owns something that cannot be copied."""

    def __init__(self):
        super().__init__()
        self.layer, self.calls, self.kept, self.lock = nn.Linear(3, 2), 0, None, threading.Lock()

    def forward(self, x):
        self.calls, self.kept = self.calls + 1, self.layer(x)
        return self.kept


def test_what_a_model_writes_into_itself_stays_with_the_risk():
    model = Remembering()
    risk = ritz.Risk(model, nn.CrossEntropyLoss(), (torch.randn(6, 3), torch.randint(2, (6,))))
    ritz.hessian(risk) @ risk.theta
    assert model.calls == 0 and model.kept is None


def test_an_unused_buffer_may_lie_on_the_meta_device(x, y):
    model, plain = network(), network()
    model.register_buffer("unused", torch.ones(C, device="meta"))
    assert torch.equal(ritz.hessian(Risk(model, CE, (x, y))).dense(), ritz.hessian(Risk(plain, CE, (x, y))).dense())


def test_hooks_that_come_later_stay_with_their_own_copy(x, y):
    """Copies of modules share none of their empty attributes."""
    model = network()
    risk = Risk(model, CE, (x, y))
    other, value = risk.at(risk.theta), risk.loss_value()
    for own in (model, other.model):
        own[0].register_forward_hook(lambda module, inputs, out: 2 * out)
        assert risk.at(risk.theta).loss_value() == value and not risk.model[0]._forward_hooks
    assert model[0]._forward_hooks.keys() != other.model[0]._forward_hooks.keys()


def test_batch_norm_without_running_statistics_is_refused():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 2)).eval()
    with pytest.raises(ModelError, match="without running statistics"):
        ritz.Risk(model, nn.CrossEntropyLoss(), (torch.randn(6, 3), torch.randint(2, (6,))))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning", "ignore:`torch.jit:FutureWarning")
def test_compiled_by_jit_is_refused_and_its_weights_can_be_taken_over(x, y):
    compiled = torch.jit.trace(network(), x)
    for model in (compiled, nn.Sequential(compiled)):
        with pytest.raises(ModelError, match=r"was compiled by torch\.jit") as caught:
            Risk(model, CE, (x, y))
        check_refusal(caught, ModelError)
    model = changed_network(lambda m: m[0].bias.data.zero_())
    model.load_state_dict(compiled.state_dict())
    assert_close(Risk(model, CE, (x, y)).gradient(), Risk(network(), CE, (x, y)).gradient())


def test_batch_norm_without_running_statistics_can_be_given_some(x, y):
    norm = nn.BatchNorm1d(5, track_running_stats=False)
    model = nn.Sequential(nn.Linear(D, 5), norm, nn.Linear(5, C)).double().eval()
    with pytest.raises(ModelError, match="in evaluation mode too") as caught:
        Risk(model, CE, (x, y))
    check_refusal(caught, ModelError)
    assert not any("Call model.eval()" in way for way in caught.value.ways_out)
    model[1] = nn.BatchNorm1d(5, track_running_stats=True).double()
    model.train()(x)
    model.eval()
    check_against_pytorch(Risk(model, CE, (x, y)), model, F.cross_entropy(model(x), y))
    model[1] = nn.GroupNorm(1, 5).double()
    check_against_pytorch(Risk(model, CE, (x, y)), model, F.cross_entropy(model(x), y))


def test_embeddings_that_shorten_their_rows_are_refused_and_can_be_shortened_once(y):
    tokens = torch.arange(len(y)) % 7
    model = nn.Sequential(nn.Embedding(7, 4, max_norm=1.0), nn.Linear(4, C)).double()
    with nothing_changes(model), pytest.raises(ModelError, match=r"max_norm=1\.0") as caught:
        Risk(model, CE, (tokens, y))
    check_refusal(caught, ModelError)
    expected = F.cross_entropy(model(tokens), y)
    model[0].weight.data.renorm_(2.0, 0, 1.0)
    model[0].max_norm = None
    check_against_pytorch(Risk(model, CE, (tokens, y)), model, F.cross_entropy(model(tokens), y))
    assert_close(F.cross_entropy(model(tokens), y), expected, rtol=1e-6, atol=0)  # renorm_ keeps a little below


@pytest.mark.parametrize(("channels", "stays"), [(3, True), (8, False)])
def test_images_keep_their_layout_where_pytorch_fails_in_the_faster_one(channels, stays):
    """In float32 oneDNN would write beyond its memory; in float64, in which nothing breaks, the choice is the same."""
    layouts = []
    layers = nn.Conv2d(channels, 4, 1, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    model = nn.Sequential(*layers).double()
    model[0].register_forward_pre_hook(lambda _, inputs: layouts.append(inputs[0].is_contiguous()))
    images = torch.randn(5, channels, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    risk = Risk(model, nn.CrossEntropyLoss(), (images, torch.arange(5) % 3))
    layouts.clear()
    ritz.hessian(risk) @ torch.ones(risk.size, dtype=torch.float64)
    assert set(layouts) == {stays}


@pytest.mark.parametrize(
    "device, precision, groups, moved",
    [("cpu", "highest", 1, True), ("cpu", "highest", 4, True), ("cuda", "highest", 1, False),
     ("cuda", "high", 1, True), ("cuda", "high", 4, False)],
)  # fmt: skip
def test_images_are_stored_channels_last_where_that_is_faster(device, precision, groups, moved):
    model = nn.Sequential(nn.Conv2d(4, 4, 3, groups=groups))
    assert prefers_channels_last(model, torch.device(device), precision) == moved
    for norm in (nn.GroupNorm(2, 4), nn.InstanceNorm2d(4)):
        normed = nn.Sequential(model, norm)
        assert prefers_channels_last(normed, torch.device(device), precision) == (moved and device == "cuda")
    assert not prefers_channels_last(nn.Linear(2, 2), torch.device(device), precision)


class ReadsMemory(nn.Module):
    """A network that counts on PyTorch's usual order of memory, as a kernel of its own may do."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Conv2d(2, 2, 1), nn.Linear(8, C)

    def forward(self, x):
        return self.head(torch.tanh(self.first(x).as_strided((len(x), 8), (8, 1))))


def test_a_network_that_reads_memory_as_it_lies_keeps_the_layout_of_its_images(generator, y):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = ReadsMemory().double()
    x = torch.randn(N, 2, 2, 2, generator=generator, dtype=torch.float64)
    check_against_pytorch(Risk(model, CE, (x, y)), model, CE(model(x), y))


class Normed(nn.Module):
    """A group norm behind a convolution, as a layer or as a function."""

    def __init__(self, functional):
        super().__init__()
        self.first, self.head, self.functional = nn.Conv2d(2, 4, 3, padding=1), nn.Linear(4, 3), functional
        self.norm = nn.LayerNorm(4) if functional else nn.GroupNorm(2, 4)

    def forward(self, x):
        h = self.first(x)
        h = F.group_norm(h, 2, self.norm.weight, self.norm.bias) if self.functional else self.norm(h)
        return self.head(torch.tanh(h).mean((2, 3)))


@pytest.mark.parametrize("functional", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_the_weights_of_a_group_norm_alone_have_a_hessian(functional, turned):
    """Of images channels last PyTorch's backward pass would end the process: it computes no other gradient there."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Normed(functional).double()
        batches = [(torch.randn(n, 2, 4, 4, dtype=torch.float64), torch.randint(3, (n,))) for n in (5, 3)]
    model = model.to(memory_format=torch.channels_last) if turned else model
    twin = copy.deepcopy(model).to(memory_format=torch.contiguous_format)
    (x, y), whole = map(torch.cat, zip(*batches, strict=True)), Risk(model, CE, batches)
    for name in ("norm.weight", "norm.bias"):
        value = lambda t, name=name: CE(torch.func.functional_call(twin, {name: t}, (x,)), y)
        expected = dense_hessian(value, getattr(twin.norm, name[5:]).detach())
        assert_close(ritz.hessian(Risk(model, CE, batches, parameters=name)).dense(), expected)
        assert_close(ritz.hessian(whole.restricted_to(name)).dense(), expected)


class Mapped(nn.Module):
    """A network that is mapped over the examples inside."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return torch.func.vmap(lambda image: self.inner(image[None])[0])(x)


def test_a_group_norm_that_is_mapped_over_examples_is_asked_nothing():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Normed(functional=False).double()
        data = torch.randn(5, 2, 4, 4, dtype=torch.float64), torch.arange(5) % 3
    A, B = (ritz.hessian(Risk(m, CE, data)) for m in (Mapped(model), model))
    assert_close(A.dense(), B.dense())


class Squeezed(nn.Module):
    """Outputs without dimensions of size one, that of the examples included."""

    def __init__(self, width):
        super().__init__()
        self.inner = network(width)

    def forward(self, x):
        return self.inner(x).squeeze()


@pytest.mark.parametrize("cuts", [(7, 4), (10, 1), (1, 10), (2, 9)], ids=str)
@pytest.mark.parametrize("width", [1, C])
def test_outputs_of_one_example_may_lack_the_dimension_of_examples(width, cuts, x, y):
    model = Squeezed(width)
    if width == 1:
        y, loss = (y > 0).double(), nn.BCEWithLogitsLoss()
        twin = nn.Sequential(model.inner, nn.Flatten(0))
    else:
        loss, twin = CE, model.inner
        cuts = sorted(cuts, reverse=True)  # where the first batch has one example, that is not known of the outputs
    batches = list(zip(x.split(cuts), y.split(cuts), strict=True))
    risk, plain = Risk(model, loss, batches), Risk(twin, loss, batches)
    assert risk.separable
    for A in (ritz.hessian, ritz.gauss_newton, ritz.empirical_fisher):
        assert_close(A(risk).dense(), A(plain).dense())
    assert_close(ritz.hessian(risk.first(1)).dense(), ritz.hessian(plain.first(1)).dense())
    assert_close(ritz.gram_spectrum(risk).nodes, ritz.gram_spectrum(plain).nodes)
    if width == C:
        parts = ritz.class_decomposition(risk), ritz.class_decomposition(plain)
        assert_close(parts[0].cross_class.dense(), parts[1].cross_class.dense())
