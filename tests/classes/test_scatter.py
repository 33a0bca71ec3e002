"""Means of groups with the scatter around them: against direct sums, however the rows are cut."""

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ritz.classes.scatter import Scatter
from ritz.risk import Risk
from tests.factored.networks import close


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_moments_do_not_depend_on_how_the_rows_are_cut(seed, sizes):
    generator = torch.Generator().manual_seed(seed)
    N = sum(sizes)
    x, y = (torch.randn(N, 2, d, generator=generator, dtype=torch.float64) for d in (3, 4))
    w = torch.rand(N, generator=generator, dtype=torch.float64) * (torch.rand(N, generator=generator) > 0.2)
    groups = torch.randint(3, (N,), generator=generator)
    found = Scatter(3, (3, 4), torch.device("cpu"))
    for rows in torch.arange(N).split(sizes):
        found.add((x[rows], y[rows]), w[rows], groups[rows])
    scatter = torch.zeros(3, 4).double()
    for g in range(3):
        own = groups == g
        total = float(w[own].sum())
        means = [(w[own, None, None] * t[own]).sum((0, 1)) / (2 * total or 1.0) for t in (x, y)]
        assert float(found.weights[g]) == pytest.approx(2 * total)
        for ours, mean in zip(found.means, means, strict=True):
            torch.testing.assert_close(ours[g], mean, rtol=1e-10, atol=1e-12)
        scatter += torch.einsum("n,nti,ntj->ij", w[own], x[own] - means[0], y[own] - means[1])
    torch.testing.assert_close(found.matrix, scatter, rtol=1e-10, atol=1e-12)


def test_a_large_common_offset_does_not_swamp_the_scatter():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 1, 3, generator=generator, dtype=torch.float64)
    w, groups = torch.ones(60).double(), torch.arange(60) % 2
    plain, shifted = Scatter(2, (3,), torch.device("cpu")), Scatter(2, (3,), torch.device("cpu"))
    for rows in torch.arange(60).split(7):
        plain.add((x[rows],), w[rows], groups[rows])
        shifted.add((x[rows] + 1e8,), w[rows], groups[rows])
    torch.testing.assert_close(shifted.matrix, plain.matrix, rtol=1e-6, atol=1e-6)  # 1e16 eps would be lost


def test_ranks_of_a_group_join_their_moments():
    """Two threads that add up as two ranks would."""
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(9, 2, 3, generator=generator, dtype=torch.float64), torch.rand(9, generator=generator).double()
    groups = torch.tensor([0, 1, 0, 1, 0, 2, 2, 2, 0])  # one group on the second rank alone
    barrier, posted, results = threading.Barrier(2), {}, {}

    class Rank(Risk):
        group = "two threads"

        def __init__(self, number):
            self.number = number

        def sum_over_ranks(self, value):
            posted[self.number] = value
            barrier.wait(timeout=300)
            total = posted[0] + posted[1]
            barrier.wait(timeout=300)
            return total

    def work(number, rows):
        own = Scatter(3, (3,), torch.device("cpu"))
        own.add((x[rows],), w[rows], groups[rows])
        results[number] = own.join_ranks(Rank(number))

    threads = [threading.Thread(target=work, args=(k, rows)) for k, rows in enumerate(torch.arange(9).split(5))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    whole = Scatter(3, (3,), torch.device("cpu"))
    whole.add((x,), w, groups)
    for found in results.values():
        close(found.weights, whole.weights)
        close(found.means[0], whole.means[0])
        close(found.matrix, whole.matrix)
