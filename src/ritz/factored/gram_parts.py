"""The parts of G in the space of its Gram matrix: each is J̃ᵀ P J̃ with an orthogonal projection P."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ArgumentError, DataError
from ..risk.class_terms import ClassTerms
from ..risk.losses import complement_of_root

Part = Literal["between_class", "cross_class", "own_class", "within"]
PARTS: tuple[Part, ...] = get_args(Part)


def directions(classes: ClassTerms, parts: Sequence[Part]) -> Float[Tensor, "m s"]:
    """The columns B of some parts, other than "within".

    With a row √w g for every possible label c' of every example, taking the mean of a group of rows is a projection on
    the vector √w of that group. Groups are the examples of a class c with the same c', with means g_cc'; the means g_c
    are over all c' ≠ c of a class. `complement_of_root` maps these C rows of an example to the C - 1 rows in K.
    """
    count, basis = classes.probabilities.shape[1], complement_of_root(classes.probabilities)
    columns = [basis.new_zeros(basis.shape[0] * basis.shape[2], 0)]
    for label in classes.present():
        members = classes.members(label)
        w = classes.weights[members]
        groups = torch.where(w.sum(0) > 0, w / w.sum(0), 0.0).sqrt()  # (members, C): unit vectors, one for each c'
        means = groups[:, None, :] * basis[members].transpose(1, 2)  # (members, C - 1, C)
        within = torch.zeros(*basis.shape[:1], count - 1, count, dtype=w.dtype, device=w.device)
        within[members] = means
        columns.append(within.flatten(0, 1) @ _combinations(w.sum(0), label, parts))
    return torch.cat(columns, 1)


def _combinations(weights: Float[Tensor, " C"], label: int, parts: Sequence[Part]) -> Float[Tensor, "C s"]:
    """The combinations of the means g_cc' of a class that belong to the parts, as orthonormal columns."""
    others = torch.arange(len(weights), device=weights.device) != label
    unit = torch.eye(len(weights), dtype=weights.dtype, device=weights.device)
    shares = weights[others] / weights[others].sum() if weights[others].sum() > 0 else weights[others]
    columns = {
        "between_class": unit[:, others] @ shares.sqrt()[:, None],
        "cross_class": unit[:, others] @ complement_of_root(shares[None])[0],
        "own_class": unit[:, [label]],
    }
    return torch.cat([unit[:, :0], *(column for part, column in columns.items() if part in parts)], 1)


def loss_of_root(B: Float[Tensor, "m s"]) -> tuple[Float[Tensor, "m r"], Float[Tensor, " r"]]:
    """U and d with (1 - B Bᵀ)^½ = 1 - U diag(d) Uᵀ, for columns that are orthonormal before they are compressed."""
    U, singular, _ = torch.linalg.svd(B, full_matrices=False)
    left = 1 - singular.square()
    rounding = len(B) * torch.finfo(B.dtype).eps
    return U, 1 - torch.where(left > rounding, left, 0.0).sqrt()


def projected(K: Float[Tensor, "m m"], B: Float[Tensor, "m s"], eps: float) -> Float[Tensor, "m m"]:
    """K - K B (Bᵀ K B)⁺ Bᵀ K: the Gram matrix of the rows after their components along J̃ᵀB were removed.

    K has the rounding eps. Of a part that is zero, all of BᵀKB is that of K, and none of it is to be removed.
    """
    rounding = len(K) * eps * float(torch.linalg.matrix_norm(K))
    inside = K @ B @ _inverse_root(B.T @ K @ B, rounding).T
    return K - inside @ inside.T


def _inverse_root(A: Float[Tensor, "s s"], rounding: float) -> Float[Tensor, "s s"]:
    """R with Rᵀ R = A⁺, where eigenvalues of rounding size count as zero."""
    values, vectors = torch.linalg.eigh(A)
    positive = values > rounding
    return torch.where(positive, values.clamp(min=torch.finfo(A.dtype).tiny).rsqrt(), 0.0)[:, None] * vectors.T


def check_parts(parts: Sequence[Part], classes: ClassTerms | None) -> ClassTerms:
    """Refuse unknown parts, and a G without parts; returns the terms."""
    unknown = [part for part in parts if part not in PARTS]
    if unknown or isinstance(parts, str):
        raise ArgumentError(
            f"The parts {parts!r} were named.",
            f"The parts of G are {', '.join(PARTS)}.",
            'Pass them as a tuple: subtract=("between_class",).',
        )
    if classes is None:
        raise DataError(
            "The targets are not indices of the same classes in all batches.",
            "Only the Gauss-Newton matrix of a classifier has parts that belong to classes.",
            "Use a cross-entropy risk with integer targets, or ask for the spectrum without knockouts.",
        )
    return classes
