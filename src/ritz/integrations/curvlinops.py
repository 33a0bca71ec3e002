"""Conversion between ritz operators and curvlinops operators: `pip install ritz[curvlinops]`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..operators import Operator
from ..operators.operator import check_symmetry

try:
    from curvlinops._torch_base import PyTorchLinearOperator
except ImportError as error:
    raise ImportError("ritz.integrations.curvlinops needs curvlinops: pip install 'ritz[curvlinops]'") from error


def operator(linear_operator: PyTorchLinearOperator) -> Operator:
    """A symmetric curvlinops operator, whose parameter lists become flat vectors, as a ritz Operator.

    One that does not say of itself that it is symmetric is asked by two products: uᵀAv = vᵀAu.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.tensor([1.0, 2.0])))
    >>> operator(linear_operator(A)) @ torch.ones(2)
    tensor([1., 2.])
    """
    rows, columns = linear_operator.shape
    if rows != columns:
        raise ArgumentError(
            f"The curvlinops operator has shape {rows} × {columns}.",
            "An operator here is symmetric, so it must be square.",
            "For a Jacobian J, take J.adjoint() @ J.",
        )
    dtype, device = linear_operator.dtype, linear_operator.device
    wrapped = Operator(lambda V: linear_operator @ V.contiguous(), rows, dtype, device)
    if not linear_operator.SELF_ADJOINT:
        check_symmetry(wrapped)
    return wrapped


def linear_operator(A: Operator) -> PyTorchLinearOperator:
    """A ritz Operator as a curvlinops operator on one flat parameter of size n.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.tensor([1.0, 2.0])))
    >>> linear_operator(A) @ torch.ones(2)
    tensor([1., 2.])
    """
    return _FlatOperator(A)


class _FlatOperator(PyTorchLinearOperator):
    """An operator on the space of one flat vector."""

    SELF_ADJOINT = True

    def __init__(self, A: Operator) -> None:
        super().__init__([(A.size,)], [(A.size,)])
        self._wrapped = A

    @property
    def dtype(self) -> torch.dtype:
        return self._wrapped.dtype

    @property
    def device(self) -> torch.device:
        return self._wrapped.device

    def _matmat(self, X: list[Tensor]) -> list[Tensor]:
        return [self._wrapped @ X[0]]

    def _adjoint(self) -> Any:
        return self
