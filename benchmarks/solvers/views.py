"""One matrix that counts its products, in the form that each library takes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator
from torch import Tensor, nn

import ritz

from .matrices import Matrix


class Counted:
    """A matrix whose products are counted, one for each column."""

    def __init__(self, matrix: Matrix) -> None:
        self.matrix, self.count = matrix, 0
        self.shape = (matrix.size, matrix.size)
        self.device, self.dtype = matrix.device, torch.float32  # curvlinops reads these and multiplies

    def __matmul__(self, V: Tensor) -> Tensor:
        columns = V[:, None] if V.ndim == 1 else V
        self.count += columns.shape[1]
        return self.matrix.product(columns).reshape(V.shape)

    def ritz(self) -> ritz.Operator:
        return ritz.Operator(self.__matmul__, self.matrix.size, self.dtype, self.device)

    def scipy(self) -> LinearOperator:
        def product(V: np.ndarray) -> np.ndarray:
            return (self @ torch.from_numpy(np.ascontiguousarray(V, np.float32)).to(self.device)).cpu().numpy()

        return LinearOperator(self.shape, matvec=product, matmat=product, dtype=np.float32)

    def hessian_eigenthings(self) -> Any:
        from hessian_eigenthings import LambdaOperator

        return LambdaOperator(self.__matmul__, self.matrix.size, self.device, self.dtype)

    def pyhessian(self) -> Any:
        """PyHessian on a model whose Hessian is the matrix."""
        from pyhessian import hessian

        batch = torch.zeros(1), torch.zeros(1)  # which the model has no use for
        return hessian(_Quadratic(self), lambda outputs, _: outputs, data=batch, cuda=self.device.type == "cuda")

    @contextlib.contextmanager
    def dense(self) -> Iterator[Tensor]:
        """A tensor for `torch.lobpcg`, which takes matrices alone: it has no entries, and its products are ours."""
        from torch import _linalg_utils

        stand_in, matmul = torch.zeros(1, 1, device=self.device).expand(self.shape), _linalg_utils.matmul
        ours = lambda A, B: self @ B if A is stand_in else matmul(A, B)
        with mock.patch.object(_linalg_utils, "matmul", ours):
            yield stand_in


class _Quadratic(nn.Module):
    """½ θᵀAθ at θ = 0."""

    def __init__(self, matrix: Counted) -> None:
        super().__init__()
        self.matrix = matrix
        self.theta = nn.Parameter(torch.zeros(matrix.matrix.size, device=matrix.device))

    def forward(self, _: Tensor) -> Tensor:
        return _Value.apply(self.theta, self.matrix)


class _Value(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, theta: Tensor, matrix: Counted) -> Tensor:
        ctx.save_for_backward(theta)
        ctx.matrix = matrix
        return theta.new_zeros(())

    @staticmethod
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor, None]:
        return factor * _Gradient.apply(*ctx.saved_tensors, ctx.matrix), None


class _Gradient(torch.autograd.Function):
    """A θ, zero here and without a product; its derivative is the product."""

    @staticmethod
    def forward(ctx: Any, theta: Tensor, matrix: Counted) -> Tensor:
        ctx.matrix = matrix
        return torch.zeros_like(theta)

    @staticmethod
    def backward(ctx: Any, vector: Tensor) -> tuple[Tensor, None]:
        return ctx.matrix @ vector, None
