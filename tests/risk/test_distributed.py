"""Data that are divided over several processes."""

import torch
from torch import nn
from torch.testing import assert_close

import ritz
from ritz import Risk
from tests.processes import run_ranks
from tests.risk.problem import CLASS_WEIGHTS, C, D, N, network


def group_problem():
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(N, D, generator=generator, dtype=torch.float64)
    y = torch.randint(C, (N,), generator=generator)
    y[[0, 9]] = -100
    parts = [[(x[:2], y[:2]), (x[2:5], y[2:5]), (x[5:8], y[5:8])], [(x[8:], y[8:])]]
    return x, y, parts, nn.CrossEntropyLoss(CLASS_WEIGHTS)


def results(risk):
    v = torch.linspace(-1.0, 1.0, risk.size, dtype=torch.float64)
    block = torch.stack([v, v.square(), v.cos(), v.sin()], dim=1)
    sizes = torch.tensor([risk.loss_value(), risk.total_weight, risk.num_examples, risk.num_terms], dtype=torch.float64)
    return [sizes, risk.gradient(), ritz.hessian(risk) @ v, ritz.gauss_newton(risk) @ block]


def one_rank(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    _, _, parts, loss = group_problem()
    group = torch.distributed.group.WORLD
    torch.save(results(Risk(network(), loss, parts[rank], group=group)), f"{folder}/{rank}.pt")
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
    run_ranks(one_rank, str(tmp_path))
    x, y, _, loss = group_problem()
    expected = results(Risk(network(), loss, (x, y)))
    for rank in range(2):
        for actual, exact in zip(torch.load(tmp_path / f"{rank}.pt"), expected, strict=True):
            assert_close(actual, exact)
    first, second = (torch.load(tmp_path / f"refused{rank}.pt") for rank in range(2))
    assert "Another rank" in first[0] and "no example" in second[0]  # and nobody waits for ever
    assert "differ between ranks" in first[1] and "differ between ranks" in second[1]
