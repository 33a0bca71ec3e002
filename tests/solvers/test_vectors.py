"""Vectors in rows keep their digits."""

import torch
from torch.testing import assert_close

from ritz.solvers.vectors import inner


def test_inner_products_are_summed_in_float64():
    ones = torch.full((1, 3 * 2**20), 0.1, dtype=torch.float32)
    exact = ones.double().square().sum()
    assert_close(inner(ones, ones)[0, 0], exact, rtol=1e-10, atol=0)
