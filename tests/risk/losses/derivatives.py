"""Checks of a loss: its derivatives, and the square root of its Hessian."""

import pytest
import torch
from torch.testing import assert_close

C = 3


CLASS_WEIGHTS = torch.tensor([0.5, 1.0, 2.5], dtype=torch.float64)


def dense_hessian(total, z):
    return torch.autograd.functional.hessian(lambda t: total(t.view_as(z)), z.flatten())


def check_derivatives(loss, z, y, total):
    """Σ tᵢ and its derivatives, where `total` is the sum by PyTorch."""
    assert_close(loss.terms(z, y).sum(), total(z))
    assert_close(loss.gradient(z, y), torch.func.grad(total)(z))
    H = dense_hessian(total, z)
    product = loss.curvature(z, y)
    columns = torch.stack([product(unit.view_as(z)).flatten() for unit in torch.eye(z.numel(), dtype=z.dtype)])
    assert_close(columns, H)
    assert_close(loss.hessian_product(z, y, z), (H @ z.flatten()).view_as(z))


def check_square_root(loss, z, y, *, class_dim=-1):
    """S Sᵀ of every term is its block of the Hessian, which has no other blocks; they add up to the total."""
    S = loss.square_root(z, y)
    where = torch.arange(z.numel()).view_as(z)
    rows = where[:, None] if z.ndim == 1 else where.movedim(class_dim, -1).reshape(-1, z.shape[class_dim])
    H = dense_hessian(lambda t: loss.terms(t, y).sum(), z)
    blocks = H[rows[:, :, None], rows[:, None, :]]
    assert_close(S @ S.mT, blocks)
    assert_close(loss.total_hessian(z, y), blocks.sum(0))
    H[rows[:, :, None], rows[:, None, :]] = 0.0
    assert not H.any()


def refused(kind, match):
    return pytest.raises(kind, match=match)
