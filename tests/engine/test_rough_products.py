"""Cheaper products for mixed precision: over images in the layout that suits TF32, from graphs of their own."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import ritz
from tests.processes import run_ranks
from tests.zoo import unequal_batches


def like_a_gpu(patch):
    """TF32 as this machine pretends to have it: float32 in truth, with convolutions that like channels last."""
    patch.setattr("ritz.engine.product.has_tf32", lambda device: True)
    patch.setattr("ritz.risk.risk.prefers_channels_last", lambda model, device, precision: precision == "high")


def network():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Conv2d(4, 4, 3), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(4, 3))


def images():
    return torch.randn(11, 3, 7, 7, generator=torch.Generator().manual_seed(1)), torch.arange(11) % 3


class Layouts(nn.Module):
    """A network that notes whether its images lie channels-last."""

    def __init__(self):
        super().__init__()
        self.inner, self.seen = network(), []

    def forward(self, x):
        self.seen.append(x.is_contiguous(memory_format=torch.channels_last))
        return self.inner(x)


def columns(A, count=3):
    return torch.randn(A.size, count, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("operator", [ritz.hessian, ritz.gauss_newton, ritz.functional_hessian])
def test_rough_products_take_images_channels_last_and_exact_ones_as_they_are(operator, monkeypatch):
    like_a_gpu(monkeypatch)
    model, (x, y) = Layouts(), images()
    A = operator(ritz.Risk(model, ritz.CrossEntropy(), unequal_batches(x, y)))
    V = columns(A)
    exact = A @ V
    assert not any(model.seen)
    model.seen.clear()
    assert_close(A.rough @ V, exact)
    assert all(model.seen)
    model.seen.clear()
    assert_close(A.rough @ V, exact)
    assert not model.seen  # its graphs are kept
    assert_close(A @ V, exact)


@pytest.mark.parametrize("memory, given", [(7000, torch.contiguous_format), (None, torch.channels_last)])
def test_without_room_or_with_images_that_lie_so_rough_products_have_the_same_graphs(memory, given, monkeypatch):
    like_a_gpu(monkeypatch)
    x, y = images()
    x = x.contiguous(memory_format=given)
    A = ritz.hessian(ritz.Risk(network(), ritz.CrossEntropy(), (x, y), memory=memory))
    V = columns(A)
    assert_close(A.rough @ V, A @ V)
    assert A.rough.matmat._own is None


def test_a_network_that_cannot_take_channels_last_has_rough_products_all_the_same(monkeypatch):
    like_a_gpu(monkeypatch)

    class Viewed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.first = nn.Linear(3 * 7 * 7, 3), nn.Conv2d(3, 3, 1)

        def forward(self, x):
            return self.layer(x.view(len(x), -1)) + self.first(x).mean((2, 3))

    A = ritz.hessian(ritz.Risk(Viewed(), ritz.CrossEntropy(), images()))
    V = columns(A)
    assert_close(A.rough @ V, A @ V)


def one_rank(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    (x, y), part = images(), slice(None, 7) if rank == 0 else slice(7, None)
    with pytest.MonkeyPatch.context() as patch:
        like_a_gpu(patch)
        for name, memory in {"of equal memory": None, "of unequal memory": 10**9 if rank == 0 else 0}.items():
            group = torch.distributed.group.WORLD
            A = ritz.hessian(ritz.Risk(network(), ritz.CrossEntropy(), (x[part], y[part]), group=group, memory=memory))
            torch.save(A.rough @ columns(A), f"{folder}/{name} {rank}.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def test_ranks_decide_together_over_which_images_they_multiply(tmp_path):
    run_ranks(one_rank, str(tmp_path))
    A = ritz.hessian(ritz.Risk(network(), ritz.CrossEntropy(), images()))
    saved = sorted(tmp_path.glob("*.pt"))
    assert len(saved) == 4
    for path in saved:
        assert_close(torch.load(path), A @ columns(A))
