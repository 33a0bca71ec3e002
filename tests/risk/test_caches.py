"""What a forward pass has looked up before the risk is built: the curvature has the parameters' part all the same."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import ritz
from ritz.risk.first_evaluation import forget_tables
from tests.risk.unchanged import nothing_changes


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.bias = nn.Linear(3, 3), nn.Parameter(torch.linspace(-1, 1, 3))
        self.mask = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)  # a constant, which must stay

    def biases(self):
        return self.bias.exp()

    def forward(self, x):
        return self.layer(x).tanh() * self.biases() * self.mask


class Table(Plain):
    def __init__(self):
        super().__init__()
        self.table = {}

    def biases(self):
        if "all" not in self.table:
            self.table["all"] = super().biases()
        return self.table["all"]


class Single(Plain):
    def __init__(self):
        super().__init__()
        self._kept = None

    def biases(self):
        if self._kept is None:
            self._kept = super().biases()
        return self._kept


@pytest.mark.parametrize("kind", [Table, Single])
@pytest.mark.parametrize("grad", [True, False])
def test_a_table_filled_before_hides_no_parameter(kind, grad):
    x, y = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)).double(), torch.arange(8) % 3
    model, plain = kind().double().eval(), Plain().double().eval()
    plain.load_state_dict(model.state_dict())
    with torch.set_grad_enabled(grad):
        model(x)  # as one evaluates a network before it is analysed
    before = dict(vars(model))
    with nothing_changes(model):
        H = ritz.hessian(ritz.Risk(model, nn.CrossEntropyLoss(), [(x[:5], y[:5]), (x[5:], y[5:])]))
        result = H.dense()
    assert {name: id(value) for name, value in vars(model).items()} == {n: id(v) for n, v in before.items()}
    assert_close(result, ritz.hessian(ritz.Risk(plain, nn.CrossEntropyLoss(), (x, y))).dense())


class Short(Table):
    """A model with room for a few examples at a time."""

    most = 4

    def forward(self, x):
        if len(x) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().forward(x)


class Rigid(Table):
    """Which takes batches of one size."""

    def forward(self, x):
        return super().forward(x.view(40, 3))


@pytest.mark.parametrize("kind", [Short, Rigid])
def test_a_table_is_emptied_where_some_sizes_of_a_batch_fail(kind):
    x, y = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)).double(), torch.arange(40) % 3
    model, plain = kind().double().eval(), Plain().double().eval()
    plain.load_state_dict(model.state_dict())
    model(x[: kind.most] if kind is Short else x)
    result = ritz.hessian(ritz.Risk(model, nn.CrossEntropyLoss(), [(x, y)])).dense()
    assert_close(result, ritz.hessian(ritz.Risk(plain, nn.CrossEntropyLoss(), (x, y))).dense())


class Read(list):
    """Batches that are counted as they are read."""

    count = 0

    def __iter__(self):
        for batch in super().__iter__():
            Read.count += 1
            yield batch


def test_nothing_is_read_for_a_model_without_tables(monkeypatch):
    x, y = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)).double(), torch.arange(8) % 3
    counts = []
    for look in (forget_tables, lambda *_: False):
        monkeypatch.setattr("ritz.risk.risk.forget_tables", look)
        Read.count = 0
        ritz.Risk(nn.Linear(3, 3).double(), nn.CrossEntropyLoss(), Read([(x, y)]), memory=0)
        counts.append(Read.count)
    assert counts[0] == counts[1] > 0
