"""Ranks with different free memory take the same steps: what one of them has no room for, none does."""

from datetime import timedelta

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import ritz
from ritz.engine.linearized_risk import LinearizedRisk
from ritz.errors import ArgumentError
from tests.processes import run_ranks

N, D, H, C = 20, 12, 40, 4
SIZE = H * (D + 1) + C * (H + 1)
FEW, MANY = 8 * SIZE * 14, 10**9  # bytes: of fourteen vectors, and of all that a solver likes to have


class Limited(nn.Module):
    """A network without room for the graphs of more than a few examples at a time."""

    def __init__(self, most):
        super().__init__()
        self.layers, self.most = nn.Sequential(nn.Linear(D, H), nn.Tanh(), nn.Linear(H, C)), most

    def forward(self, x):
        if len(x) > self.most and torch.is_grad_enabled():
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return self.layers(x)


def network(most=N):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Limited(most).double()


def parts():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(N, D, generator=generator, dtype=torch.float64)
    y = torch.randint(C, (N,), generator=generator)
    return [(x[:13], y[:13]), (x[13:], y[13:])]


def random():
    return torch.Generator().manual_seed(2)


def searched(risk):
    return ritz.eigenpairs(ritz.hessian(risk), 3, tolerance=1e-8, generator=random()).values


def estimated(risk):
    """A trace, which has a sketch where there is room for one."""
    estimate = ritz.trace(ritz.gauss_newton(risk), num_products=40, generator=random())
    return torch.tensor(estimate.value, dtype=torch.float64)


def measured(risk):
    return ritz.spectral_density(ritz.hessian(risk), num_steps=30, num_probes=6, generator=random()).nodes


def multiplied(risk):
    return ritz.hessian(risk) @ torch.eye(SIZE, dtype=torch.float64)[:, :5]


def factored(risk):
    return ritz.kfac(risk).operator @ torch.eye(SIZE, dtype=torch.float64)[:, :5]


def classes(risk):
    within = ritz.class_decomposition(risk).within
    return ritz.eigenpairs(within, 2, tolerance=1e-8, generator=random()).values


def refused(risk):
    with pytest.raises(ArgumentError) as caught:
        factored(risk)
    return str(caught.value)


WORK = {work.__name__: work for work in (searched, estimated, measured, multiplied, factored, classes, refused)}


def one_rank(rank, folder, work, memories, most):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=timedelta(minutes=3)
    )
    group = torch.distributed.group.WORLD
    risk = ritz.Risk(network(most[rank]), nn.CrossEntropyLoss(), parts()[rank], group=group, memory=memories[rank])
    torch.save(WORK[work](risk), f"{folder}/{rank}.pt")
    torch.distributed.barrier()  # a rank that leaves early takes its connections with it
    torch.distributed.destroy_process_group()


def on_two_ranks(folder, work, *, memories=(MANY, MANY), most=(N, N)):
    run_ranks(one_rank, str(folder), work, memories, most)
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def on_one(work, memory):
    return WORK[work](ritz.Risk(network(), nn.CrossEntropyLoss(), parts(), memory=memory))


@pytest.mark.parametrize("work", ["searched", "estimated", "measured", "classes", "factored"])
def test_ranks_of_unequal_memory_keep_to_the_least(tmp_path, work):
    first, second = on_two_ranks(tmp_path, work, memories=(MANY, FEW))
    assert torch.equal(first, second)
    assert_close(first, on_one(work, FEW), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("most", [(N, 3), (N, 1)])
def test_a_rank_that_runs_out_of_memory_begins_again_by_itself(tmp_path, most):
    first, second = on_two_ranks(tmp_path, "multiplied", most=most)
    assert torch.equal(first, second)
    assert_close(first, on_one("multiplied", MANY))


def test_what_does_not_fit_on_one_rank_is_refused_on_all(tmp_path):
    for text in on_two_ranks(tmp_path, "refused", memories=(MANY, 2000)):
        assert "Kronecker factors take" in text


def test_the_room_of_one_process_is_what_its_budget_leaves_at_the_time():
    risk = ritz.Risk(network(), nn.CrossEntropyLoss(), parts(), memory=MANY)
    products = ritz.hessian(risk).matmat._linearized
    assert isinstance(products, LinearizedRisk)
    before = products.room
    risk.budget.total /= 2
    assert products.room == pytest.approx(before / 2, rel=1e-2)
