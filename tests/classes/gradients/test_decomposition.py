"""The class structure of G against a dense construction from Jacobians, and every identity that it obeys."""

import functools
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

import ritz
from ritz.classes import ClassDecomposition, class_decomposition
from ritz.classes import knockouts as knockout
from ritz.classes.gradients.means import means_of_class
from ritz.classes.gradients.pullback import Pullback
from ritz.engine.columns import Columns
from ritz.errors import ArgumentError
from ritz.testing import check_operator
from tests.classes.gradients.dense_parts import PARTS, Dense
from tests.processes import run_ranks
from tests.zoo import CASES, OUTPUTS, Case, case, unequal_batches, whole

WEIGHTS = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)


def dense(risk, built, y, masses, total):
    outputs = whole(risk, built)
    z = outputs(risk.theta).detach()
    J = torch.func.jacfwd(outputs)(risk.theta)
    return Dense(J.reshape(-1, z.shape[-1], risk.size), z.reshape(-1, z.shape[-1]), y.flatten(), masses, total)


def check_against(found: ClassDecomposition, expected: Dense):
    assert_close(found.cross_weights, expected.cross_weights, rtol=1e-10, atol=0.0)
    assert_close(found.class_weights, expected.class_weights, rtol=1e-10, atol=0.0)
    for name in PARTS:
        if expected.parts[name].abs().max() > 0:
            check_operator(getattr(found, name), expected.parts[name], tolerance=1e-10)
        else:
            assert not getattr(found, name).dense().any()
    for name in PARTS[:3]:
        assert_close(found.traces[name], expected.traces[name], rtol=1e-10, atol=1e-14 * expected.traces[name].max())
    largest = max(trace.max() for trace in expected.traces.values())
    assert_close(found.within_traces, expected.traces["within"], rtol=1e-10, atol=1e-26 * float(largest))
    if found.class_means is not None:
        assert_close(found.class_means, expected.class_means, rtol=1e-9, atol=1e-12)
        assert_close(found.own_means, torch.stack([expected.cross_means[c, c] for c in range(expected.C)]))
    if found.cross_means is not None:
        assert_close(found.cross_means, expected.cross_means, rtol=1e-9, atol=1e-12)


def labels_for(shape):
    return torch.randint(OUTPUTS, shape[:-1], generator=torch.Generator().manual_seed(1))


def problem(name="mlp", y=None, loss=None, **options):
    built = case(name)
    y = labels_for(built.shape) if y is None else y
    return built, y, ritz.Risk(built.model, loss or ritz.CrossEntropy(), unequal_batches(built.inputs, y), **options)


def ones(y):
    return torch.ones(y.numel(), dtype=torch.float64)


def wide(C=5, count=40, scale=1.0):
    """A network of more classes and examples, so that ranks reach their bounds."""
    generator = torch.Generator().manual_seed(2)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, C)).double()
    with torch.no_grad():
        model[2].weight *= scale
    x = torch.randn(count, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(C, (count,), generator=generator)
    return Case(model, x, (count, C)), y


def sure():
    """Eight examples of each class, far from any boundary: probabilities run from 1 down to 1e-100."""
    built, _ = wide(count=1000, scale=200.0)
    top = built.model(built.inputs).detach().topk(2)
    order = (top.values[:, 0] - top.values[:, 1]).argsort(descending=True)
    x = torch.cat([built.inputs[order[top.indices[order, 0] == c][:8]] for c in range(5)])[torch.arange(40) * 7 % 40]
    return Case(built.model, x, (40, 5)), built.model(x).detach()


# Agreement ------------------------------------------------------------------------------------------------------------


@functools.cache
def of_network(network):
    built, y, risk = problem(network)
    return dense(risk, built, y, ones(y), y.numel())


@pytest.mark.parametrize("network", CASES)
def test_every_part_equals_the_dense_construction(network):
    _, _, risk = problem(network)
    check_against(class_decomposition(risk), of_network(network))


BALANCES = {
    "balanced": [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1],
    "unbalanced": [0, 0, 0, 0, 1, 0, 0, 2, 2, 0, 1],
    "sorted": [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2],
    "a class with one example": [0, 0, 1, 0, 1, 0, 0, 1, 1, 2, 1],
    "an empty class": [0, 0, 2, 0, 2, 0, 0, 2, 2, 2, 2],
}


@pytest.mark.parametrize("balance", BALANCES)
@pytest.mark.parametrize("network", ["mlp", "residual"])
def test_any_balance_of_classes_serves(network, balance):
    built, y, risk = problem(network, torch.tensor(BALANCES[balance]))
    found = class_decomposition(risk)
    check_against(found, dense(risk, built, y, ones(y), len(y)))
    assert_close(found.class_weights + found.own_weights, torch.bincount(y, minlength=OUTPUTS).double() / len(y))


def smoothed(weight, smoothing, y):
    return ((1 - smoothing) * weight[y] + smoothing * weight.mean()).flatten()


UNIT = torch.ones(3, dtype=torch.float64)
LOSSES = {
    "class weights": (nn.CrossEntropyLoss(WEIGHTS), lambda y: (WEIGHTS[y], WEIGHTS[y].sum())),
    "a class of weight zero": (
        nn.CrossEntropyLoss(torch.tensor([1.0, 0.0, 2.0]).double()),
        lambda y: (torch.tensor([1.0, 0.0, 2.0]).double()[y], torch.tensor([1.0, 0.0, 2.0]).double()[y].sum()),
    ),
    "smoothing": (ritz.CrossEntropy(label_smoothing=0.3), lambda y: (smoothed(UNIT, 0.3, y), len(y))),
    "smoothing and weights": (
        ritz.CrossEntropy(WEIGHTS, label_smoothing=0.3),
        lambda y: (smoothed(WEIGHTS, 0.3, y), WEIGHTS[y].sum()),
    ),
    "ignored labels": (ritz.CrossEntropy(ignore_index=1), lambda y: ((y != 1).double(), (y != 1).sum())),
    "a sum": (nn.CrossEntropyLoss(WEIGHTS, reduction="sum"), lambda y: (WEIGHTS[y], 1.0)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_weights_smoothing_and_ignored_labels_are_those_of_the_loss(name):
    loss, masses_and_total = LOSSES[name]
    built, y, risk = problem("mlp", loss=loss)
    check_against(class_decomposition(risk), dense(risk, built, y, *masses_and_total(y)))


def test_tokens_of_one_example_belong_to_their_own_classes():
    y = labels_for((11, 4, OUTPUTS))
    y[2, 1:], y[8] = -100, -100
    built, y, risk = problem("transformer", y, ritz.CrossEntropy(WEIGHTS))
    masses = torch.where(y == -100, 0.0, WEIGHTS[y.clamp(min=0)]).flatten()
    found = class_decomposition(risk)
    check_against(found, dense(risk, built, y, masses, masses.sum()))
    check_operator(sum_of_parts(found), ritz.gauss_newton(risk).dense())


class ClassesInTheMiddle(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(tokens).movedim(-1, 1)


def test_classes_may_be_any_dimension_of_the_outputs():
    built, y, risk = problem("transformer")
    batches = unequal_batches(built.inputs, y)
    moved = ritz.Risk(ClassesInTheMiddle(built.model), nn.CrossEntropyLoss(), batches, memory=1e9)
    streamed = ritz.Risk(ClassesInTheMiddle(built.model), nn.CrossEntropyLoss(), batches, memory=0)
    expected, V = class_decomposition(risk), torch.randn(risk.size, 3, dtype=torch.float64)
    for other in (moved, streamed):
        found = class_decomposition(other)
        for name in PARTS:
            assert_close(getattr(found, name) @ V, getattr(expected, name) @ V, rtol=1e-9, atol=1e-13)
        assert_close(found.within_traces, expected.within_traces)


@pytest.mark.parametrize("correct", [True, False])
def test_a_sure_network_keeps_its_digits(correct):
    built, z = sure()
    y = z.argmax(1) if correct else z.argmin(1)
    batches, expected = unequal_batches(built.inputs, y), None
    for memory in (None, 8 * 101 * 30, 0):  # all means, class means, no means are held
        risk = ritz.Risk(built.model, nn.CrossEntropyLoss(), batches, memory=memory)
        found, expected = class_decomposition(risk), expected or dense(risk, built, y, ones(y), len(y))
        assert (found.cross_means is None, found.class_means is None) == (memory is not None, memory == 0)
        smaller = found.class_weights if correct else found.own_weights
        assert 0 < smaller[smaller > 0].max() < 1e-17  # p - 1 is zero in floating-point numbers
        if not correct:  # then the sum over c' ≠ c cancels, and g_c = -(w_cc / w_c) g_cc is the way to know it
            factors = -torch.where(expected.class_weights > 0, found.own_weights / expected.class_weights, 0.0)
            expected.class_means = torch.stack([factors[c] * expected.cross_means[c, c] for c in range(5)])
            rows = expected.class_means * expected.class_weights.sqrt()[:, None]
            expected.parts["between_class"] = rows.T @ rows
            expected.traces["between_class"] = rows.square().sum(1)
        check_against(found, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("memory", [None, 0])
def test_probabilities_that_underflow_give_zeros_and_no_nan(dtype, memory):
    built, _ = wide(scale=1e4)
    y = built.model(built.inputs).argmax(1)
    y[3] = (y[3] + 1) % 5  # one wrong label, so that not all is zero
    data = unequal_batches(built.inputs.to(dtype), y)
    risk = ritz.Risk(built.model.to(dtype), nn.CrossEntropyLoss(), data, memory=memory)
    found = class_decomposition(risk)
    assert (found.cross_weights == 0).any() and (found.cross_weights > 0).any()
    V = torch.eye(risk.size, dtype=dtype)[:, ::20]
    assert all(torch.isfinite(getattr(found, name) @ V).all() for name in PARTS)
    assert all(torch.isfinite(trace).all() for trace in [*found.traces.values(), found.within_traces])


def test_float32_means_survive_weights_that_float32_cannot_hold():
    built, z = sure()
    y = z.argmax(1)
    exact = class_decomposition(ritz.Risk(built.model, nn.CrossEntropyLoss(), (built.inputs, y)))
    inputs = built.inputs.float()
    coarse = class_decomposition(ritz.Risk(built.model.float(), nn.CrossEntropyLoss(), (inputs, y)))
    tiny = (exact.cross_weights > 0) & (exact.cross_weights < 1e-46)
    assert tiny.any()
    assert_close(coarse.cross_means[tiny].double(), exact.cross_means[tiny], rtol=1e-2, atol=1e-3)


# Identities -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def decomposed():
    built, y = wide()
    return class_decomposition(ritz.Risk(built.model, nn.CrossEntropyLoss(), unequal_batches(built.inputs, y)))


def test_the_parts_sum_to_the_gauss_newton_matrix(decomposed):
    parts = sum(getattr(decomposed, name).dense() for name in PARTS)
    assert_close(parts, ritz.gauss_newton(decomposed.risk).dense(), rtol=1e-10, atol=1e-14)


def test_every_part_is_positive(decomposed):
    for name in PARTS:
        values = torch.linalg.eigvalsh(getattr(decomposed, name).dense())
        assert values[-1] > 0 and values[0] > -1e-14 * values[-1]


def test_ranks_are_those_of_the_theory(decomposed):
    C = decomposed.num_classes
    ranks = {"between_class": C, "cross_class": C * (C - 2), "own_class": C, "together": C * (C - 1)}
    assert decomposed.ranks == ranks
    values = torch.linalg.eigvalsh(decomposed.cross_class.dense())
    assert int((values > 1e-13 * values[-1]).sum()) == C * (C - 2)


def test_gradients_of_all_would_be_labels_sum_to_zero(decomposed):
    sums = torch.einsum("cd,cdn->cn", decomposed.cross_weights, decomposed.cross_means)
    assert sums.abs().max() < 1e-15
    ratio = (decomposed.own_weights / decomposed.class_weights)[:, None]
    assert_close(decomposed.class_means, -ratio * decomposed.own_means, rtol=1e-10, atol=1e-14)


def test_class_and_own_parts_are_one_sum_over_class_means(decomposed):
    own, outer = decomposed.own_weights, decomposed.class_weights
    weights = outer * (outer + own) / own
    expected = torch.einsum("c,cn,cm->nm", weights, decomposed.class_means, decomposed.class_means)
    check_operator(decomposed.between_class + decomposed.own_class, expected)


def test_traces_by_class_add_up_to_those_of_the_operators(decomposed):
    for name, traces in [*decomposed.traces.items(), ("within", decomposed.within_traces)]:
        assert_close(traces.sum(), getattr(decomposed, name).dense().trace(), rtol=1e-10, atol=0.0)


def test_low_rank_parts_know_their_factor(decomposed):
    for name in PARTS[:3]:
        operator = getattr(decomposed, name)
        assert_close(operator.factor @ operator.factor.T, operator.dense(), rtol=1e-12, atol=1e-15)
    assert decomposed.within.factor is None


def test_knockouts_take_the_parts_out(decomposed):
    G, M = ritz.gauss_newton(decomposed.risk), ritz.gauss_newton(decomposed.risk).dense()
    Q = torch.linalg.qr(decomposed.class_means.T).Q
    without = torch.eye(len(M), dtype=torch.float64) - Q @ Q.T
    check_operator(knockout.project(G, decomposed.between_class), without @ M @ without)
    check_operator(knockout.subtract(G, decomposed.between_class), M - decomposed.between_class.dense())
    left = knockout.project(decomposed.own_class, decomposed.between_class).dense()
    assert left.abs().max() < 1e-15  # on the same span


def test_one_example_of_each_class_leaves_nothing_within():
    built, _ = wide(count=5)
    risk = ritz.Risk(built.model, nn.CrossEntropyLoss(), (built.inputs, torch.arange(5)))
    found = class_decomposition(risk)
    assert found.within_traces.max() < 1e-28
    assert found.within.dense().abs().max() < 1e-14


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=5, max_size=14), st.sampled_from([0.1, 1.0, 10.0]))
def test_any_labels_give_positive_parts_that_sum_to_the_gauss_newton_matrix(labels, scale):
    if len(set(labels)) < 2:
        return
    built, _ = wide(count=len(labels), scale=scale)
    risk = ritz.Risk(built.model, nn.CrossEntropyLoss(), unequal_batches_or_one(built.inputs, torch.tensor(labels)))
    found = class_decomposition(risk)
    matrices = [getattr(found, name).dense() for name in PARTS]
    whole = ritz.gauss_newton(risk).dense()
    assert_close(sum(matrices), whole, rtol=1e-10, atol=1e-14)
    for matrix in matrices:  # one of them may be nothing but the rounding of the whole
        assert torch.linalg.eigvalsh(matrix)[0] > -1e-13 * torch.linalg.eigvalsh(whole)[-1]
    assert all(found.ranks[name] <= bound for name, bound in zip(PARTS, (5, 15, 5), strict=False))


def unequal_batches_or_one(x, y):
    return unequal_batches(x, y) if len(y) > 7 else (x, y)


# Memory, layouts, processes -------------------------------------------------------------------------------------------


@functools.cache
def in_memory(correct):
    """Ten classes with all their means held, and the batches."""
    built, y = wide(C=10, count=20, scale=6.0)
    batches = unequal_batches(built.inputs, built.model(built.inputs).argmax(1) if correct else y)
    return class_decomposition(ritz.Risk(built.model, nn.CrossEntropyLoss(), batches)), batches


@pytest.mark.parametrize("correct", [True, False])
@pytest.mark.parametrize("held", ["class means", "nothing"])
def test_means_beyond_the_memory_give_the_same_operators(held, correct, generator):
    expected, batches = in_memory(correct)
    n, model = expected.risk.size, expected.risk.model
    small = ritz.Risk(model, nn.CrossEntropyLoss(), batches, memory=0 if held == "nothing" else 8 * n * 50)
    found = class_decomposition(small)
    assert found.cross_means is None and (found.class_means is None) == (held == "nothing")
    V = torch.randn(n, 5, dtype=torch.float64, generator=generator)
    for name in PARTS:
        product = getattr(expected, name) @ V
        assert_close(getattr(found, name) @ V, product, rtol=1e-10, atol=1e-10 * float(product.abs().max()))
    assert (found.cross_class @ V[:, :0]).shape == (n, 0)
    assert found.cross_class.factor is None and (found.between_class.factor is None) == (held == "nothing")
    for name in PARTS[:3]:
        assert_close(found.traces[name], expected.traces[name], rtol=1e-10, atol=1e-20)
    assert_close(found.within_traces, expected.within_traces, rtol=1e-10, atol=1e-20)
    with pytest.raises(ArgumentError, match="not kept"):
        found.ranks
    with pytest.raises(ArgumentError, match="no known factor"):
        knockout.project(expected.within, found.cross_class)


@pytest.mark.parametrize("network", CASES)
def test_every_network_is_multiplied_through_its_outputs(network, generator):
    _, _, risk = problem(network, memory=0)
    found, expected = class_decomposition(risk), of_network(network)
    assert found.class_means is None and found.cross_means is None
    V = torch.randn(risk.size, 3, dtype=torch.float64, generator=generator)
    for name in PARTS:
        assert_close(getattr(found, name) @ V, expected.parts[name] @ V, rtol=1e-10, atol=1e-13)
        assert_close(found.within_traces if name == "within" else found.traces[name], expected.traces[name])


def test_data_that_are_read_anew_give_the_same_means():
    _, _, risk = problem("mlp")
    _, _, streamed = problem("mlp", memory=0)
    streamed.budget.total = 1e9
    assert streamed.batches.held is None
    assert_close(class_decomposition(streamed).cross_means, class_decomposition(risk).cross_means)


def test_batches_of_different_lengths_are_split_one_by_one():
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.head = nn.Embedding(6, 3, sparse=True), nn.Linear(3, OUTPUTS)

        def forward(self, ids):
            return self.head(torch.tanh(self.tokens(ids)).mean(1))

    model, generator = Pooled().double(), torch.Generator().manual_seed(3)
    ids = [torch.randint(6, (count, length), generator=generator) for count, length in ((7, 3), (4, 5))]
    y = labels_for((11, OUTPUTS))
    risk = ritz.Risk(model, nn.CrossEntropyLoss(), [(ids[0], y[:7]), (ids[1], y[7:])])
    found = class_decomposition(risk)
    check_operator(sum_of_parts(found), ritz.gauss_newton(risk).dense())
    assert_close(found.within_traces.sum(), found.within.dense().trace(), rtol=1e-10, atol=0.0)


def sum_of_parts(found):
    return found.between_class + found.cross_class + found.own_class + found.within


class Centred(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


def test_examples_that_depend_on_each_other_stay_in_their_batches():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 5), Centred(), nn.Tanh(), nn.Linear(5, OUTPUTS)).double()
    x, y = case("mlp").inputs, labels_for((11, OUTPUTS))
    risk = ritz.Risk(model, nn.CrossEntropyLoss(), unequal_batches(x, y))
    assert not risk.separable
    parts = [whole(risk, Case(model, rows, ())) for rows in (x[:7], x[7:])]
    outputs = lambda theta: torch.cat([part(theta) for part in parts])
    J = torch.func.jacfwd(outputs)(risk.theta)
    expected = Dense(J, outputs(risk.theta).detach(), y, ones(y), len(y))
    check_against(class_decomposition(risk), expected)


@pytest.mark.parametrize("network", ["mlp", "residual", "transformer"])
def test_columns_together_are_the_same_as_one_by_one(network, monkeypatch):
    _, _, risk = problem(network)
    means = []
    for most in (8, 1):
        monkeypatch.setattr(Pullback, "_together", lambda self, _, columns=Columns(most): columns)
        means.append(class_decomposition(risk).cross_means)
        monkeypatch.undo()
    assert_close(*means)


def test_a_part_of_the_parameters_has_a_part_of_the_means():
    _, _, risk = problem("mlp")
    names = list(risk.shapes)
    layer = risk.restricted_to(names[:2])
    expected = class_decomposition(risk).cross_means[..., : layer.size]
    assert_close(class_decomposition(layer).cross_means, expected)


def test_the_model_and_the_random_state_stay_as_they_are():
    built, _, risk = problem("cnn")
    built.model.train()
    before = {name: tensor.clone() for name, tensor in built.model.state_dict().items()}
    state = torch.get_rng_state()
    found = class_decomposition(risk)
    _ = found.within.dense(), found.traces, found.within_traces, found.ranks
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], tensor) for name, tensor in built.model.state_dict().items())
    assert built.model.training and all(p.grad is None and p.requires_grad for p in built.model.parameters())


def group_problem():
    built, y = wide(C=4, count=13)
    y[[1, 10]] = -100
    return built, y, [unequal_batches(built.inputs[:9], y[:9]), [(built.inputs[9:], y[9:])]]


def measured(found):
    V = torch.linspace(-1.0, 1.0, found.risk.size, dtype=torch.float64)[:, None].cos()
    numbers = [torch.tensor(found.num_weighted), found.cross_weights, found.within_traces, *found.traces.values()]
    return [*numbers, *(getattr(found, part) @ V for part in PARTS)]


def one_rank(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    built, _, parts = group_problem()
    group, loss = torch.distributed.group.WORLD, nn.CrossEntropyLoss()
    for name, memory in {"held": None, "through outputs": 0, "of unequal memory": 10**9 if rank == 0 else 0}.items():
        risk = ritz.Risk(built.model, loss, parts[rank], group=group, memory=memory)
        torch.save(measured(class_decomposition(risk)), f"{folder}/{name} {rank}.pt")
    torch.distributed.barrier()  # a rank that leaves early takes its connections with it
    torch.distributed.destroy_process_group()


def test_two_processes_with_unequal_parts_give_the_same_as_one(tmp_path):
    run_ranks(one_rank, str(tmp_path))
    built, y, _ = group_problem()
    expected = measured(class_decomposition(ritz.Risk(built.model, nn.CrossEntropyLoss(), (built.inputs, y))))
    assert int(expected[0]) == 11
    saved = sorted(tmp_path.glob("*.pt"))
    assert len(saved) == 6
    for path in saved:
        for actual, reference in zip(torch.load(path), expected, strict=True):
            assert_close(actual, reference)


# What is refused ------------------------------------------------------------------------------------------------------


def refused(loss, y, model=None):
    x = case("mlp").inputs
    with pytest.raises(ritz.RitzError) as caught:
        class_decomposition(ritz.Risk(model or case("mlp").model, loss, unequal_batches(x, y)))
    return str(caught.value)


def test_a_decomposition_of_a_risk_without_classes_is_refused():
    real = torch.randn(11, OUTPUTS, dtype=torch.float64)
    assert "SquaredError" in refused(ritz.SquaredError(), real)
    assert "Only class indices can serve as labels" in refused(nn.CrossEntropyLoss(), real.softmax(-1))
    assert "Only class indices can serve as labels" in refused(nn.BCEWithLogitsLoss(), real.sigmoid())


def test_a_single_class_is_refused():
    assert "belong to class 2" in refused(nn.CrossEntropyLoss(), torch.full((11,), 2))
    y = torch.tensor([1] * 9 + [0] * 2)
    assert "belong to class 1" in refused(nn.CrossEntropyLoss(ignore_index=0), y)
    single = nn.Linear(4, 1).double()
    assert "softmax of a single logit" in refused(ritz.CrossEntropy(), torch.zeros(11, dtype=torch.long), single)


def test_negative_class_weights_are_refused():
    weights = torch.tensor([1.0, -0.1, 1.0]).double()
    assert "Only a convex loss" in refused(nn.CrossEntropyLoss(weights), labels_for((11, 3)))


def test_a_decomposition_prints_what_it_is(decomposed):
    assert repr(decomposed) == "ClassDecomposition(C = 5, n = 101, means held)"
    assert len(decomposed.labels) == 40


def test_no_warning_reaches_the_user():
    _, _, risk = problem("residual")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _ = class_decomposition(risk).within_traces


@pytest.mark.parametrize("channels", [2, 4])
def test_traces_within_are_exact_where_only_several_examples_cannot_be_mapped(channels):
    """PyTorch's rule for PReLU mistakes examples for channels as soon as there are several of them."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv1d(2, channels, 2), nn.PReLU(channels), nn.Flatten(), nn.Linear(2 * channels, 3))
        x = torch.randn(10, 2, 3, dtype=torch.float64)
    y = torch.tensor([0, 1, 1, 2, 2, 2, 2, 1, 1, 2])
    risk = ritz.Risk(model.double(), nn.CrossEntropyLoss(), [(x[:6], y[:6]), (x[6:], y[6:])])
    for memory in (risk.memory, 0.0):
        risk.budget.total = memory
        found = class_decomposition(risk)
        assert_close(found.within_traces.sum(), found.within.dense().trace(), rtol=1e-10, atol=0.0)


def test_many_classes_have_each_its_own_means():
    x, model = torch.full((1, 1), 2.0, dtype=torch.float64), nn.Linear(1, 300, bias=False).double()
    risk, p = ritz.Risk(model, ritz.CrossEntropy(), [(x, torch.tensor([299]))]), model(x).detach().softmax(-1)[0]
    weights = torch.zeros(300, 300, dtype=torch.float64).index_put((torch.tensor(299),), p)
    means = means_of_class(risk, 299, [0, 299], weights)
    assert_close(means, 2.0 * (p - torch.eye(300, dtype=torch.float64)[[0, 299]]))
