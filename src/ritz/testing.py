"""A check to run on a new operator: is it linear, symmetric, and what it claims to be?"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from .arguments import guard
from .errors import ArgumentError, OperatorError, check_tolerance
from .operators import Operator


def check_operator(A: Operator, dense: Float[Tensor, "n n"] | None = None, *, tolerance: float | None = None) -> None:
    """Refuse A unless it is linear, symmetric, the same for one column as for many, of its dtype, and equal to `dense`.

    Differences are relative to the largest entry of the product; by default they may reach 1e-10 in float64 and
    2e-4 in float32, where sums over data of different order differ. An OperatorError is an AssertionError, too.

    >>> matrix = torch.diag(torch.tensor([1.0, 2.0]))
    >>> check_operator(Operator.from_matrix(matrix), matrix)
    >>> check_operator(Operator.from_matrix(matrix), matrix + 1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ritz.errors.OperatorError: products disagree with the dense matrix ...
    """
    if dense is not None and dense.shape != (A.size, A.size):
        raise ArgumentError(
            f"dense has the shape {tuple(dense.shape)}, and the operator the size {A.size}.",
            "Each is compared with the other, so they must have the same size.",
            f"Pass the matrix of shape ({A.size}, {A.size}), or leave it out.",
        )
    if tolerance is not None:
        check_tolerance(tolerance)
    allowed = tolerance if tolerance is not None else (1e-10 if A.dtype == torch.float64 else 2e-4)
    generator = torch.Generator().manual_seed(0)
    U, V = (torch.randn(A.size, 5, generator=generator, dtype=torch.float64).to(A.device, A.dtype) for _ in range(2))
    given = V.clone()
    AU, AV = A @ U, A @ V
    if not bool(torch.isfinite(AV).all()):
        raise _refusal("a product holds NaN or infinity")
    if not torch.equal(V, given):
        raise _refusal("a product changes the vectors it is given")
    _assert_near(A @ (2.0 * U - 3.0 * V), 2.0 * AU - 3.0 * AV, allowed, "A(2U - 3V) ≠ 2AU - 3AV: not linear")
    _assert_near(U.T @ AV, (V.T @ AU).T, allowed, "UᵀAV ≠ (VᵀAU)ᵀ: not symmetric")
    _assert_near(A @ V[:, 0], AV[:, 0], allowed, "a vector and a column give different products")
    _assert_near(A @ V[:, [4, 0]], AV[:, [4, 0]], allowed, "the product of a column depends on its neighbours")
    _assert_near(A @ V, AV, allowed, "the same product computed twice differs")
    _assert_near(A @ torch.zeros_like(V), torch.zeros_like(V), allowed, "A 0 ≠ 0")
    if dense is not None:
        _assert_near(AV, dense.to(AV) @ V, allowed, "products disagree with the dense matrix")
        _assert_near(A.dense(), dense.to(AV), allowed, "columns disagree with the dense matrix")


def _assert_near(actual: Tensor, expected: Tensor, tolerance: float, message: str) -> None:
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    difference = float((actual - expected).abs().max()) if expected.numel() else 0.0
    if not difference <= tolerance * max(scale, torch.finfo(expected.dtype).tiny):
        seen = f"{message} (by {difference:.2e}, entries up to {scale:.2e})"
        raise _refusal(seen, "Pass a larger tolerance, if rounding alone makes the difference.")


def _refusal(seen: str, *ways_out: str) -> OperatorError:
    return OperatorError(
        seen, "Solvers rely on the opposite.", "Correct the function that computes the operator's product.", *ways_out
    )


guard(__name__)
