"""A small classification problem, data in forms of users, and checks of every risk."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import Dataset

import ritz

N, D, C = 11, 4, 3


CLASS_WEIGHTS = torch.tensor([0.5, 1.0, 2.5], dtype=torch.float64)


def network(width=C):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(D, 5), nn.Tanh(), nn.Linear(5, width)).double()


def plain_gradient(model, value):
    return torch.cat([g.flatten() for g in torch.autograd.grad(value, list(model.parameters()))])


def check_against_pytorch(risk, model, value):
    """Value and gradient against one batch of plain PyTorch."""
    assert risk.loss_value() == pytest.approx(value.item(), rel=1e-12)
    assert_close(risk.gradient(), plain_gradient(model, value))


class Examples(Dataset):
    """A data set that is read example by example."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], int(self.y[index])


def outputs_at(risk, theta, x):
    return torch.func.functional_call(risk.model, dict(zip(risk.shapes, risk.unflatten(theta), strict=True)), (x,))


class Returns(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.change, self.inner = change, network()

    def forward(self, x):
        return self.change(self.inner(x))


def with_value(tensor, value):
    changed = tensor.clone()
    changed.view(-1)[0] = value
    return changed


def changed_network(change):
    model = network()
    change(model)
    return model


CE, NAN, INF = nn.CrossEntropyLoss(), float("nan"), float("inf")


def check_refusal(caught, kind):
    """Three parts, in sentences, of the right kind."""
    error = caught.value
    assert type(error) is kind and isinstance(error, ritz.RitzError)
    assert error.seen and error.why and error.ways_out
    for part in (error.why, *error.ways_out):
        assert part[0].isupper() or part[0] in "θ'\"", part
        assert part.endswith((".", "]")), part
    assert str(error).splitlines()[0] == error.seen


class Folder:
    """A re-iterable of our own, which counts how often it is read."""

    def __init__(self, batches):
        self.batches, self.passes = batches, 0

    def __iter__(self):
        self.passes += 1
        return iter(self.batches)
