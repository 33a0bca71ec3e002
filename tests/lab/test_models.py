"""Models compute their formulas, with weights from their generator alone and parameters in the papers' order."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from ritz import Risk, gauss_newton, hessian, theory
from ritz.errors import ArgumentError, FileError, ModelError
from ritz.lab import init, models
from ritz.lab.models import pretrained
from ritz.risk.losses import SquaredError
from tests.lab.gpt2_weights import TINY, published, published_names
from tests.seeds import normal, seeded

DOUBLE = {"dtype": torch.float64}
BUILDERS = {
    "mlp": lambda **o: models.mlp((5, 4, 3), **o),
    "μP": lambda **o: models.mlp((5, 4, 3), parametrization=init.maximal_update, **o),
    "linear": lambda **o: models.linear_network((5, 4, 3), **o),
    "wide": lambda **o: models.wide_mlp(5, 3, width=4, **o),
    "scalar": lambda **o: models.scalar_network(4, **o),
    "bias": lambda **o: models.bias_network(4, **o),
    "attention": lambda **o: models.self_attention(4, 2, **o),
    "resnet20": models.resnet20,
    "gpt": lambda **o: models.gpt(TINY, **o),
    "gpt without attention": lambda **o: models.gpt(models.without_attention(TINY), **o),
}
every_builder = pytest.mark.parametrize("builder", BUILDERS.values(), ids=BUILDERS.keys())


# --- of all models ---------------------------------------------------------------------------------------------------


@every_builder
def test_weights_come_from_the_generator_and_from_nowhere_else(builder):
    state = torch.get_rng_state()
    first = builder(generator=seeded(0)).state_dict()
    torch.rand(3)  # moves torch's own generator on
    second, other = (builder(generator=seeded(seed)).state_dict() for seed in (0, 1))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
    torch.set_rng_state(state)
    builder(generator=seeded(0))
    assert torch.equal(state, torch.get_rng_state())


@every_builder
def test_a_model_has_the_same_weights_rounded_in_every_precision_and_none_on_the_meta_device(builder):
    single, double = (builder(generator=seeded(), dtype=dtype) for dtype in (torch.float32, torch.float64))
    for a, b in zip(single.state_dict().values(), double.state_dict().values(), strict=True):
        assert torch.equal(a, b.to(a.dtype))
    laid_out = builder(generator=seeded(), device="meta")
    assert {p.device.type for p in laid_out.parameters()} == {"meta"}
    assert [p.shape for p in laid_out.parameters()] == [p.shape for p in single.parameters()]


@every_builder
def test_every_weight_is_finite_and_trainable(builder):
    model = builder(generator=seeded())
    assert all(bool(p.isfinite().all()) and p.requires_grad for p in model.parameters())
    assert all(bool(b.isfinite().all()) for b in model.buffers())


COUNTS = {
    "VGG11": (models.vgg11, 28_157_706),
    "ResNet-18": (models.resnet18, 11_173_962),
    "ResNet-20": (models.resnet20, 269_722),
    "GPT-2": (lambda **o: models.gpt(models.GPT2, **o), 124_439_808),
    "eight layers": (lambda **o: models.wide_mlp(784, **o), 784 * 2048 + 6 * 2048**2 + 2048 * 10 + 3 * 7 * 2048 + 10),
}


@pytest.mark.parametrize(
    "build",
    [
        *(lambda: models.vgg11(num_channels=-1, generator=seeded()), lambda: models.vgg11(0, generator=seeded())),
        *(lambda: models.resnet18(num_channels=0, generator=seeded()), lambda: models.resnet20(-1, generator=seeded())),
        *(lambda: models.wide_mlp(0, width=3, generator=seeded()), lambda: models.ResidualBlock(-1, 1)),
    ],
)
def test_a_network_without_channels_inputs_or_classes_is_refused(build):
    with pytest.raises(ArgumentError, match="at least one"):
        build()


def test_a_network_without_layers_is_refused():
    with pytest.raises(ArgumentError, match="0 layers"):
        models.wide_mlp(5, depth=0, generator=seeded())


@pytest.mark.parametrize("builder, count", COUNTS.values(), ids=COUNTS.keys())
def test_large_models_have_the_published_number_of_parameters(builder, count):
    assert models.parameter_count(builder(generator=seeded(), device="meta")) == count


# --- fully connected -------------------------------------------------------------------------------------------------

ACTIVATIONS = {
    "linear": lambda h: h,
    "relu": lambda h: h.clamp(min=0),
    "leaky": lambda h: torch.where(h > 0, h, 0.01 * h),
    "tanh": torch.tanh,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_an_mlp_is_its_formula(name, bias):
    model = models.mlp((3, 5, 4, 2), generator=seeded(), activation=name, bias=bias, **DOUBLE)
    parameters = iter(model.parameters())
    h = x = normal(7, 3)
    for layer in range(3):
        h = h @ next(parameters).T + (next(parameters) if bias else 0)
        h = ACTIVATIONS[name](h) if layer < 2 else h
    assert_close(model(x), h)


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_activation_is_refused():
    with pytest.raises(ArgumentError, match="swish"):
        models.mlp((3, 2), generator=seeded(), activation="swish")


def test_default_weights_and_biases_fill_the_interval_of_pytorch():
    layer = models.mlp((100, 300), generator=seeded())[0]
    for parameter in (layer.weight.detach(), layer.bias.detach()):
        assert float(parameter.abs().max()) == pytest.approx(0.1, rel=0.02)
        assert abs(float(parameter.mean())) < 4 * 0.1 / (3 * parameter.numel()) ** 0.5


def test_given_weights_are_taken_as_they_are_and_biases_start_at_zero():
    weights = init.balanced((4, 3, 2), [1.0, 0.5], generator=seeded())
    model = models.mlp((4, 3, 2), generator=seeded(), activation="tanh", parametrization=weights, **DOUBLE)
    assert_close([model[0].weight.data, model[2].weight.data], weights)
    assert not model[0].bias.any() and not model[2].bias.any()


def test_weights_of_other_widths_are_refused():
    with pytest.raises(ArgumentError, match="out × in"):
        models.mlp((4, 3, 2), generator=seeded(), parametrization=[normal(3, 4), normal(3, 2)])


def risk_of(model, x, y):
    """The papers' loss on two batches of different size."""
    return Risk(model, SquaredError(), [(x[:4], y[:4]), (x[4:], y[4:])])


def assert_is_the_hessian(closed_form, model, x, y):
    """Eigenvalues and eigenvectors, so that the order of the coordinates counts."""
    found = theory.compare(closed_form, hessian(risk_of(model, x, y)).dense())
    assert found.value < 1e-12 and found.residual < 1e-10


@pytest.mark.parametrize("activation", ["linear", "relu"])
def test_the_scalar_network_has_the_coordinates_of_its_closed_form(activation):
    model = models.scalar_network(5, generator=seeded(3), activation=activation, **DOUBLE)
    x, y = normal(9, 1), normal(9, 1, seed=1)
    closed = {"linear": theory.linear_network, "relu": theory.relu_network}[activation]
    assert [name for name, _ in model.named_parameters()] == ["v", "w"]
    assert_is_the_hessian(closed(model.v.detach(), model.w.detach(), x[:, 0], y[:, 0]), model, x, y)


def test_scalar_networks_keep_the_shape_of_their_inputs():
    x = normal(6)
    for model in (models.scalar_network(4, generator=seeded(), **DOUBLE), models.bias_network(4, generator=seeded())):
        assert_close(model(x.to(model.w))[:, None], model(x[:, None].to(model.w)))


def test_the_bias_network_has_the_coordinates_of_its_closed_form():
    model = models.bias_network(6, generator=seeded(), **DOUBLE)
    x, y = normal(9, 1), normal(9, 1, seed=1)
    closed = theory.bias_network(*(getattr(model, name).detach() for name in "vbw"), x[:, 0], y[:, 0])
    assert [name for name, _ in model.named_parameters()] == ["v", "b", "w"]
    assert_is_the_hessian(closed, model, x, y)


def test_a_linear_network_has_the_coordinates_of_its_closed_form():
    model = models.linear_network((3, 4, 5, 2), generator=seeded(), **DOUBLE)
    x, y = normal(9, 3), normal(9, 2)
    closed = theory.linear_gauss_newton([p.detach() for p in model.parameters()], x)
    found = theory.compare(closed, gauss_newton(risk_of(model, x, y)).dense())
    assert found.value < 1e-12 and found.residual < 1e-10


# --- self-attention --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"sink": 1.7}, {"sink": -0.8, "sink_token": 2, "causal": False}, {"causal": True}]
)
def test_a_head_on_numbers_has_the_coordinates_and_the_spectrum_of_its_closed_form(options):
    model = models.self_attention(4, generator=seeded(), deviation=1.0, **options, **DOUBLE)
    x, y = normal(6, 5), normal(6, 5, 1, seed=1)
    assert [name for name, _ in model.named_parameters()] == ["w_v", "w_q", "w_k"]
    w_v, w_q, w_k = (p.detach() for p in model.parameters())
    bias = model.scores_bias(5)
    closed = theory.self_attention(w_v.squeeze(), w_q[0], w_k[0], x, y[..., 0], scores_bias=bias)
    assert model(x).shape == (6, 5, 1)
    assert_is_the_hessian(closed, model, x, y)


def test_a_head_on_vectors_is_scaled_dot_product_attention():
    model = models.self_attention(4, 3, generator=seeded(), deviation=0.7, **DOUBLE)
    x = normal(2, 5, 3)
    expected = F.scaled_dot_product_attention(x @ model.w_q, x @ model.w_k, x @ model.w_v)
    assert_close(model(x), expected)
    model.causal = True
    expected = F.scaled_dot_product_attention(x @ model.w_q, x @ model.w_k, x @ model.w_v, is_causal=True)
    assert_close(model(x), expected)


def test_a_sink_draws_the_attention_of_every_position():
    model = models.self_attention(4, 3, generator=seeded(), sink_token=1, **DOUBLE)
    x = normal(2, 5, 3)
    shares = []
    for model.sink in (0.0, 1.0, 3.0, 30.0):
        shares.append(model.attention(x)[..., 1])
    for less, more in pairwise(shares):
        assert bool((more > less).all())
    assert_close(shares[-1], torch.ones_like(shares[-1]))


@pytest.mark.parametrize("shape", [(5,), (2, 5), (2, 5, 4)])
@pytest.mark.usefixtures("unchecked")
def test_sequences_of_another_embedding_dimension_are_refused(shape):
    with pytest.raises(ArgumentError, match="embedding dimension 3"):
        models.self_attention(4, 3, generator=seeded())(torch.zeros(shape))


def test_a_head_without_columns_is_refused():
    with pytest.raises(ArgumentError, match="positive sizes"):
        models.self_attention(0, generator=seeded())


# --- convolutional ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vgg():
    return models.vgg11(4, generator=seeded(), num_channels=1)


def test_vgg11_has_eleven_layers_and_batch_norm_after_all_but_the_last(vgg):
    layers = [part for part in vgg.modules() if isinstance(part, nn.Conv2d | nn.Linear)]
    norms = [part for part in vgg.modules() if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d)]
    assert (len(layers), len(norms)) == (11, 10)
    assert not any(isinstance(part, nn.Dropout) for part in vgg.modules())
    assert vgg.eval()(torch.zeros(3, 1, 32, 32)).shape == (3, 4)
    assert all(torch.equal(n.running_var, torch.ones(n.num_features)) and not n.running_mean.any() for n in norms)


def test_vgg11_starts_from_the_published_deviations(vgg):
    for part in vgg.modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            fan_out = part.weight.numel() / part.weight.shape[1]
            deviation = (2 / fan_out) ** 0.5 if isinstance(part, nn.Conv2d) else 0.01
            error = 4 * (2 * part.weight.numel()) ** -0.5
            assert float(part.weight.detach().std()) / deviation == pytest.approx(1, abs=error)
            assert part.bias is None or not part.bias.any()


@pytest.mark.parametrize("projected", [True, False])
@pytest.mark.parametrize("before, after, stride", [(4, 4, 1), (4, 8, 2), (3, 6, 2)])
def test_a_residual_block_whose_branch_is_zero_is_its_shortcut(projected, before, after, stride):
    block = models.ResidualBlock(before, after, stride=stride, projected=projected).double().eval()
    nn.init.zeros_(block.conv2.weight)
    x = normal(2, before, 6, 6)
    if projected and after != before:
        expected = F.conv2d(x, block.shortcut[0].weight, stride=stride) / (1 + 1e-5) ** 0.5
    else:
        expected = torch.zeros(2, after, 6 // stride, 6 // stride, dtype=torch.float64)
        first = (after - before) // 2
        expected[:, first : first + before] = x[:, :, ::stride, ::stride]
    assert_close(block(x), expected.relu())


@pytest.mark.parametrize("builder, depth", [(models.resnet20, 20), (models.resnet18, 18)])
def test_residual_networks_have_as_many_layers_as_their_name_says(builder, depth):
    model = builder(7, generator=seeded(), num_channels=1)
    layers = [part for part in model.modules() if isinstance(part, nn.Conv2d | nn.Linear)]
    assert sum(isinstance(part, nn.Linear) or part.kernel_size == (3, 3) for part in layers) == depth
    assert model.eval()(torch.rand(2, 1, 32, 32, generator=seeded())).shape == (2, 7)


# --- transformers ----------------------------------------------------------------------------------------------------


def tokens_of(config, batch=3, seed=0):
    return torch.randint(config.vocabulary, (batch, config.context), generator=seeded(seed))


def test_a_gpt_does_not_look_ahead():
    model = models.gpt(TINY, generator=seeded(), **DOUBLE)
    tokens = tokens_of(TINY)
    changed = tokens.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % 7
    assert_close(model(tokens)[:, :4], model(changed)[:, :4])
    assert bool((model(tokens)[:, 4:] != model(changed)[:, 4:]).all())


def test_a_position_without_attention_sees_itself_alone():
    model = models.gpt(models.without_attention(TINY), generator=seeded(), **DOUBLE)
    tokens = tokens_of(TINY)
    changed = tokens.clone()
    changed[:, 0] = (changed[:, 0] + 1) % 7
    assert_close(model(tokens)[:, 1:], model(changed)[:, 1:])
    assert not any("attention" in name for name, _ in model.named_parameters())


def test_the_twin_without_attention_is_of_similar_size():
    twin = models.without_attention(models.GPT2)
    assert (twin.depth, twin.attention) == (18, False)
    sizes = [models.parameter_count(models.gpt(c, generator=seeded(), device="meta")) for c in (models.GPT2, twin)]
    assert sizes[1] / sizes[0] == pytest.approx(1, abs=1e-3)


def test_a_gpt_starts_out_knowing_nothing():
    model = models.gpt(models.SMALL, generator=seeded())
    tokens = tokens_of(models.SMALL, batch=4)
    loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens_of(models.SMALL, batch=4, seed=1).flatten())
    assert float(loss.detach()) == pytest.approx(math.log(65), abs=0.05)


def test_what_joins_the_residual_stream_starts_smaller_with_every_branch():
    model = models.gpt(models.SMALL, generator=seeded())
    assert float(model.blocks[0].attention.qkv.weight.detach().std()) == pytest.approx(0.02, rel=0.02)
    assert float(model.blocks[0].mlp.out.weight.detach().std()) == pytest.approx(0.02 / 8**0.5, rel=0.02)
    assert not model.blocks[0].mlp.up.bias.any() and bool((model.norm.weight == 1).all())


def test_a_sequence_beyond_the_context_is_refused():
    with pytest.raises(ArgumentError, match="context 6"):
        models.gpt(TINY, generator=seeded())(torch.zeros(1, 7, dtype=torch.int64))


@pytest.mark.parametrize("change", [{"num_heads": 3}, {"depth": 0}, {"vocabulary": 0}])
def test_a_gpt_that_cannot_be_built_is_refused(change):
    with pytest.raises(ArgumentError, match="multiple of num_heads"):
        models.GPTConfig(**{"vocabulary": 7, "context": 6, "depth": 2, "width": 8, "num_heads": 2} | change)


def grown_gpt(scale=20.0):
    """A GPT whose attention is far from uniform."""
    model = models.gpt(TINY, generator=seeded(), **DOUBLE)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale if parameter.ndim == 2 else 1.0)
    return model


@pytest.mark.parametrize("bias, heads", [(0.0, (0,)), (1.5, (0,)), (-2.0, (0, 1))])
def test_the_attention_weights_are_those_that_the_model_applies(bias, heads):
    model = grown_gpt()
    models.set_sink(model, bias, heads=heads)
    attention = model.blocks[0].attention
    h = normal(3, 6, 8)
    values = attention.qkv(h)[..., 16:].unflatten(-1, (2, 4)).transpose(1, 2)
    mixed = (attention.weights(h) @ values).transpose(1, 2).flatten(2)
    assert_close(attention(h), attention.out(mixed))


def test_a_sink_moves_the_chosen_heads_of_every_block_and_nothing_else():
    model, tokens = grown_gpt(), tokens_of(TINY)
    before = model(tokens)
    on_first = [models.attention_on_first_token(model, tokens, heads=[head]) for head in (0, 1)]
    h = normal(3, 6, 8)
    untouched = model.blocks[1].attention.weights(h)[:, 1]
    models.set_sink(model, 3.0)
    assert models.attention_on_first_token(model, tokens) > on_first[0] + 0.05
    assert_close(model.blocks[1].attention.weights(h)[:, 1], untouched)
    models.set_sink(model, 0.0)
    assert torch.equal(model(tokens), before)


def test_the_bias_for_a_target_reaches_it_and_leaves_the_model_alone():
    model, tokens = grown_gpt(), tokens_of(TINY)
    before = model(tokens)
    bias = models.sink_bias(model, tokens, 0.81)
    assert torch.equal(model(tokens), before)
    models.set_sink(model, bias)
    assert models.attention_on_first_token(model, tokens) == pytest.approx(0.81, abs=1e-3)
    with pytest.raises(ArgumentError, match="between"):
        models.sink_bias(model, tokens, 0.01)  # the first of six positions sees nothing else: at least 1/6


def test_sinks_need_heads():
    for config, heads in ((TINY, (2,)), (models.without_attention(TINY), (0,))):
        with pytest.raises(ArgumentError, match="heads"):
            models.set_sink(models.gpt(config, generator=seeded()), 1.0, heads=heads)


@pytest.mark.parametrize("sink", [0.0, 1.0])
def test_the_curvature_of_a_gpt_is_that_of_its_formula_with_and_without_a_sink(sink):
    config = models.GPTConfig(vocabulary=5, context=3, depth=1, width=4, num_heads=2)
    model = models.gpt(config, generator=seeded(), **DOUBLE).eval()
    models.set_sink(model, sink)
    tokens, targets = tokens_of(config), tokens_of(config, seed=1)
    names, shapes = zip(*((name, p.shape) for name, p in model.named_parameters()), strict=True)
    theta = torch.cat([p.detach().flatten() for p in model.parameters()])

    def loss(t):
        parts = t.split([shape.numel() for shape in shapes])
        weights = {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
            outputs = torch.func.functional_call(model, weights, tokens)
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    H = torch.func.jacfwd(torch.func.grad(loss))(theta)
    data = [(tokens[:1], targets[:1]), (tokens[1:], targets[1:])]
    risk = Risk(model, lambda z, y: F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="none").view(y.shape), data)
    V = normal(len(theta), 2)
    assert_close(hessian(risk) @ V, H @ V)


# --- GPT-2 as it was published ---------------------------------------------------------------------------------------


def reference(state, tokens, num_heads):
    """GPT-2 as its paper has it, straight from the published weights."""

    def linear(name, h):
        return h @ state[f"{name}.weight"] + state[f"{name}.bias"]

    def norm(name, h):
        centred = h - h.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * state[f"{name}.weight"] + state[f"{name}.bias"]

    n = tokens.shape[1]
    h = state["transformer.wte.weight"][tokens] + state["transformer.wpe.weight"][:n]
    for i in range(2):
        at = f"transformer.h.{i}"
        q, k, v = linear(f"{at}.attn.c_attn", norm(f"{at}.ln_1", h)).split(h.shape[-1], -1)
        heads = []
        for a, b, c in zip(*(t.chunk(num_heads, -1) for t in (q, k, v)), strict=True):
            scores = a @ b.mT / a.shape[-1] ** 0.5
            heads.append(scores.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf).softmax(-1) @ c)
        h = h + linear(f"{at}.attn.c_proj", torch.cat(heads, -1))
        g = linear(f"{at}.mlp.c_fc", norm(f"{at}.ln_2", h))
        g = 0.5 * g * (1 + torch.tanh((2 / math.pi) ** 0.5 * (g + 0.044715 * g**3)))
        h = h + linear(f"{at}.mlp.c_proj", g)
    return norm("transformer.ln_f", h) @ state["lm_head.weight"].T


@pytest.mark.parametrize("prefix", ["transformer.", ""])
def test_published_weights_give_the_published_function(prefix):
    state = published(TINY)
    named = {name.replace("transformer.", prefix): value for name, value in state.items()}
    model = models.gpt2(named, num_heads=2, **DOUBLE)
    assert model.config == TINY
    tokens = tokens_of(TINY)
    assert_close(model(tokens), reference(state, tokens, 2))
    assert all(p.requires_grad for p in model.parameters())


def test_every_weight_of_gpt2_has_its_place_and_shape():
    with torch.device("meta"):
        state = {name: torch.empty(shape) for name, shape in published_names(models.GPT2).items()}
    ours = models.gpt(models.GPT2, generator=seeded(), device="meta").state_dict()
    found = models.gpt2_state(state)
    assert {name: value.shape for name, value in found.items()} == {name: value.shape for name, value in ours.items()}


def test_the_weights_of_another_model_are_refused():
    with pytest.raises(ModelError, match=r"h\.0\.attn\.rotary"):
        models.gpt2_state({"h.0.attn.rotary.weight": torch.zeros(2)})
    with pytest.raises(ModelError, match="positions"):
        models.gpt2({"wte.weight": torch.zeros(3, 4)})


def test_a_file_without_its_reader_says_what_to_install(monkeypatch, tmp_path):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(pretrained, "import_module", missing)
    with pytest.raises(ArgumentError, match="pip install safetensors"):
        models.gpt2(tmp_path / "model.safetensors")


def test_a_file_of_something_else_is_refused(monkeypatch, tmp_path):
    class Reader:  # as of safetensors, which need not be installed
        class SafetensorError(Exception):
            pass

        @classmethod
        def load(cls, content):
            raise cls.SafetensorError("header too large")

    monkeypatch.setattr(pretrained, "import_module", lambda name: Reader)
    (tmp_path / "a").write_bytes(b"no weights")
    with pytest.raises(FileError, match="is no file of weights: header too large"):
        models.gpt2(tmp_path / "a")


@pytest.mark.parametrize("make", [models.vgg11, models.resnet18])
def test_a_narrow_network_has_the_same_layers_each_of_a_fraction_of_the_width(make):
    whole, narrow = (make(generator=seeded(), device="meta", narrow=n) for n in (1, 16))
    pairs = list(zip(whole.parameters(), narrow.parameters(), strict=True))
    assert all(a.shape[0] in (16 * b.shape[0], 10) for a, b in pairs)
    assert narrow(torch.zeros(2, 3, 32, 32, device="meta")).shape == (2, 10)
    with pytest.raises(ArgumentError, match="narrow=3"):
        make(generator=seeded(), narrow=3)
