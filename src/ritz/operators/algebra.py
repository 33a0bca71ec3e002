"""Operators made of vectors, and of other operators: low rank, deflated, preconditioned."""

from __future__ import annotations

import math
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ArgumentError, NumericalError, check_instance
from ..spectrum import Eigenpairs
from .operator import Operator, reciprocal

FEW = 8  # columns that are multiplied one by one


def low_rank(U: Float[Tensor, "n r"], values: Float[Tensor, " r"] | None = None) -> Operator:
    """The low-rank operator U diag(values) Uᵀ; without values, U Uᵀ.

    Its `factor` is known where the values are non-negative, so that it can be projected out exactly. Its `inverse` is
    that of Woodbury, written in eigenvectors: (A + λ)⁻¹ = 1/λ - Q diag(sᵢ / λ(sᵢ + λ)) Qᵀ.

    >>> low_rank(torch.tensor([[1.0], [2.0]])).dense()
    tensor([[1., 2.],
            [2., 4.]])
    """
    _check_low_rank(U, values)
    U, values = U.detach(), None if values is None else values.detach()
    scaled = U if values is None else U * values
    factor = _factor(U, values)
    product, inverse = partial(_low_rank_product, scaled, U), partial(_low_rank_inverse, U, values)
    return Operator(product, len(U), U.dtype, U.device, factor=factor, inverse=inverse, semidefinite=factor is not None)


def _check_low_rank(U: Tensor, values: Tensor | None) -> None:
    check_instance(Tensor, "Pass columns (n, r): torch.as_tensor(...).", U=U)
    if U.ndim != 2 or (values is not None and (values.shape != U.shape[1:] or values.dtype != U.dtype)):
        given = None if values is None else (tuple(values.shape), values.dtype)
        raise ArgumentError(
            f"U of shape {tuple(U.shape)} in {U.dtype} and values {given} were given.",
            "U needs one column, in the same precision, for each value.",
            "Pass U of shape (n, r) and values of shape (r,).",
        )
    parts = [part.detach() for part in (U, values) if part is not None and part.numel()]
    if not all(math.isfinite(torch.linalg.vector_norm(part, math.inf)) for part in parts):  # which takes no memory
        raise NumericalError(
            "U or the values hold NaN or infinity.",
            "Every product would be NaN or infinite too.",
            "Find them: (~U.isfinite()).nonzero() lists those of U.",
        )


def _factor(U: Tensor, values: Tensor | None) -> Tensor | None:
    """The factor F of U diag(values) Uᵀ = F Fᵀ; None where a value is negative."""
    if values is None:
        return U
    return U * values.sqrt() if bool((values >= 0).all()) else None


def _low_rank_product(scaled: Tensor, U: Tensor, V: Tensor) -> Tensor:
    return scaled @ _along(U, V)


def _along(Q: Float[Tensor, "n r"], V: Float[Tensor, "n k"]) -> Float[Tensor, "r k"]:
    """Qᵀ V; of few columns one by one where a CPU takes several times as long for all at once: Q lies row by row."""
    if V.device.type == "cpu" and 1 < V.shape[1] <= FEW and Q.stride(-1) == 1:
        return torch.stack([Q.T @ v for v in V.unbind(1)], 1)
    return Q.T @ V


def _low_rank_inverse(U: Tensor, values: Tensor | None, damping: float) -> Operator:
    Q, R = torch.linalg.qr(U)
    s, W = torch.linalg.eigh(R @ (R if values is None else R * values).T)
    if len(s) == len(U):  # nothing is orthogonal to all columns
        return low_rank(Q @ W, reciprocal(s, damping))
    outside = float(reciprocal(torch.cat([s, s.new_zeros(1)]), damping)[-1])
    return low_rank(Q @ W, -s * outside / (s + damping)) + outside


def deflated(A: Operator, vectors: Float[Tensor, "n k"] | Eigenpairs) -> Operator:
    """(I - Q Qᵀ) A (I - Q Qᵀ): A on the orthogonal complement of the columns of Q, zero on their span.

    The columns, or the vectors of the Eigenpairs, must be orthonormal. The result has k zero eigenvalues that A does
    not have, and its density counts them, as Papyan (2020), Sec. D.3 does. For a density without them, pass the pairs
    to `spectral_density(A, outliers=pairs)`, which measures the rest on their orthogonal complement.

    >>> A = Operator.from_matrix(torch.diag(torch.tensor([5.0, 2.0])))
    >>> deflated(A, torch.tensor([[1.0], [0.0]])).dense()
    tensor([[0., 0.],
            [0., 2.]])
    """
    Q = orthonormal_columns(A, vectors)
    rough = None if A.rough is None else deflated(A.rough, Q)
    return A._with_products(partial(_deflated_product, A, Q), rough=rough, semidefinite=A.semidefinite)


def _deflated_product(A: Operator, Q: Tensor, V: Tensor) -> Tensor:
    AV = A @ (V - Q @ _along(Q, V))
    return AV - Q @ _along(Q, AV)


def orthonormal_columns(A: Operator, vectors: Float[Tensor, "n k"] | Eigenpairs) -> Float[Tensor, "n k"]:
    """The columns, checked to lie in the operator's space and to be orthonormal."""
    Q = vectors.vectors if isinstance(vectors, Eigenpairs) else vectors
    check_instance(Tensor, "Pass columns (n, k), or the Eigenpairs themselves.", vectors=Q)
    if Q.ndim != 2 or (len(Q), Q.dtype, Q.device) != (A.size, A.dtype, A.device):
        raise ArgumentError(
            f"Vectors of shape {tuple(Q.shape)} in {Q.dtype} on {Q.device} were given for {A!r}.",
            "They must be columns (n, k) with the operator's own dtype and device.",
            "Compute them with eigenpairs(A, k) of this operator, or convert them with .to(A.device, A.dtype).",
        )
    Q = Q.detach()
    overlap = Q.T @ Q - torch.eye(Q.shape[1], dtype=Q.dtype, device=Q.device)
    if Q.numel() and not float(overlap.abs().max()) <= torch.finfo(Q.dtype).eps ** 0.5:
        raise ArgumentError(
            f"The columns are not orthonormal: max |QᵀQ - I| = {float(overlap.abs().max()):.3g}.",
            "I - Q Qᵀ would not be a projection.",
            "Pass the vectors of eigenpairs, or torch.linalg.qr(vectors).Q.",
        )
    return Q


def preconditioned(A: Operator, diagonal: Float[Tensor, " n"]) -> Operator:
    """D^½ A D^½ for a non-negative diagonal D: the curvature that a preconditioned optimiser sees.

    >>> A = Operator.from_matrix(torch.diag(torch.tensor([5.0, 2.0])))
    >>> preconditioned(A, torch.tensor([4.0, 1.0])) @ torch.ones(2)
    tensor([20.,  2.])
    """
    check_instance(Tensor, "Pass one number for each coordinate: torch.as_tensor(...).", diagonal=diagonal)
    if (diagonal.shape, diagonal.dtype, diagonal.device) != ((A.size,), A.dtype, A.device):
        raise ArgumentError(
            f"A diagonal of shape {tuple(diagonal.shape)}, {diagonal.dtype}, {diagonal.device}, was given for {A!r}.",
            "It must have one entry for each coordinate, with the operator's own dtype and device.",
            "Flatten it in named_parameters() order and convert it with .to(A.device, A.dtype).",
        )
    diagonal = diagonal.detach()
    usable = (diagonal >= 0) & torch.isfinite(diagonal)
    if not bool(usable.all()):
        raise ArgumentError(
            f"The preconditioner has {int((~usable).sum())} entries that are negative, infinite or NaN.",
            "D^½ would not be real.",
            "Pass the diagonal of a positive preconditioner, such as Adam's 1 / (sqrt(v) + eps).",
        )
    root = diagonal.sqrt()[:, None]
    rough = None if A.rough is None else preconditioned(A.rough, diagonal)
    return A._with_products(partial(_scaled_product, A, root), rough=rough, semidefinite=A.semidefinite)


def _scaled_product(A: Operator, root: Tensor, V: Tensor) -> Tensor:
    return root * (A @ (root * V))
