"""Every derivative rule against PyTorch's own double backward of the layer alone."""

import itertools
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close

from ritz.engine.rules import EfficientRules
from ritz.engine.rules.pointwise import POINTWISE as POINTWISE_RULES


def value_and_derivatives(function, leaves, *, active, second):
    """The value y, x̄ = Jᵀu, J t from the graph of u ↦ Jᵀu, and the derivative of Jᵀu along t with respect to leaves."""
    generator = torch.Generator().manual_seed(1)
    leaves = [leaf.detach().requires_grad_(leaf.requires_grad) for leaf in leaves]
    trained = [leaf for leaf in leaves if leaf.requires_grad]
    if active:
        with EfficientRules(second=second) as mode:
            y = function(*leaves)
        assert mode.used == (active == "used")
    else:
        y = function(*leaves)
    u = torch.randn(y.shape, generator=generator, dtype=y.dtype).requires_grad_()
    tangents = [torch.randn(leaf.shape, generator=generator, dtype=y.dtype) for leaf in trained]
    gradient = torch.autograd.grad(y, trained, u, create_graph=True)
    inner = sum((g * t).sum() for g, t in zip(gradient, tangents, strict=True))
    targets = [u, *trained] if second else [u]
    found = torch.autograd.grad(inner, targets, allow_unused=True)
    mixed = [torch.zeros_like(t) if f is None else f for f, t in zip(found, targets, strict=True)]
    return y.detach(), [g.detach() for g in gradient], mixed


def check_rule(function, *leaves, used=True, reference=None):
    """With the rules, a function has the same value, bit by bit, and the same first and second derivatives."""
    active = "used" if used else "idle"
    for second in (True, False):
        expected = value_and_derivatives(reference or function, leaves, active=None, second=second)
        actual = value_and_derivatives(function, leaves, active=active, second=second)
        assert_close(actual[0], expected[0], rtol=0, atol=0 if reference is None else 1e-12)
        for a, b in zip(actual[1] + actual[2], expected[1] + expected[2], strict=True):
            assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.fixture
def normal(generator):
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def frozen(tensor):
    return tensor.detach().requires_grad_(False)


def choices(tensors):
    """Every combination of trained and frozen tensors but the one that trains nothing."""
    for flags in itertools.product([True, False], repeat=len(tensors)):
        if any(flags):
            yield [tensor if flag else frozen(tensor) for tensor, flag in zip(tensors, flags, strict=True)]


# Linear layers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leading", [(5,), (5, 2), (2, 3, 2)])
def test_linear_layers_with_any_leading_dimensions(leading, normal):
    for leaves in choices([normal(*leading, 4), normal(3, 4), normal(3)]):
        check_rule(lambda *t: F.linear(*t).square(), *leaves)
    for leaves in choices([normal(*leading, 4), normal(3, 4)]):
        check_rule(lambda *t: F.linear(*t).square(), *leaves)


def test_a_linear_layer_of_one_example_is_left_to_pytorch(normal):
    check_rule(lambda *t: F.linear(*t).square(), normal(4), normal(3, 4), normal(3), used=False)


def test_a_linear_layer_called_by_names(normal):
    check_rule(lambda x, w, b: F.linear(input=x, bias=b, weight=w).square(), normal(5, 4), normal(3, 4), normal(3))


def test_a_weight_that_is_used_twice(normal):
    check_rule(lambda x, w: F.linear(torch.tanh(F.linear(x, w)), w), normal(5, 4), normal(4, 4))


# Convolutions ---------------------------------------------------------------------------------------------------------

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
SETTINGS = {
    "plain": {},
    "stride": {"stride": 2},
    "padding": {"padding": 1},
    "dilation": {"dilation": 2, "padding": 2},
    "groups": {"groups": 2},
    "all combined": {"stride": 2, "padding": 2, "dilation": 2, "groups": 2},
}


@pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("dims", CONVOLUTIONS)
def test_convolutions(dims, options, normal):
    convolve = CONVOLUTIONS[dims]
    size = 5 if dims < 3 else 4
    x, w = normal(3, 4, *[size] * dims), normal(2, 4 // options.get("groups", 1), *[2] * dims)
    check_rule(lambda *t: convolve(*t, **options).square(), x, w, normal(2))
    check_rule(lambda *t: convolve(*t, **options).square(), x, w)


def test_convolutions_with_frozen_parts(normal):
    for leaves in choices([normal(3, 2, 4, 4), normal(2, 2, 2, 2), normal(2)]):
        check_rule(lambda *t: F.conv2d(*t, padding=1).square(), *leaves)


def test_settings_that_differ_between_dimensions(normal):
    options = {"stride": (1, 2), "padding": (2, 0), "dilation": (1, 2)}
    check_rule(lambda *t: F.conv2d(*t, **options).square(), normal(2, 2, 5, 6), normal(3, 2, 3, 2), normal(3))


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_padding_by_name_is_left_to_pytorch(padding, normal):
    leaves = normal(2, 2, 4, 4), normal(3, 2, 3, 3), normal(3)
    check_rule(lambda *t: F.conv2d(*t, padding=padding).square(), *leaves, used=False)


def test_a_convolution_of_one_image_is_left_to_pytorch(normal):
    check_rule(lambda *t: F.conv2d(*t).square(), normal(2, 4, 4), normal(3, 2, 2, 2), used=False)


def test_a_transposed_convolution_is_left_to_pytorch(normal):
    leaves = normal(2, 2, 4, 4), normal(2, 3, 2, 2)
    check_rule(lambda *t: F.conv_transpose2d(*t, stride=2).square(), *leaves, used=False)


def test_images_stored_channels_last(normal):
    x = frozen(normal(3, 2, 4, 4)).contiguous(memory_format=torch.channels_last).requires_grad_()
    check_rule(lambda *t: F.conv2d(*t, padding=1).square(), x, normal(4, 2, 3, 3), normal(4))


def test_images_stored_channels_last_stay_so(normal):
    x = frozen(normal(3, 2, 4, 4)).contiguous(memory_format=torch.channels_last).requires_grad_()
    w = normal(4, 2, 3, 3)
    with EfficientRules(second=False):
        y = F.conv2d(x, w, padding=1)
    for found in (y, *torch.autograd.grad(y.sum(), [x, w])):
        assert found.is_contiguous(memory_format=torch.channels_last)


# Normalisations -------------------------------------------------------------------------------------------------------


def statistics(count=3):
    generator = torch.Generator().manual_seed(2)
    mean, variance = torch.randn(2, count, generator=generator, dtype=torch.float64)
    return mean, variance.exp()


@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 4), (5, 3, 2, 2), (2, 3, 2, 2, 2)])
def test_batch_norm_alone(shape, normal):
    for leaves in choices([normal(*shape), normal(3), normal(3)]):
        check_rule(lambda x, w, b: F.batch_norm(x, *statistics(), w, b).square(), *leaves)
    check_rule(lambda x: F.batch_norm(x, *statistics()).square(), normal(*shape))
    check_rule(lambda x, w: F.batch_norm(x, *statistics(), weight=w).square(), normal(*shape), normal(3))


@pytest.mark.parametrize("dims", CONVOLUTIONS)
def test_batch_norm_after_a_convolution(dims, normal):
    convolve, x, w = CONVOLUTIONS[dims], normal(3, 2, *[3] * dims), normal(3, 2, *[2] * dims)
    normed = lambda h, scale, shift: F.batch_norm(h, *statistics(), scale, shift).square()
    for leaves in choices([w, normal(3), normal(3)]):
        check_rule(lambda w, s, b: normed(convolve(frozen(x), w), s, b), *leaves)
    check_rule(lambda x, w, c, s, b: normed(convolve(x, w, c), s, b), x, w, normal(3), normal(3), normal(3))


def test_a_convolution_whose_output_is_used_besides_the_batch_norm(normal):
    def block(x, w, scale):
        h = F.conv2d(x, w)
        return F.batch_norm(h, *statistics(), scale).sigmoid() * h + h.square()

    check_rule(block, normal(3, 2, 3, 3), normal(3, 2, 2, 2), normal(3))


def test_a_convolution_with_two_batch_norms(normal):
    def block(x, w, a, b):
        h = F.conv2d(x, w)
        return F.batch_norm(h, *statistics(), a) * F.batch_norm(h, *statistics(), b)

    check_rule(block, normal(3, 2, 3, 3), normal(3, 2, 2, 2), normal(3), normal(3))


@pytest.mark.parametrize("change", [F.relu_, lambda h: h.mul_(2.0), lambda h: F.silu(h, inplace=True)])
def test_a_convolution_changed_in_place_before_the_batch_norm(change, normal):
    def block(x, w, scale):
        h = F.conv2d(x, w)
        change(h)
        return F.batch_norm(h, *statistics(), scale).square()

    check_rule(block, normal(3, 2, 3, 3), normal(3, 2, 2, 2), normal(3))


def test_batch_norm_with_a_bias_alone(normal):
    shifted = lambda x, b: F.batch_norm(x, *statistics(), bias=b).square()
    reference = lambda x, b: (F.batch_norm(x, *statistics()) + b).square()
    check_rule(shifted, normal(5, 3), normal(3), reference=reference)


def test_batch_norm_by_the_batch_itself_is_left_to_pytorch(normal):
    check_rule(lambda x, w: F.batch_norm(x, None, None, w, training=True).square(), normal(5, 3), normal(3), used=False)


@pytest.mark.parametrize("normalized", [(4,), (3, 4), (2, 3, 4)])
def test_layer_norm_over_the_last_dimensions(normalized, normal):
    x = normal(2, 2, 3, 4)
    norm = lambda x, w=None, b=None: F.layer_norm(x, normalized, w, b).pow(3)
    check_rule(norm, x)
    check_rule(norm, x, normal(*normalized))
    for leaves in choices([x, normal(*normalized), normal(*normalized)]):
        check_rule(norm, *leaves)


def test_layer_norm_with_its_own_epsilon_and_a_bias_alone(normal):
    shifted = lambda x, b: F.layer_norm(x, (4,), bias=b, eps=0.3).pow(3)
    reference = lambda x, b: (F.layer_norm(x, (4,), eps=0.3) + b).pow(3)  # PyTorch's double backward wants a weight
    check_rule(shifted, normal(5, 4), normal(4), reference=reference)


def test_layer_norm_of_equal_entries(normal):
    check_rule(lambda x: F.layer_norm(x * 0.0 + 1.0, (4,)).pow(3) + x, normal(5, 4))


def test_layer_norm_of_several_directions_at_once(normal):
    x, w, b = normal(5, 4), normal(4), normal(4)
    assert_batched_products_agree(lambda *t: F.layer_norm(t[0], (4,), *t[1:]), x, w, b)


# Attention ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def plain_attention():
    """Fused attention has no second derivative to compare with; the engine switches it off, too."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def attended(**options):
    return lambda *t: F.scaled_dot_product_attention(*t, **options).pow(3)


def check_attention(function, *leaves, used=True):
    """The first-order rule; where second derivatives are asked for, PyTorch's own are used."""
    for second in (True, False):
        active = "used" if used and not second else "idle"
        expected = value_and_derivatives(function, leaves, active=None, second=second)
        actual = value_and_derivatives(function, leaves, active=active, second=second)
        assert_close(actual[0], expected[0], rtol=0, atol=0)
        for a, b in zip(actual[1] + actual[2], expected[1] + expected[2], strict=True):
            assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.usefixtures("plain_attention")
@pytest.mark.parametrize("leading", [(3,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}])
def test_attention_with_frozen_parts(leading, options, normal):
    for leaves in choices([normal(*leading, 5, 4), normal(*leading, 6, 4), normal(*leading, 6, 2)]):
        check_attention(attended(**options), *leaves)


@pytest.mark.usefixtures("plain_attention")
def test_attention_with_a_mask(normal):
    q, k, v = normal(2, 3, 5, 4), normal(2, 3, 6, 4), normal(2, 3, 6, 4)
    hidden = torch.rand(5, 6, generator=torch.Generator().manual_seed(3)) < 0.5
    hidden[2] = False  # a position that sees nothing
    check_attention(attended(attn_mask=hidden), q, k, v)
    check_attention(attended(attn_mask=frozen(normal(2, 1, 5, 6))), q, k, v)


@pytest.mark.usefixtures("plain_attention")
def test_heads_cut_from_one_layer(normal):
    def heads(x, w):
        q, k, v = (t.unflatten(-1, (2, 3)).transpose(1, 2) for t in (x @ w).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)

    check_attention(heads, normal(2, 5, 4), normal(4, 18))


@pytest.mark.usefixtures("plain_attention")
def test_unusual_attention_is_left_to_pytorch(normal):
    q, k, v = normal(2, 4, 5, 3), normal(2, 2, 5, 3), normal(2, 2, 5, 3)
    check_attention(attended(enable_gqa=True), q, k, v, used=False)  # heads that share their keys
    check_attention(attended(), q, normal(1, 4, 5, 3), normal(2, 4, 5, 3), used=False)  # keys for every example
    check_attention(attended(), normal(5, 3), normal(5, 3), normal(5, 3), used=False)
    learned = lambda q, bias: F.scaled_dot_product_attention(q, q, q, attn_mask=bias).pow(3)
    check_attention(learned, normal(2, 4, 5, 3), normal(5, 5), used=False)


@pytest.mark.usefixtures("plain_attention")
def test_attention_with_dropout_is_left_to_pytorch(normal):
    with EfficientRules(second=False) as mode:
        F.scaled_dot_product_attention(normal(2, 4, 3), normal(2, 4, 3), normal(2, 4, 3), dropout_p=0.5)
    assert not mode.used


@pytest.mark.usefixtures("plain_attention")
def test_attention_in_several_directions_at_once(normal):
    leaves = normal(2, 3, 5, 4), normal(2, 3, 5, 4), normal(2, 3, 5, 4)
    assert_batched_products_agree(lambda *t: F.scaled_dot_product_attention(*t, is_causal=True), *leaves)


def assert_batched_products_agree(function, *leaves):
    """Jᵀu and J t for three u and t together are those one by one."""
    generator = torch.Generator().manual_seed(4)
    with EfficientRules(second=False) as mode:
        y = function(*leaves)
    assert mode.used
    u = torch.zeros_like(y, requires_grad=True)
    gradient = torch.autograd.grad(y, leaves, u, create_graph=True)
    for outputs, inputs in (([y], leaves), (gradient, [u])):
        along = [torch.randn((3, *o.shape), generator=generator, dtype=y.dtype) for o in outputs]
        product = partial(torch.autograd.grad, outputs, inputs, retain_graph=True)
        together = product(along, is_grads_batched=True)
        for i in range(3):
            for a, b in zip(together, product([t[i] for t in along]), strict=True):
                assert_close(a[i], b, rtol=1e-10, atol=1e-12)


# Pointwise functions --------------------------------------------------------------------------------------------------

POINTWISE = {
    "gelu": F.gelu,
    "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "softplus, beta": lambda x: F.softplus(x, 2.0, 3.0),
    "elu": F.elu,
    "elu, alpha": lambda x: F.elu(x, 0.4),
    "celu": lambda x: F.celu(x, 0.4),
    "selu": F.selu,
    "logsigmoid": F.logsigmoid,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "torch.tanh": torch.tanh,
    "torch.sigmoid": torch.sigmoid,
    "torch.erf": torch.erf,
    "torch.sin": torch.sin,
    "torch.cos": torch.cos,
    "Tensor.tanh": lambda x: x.tanh(),
    "Tensor.sigmoid": lambda x: x.sigmoid(),
    "Tensor.erf": lambda x: x.erf(),
    "Tensor.sin": lambda x: x.sin(),
    "Tensor.cos": lambda x: x.cos(),
    "F.tanh": F.tanh,
    "F.sigmoid": F.sigmoid,
    "by name": lambda x: F.gelu(input=x),
}


def test_every_pointwise_rule_is_tested():
    names = {getattr(f, "__name__", "") for f in POINTWISE_RULES}
    assert names <= {name.split(".")[-1].split(",")[0] for name in POINTWISE} | {"log_sigmoid"}


@pytest.mark.parametrize("function", POINTWISE.values(), ids=POINTWISE)
def test_pointwise_functions(function, normal):
    x = torch.cat([2.0 * frozen(normal(40)), torch.tensor([30.0, -30.0, 1e-9], dtype=torch.float64)]).requires_grad_()
    check_rule(lambda t: function(t).square(), x)
    check_rule(function, x)


LAYERS = [
    nn.GELU, nn.SiLU, nn.Mish, nn.Softplus, nn.ELU, nn.CELU, nn.SELU, nn.LogSigmoid, nn.Softsign, nn.Tanhshrink,
    nn.Tanh, nn.Sigmoid,
]  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS)
def test_the_modules_of_pointwise_functions_use_their_rules(layer, normal):
    check_rule(lambda x: layer()(x).square(), normal(20))


@pytest.mark.parametrize("layer", [nn.ELU, nn.CELU, nn.SELU, nn.SiLU, nn.Mish])
def test_pointwise_functions_in_place_are_left_to_pytorch(layer, normal):
    check_rule(lambda x: layer(inplace=True)(2.0 * x).square(), normal(20), used=False)


def test_pointwise_functions_of_constants_are_left_to_pytorch(normal):
    x = frozen(normal(20))
    check_rule(lambda w: torch.tanh(x) * w.square(), normal(20), used=False)


def test_a_network_of_everything(normal):
    layers = [nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.SiLU(), nn.Conv2d(4, 4, 3, groups=2), nn.GELU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.LayerNorm(16), nn.Linear(16, 3), nn.Tanh()).double().eval()
    names = [name for name, _ in model.named_parameters()]
    run = lambda x, *p: torch.func.functional_call(model, dict(zip(names, p, strict=True)), (x,)).square()
    check_rule(run, frozen(normal(5, 2, 4, 4)), *model.parameters())


def test_nothing_is_used_outside_of_the_context(normal):
    x = normal(5, 4)
    with EfficientRules(second=True) as mode:
        pass
    F.gelu(F.linear(x, normal(3, 4)))
    assert not mode.used
