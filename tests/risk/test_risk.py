"""The risk: data in every form, the same value as plain PyTorch, nothing changed, and bad input refused in time."""

import contextlib
import copy
import itertools
import threading

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import ritz
from ritz import Risk
from ritz.errors import ArgumentError, DataError, ModelError, NumericalError
from tests.zoo import CASES, case, dense_hessian, unequal_batches

N, D, C = 11, 4, 3
CLASS_WEIGHTS = torch.tensor([0.5, 1.0, 2.5], dtype=torch.float64)


def network(width=C):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(D, 5), nn.Tanh(), nn.Linear(5, width)).double()


@pytest.fixture
def x(generator):
    return torch.randn(N, D, generator=generator, dtype=torch.float64)


@pytest.fixture
def y(generator):
    return torch.randint(C, (N,), generator=generator)


@pytest.fixture
def unchecked(monkeypatch):
    """Run without the type checks of the test suite, as users do."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def plain_gradient(model, value):
    return torch.cat([g.flatten() for g in torch.autograd.grad(value, list(model.parameters()))])


def check_against_pytorch(risk, model, value):
    """Value and gradient against one batch of plain PyTorch."""
    assert risk.loss_value() == pytest.approx(value.item(), rel=1e-12)
    assert_close(risk.gradient(), plain_gradient(model, value))


# Data in every form ---------------------------------------------------------------------------------------------------


class Examples(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], int(self.y[index])


class Stream(IterableDataset):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y

    def __iter__(self):
        return zip(self.x, self.y, strict=True)


class Folder:
    """A re-iterable of our own, which counts how often it is read."""

    def __init__(self, batches):
        self.batches, self.passes = batches, 0

    def __iter__(self):
        self.passes += 1
        return iter(self.batches)


FORMS = {
    "tensors": lambda x, y: (x, y),
    "list of tensors": lambda x, y: [x, y],
    "TensorDataset": TensorDataset,
    "Dataset": Examples,
    "IterableDataset": Stream,
    "DataLoader": lambda x, y: DataLoader(Examples(x, y), batch_size=4),
    "shuffled DataLoader": lambda x, y: DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True),
    "list of batches": unequal_batches,
    "tuple of two batches": lambda x, y: tuple(unequal_batches(x, y)),
    "list of lists": lambda x, y: [list(pair) for pair in unequal_batches(x, y)],
    "custom re-iterable": lambda x, y: Folder(unequal_batches(x, y)),
    "with an empty batch": lambda x, y: [(x[:7], y[:7]), (x[:0], y[:0]), (x[7:], y[7:])],
    "one example each": lambda x, y: [(x[i : i + 1], y[i : i + 1]) for i in range(N)],
    "labels in int32": lambda x, y: (x, y.int()),
}


READ_ANEW = [(form, 0) for form in FORMS if "shuffled" not in form]  # such a loader is refused, see below


@pytest.mark.parametrize("form, memory", [*((form, None) for form in FORMS), *READ_ANEW])
def test_data_in_every_form_give_the_same_risk(form, memory, x, y):
    model = network()
    risk = Risk(model, nn.CrossEntropyLoss(), FORMS[form](x, y), memory=memory)
    check_against_pytorch(risk, model, F.cross_entropy(model(x), y))
    assert (risk.num_examples, risk.num_terms, risk.total_weight) == (N, N, N)
    reference = Risk(model, nn.CrossEntropyLoss(), (x, y))
    v = torch.ones(risk.size, dtype=torch.float64)
    assert_close(ritz.hessian(risk) @ v, ritz.hessian(reference) @ v)


def test_many_examples_are_cut_into_batches(generator):
    x = torch.randn(1100, D, generator=generator, dtype=torch.float64)
    y = torch.randint(C, (1100,), generator=generator)
    model = network()
    risk = Risk(model, nn.CrossEntropyLoss(), (x, y))
    assert [len(batch) for batch in risk.batches] == [512, 512, 76]
    check_against_pytorch(risk, model, F.cross_entropy(model(x), y))


def test_data_larger_than_memory_are_read_at_every_pass(x, y):
    model, folder = network(), Folder(unequal_batches(x, y))
    risk = Risk(model, nn.CrossEntropyLoss(), folder, memory=0)
    before = folder.passes
    risk.gradient()
    H = ritz.hessian(risk)
    v = torch.ones(risk.size, dtype=torch.float64)
    assert_close(H @ v, H @ v)
    assert folder.passes >= before + 3


def test_data_that_fit_are_read_twice_and_never_again(x, y):
    folder = Folder(unequal_batches(x, y))
    risk = Risk(network(), nn.CrossEntropyLoss(), folder)
    _ = risk.gradient(), risk.labels, ritz.hessian(risk) @ torch.ones(risk.size, dtype=torch.float64)
    assert folder.passes == 2


def test_a_loader_that_shuffles_data_larger_than_memory_is_refused(x, y):
    loader = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True)
    with pytest.raises(DataError, match="another order"):
        Risk(network(), nn.CrossEntropyLoss(), loader, memory=0)


def test_a_loader_with_a_generator_of_its_own_gets_it_back_as_it_was(x, y):
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    loader = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True, generator=generator)
    model = network()
    check_against_pytorch(Risk(model, nn.CrossEntropyLoss(), loader), model, F.cross_entropy(model(x), y))
    assert torch.equal(generator.get_state(), before)


def test_inputs_as_a_dict_are_arguments_by_name():
    built = case("two_inputs")
    y = torch.arange(N) % C
    whole = Risk(built.model, ritz.CrossEntropy(), (built.inputs, y))
    cut = Risk(built.model, ritz.CrossEntropy(), unequal_batches(built.inputs, y))
    for risk in (whole, cut):
        check_against_pytorch(risk, built.model, F.cross_entropy(built.model(**built.inputs), y))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_inputs_in_less_precision_are_raised_to_that_of_the_parameters(dtype, x, y):
    model = network()
    risk = Risk(model, nn.CrossEntropyLoss(), (x.to(dtype), y))
    check_against_pytorch(risk, model, F.cross_entropy(model(x.to(dtype).double()), y))


def test_inputs_in_more_precision_are_rounded_to_that_of_the_parameters(x, y):
    model = network().float()
    risk = Risk(model, nn.CrossEntropyLoss(), (x, y))
    assert risk.dtype == torch.float32 and risk.gradient().dtype == torch.float32
    assert risk.loss_value() == pytest.approx(F.cross_entropy(model(x.float()), y).item(), rel=1e-5)


def test_a_mask_of_minus_infinity_among_the_inputs_is_fine():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(D, C).double()

        def forward(self, x, mask):
            return (self.linear(x)[:, :, None] + mask[:, None]).softmax(-1)[..., 0]

    mask = torch.zeros(N, 2, dtype=torch.float64)
    mask[::2, 1] = float("-inf")
    data = [({"x": torch.ones(N, D, dtype=torch.float64), "mask": mask}, torch.arange(N) % C)]
    assert np.isfinite(Risk(Masked(), ritz.CrossEntropy(), data).loss_value())


# The same value as plain PyTorch --------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_class_weights_and_ignored_labels_in_unequal_batches(reduction, x, y):
    y[[1, 8, 9, 10]] = -100
    model, loss = network(), nn.CrossEntropyLoss(CLASS_WEIGHTS, reduction=reduction, label_smoothing=0.1)
    risk = Risk(model, loss, unequal_batches(x, y))
    check_against_pytorch(risk, model, loss(model(x), y))
    H = dense_hessian(lambda t: loss(_outputs(risk, t, x), y), risk.theta)
    assert_close(ritz.hessian(risk).dense(), H)


def _outputs(risk, theta, x):
    return torch.func.functional_call(risk.model, dict(zip(risk.shapes, risk.unflatten(theta), strict=True)), (x,))


def test_a_batch_whose_labels_are_all_ignored(x, y):
    y[7:] = -100
    model = network()
    risk = Risk(model, nn.CrossEntropyLoss(), unequal_batches(x, y))
    check_against_pytorch(risk, model, F.cross_entropy(model(x[:7]), y[:7]))


def test_token_level_losses_with_padding():
    built = case("transformer")
    y = built.inputs.roll(-1, 1)
    y[::2, 2:] = -100
    risk = Risk(built.model, ritz.CrossEntropy(), unequal_batches(built.inputs, y))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        value = F.cross_entropy(built.model(built.inputs).flatten(0, 1), y.flatten())
    check_against_pytorch(risk, built.model, value)
    assert risk.num_terms == 44 and risk.num_examples == N and risk.total_weight == int((y >= 0).sum())


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.HuberLoss(), nn.BCEWithLogitsLoss(), nn.L1Loss(reduction="sum")])
def test_regression_in_unequal_batches(loss, x, generator):
    model, y = network(), torch.rand(N, C, generator=generator, dtype=torch.float64)
    check_against_pytorch(Risk(model, loss, unequal_batches(x, y)), model, loss(model(x), y))


def test_a_custom_loss_keeps_its_linearisation(x, y):
    risk = Risk(network(), lambda z, t: F.cross_entropy(z, t, reduction="none"), (x, y))
    closed = Risk(risk.model, ritz.CrossEntropy(), (x, y))
    for operator in (ritz.hessian, ritz.gauss_newton, ritz.functional_hessian, ritz.empirical_fisher):
        assert_close(operator(risk).dense(), operator(closed).dense())
        assert operator(risk).matmat.trial.path.keeps


@pytest.mark.parametrize("loss", [nn.SmoothL1Loss(), nn.SmoothL1Loss(reduction="none")])
def test_the_fisher_matrix_of_an_entrywise_loss_has_one_gradient_per_row(loss, x, generator):
    y = torch.randn(N, C, generator=generator, dtype=torch.float64)
    risk = Risk(network(), loss, unequal_batches(x, y))
    terms = lambda t: F.smooth_l1_loss(_outputs(risk, t, x), y, reduction="none").mean(-1)
    gradients = torch.func.jacfwd(terms)(risk.theta)
    assert_close(ritz.empirical_fisher(risk).dense(), gradients.T @ gradients / N)


def test_the_fisher_matrix_of_terms_that_are_whole_sequences(generator):
    x = torch.randn(N, 6, D, generator=generator, dtype=torch.float64)
    y = torch.randint(C, (N, 6), generator=generator)
    sequence = lambda z, t: F.cross_entropy(z.mT, t, reduction="none").sum(1).square()
    risk = Risk(network(), sequence, unequal_batches(x, y))
    gradients = torch.func.jacfwd(lambda t: sequence(_outputs(risk, t, x), y))(risk.theta)
    assert risk.num_terms == N
    assert_close(ritz.empirical_fisher(risk).dense(), gradients.T @ gradients / N)


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(1, N - 1), max_size=4, unique=True), ignored=st.sets(st.integers(0, N - 2)))
def test_the_risk_does_not_depend_on_how_data_are_cut(cuts, ignored):
    generator = torch.Generator().manual_seed(len(cuts))
    x = torch.randn(N, D, generator=generator, dtype=torch.float64)
    y = torch.randint(C, (N,), generator=generator)
    y[list(ignored)] = -100
    bounds = [0, *sorted(cuts), N]
    data = [(x[a:b], y[a:b]) for a, b in itertools.pairwise(bounds)]
    loss = nn.CrossEntropyLoss(CLASS_WEIGHTS)
    one, many = Risk(network(), loss, (x, y)), Risk(network(), loss, data)
    assert many.loss_value() == pytest.approx(one.loss_value(), rel=1e-12)
    assert_close(many.gradient(), one.gradient(), rtol=1e-10, atol=1e-14)


def test_under_no_grad_everything_is_the_same(x, y):
    risk = Risk(network(), nn.CrossEntropyLoss(), (x, y))
    v = torch.ones(risk.size, dtype=torch.float64)
    gradient, product = risk.gradient(), ritz.hessian(risk) @ v
    with torch.no_grad():
        again = Risk(network(), nn.CrossEntropyLoss(), (x, y))
        H = ritz.hessian(again)
        assert_close(again.gradient(), gradient)
        assert_close(H @ v, product)
        assert H.matmat.trial.path.keeps and not torch.is_grad_enabled()


def test_autocast_does_not_reach_the_engine(x, y):
    model = network().float()
    exact = Risk(model, nn.CrossEntropyLoss(), (x, y))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = Risk(model, nn.CrossEntropyLoss(), (x, y))
        assert inside.loss_value() == exact.loss_value()
        assert_close(inside.gradient(), exact.gradient())


# Parameters, blocks, examples -----------------------------------------------------------------------------------------


def test_globs_choose_parameters(x, y):
    chosen = lambda parameters: list(Risk(network(), ritz.CrossEntropy(), (x, y), parameters=parameters).shapes)
    assert chosen("*") == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert chosen("*.weight") == ["0.weight", "2.weight"]
    assert chosen(["2.*", "0.bias"]) == ["0.bias", "2.weight", "2.bias"]  # in the order of the model
    assert chosen(("0.*", "*")) == chosen("*")


@pytest.mark.parametrize("glob", ["0.*", "2.weight", ["0.bias", "2.*"]])
def test_a_restricted_risk_has_the_block_of_the_full_hessian(glob, x, y):
    model, data = network(), unequal_batches(x, y)
    full = Risk(model, ritz.CrossEntropy(), data)
    places = dict(zip(full.shapes, full.unflatten(torch.arange(full.size).double()), strict=True))
    H, gradient = ritz.hessian(full).dense(), full.gradient()
    for block in (full.restricted_to(glob), Risk(model, ritz.CrossEntropy(), data, parameters=glob)):
        index = torch.cat([places[name].flatten() for name in block.shapes]).long()
        assert_close(ritz.hessian(block).dense(), H[index][:, index])
        assert_close(block.gradient(), gradient[index])
        assert block.loss_value() == full.loss_value()


def test_a_restricted_risk_is_restricted_further_and_never_widened(x, y):
    part = Risk(network(), ritz.CrossEntropy(), (x, y), parameters="0.*")
    assert list(part.restricted_to("*").shapes) == ["0.weight", "0.bias"]
    with pytest.raises(ModelError, match=r"2\.\*"):
        part.restricted_to("2.*")


def test_the_first_examples(x, y):
    model = network()
    risk = Risk(model, ritz.CrossEntropy(), unequal_batches(x, y))
    assert len(risk.labels) == N
    for count in (1, 7, 9):
        first = risk.first(count)
        check_against_pytorch(first, model, F.cross_entropy(model(x[:count]), y[:count]))
        assert first.num_examples == count and torch.equal(first.labels, y[:count])
    assert risk.first(100).num_examples == risk.num_examples == N
    with pytest.raises(ArgumentError, match="0 examples"):
        risk.first(0)


def test_labels_and_classes(x, y):
    risk = Risk(network(), nn.CrossEntropyLoss(), unequal_batches(x, y))
    assert torch.equal(risk.labels, y) and risk.num_classes == C
    tokens = case("transformer")
    risk = Risk(tokens.model, ritz.CrossEntropy(), unequal_batches(tokens.inputs, tokens.inputs))
    assert torch.equal(risk.labels, tokens.inputs.flatten()) and risk.num_classes == 3
    images = Risk(
        nn.Conv1d(2, C, 1), nn.CrossEntropyLoss(), (torch.randn(5, 2, 4), torch.zeros(5, 4, dtype=torch.long))
    )
    assert images.num_classes == C and len(images.labels) == 20


def test_a_regression_has_no_labels(x):
    with pytest.raises(DataError, match="Only class indices are labels"):
        Risk(network(), ritz.SquaredError(), (x, x[:, :C])).labels


def test_a_risk_stays_where_it_is_while_training_goes_on(x, y):
    built = case("cnn")
    y = torch.arange(N) % C
    risk = Risk(built.model, ritz.CrossEntropy(), (built.inputs, y))
    H, gradient = ritz.hessian(risk).dense(), risk.gradient()
    with torch.no_grad():
        for tensor in [*built.model.parameters(), *built.model.buffers()]:
            tensor.fill_(7)
    assert_close(risk.gradient(), gradient, rtol=0, atol=0)
    assert_close(ritz.hessian(risk).dense(), H, rtol=1e-9, atol=1e-12)
    assert risk.restricted_to("0.*").gradient().abs().max() > 0
    assert risk.first(5).loss_value() != risk.loss_value()


def test_weights_with_a_parametrization_are_analysed_by_their_originals(x, y):
    model = network()
    torch.nn.utils.parametrizations.weight_norm(model[0])
    risk = Risk(model, nn.CrossEntropyLoss(), (x, y))
    assert any("original0" in name for name in risk.shapes)
    check_against_pytorch(risk, model, F.cross_entropy(model(x), y))


# Nothing changes ------------------------------------------------------------------------------------------------------


def settings_of_pytorch():
    backends = torch.backends
    kinds = [
        backends.cuda.matmul,
        backends.cudnn.conv,
        backends.cudnn.rnn,
        backends.mkldnn.matmul,
        backends.mkldnn.conv,
    ]
    return (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.are_deterministic_algorithms_enabled(),
        [kind.fp32_precision for kind in kinds],
        [backends.cudnn.enabled, backends.cudnn.benchmark, backends.cudnn.deterministic],
        [
            backends.cuda.flash_sdp_enabled(),
            backends.cuda.mem_efficient_sdp_enabled(),
            backends.cuda.math_sdp_enabled(),
            backends.mha.get_fastpath_enabled(),
        ],
    )


def state_of(model):
    named = [*model.named_parameters(), *model.named_buffers()]
    return {
        "tensors": {name: (t.data_ptr(), t._version, t.requires_grad, t.detach().clone()) for name, t in named},
        "gradients": {n: None if p.grad is None else p.grad.clone() for n, p in model.named_parameters()},
        "training": {name: module.training for name, module in model.named_modules()},
        "attributes": {name: set(vars(module)) for name, module in model.named_modules()},
    }


@contextlib.contextmanager
def nothing_changes(model):
    before, weights, flags = state_of(model), copy.deepcopy(model.state_dict()), settings_of_pytorch()
    randomness, numpy_randomness = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        after = state_of(model)
        assert after["training"] == before["training"] and after["attributes"] == before["attributes"]
        assert settings_of_pytorch() == flags
        assert torch.equal(torch.get_rng_state(), randomness)
        assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state(), numpy_randomness, strict=True))  # noqa: NPY002
        for name, (pointer, version, flag, value) in before["tensors"].items():
            assert after["tensors"][name][:3] == (pointer, version, flag), name
            assert torch.equal(after["tensors"][name][3], value), name
        for name, gradient in before["gradients"].items():
            assert (gradient is None) == (after["gradients"][name] is None)
            assert gradient is None or torch.equal(after["gradients"][name], gradient)
        for name, value in model.state_dict().items():
            assert torch.equal(value, weights[name])


def everything(risk):
    v = torch.ones(risk.size, 5, dtype=risk.dtype)
    for operator in (ritz.hessian, ritz.gauss_newton, ritz.functional_hessian, ritz.empirical_fisher):
        _ = operator(risk) @ v
    _ = risk.loss_value(), risk.gradient(), risk.labels, risk.num_classes
    _ = risk.first(3).gradient()
    first_name = next(iter(risk.shapes))
    _ = ritz.hessian(risk.restricted_to(first_name)) @ v[: risk.shapes[first_name].numel(), 0]
    _ = ritz.eigenpairs(ritz.hessian(risk), 1)
    _ = ritz.spectral_density(ritz.gauss_newton(risk), num_steps=3, num_probes=1)


@pytest.mark.parametrize("name", CASES)
def test_nothing_changes_in_the_model_nor_around_it(name):
    built = case(name)
    y = torch.arange(11 * int(np.prod(built.shape[1:-1])) or 11).reshape(built.shape[:-1]) % C
    for number, parameter in enumerate(built.model.parameters()):
        if number % 2:
            parameter.grad = torch.full_like(parameter, 3.0)
    with nothing_changes(built.model):
        everything(Risk(built.model, ritz.CrossEntropy(), unequal_batches(built.inputs, y)))


@pytest.mark.parametrize("memory", [None, 0])
def test_a_loader_moves_no_random_state(memory, x, y):
    model, loader = network(), DataLoader(TensorDataset(x, y), batch_size=4, shuffle=memory is None)
    with nothing_changes(model):
        everything(Risk(model, ritz.CrossEntropy(), loader, memory=memory))


def test_a_model_that_draws_without_using_it_moves_no_random_state(x, y):
    class Draws(nn.Module):
        def forward(self, x):
            return x + 0.0 * torch.rand(1)

    model = nn.Sequential(network(), Draws())
    with nothing_changes(model):
        Risk(model, ritz.CrossEntropy(), (x, y))


def test_dropout_and_batch_norm_in_evaluation_mode(x, y):
    model = nn.Sequential(nn.Linear(D, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, C)).double()
    model(x)  # moves the running statistics
    model.eval()
    model[3].train()  # flags need not be all the same
    with nothing_changes(model):
        risk = Risk(model, ritz.CrossEntropy(), unequal_batches(x, y))
        everything(risk)
    check_against_pytorch(risk, model, F.cross_entropy(model(x), y))


@pytest.mark.parametrize("setting", ["legacy", "new", "deterministic"])
def test_precision_settings_are_put_back(setting, x, y):
    model = network().float()
    backends = torch.backends
    saved = [backends.cuda.matmul.fp32_precision, backends.mkldnn.matmul.fp32_precision]
    try:
        if setting == "legacy":
            torch.set_float32_matmul_precision("medium")
        elif setting == "new":
            backends.cuda.matmul.fp32_precision = "tf32"
        else:
            backends.cudnn.deterministic, backends.cudnn.benchmark = True, True
        with nothing_changes(model):
            everything(Risk(model, ritz.CrossEntropy(), (x, y), tangent_precision="high"))
    finally:
        torch.set_float32_matmul_precision("highest")
        backends.cuda.matmul.fp32_precision, backends.mkldnn.matmul.fp32_precision = saved
        backends.cudnn.deterministic, backends.cudnn.benchmark = False, False


@pytest.mark.parametrize("enabled", [True, False])
def test_the_fast_path_of_attention_is_put_back(enabled, x, y):
    mha, model = torch.backends.mha, network()
    before = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(enabled)
    try:
        with nothing_changes(model):
            everything(Risk(model, ritz.CrossEntropy(), unequal_batches(x, y)))
        assert mha.get_fastpath_enabled() == enabled
        with pytest.raises(ModelError, match="The model failed"):
            Risk(model, ritz.CrossEntropy(), (x[:, :2], y))
        assert mha.get_fastpath_enabled() == enabled
    finally:
        mha.set_fastpath_enabled(before)


def test_a_users_default_precision_does_not_matter(x, y):
    model = network().float()
    expected = Risk(model, nn.CrossEntropyLoss(), (x, y)).gradient()
    torch.set_default_dtype(torch.float64)
    try:
        risk = Risk(model, nn.CrossEntropyLoss(), (x, y))
        everything(risk)
        assert_close(risk.gradient(), expected)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


class Fails(nn.Module):
    """Counts its calls in a buffer, and fails at one of them."""

    def __init__(self, at):
        super().__init__()
        self.calls, self.at = itertools.count(), at
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        if next(self.calls) == self.at:
            raise RuntimeError("out of luck")
        return x


@pytest.mark.parametrize("at", range(7))
def test_nothing_changes_when_something_fails_midway(at, x, y):
    model = nn.Sequential(network(), nn.BatchNorm1d(C).double(), Fails(at)).eval()
    with nothing_changes(model), pytest.raises((ritz.RitzError, RuntimeError)):
        risk = Risk(model, ritz.CrossEntropy(), unequal_batches(x, y), memory=0)
        for _ in range(3):
            _ = risk.gradient(), ritz.hessian(risk) @ torch.ones(risk.size, dtype=torch.float64)
        raise RuntimeError("the engine found a way around")


# What bad input gets --------------------------------------------------------------------------------------------------


class Noisy(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.5)


class Returns(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.change, self.inner = change, network()

    def forward(self, x):
        return self.change(self.inner(x))


class Augmented(Examples):
    def __getitem__(self, index):
        return self.x[index] + 0.01 * torch.randn(D), int(self.y[index])


class Unlike:
    """Another number of examples at the second pass."""

    def __init__(self, batches):
        self.batches, self.count = batches, itertools.count(len(batches), -1)

    def __iter__(self):
        return iter(self.batches[: next(self.count)])


def with_value(tensor, value):
    changed = tensor.clone()
    changed.view(-1)[0] = value
    return changed


def changed_network(change):
    model = network()
    change(model)
    return model


CE, NAN, INF = nn.CrossEntropyLoss(), float("nan"), float("inf")
BAD_DATA = {
    "no examples": (lambda x, y: (x[:0], y[:0]), DataError, "no example"),
    "no batches": (lambda x, y: [], DataError, "no example"),
    "an empty loader": (lambda x, y: DataLoader(TensorDataset(x, y), 20, drop_last=True), DataError, "no example"),
    "labels too large": (lambda x, y: (x, y + 1), DataError, "Labels run from"),
    "labels too small": (lambda x, y: (x, y - 1), DataError, "Labels run from"),
    "a late bad label": (lambda x, y: [(x, y), (x[:1], y[:1] + C)], DataError, "Labels run from"),
    "float labels": (lambda x, y: (x, y.double()), DataError, r"y\.long\(\)"),
    "columns of labels": (lambda x, y: (x, y[:, None]), DataError, "The outputs have shape"),
    "fewer targets": (lambda x, y: (x, y[:-1]), DataError, "The first dimension of both counts"),
    "fewer targets in a batch": (lambda x, y: [(x, y), (x, y[:4])], DataError, "The first dimension of both"),
    "a target without dimensions": (lambda x, y: [(x[0], y[0])], DataError, "The first dimension of both counts"),
    "inputs too wide": (lambda x, y: (torch.cat([x, x], 1), y), ModelError, "The model failed on batch 0"),
    "a late misfit": (lambda x, y: [(x, y), (x[:, :2], y)], ModelError, "The model failed on batch 1"),
    "inputs as integers": (lambda x, y: (x.long(), y), ModelError, "The model failed on batch 0"),
    "inputs with other names": (lambda x, y: ({"pixels": x}, y), ModelError, "The model failed on batch 0"),
    "inputs with NaN": (lambda x, y: (with_value(x, NAN), y), NumericalError, "batch 0, whose inputs hold such"),
    "batches with NaN": (lambda x, y: [(x, y), (with_value(x, NAN), y)], NumericalError, "batch 1, whose inputs"),
    "inputs with infinity": (lambda x, y: (with_value(x, INF) * torch.ones(D), y), None, ""),
    "all labels ignored": (lambda x, y: (x, y.fill_(-100)), DataError, "weight zero"),
    "no iterable": (lambda x, y: 3, DataError, "The data are of type int"),
    "nothing": (lambda x, y: None, DataError, "The data are of type NoneType"),
    "a generator": (lambda x, y: (b for b in [(x, y)]), DataError, "only once"),
    "a loader's iterator": (lambda x, y: iter(DataLoader(TensorDataset(x, y))), DataError, "only once"),
    "a zip": (lambda x, y: zip([x], [y], strict=True), DataError, "only once"),
    "triples": (lambda x, y: TensorDataset(x, y, y), DataError, "list of 3 entries"),
    "inputs alone": (lambda x, y: [x, x, x], DataError, "Batch 0 is a Tensor"),
    "dicts": (lambda x, y: [{"inputs": x, "labels": y}], DataError, r"batch\['inputs'\]"),
    "arrays": (lambda x, y: (x.numpy(), y.numpy()), DataError, "as_tensor"),
    "an array of inputs": (lambda x, y: (x.numpy(), y), DataError, "hold a ndarray"),
    "several inputs": (lambda x, y: [((x, x), y)], DataError, "hold a tuple"),
    "shuffled and dropped": (
        lambda x, y: DataLoader(TensorDataset(x, y), 4, drop_last=True, shuffle=True,
                                generator=torch.Generator().manual_seed(0)),  # else both drop the same once in 165
        DataError, "second pass"),
    "augmented": (lambda x, y: DataLoader(Augmented(x, y), 4), DataError, "second pass"),
    "augmented data set": (Augmented, DataError, "second pass"),
    "a shorter second pass": (lambda x, y: Unlike(unequal_batches(x, y)), DataError, "11 examples, then 7"),
    "an empty second pass": (lambda x, y: Unlike([(x, y)]), DataError, "11 examples, then 0"),
    "on another device": (lambda x, y: (x.to("meta"), y), DataError, "on cpu, the data on meta"),
    "targets on another device": (lambda x, y: [(x, y.to("meta"))], DataError, "on cpu, the data on meta"),
}  # fmt: skip
BAD_MODELS = {
    "a function": (lambda: torch.tanh, ModelError, "The model is a builtin_function_or_method"),
    "dropout in train mode": (lambda: nn.Sequential(network(), nn.Dropout(0.1)), ModelError, r"model\.eval\(\)"),
    "batch norm in train mode": (lambda: nn.Sequential(network(), nn.BatchNorm1d(C)), ModelError, "BatchNorm1d"),
    "functional dropout": (lambda: nn.Sequential(network(), Noisy()).eval(), ModelError, "Two evaluations"),
    "dropout inside of attention": (lambda: nn.Sequential(network(), Attends()), ModelError, "Two evaluations"),
    "half precision": (lambda: network().half(), ModelError, r"float32 copy"),
    "bfloat16": (lambda: network().bfloat16(), ModelError, r"float32 copy"),
    "complex": (lambda: nn.Linear(D, C, dtype=torch.complex64), ModelError, "view_as_complex"),
    "integers": (lambda: Integers(), ModelError, "matches none of the 0 trainable"),
    "mixed precision": (lambda: changed_network(lambda m: m[0].float()), ModelError, "several kinds: cpu"),
    "partly half": (lambda: changed_network(lambda m: m[2].half()), ModelError, "2.weight is torch.float16"),
    "on the meta device": (lambda: network().to("meta"), ModelError, "meta device"),
    "on two devices": (lambda: changed_network(lambda m: m[2].to("meta")), ModelError, "several kinds: cpu"),
    "buffers elsewhere": (lambda: with_buffer(), ModelError, "different devices"),
    "not initialised": (lambda: nn.Sequential(network(), nn.LazyLinear(2)), ModelError, "not initialised"),
    "all frozen": (lambda: network().requires_grad_(False), ModelError, "Unfreeze some"),
    "without parameters": (lambda: nn.Flatten(), ModelError, "none of the 0 trainable"),
    "NaN parameters": (lambda: filled(NAN), NumericalError, "Parameter 0.bias holds NaN"),
    "infinite parameters": (lambda: filled(INF), NumericalError, "Parameter 0.bias holds NaN"),
    "returns a tuple": (lambda: Returns(lambda z: (z, z)), ModelError, "returned a tuple"),
    "returns a dict": (lambda: Returns(lambda z: {"out": z}), ModelError, "returned a dict"),
    "returns a scalar": (lambda: Returns(lambda z: z.mean()), ModelError, "returned a scalar"),
    "returns nothing": (lambda: Returns(lambda z: None), ModelError, "returned a NoneType"),
    "returns integers": (lambda: Returns(lambda z: z.argmax(1)), ModelError, "returns torch.int64"),
    "returns half precision": (lambda: Returns(lambda z: z.half()), ModelError, "returns torch.float16"),
    "returns complex": (lambda: Returns(lambda z: torch.complex(z, z)), ModelError, "returns torch.complex128"),
    "returns one dimension": (lambda: Returns(lambda z: z[:, 0]), DataError, "one for the classes"),
    "returns NaN": (lambda: Returns(lambda z: z / 0), NumericalError, "NaN or infinity on batch 0."),
    "fails": (lambda: Returns(lambda z: z @ z), ModelError, "The model failed on batch 0"),
}  # fmt: skip


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(C, 1, dropout=0.5, batch_first=True).double()

    def forward(self, x):
        return self.attention(x[:, None], x[:, None], x[:, None])[0][:, 0]


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


def check_refusal(caught, kind):
    """Three parts, in sentences, of the right kind."""
    error = caught.value
    assert type(error) is kind and isinstance(error, ritz.RitzError)
    assert error.seen and error.why and error.ways_out
    for part in (error.why, *error.ways_out):
        assert part[0].isupper() or part[0] in "θ'\"", part
        assert part.endswith((".", "]")), part
    assert str(error).splitlines()[0] == error.seen


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_are_refused(name, x, y, unchecked):
    data, kind, message = BAD_DATA[name]
    model = network()
    if kind is None:  # tanh makes something finite of it
        assert np.isfinite(Risk(model, CE, data(x, y)).loss_value())
        return
    bad = data(x, y)
    with nothing_changes(model), pytest.raises(ritz.RitzError, match=message) as caught:
        Risk(model, CE, bad)
    check_refusal(caught, kind)


@pytest.mark.parametrize("name", BAD_MODELS)
def test_bad_models_are_refused(name, x, y, unchecked):
    build, kind, message = BAD_MODELS[name]
    model = build()
    with pytest.raises(ritz.RitzError, match=message) as caught:
        Risk(model, CE, (x, y))
    check_refusal(caught, kind)


@pytest.mark.parametrize("form", ["list", "tensors"])
def test_a_loss_that_is_not_finite_is_refused(form, x, generator):
    y = with_value(torch.randn(N, C, generator=generator, dtype=torch.float64), NAN)
    data = (x, y) if form == "tensors" else unequal_batches(x, y)
    with pytest.raises(NumericalError, match="The loss over all data is nan") as caught:
        Risk(network(), ritz.SquaredError(), data)
    check_refusal(caught, NumericalError)
    with pytest.raises(NumericalError, match="The loss over all data is inf"):
        Risk(network(), lambda z, t: (z / 0.0).abs().sum(-1), (x, x))


def test_missing_targets_may_be_nan_where_the_loss_knows(x, generator):
    y = with_value(torch.randn(N, C, generator=generator, dtype=torch.float64), NAN)
    loss = lambda z, t: torch.where(t.isnan(), 0.0, z - t.nan_to_num()).square().sum(-1)
    model = network()
    check_against_pytorch(Risk(model, loss, unequal_batches(x, y)), model, loss(model(x), y).mean())


@pytest.mark.parametrize("weight", [[0.0, 0.0, 0.0], [1.0, NAN, 1.0], [1.0, INF, 1.0], [1.0, 1.0]])
def test_class_weights_that_give_no_average_are_refused(weight, x, y):
    with pytest.raises(ritz.RitzError) as caught:
        Risk(network(), nn.CrossEntropyLoss(torch.tensor(weight, dtype=torch.float64)), (x, y))
    kind = DataError if not any(weight) else ArgumentError if len(weight) == 2 else NumericalError
    check_refusal(caught, kind)


@pytest.mark.parametrize("parameters", ["3.*", ["0.*", "nothing"], [], "WEIGHT", ""])
def test_a_glob_that_matches_nothing_is_refused_and_names_are_offered(parameters, x, y):
    with pytest.raises(ModelError, match="matches none of the 4 trainable") as caught:
        Risk(network(), CE, (x, y), parameters=parameters)
    check_refusal(caught, ModelError)
    assert "0.weight" in caught.value.ways_out[0]


@pytest.mark.parametrize("options", [{"tangent_precision": "low"}, {"memory": -1}, {"memory": NAN}])
def test_options_that_mean_nothing_are_refused(options, x, y, unchecked):
    with pytest.raises(ArgumentError) as caught:
        Risk(network(), CE, (x, y), **options)
    check_refusal(caught, ArgumentError)


def test_inference_mode_is_refused(x, y):
    with torch.inference_mode(), pytest.raises(ModelError, match="Inference mode") as caught:
        Risk(network(), CE, (x, y))
    check_refusal(caught, ModelError)


def test_losses_that_are_none_are_refused(x, y):
    for loss, kind in [
        ("ce", ArgumentError),
        (F.cross_entropy, ModelError),
        (nn.CTCLoss(), ModelError),
    ]:
        with pytest.raises(ritz.RitzError) as caught:
            Risk(network(), loss, (x, y))
        check_refusal(caught, kind)


def test_train_mode_without_randomness_is_fine(x, y):
    model = nn.Sequential(network(), nn.Dropout(0.0), nn.LayerNorm(C).double()).train()
    check_against_pytorch(Risk(model, CE, (x, y)), model, F.cross_entropy(model(x), y))


def test_outputs_in_more_precision_than_the_parameters_are_fine(x, y):
    model = nn.Sequential(network().float(), Doubled())
    risk = Risk(model, CE, (x, y))
    twin = Risk(model[0], CE, (x, y))
    v = torch.ones(risk.size)
    for operator in (ritz.hessian, ritz.gauss_newton):
        assert_close(operator(risk) @ v, operator(twin) @ v, rtol=1e-4, atol=1e-6)


class Doubled(nn.Module):
    def forward(self, z):
        return z.double()


# Several processes ----------------------------------------------------------------------------------------------------


def group_problem():
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(N, D, generator=generator, dtype=torch.float64)
    y = torch.randint(C, (N,), generator=generator)
    y[[0, 9]] = -100
    parts = [[(x[:2], y[:2]), (x[2:5], y[2:5]), (x[5:8], y[5:8])], [(x[8:], y[8:])]]
    return x, y, parts, nn.CrossEntropyLoss(CLASS_WEIGHTS)


def measured(risk):
    v = torch.linspace(-1.0, 1.0, risk.size, dtype=torch.float64)
    block = torch.stack([v, v.square(), v.cos(), v.sin()], dim=1)
    sizes = torch.tensor([risk.loss_value(), risk.total_weight, risk.num_examples, risk.num_terms], dtype=torch.float64)
    return [sizes, risk.gradient(), ritz.hessian(risk) @ v, ritz.gauss_newton(risk) @ block]


def one_rank(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    _, _, parts, loss = group_problem()
    group = torch.distributed.group.WORLD
    torch.save(measured(Risk(network(), loss, parts[rank], group=group)), f"{folder}/{rank}.pt")
    refusals = []
    bad = network()
    bad[0].weight.data.mul_(1.0 + rank)
    for model, data in [(network(), parts[0] if rank == 0 else []), (bad, parts[rank])]:
        try:
            Risk(model, loss, data, group=group)
        except ritz.RitzError as error:
            refusals.append(f"{type(error).__name__}: {error.seen}")
    torch.save(refusals, f"{folder}/refused{rank}.pt")
    torch.distributed.destroy_process_group()


def test_two_processes_with_unequal_parts_give_the_same_as_one(tmp_path):
    torch.multiprocessing.spawn(one_rank, (str(tmp_path),), nprocs=2)
    x, y, _, loss = group_problem()
    expected = measured(Risk(network(), loss, (x, y)))
    for rank in range(2):
        for actual, wanted in zip(torch.load(tmp_path / f"{rank}.pt"), expected, strict=True):
            assert_close(actual, wanted)
    first, second = (torch.load(tmp_path / f"refused{rank}.pt") for rank in range(2))
    assert "Another rank" in first[0] and "no example" in second[0]  # and nobody waits for ever
    assert "differ between ranks" in first[1] and "differ between ranks" in second[1]


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


def test_a_selection_that_no_output_depends_on_has_no_slope():
    model = nn.ModuleDict({"used": nn.Linear(3, 2), "idle": nn.Linear(2, 2)})
    model.forward = lambda x: model["used"](x)
    risk = ritz.Risk(model, nn.CrossEntropyLoss(), (torch.randn(6, 3), torch.randint(2, (6,))), parameters="idle.*")
    assert not bool(risk.gradient().any()) and not bool(ritz.hessian(risk).dense().any())


def test_a_name_with_the_characters_of_a_glob_selects_itself():
    model = nn.Sequential()
    model.add_module("[a]", nn.Linear(3, 2))
    risk = ritz.Risk(model, nn.CrossEntropyLoss(), (torch.randn(6, 3), torch.randint(2, (6,))))
    assert list(risk.restricted_to("[a].bias").shapes) == ["[a].bias"]


def test_batch_norm_without_running_statistics_is_refused():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 2)).eval()
    with pytest.raises(ModelError, match="without running statistics"):
        ritz.Risk(model, nn.CrossEntropyLoss(), (torch.randn(6, 3), torch.randint(2, (6,))))


def test_whole_tensors_are_refused_where_the_cut_into_batches_would_matter():
    mixed = lambda z, y: F.cross_entropy(z @ z.T, torch.arange(len(z)), reduction="none")
    data = torch.randn(600, 3), torch.randint(2, (600,))
    with pytest.raises(DataError, match="without batches"):
        ritz.Risk(nn.Linear(3, 2), mixed, data)
    assert not ritz.Risk(nn.Linear(3, 2), mixed, (data[0][:50], data[1][:50])).separable


def test_the_loss_of_a_transformer_layer_is_that_of_the_function_that_is_differentiated():
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1).double().eval()

    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.head = encoder, nn.Linear(4, 3).double()

        def forward(self, x, mask):
            return self.head(self.encoder(x, src_key_padding_mask=mask).mean(1))

    x, mask = torch.randn(5, 6, 4, dtype=torch.float64), torch.zeros(5, 6, dtype=torch.bool)
    mask[:, 4:] = True
    model, y = Pooled(), torch.randint(3, (5,))
    risk = ritz.Risk(model, nn.CrossEntropyLoss(), ({"x": x, "mask": mask}, y))
    differentiated = F.cross_entropy(model(x, mask), y)  # with gradients, so without the fast path
    assert risk.loss_value() == pytest.approx(float(differentiated.detach()), rel=1e-12)


def test_sparse_embeddings_have_a_gradient():
    model = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Flatten(), nn.Linear(6, 2))
    risk = ritz.Risk(model, nn.CrossEntropyLoss(), (torch.randint(5, (8, 2)), torch.randint(2, (8,))))
    assert bool(risk.gradient()[:15].any())


def test_another_precision_gives_the_same_risk_and_leaves_the_first_as_it_was():
    found = case("cnn")
    x, y = found.inputs, torch.arange(11) % 3
    risk = Risk(found.model, nn.CrossEntropyLoss(), [(x[:7], y[:7]), (x[7:], y[7:])])
    single = risk.to(torch.float32)
    assert single.dtype == single.theta.dtype == torch.float32
    assert risk.dtype == risk.theta.dtype == torch.float64
    assert single.loss_value() == pytest.approx(risk.loss_value(), rel=1e-6)
    assert single.loss_value() != risk.loss_value()
    again = single.to(torch.float64)
    torch.testing.assert_close(again.gradient(), risk.gradient(), rtol=1e-5, atol=1e-7)
    assert risk.to(torch.float64) is risk


def test_rounding_that_depends_on_the_batch_does_not_look_like_dependence_between_examples_at_zero_loss():
    class Rounded(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            z = self.layer(x)
            return z if len(x) > 1 else z * (1 + 4e-16)  # as another kernel might round

    model = Rounded().double()
    x = torch.randn(600, 3).double()  # more than one of our own batches
    risk = Risk(model, ritz.SquaredError(), (x, model(x).detach()))
    assert risk.separable
    assert risk.loss_value() == 0.0
