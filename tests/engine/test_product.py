"""Products over all batches: what is kept, what is joined, and how many columns go together."""

import gc
import warnings
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import ritz
from ritz.engine import Path, columns
from ritz.engine.curvatures import HESSIAN
from ritz.engine.linearized import ReverseMode
from ritz.errors import ModelError, OutOfMemoryError
from ritz.testing import check_operator
from tests.engine.curvature import by_paths, class_targets
from tests.risk.problem import Folder
from tests.zoo import case, dense_hessian, unequal_batches, whole

CE = torch.nn.CrossEntropyLoss()


def test_memory_that_holds_nothing_changes_no_product(generator):
    built = case("cnn")
    data = unequal_batches(built.inputs, class_targets(built.shape))
    plenty, none = (ritz.Risk(built.model, ritz.CrossEntropy(), data, memory=m) for m in (1e9, 0))
    V = torch.randn(plenty.size, 6, generator=generator, dtype=torch.float64)
    for operator in (ritz.hessian, ritz.gauss_newton):
        kept, rebuilt = operator(plenty), operator(none)
        assert_close(rebuilt @ V, kept @ V)
        assert kept.info.kept_bytes > 0 and rebuilt.info.kept_bytes == 0


def test_joined_batches_give_the_same_product(generator, monkeypatch):
    built = case("two_inputs")
    data = unequal_batches(built.inputs, class_targets(built.shape))
    results = []
    for busy, num_batches in ((2.0**23, 1), (0.0, 2)):
        monkeypatch.setitem(columns.BUSY_BYTES, "cpu", busy)
        A = ritz.hessian(ritz.Risk(built.model, ritz.CrossEntropy(), data))
        V = torch.randn(A.size, 3, generator=generator.manual_seed(0), dtype=torch.float64)
        results.append(A @ V)
        assert A.info.num_batches == num_batches
    assert_close(*results)


def eight_batches(memory):
    built = case("mlp")
    x, y = built.inputs.repeat(8, 1), class_targets(built.shape).repeat(8)
    data = [(x[i : i + 11], y[i : i + 11]) for i in range(0, 88, 11)]
    return ritz.Risk(built.model, ritz.CrossEntropy(), data, memory=memory)


def test_a_product_reads_data_that_are_not_held_once(generator):
    built = case("mlp")
    source = Folder(unequal_batches(built.inputs, class_targets(built.shape)))
    A = ritz.hessian(ritz.Risk(built.model, ritz.CrossEntropy(), source, memory=0))
    V = torch.randn(A.size, 3, generator=generator, dtype=torch.float64)
    A @ V
    before = source.passes
    for _ in range(3):
        A @ V
    assert source.passes == before + 3 and A.info.num_batches == 2 and source.passes == before + 3


def test_all_operators_of_a_risk_stay_within_its_one_budget(generator, monkeypatch):
    monkeypatch.setitem(columns.BUSY_BYTES, "cpu", 0.0)  # so that nothing is joined
    risk = eight_batches("1G")
    A = ritz.hessian(risk)
    v = torch.randn(A.size, generator=generator, dtype=torch.float64)
    A @ v
    one, data = A.info.kept_bytes / 8, risk.batches.held_bytes()
    risk = eight_batches(data + 5.5 * one)
    assert risk.memory == pytest.approx(5.5 * one)
    operators = [build(risk) for build in (ritz.hessian, ritz.gauss_newton, ritz.functional_hessian)]
    for A in operators:
        A @ v
    kept = [A.info.kept_bytes for A in operators]
    assert kept[0] == pytest.approx(5 * one)
    assert 0 < sum(kept) <= 5.5 * one and risk.memory == pytest.approx(5.5 * one - sum(kept))


def test_operators_that_are_not_used_make_room_for_others(generator, monkeypatch):
    monkeypatch.setitem(columns.BUSY_BYTES, "cpu", 0.0)
    risk = eight_batches("1G")
    H, G = ritz.hessian(risk), ritz.gauss_newton(risk)
    v = torch.randn(H.size, generator=generator, dtype=torch.float64)
    expected = H @ v
    risk.budget.total = H.info.kept_bytes
    for _ in range(3):
        G @ v
    assert H.info.kept_bytes == 0 and G.info.kept_bytes > 0
    assert_close(H @ v, expected)
    del G
    gc.collect()
    assert risk.memory == pytest.approx(risk.budget.total - H.info.kept_bytes)


class WrongTogether(ReverseMode):
    """Products that are twice too large for vectors that are multiplied together."""

    def hessian(self, V, into=None):
        return super().hessian(V if len(V) == 1 else 2 * V, into)


@pytest.mark.parametrize("count", [2, 7, 40])
def test_columns_that_come_out_wrong_together_are_multiplied_one_by_one(count, generator):
    built = case("mlp")
    risk = ritz.Risk(built.model, ritz.CrossEntropy(), unequal_batches(built.inputs, class_targets(built.shape)))
    product = by_paths(risk, HESSIAN, Path("wrong together", WrongTogether))
    V = torch.randn(risk.size, count, generator=generator, dtype=torch.float64)
    for _ in range(2):  # the first product tries columns together, the second has learned
        assert_close(product @ V, ritz.hessian(risk) @ V)
    assert product.info.columns == 1 and ritz.hessian(risk).info.columns is None


def small_allocations(monkeypatch, limit):
    """Let every linearisation of more than so many examples run out of memory, as on a GPU that is full."""
    build = ReverseMode.__init__

    def fail(self, risk, batch, *args, **kwargs):
        if len(batch) > limit:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        build(self, risk, batch, *args, **kwargs)

    monkeypatch.setattr(ReverseMode, "__init__", fail)


@pytest.mark.parametrize("limit", [1, 3, 10])
def test_products_go_on_in_smaller_pieces_where_memory_is_short(limit, generator, monkeypatch):
    built = case("cnn")
    data = (built.inputs, class_targets(built.shape))
    expected = ritz.hessian(ritz.Risk(built.model, ritz.CrossEntropy(), data))
    small_allocations(monkeypatch, limit)
    A = ritz.hessian(ritz.Risk(built.model, ritz.CrossEntropy(), data))
    V = torch.randn(A.size, 3, generator=generator, dtype=torch.float64)
    result = A @ V
    assert A.info.num_batches >= 11 / limit
    monkeypatch.undo()
    assert_close(result, expected @ V)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"),
        RuntimeError("can't allocate memory"),
        MemoryError(),
    ],
)
def test_memory_that_runs_out_between_products_costs_only_what_is_kept(error, generator, monkeypatch):
    A = ritz.hessian(eight_batches("1G"))
    V = torch.randn(A.size, 5, generator=generator, dtype=torch.float64)
    expected, product, errors = A @ V, ReverseMode._second_backward, [error]  # of graphs that are kept by now

    def fail(self, *args):
        if errors:
            product(self, *args)  # as much as was done until then must not count twice
            raise errors.pop()
        return product(self, *args)

    monkeypatch.setattr(ReverseMode, "_second_backward", fail)
    assert_close(A @ V, expected)
    assert not errors


@pytest.mark.parametrize("room", [1, 3])
def test_graphs_that_do_not_fit_together_are_not_kept_together(room, generator, monkeypatch):
    monkeypatch.setitem(columns.BUSY_BYTES, "cpu", 0.0)  # so that nothing is joined
    expected = ritz.hessian(eight_batches("1G"))
    v = torch.randn(expected.size, generator=generator, dtype=torch.float64)
    expected, alive, build = expected @ v, weakref.WeakSet(), ReverseMode.__init__

    def fail(self, *args, **kwargs):
        if len(alive) >= room:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        build(self, *args, **kwargs)
        alive.add(self)

    monkeypatch.setattr(ReverseMode, "__init__", fail)
    A = ritz.hessian(eight_batches("1G"))
    for _ in range(2):
        assert_close(A @ v, expected)


def test_memory_that_cannot_suffice_is_an_error_with_numbers(monkeypatch):
    small_allocations(monkeypatch, 0)
    A = ritz.hessian(eight_batches("1G"))
    with pytest.raises(OutOfMemoryError, match=r"(?s)1 example does not fit.*GiB are free on cpu"):
        A @ torch.ones(A.size, dtype=A.dtype)


def test_products_warn_of_nothing():
    built = case("transformer")
    risk = ritz.Risk(built.model, ritz.CrossEntropy(), (built.inputs, class_targets(built.shape)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ritz.hessian(risk).dense()


class Crowded(torch.nn.Module):
    """An expert with four places, whatever the batch; it is asked for by examples that begin with a positive number."""

    def __init__(self, width):
        super().__init__()
        self.expert, self.rest = torch.nn.Linear(width, 3), torch.nn.Linear(width, 3)

    def forward(self, x):
        asking = torch.where(x[:, 0] > 0)[0][:4]
        return self.rest(x).index_add(0, asking, self.expert(x[asking]).tanh())


@pytest.mark.parametrize("memory", [20e3, 40e3, 1e9])
@pytest.mark.parametrize("operator", [ritz.hessian, ritz.ntk])
def test_examples_that_meet_in_a_later_pass_alone_are_kept_apart(memory, operator, generator):
    x, y = torch.randn(160, 4, generator=generator, dtype=torch.float64), torch.arange(160) % 3
    x[:, 0] = x[:, 0].abs() * torch.where((torch.arange(160) // 16) == 5, 1.0, -1.0)  # neither the first nor the last
    model, data = Crowded(4).double(), list(zip(x.split(4), y.split(4), strict=True))
    risk, apart = ritz.Risk(model, CE, data, memory=memory), ritz.Risk(model, CE, data, memory=0)
    A = operator(risk)
    V = torch.randn(A.size, 3, generator=generator, dtype=torch.float64)
    for _ in range(2):
        assert_close(A @ V, operator(apart) @ V)
    assert A.info.num_batches == 40


def test_a_fit_without_error_is_still_joined(generator):
    x = torch.randn(160, 4, generator=generator)
    model = torch.nn.Linear(4, 3)
    data = [(part, model(part).detach()) for part in x.split(4)]
    A = ritz.gauss_newton(ritz.Risk(model, torch.nn.MSELoss(), data))
    A @ torch.ones(A.size)
    assert A.info.num_batches == 1


class Rounded(torch.nn.Module):
    """Numbers that a few batches of data round in another way, as kernels do that are chosen by the batch's size."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, x):
        return x + (self.change if len(x) > 20 else 0.0) * torch.cos(1e4 * x.detach())


def kinks(change):
    """160 examples in batches of 20, whose differences decide over ReLUs: some lie on their kink but for a rounding."""
    torch.manual_seed(0)
    first, last = torch.nn.Linear(8, 400), torch.nn.Linear(400, 3)
    with torch.no_grad():
        first.weight[:, 4:], first.bias[:] = -first.weight[:, :4], 0.0
    x, y = torch.randn(160, 4), torch.randint(3, (160,))
    x = torch.cat([x, x + 0.01 * torch.randn(160, 4)], 1)
    model = torch.nn.Sequential(first, Rounded(change), torch.nn.ReLU(), last)
    return ritz.Risk(model, CE, list(zip(x.split(20), y.split(20), strict=True)))


@pytest.mark.parametrize(("change", "num_batches"), [(0.0, 1), (1e-6, 1), (1e-4, 8)])
def test_batches_are_joined_where_rounding_alone_turns_a_relu_on_or_off(change, num_batches, monkeypatch):
    monkeypatch.setitem(columns.BUSY_BYTES, "cpu", 2.0**28)
    A = ritz.hessian(kinks(change))
    A @ torch.ones(A.size)
    assert A.info.num_batches == num_batches


def contrastive(z, y):
    """One term per example, each of which depends on all others of the batch."""
    return F.cross_entropy(z @ z.T, torch.arange(len(z)), reduction="none")


def test_batches_are_not_joined_where_terms_depend_on_each_other():
    built = case("mlp")
    data = unequal_batches(built.inputs, class_targets(built.shape))
    risk = ritz.Risk(built.model, contrastive, data)

    def total(theta):
        outputs = whole(risk, built)(theta)
        return sum(contrastive(outputs[rows], None).sum() for rows in (slice(0, 7), slice(7, None))) / 11

    assert not risk.separable
    assert risk.loss_value() == pytest.approx(float(total(risk.theta)), rel=1e-12)
    check_operator(ritz.hessian(risk), dense_hessian(total, risk.theta))
    with pytest.raises(ModelError, match="depends on several"):
        ritz.empirical_fisher(risk) @ risk.theta


def gaps(z, y):
    """One term per example, convex: how far it lies from all others of the batch."""
    return (z[:, None] - z[None]).square().sum((1, 2))


def test_samples_of_a_loss_that_compares_examples_are_refused():
    built = case("mlp")
    risk = ritz.Risk(built.model, gaps, unequal_batches(built.inputs, class_targets(built.shape)))
    with pytest.raises(ModelError, match="depends on several rows") as caught:
        ritz.monte_carlo_fisher(risk) @ risk.theta
    assert "gauss_newton(risk)" in caught.value.ways_out[0]


class SometimesNoisy(nn.Module):
    """A layer that is skipped at random, on inputs that a first batch need not have."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3).double()

    def forward(self, x):
        return self.inner(x) + torch.randn(len(x), 3, dtype=x.dtype) * (x[:, :1] > 5)


class Settings:
    """What a loss looks up when it is called."""

    power = 1.0


def looked_up(z, y):
    return F.cross_entropy(z, y, reduction="none") ** Settings.power


@pytest.mark.parametrize("result", [lambda risk: ritz.hessian(risk) @ risk.theta, ritz.Risk.gradient])
def test_a_network_that_is_random_on_later_examples_alone_is_refused(result, generator):
    x, y = torch.randn(11, 4, generator=generator, dtype=torch.float64), torch.arange(11) % 3
    x[9, 0] = 6.0
    with torch.random.fork_rng():
        torch.manual_seed(0)
        risk = ritz.Risk(SometimesNoisy(), nn.CrossEntropyLoss(), [(x[:7], y[:7]), (x[7:], y[7:])])
        with pytest.raises(ModelError, match="other values on a batch of 4: examples 7 to 10 of the data, than when"):
            result(risk)


@pytest.mark.parametrize("result", [lambda risk: ritz.gauss_newton(risk) @ risk.theta, ritz.Risk.gradient])
def test_a_loss_that_changes_afterwards_is_refused(result, generator, monkeypatch):
    x, y = torch.randn(11, 4, generator=generator, dtype=torch.float64), torch.arange(11) % 3
    risk = ritz.Risk(nn.Linear(4, 3).double(), looked_up, [(x[:7], y[:7]), (x[7:], y[7:])])
    before = result(risk)
    monkeypatch.setattr(Settings, "power", 2.0)
    with pytest.raises(ModelError, match="that the loss refers to has changed"):
        result(risk)
    monkeypatch.setattr(Settings, "power", 1.0)
    assert_close(result(risk), before)
