"""A search that goes on after a certificate knows what A does to the rows that it has kept."""

import torch

from ritz.solvers.goals import Goal
from ritz.solvers.search import Search
from ritz.solvers.thick_restart import _certificate

from .spectra import linspace, rotated


def test_a_search_goes_on_with_the_pairs_that_a_certificate_has_put_into_another_order():
    """Beside 4, fresh products in float32 order 3 and -3 by magnitude as rounding has it."""
    A = rotated(torch.cat([linspace(-1, 1, 597), torch.tensor([3.0, 4.0, -3.0])]), dtype=torch.float32)
    goal = Goal(3, "magnitude", 1e-10, 1, 40, 60, 3, 3, float("inf"), copies=False)
    for seed in range(8):
        search = Search.from_start(A, goal, None, torch.Generator().manual_seed(seed))
        for _ in range(16):
            search.step(A)
        pairs = _certificate(A, search, goal)
        X, values = search.basis.first(), search.H[:3, :3]
        assert float(((A @ X.T).T - values.float() @ X).norm()) < 1e-2  # 8 where the order was that of before
        assert float((pairs.values - values.diagonal()).abs().max()) < 1e-2
