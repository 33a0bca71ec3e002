"""Batches are cut and joined only where no example depends on another: curvature is that of the user's batches."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils.data import DataLoader

import ritz
from ritz.errors import DataError
from ritz.risk import separability
from ritz.risk.batches import Batch
from tests.risk.problem import Examples, check_refusal

ROWS, WIDTH, OUT = 6, 3, 2


class TimeMajor(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent, self.head = nn.GRU(WIDTH, 4), nn.Linear(4, OUT)

    def forward(self, x):
        return self.head(self.recurrent(x)[0])


class CausalTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(WIDTH, 4), nn.Linear(4, OUT)
        self.layer = nn.TransformerEncoderLayer(4, 2, 5, dropout=0.0).eval()

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(len(x), dtype=x.dtype)
        return self.head(self.layer(self.embed(x), mask))


class Mixed(nn.Module):
    """A network whose outputs are mixed along the batch."""

    def __init__(self, mix):
        super().__init__()
        self.mix, self.inner = mix, nn.Sequential(nn.Linear(WIDTH, 4), nn.Tanh(), nn.Linear(4, OUT))

    def forward(self, x):
        return self.mix(self.inner(x))


def pairs(z):
    partner = z[torch.arange(len(z)) ^ 1]
    return z + 0.3 * partner.tanh()


def ends(z):
    return torch.cat([z[:1] + 0.1 * z[-1:].tanh(), z[1:]])


def batch_centred(z):
    return z - 0.01 * z.mean(0)


def per_example(z, y):
    return (z - y).square().sum(-1)


def cox(z, y):
    """Partial likelihood of survival: every risk set holds the rows before."""
    return torch.logcumsumexp(z[:, 0], 0) - z[:, 0]


def temporal_difference(z, y):
    target = torch.cat([z[1:, 0], z.new_zeros(1)])
    return (z[:, 0] - y[:, 0] - 0.9 * target).square()


def contrastive(z, y):
    return F.cross_entropy(z @ y.T, torch.arange(len(z)), reduction="none")


def half_as_many(z, y):
    return (z[::2] - z[1::2] - y[::2]).square().sum(-1)


def squares_and_differences(z, y):
    return torch.cat([(z - y).square().sum(-1), z.diff(dim=0).square().sum(-1)])


PLAIN = lambda z: z
COUPLED = {
    "time-major GRU": (TimeMajor, nn.MSELoss()),
    "causal transformer": (CausalTransformer, nn.MSELoss()),
    "Cox": (lambda: Mixed(PLAIN), cox),
    "temporal difference": (lambda: Mixed(PLAIN), temporal_difference),
    "cumulative sum": (lambda: Mixed(lambda z: z.cumsum(0)), per_example),
    "cumulative sum from the end": (lambda: Mixed(lambda z: z.flip(0).cumsum(0).flip(0)), per_example),
    "in-batch negatives": (lambda: Mixed(PLAIN), contrastive),
    "pairs": (lambda: Mixed(pairs), per_example),
    "first and last": (lambda: Mixed(ends), per_example),
    "batch norm": (lambda: Mixed(batch_centred), per_example),
    "weak": (lambda: Mixed(lambda z: z + 1e-9 * z.roll(1, 0)), per_example),
    "position": (lambda: Mixed(lambda z: z * torch.arange(1.0, len(z) + 1, dtype=z.dtype)[:, None]), per_example),
    "half as many terms": (lambda: Mixed(PLAIN), half_as_many),
    "more terms": (lambda: Mixed(PLAIN), squares_and_differences),
}


def problem(name):
    torch.manual_seed(0)
    build, loss = COUPLED[name]
    return build().double(), loss


def some(count, rows=ROWS):
    generator = torch.Generator().manual_seed(1)
    draw = lambda width: torch.randn(rows, width, generator=generator, dtype=torch.float64)
    return [(draw(WIDTH), draw(OUT)) for _ in range(count)]


def check_hessian(risk, model, loss, batches, columns=None):
    """H against PyTorch's own, of Σ over the batches divided by how many values the loss returns for all of them."""
    entrywise = nn.MSELoss(reduction="none") if isinstance(loss, nn.MSELoss) else loss
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        values = [entrywise(model(x), y).flatten() for x, y in batches]
        total = sum(v.sum() for v in values) / sum(map(len, values))
        parameters = list(model.parameters())
        slope = torch.autograd.grad(total, parameters, create_graph=True)
    gradient = torch.cat([g.flatten() for g in slope])
    product = lambda v: torch.autograd.grad(gradient, parameters, v, retain_graph=True, materialize_grads=True)
    V = torch.randn(risk.size, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    V = torch.eye(risk.size, dtype=torch.float64) if columns is None else V[:, :columns]
    expected = torch.stack([torch.cat([p.flatten() for p in product(v)]) for v in V.T], dim=1)
    assert_close(ritz.hessian(risk) @ V, expected, rtol=0, atol=1e-10 * float(expected.abs().max()))


BY_SIZE = {
    "large batches are centred": lambda z: batch_centred(z) if len(z) > 5 else z,
    "large batches go elsewhere": lambda z: z.tanh() if len(z) > 5 else z,
}


@pytest.mark.parametrize("sizes", [(4, 7), (7, 4), (4, 4, 7)])
@pytest.mark.parametrize("name", BY_SIZE)
def test_a_model_that_mixes_examples_at_some_batch_sizes_alone_is_not_cut(name, sizes):
    torch.manual_seed(0)
    model = Mixed(BY_SIZE[name]).double()
    batches = [some(1, rows)[0] for rows in sizes]
    risk = ritz.Risk(model, per_example, batches)
    assert not risk.separable
    check_hessian(risk, model, per_example, batches)


@pytest.mark.parametrize("name", COUPLED)
def test_coupled_rows_are_right_in_the_batches_of_the_user(name):
    model, loss = problem(name)
    batches = some(12)
    for seed in range(3):  # that no verdict is drawn
        torch.manual_seed(seed)
        risk = ritz.Risk(model, loss, batches)
        assert not risk.separable and not risk.batches.joinable
    check_hessian(risk, model, loss, batches, columns=3 if risk.size > 50 else None)


@pytest.mark.parametrize("name", COUPLED)
def test_coupled_rows_that_came_uncut_stay_uncut(name):
    model, loss = problem(name)
    data = some(1, rows=700)
    risk = ritz.Risk(model, loss, data[0])
    assert not risk.separable and [len(batch) for batch in risk.batches] == [700]
    assert risk.num_examples == 700
    check_hessian(risk, model, loss, data, columns=1)


@pytest.mark.parametrize("name", ["temporal difference", "batch norm", "weak"])
def test_coupled_examples_of_a_dataset_without_batches_are_refused(name):
    model, loss = problem(name)
    ((x, y),) = some(1, rows=700)

    class Regression(Examples):
        def __getitem__(self, index):
            return self.x[index], self.y[index]

    with pytest.raises(DataError, match="without batches") as caught:
        ritz.Risk(model, loss, Regression(x, y))
    check_refusal(caught, DataError)
    assert not ritz.Risk(model, loss, DataLoader(Regression(x, y), 100)).separable  # the way out


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("rows", [1, 2, 6, 37])
def test_independent_examples_are_recognised(dtype, rows):
    torch.manual_seed(0)
    deep = [m for _ in range(12) for m in (nn.Linear(9, 9), nn.LayerNorm(9), nn.ReLU())]
    networks = [
        Mixed(PLAIN),
        nn.Sequential(nn.Linear(WIDTH, 9), *deep, nn.Linear(9, OUT)),
        nn.Sequential(nn.Linear(WIDTH, 400), nn.GELU(), nn.Linear(400, OUT)),
    ]
    for model in networks:
        for loss in (nn.MSELoss(), per_example):
            risk = ritz.Risk(model.to(dtype), loss, some(5, rows))
            assert risk.separable and risk.batches.joinable
            assert len(list(risk.batches.joined(2))) == 3


def test_a_dependence_that_zero_weights_hide_is_seen_at_other_parameters():
    model = TimeMajor().double()
    nn.init.zeros_(model.head.weight)
    risk = ritz.Risk(model, nn.MSELoss(), some(12))
    assert not risk.separable
    check_hessian(risk, model, nn.MSELoss(), some(12), columns=3)


def test_rows_that_meet_only_in_joined_batches_keep_these_apart():
    """Rows of one group are averaged; every batch has each group once."""

    class Grouped(Mixed):
        def forward(self, x, group):
            z = self.inner(x)
            same = (group[:, None] == group[None]).to(z)
            return same @ z / same.sum(1, keepdim=True)

    torch.manual_seed(0)
    model = Grouped(PLAIN).double()
    batches = [({"x": x, "group": torch.arange(ROWS)}, y) for x, y in some(12)]
    risk = ritz.Risk(model, per_example, batches)
    assert risk.separable and not risk.batches.joinable
    assert len(list(risk.batches.joined(4))) == 12
    check_hessian(risk, model.inner, per_example, some(12))


def test_a_network_for_single_examples_is_taken_one_by_one():
    class OneByOne(Mixed):
        def forward(self, x):
            assert len(x) == 1
            return self.inner(x)

    torch.manual_seed(0)
    model = OneByOne(PLAIN).double()
    batches = some(12, rows=1)
    risk = ritz.Risk(model, per_example, batches)
    assert risk.separable and not risk.batches.joinable
    check_hessian(risk, model, per_example, batches)
    assert ritz.kfac(risk) is not None


def test_what_filled_the_memory_is_given_back_before_fewer_rows_are_joined(monkeypatch):
    class Limited(Mixed):
        def forward(self, x):
            if len(x) > 2 * ROWS - 2:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return self.inner(x)

    devices = []
    monkeypatch.setattr(separability, "forget_unused", devices.append)
    risk = ritz.Risk(Limited(PLAIN).double(), per_example, some(2))
    assert risk.separable and risk.batches.joinable and devices == [risk.device]


@pytest.mark.parametrize("count", [2, 3, 5, 16, 35, 64, 70])
def test_any_example_is_tried_without_any_other(count):
    batch = Batch(torch.zeros(count, 1), torch.zeros(count))
    groups = [set(rows.tolist()) for rows in separability._groups(batch)]
    assert len({len(rows) for rows in separability._groups(batch)}) == 1
    for one in range(count):
        for other in range(count):
            assert one == other or any(one in group and other not in group for group in groups)
