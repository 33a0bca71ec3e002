"""Matrices that are given whole: square, real, finite and symmetric, or refused."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import ArgumentError


def check_square(shape: tuple[int, ...]) -> None:
    """Refuse anything but a square matrix."""
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ArgumentError(
            f"A matrix of shape {shape} was given.",
            "An operator is symmetric, so its matrix must be square.",
            "For a rectangular J, study J.T @ J or J @ J.T.",
        )


def check_symmetric(matrix: Tensor) -> None:
    """Refuse a matrix that is not square, real, finite and symmetric to the rounding of its precision."""
    check_square(tuple(matrix.shape))
    if matrix.dtype not in (torch.float32, torch.float64):
        raise ArgumentError(
            f"A matrix in {matrix.dtype} was given.",
            "Operators are real, in float32 or float64.",
            "Convert it: matrix.double().",
        )
    if not bool(matrix.isfinite().all()):
        raise ArgumentError(
            "The matrix has entries that are infinite or NaN.",
            "Every product would have them too.",
            "Correct them first: (~matrix.isfinite()).nonzero() lists them.",
        )
    asymmetry = float((matrix - matrix.T).abs().max()) if len(matrix) else 0.0
    scale = float(matrix.abs().max()) if len(matrix) else 0.0
    if not asymmetry <= 100 * torch.finfo(matrix.dtype).eps * len(matrix) * scale:
        raise ArgumentError(
            f"The matrix is not symmetric: max |A - Aᵀ| = {asymmetry:.3g}, max |A| = {scale:.3g}.",
            "Every algorithm here relies on real eigenvalues and orthogonal eigenvectors.",
            "Pass (A + A.T) / 2 if the difference is rounding.",
        )
