"""Second moments of grouped rows: the mean of each group and the scatter around it, summed without cancellation."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..operators import Operator, low_rank
from ..risk import Risk
from ..spectrum import Spectrum


class Scatter:
    """Weighted means x̄_g of the rows of each group, and the scatter S = Σ w (x - x̄_g)(y - ȳ_g)ᵀ around all of them.

    One pass serves: two parts of a group with weights a, b and means apart by s have ab/(a+b) s sᵀ more scatter than
    both by themselves (Chan, Golub, LeVeque 1983), so that no large second moments are subtracted. With one kind of
    rows, y is x. A group without weight has mean zero.
    """

    def __init__(self, groups: int, widths: tuple[int, ...], device: torch.device) -> None:
        empty = lambda *shape: torch.zeros(*shape, dtype=torch.float64, device=device)
        self.weights: Float[Tensor, " g"] = empty(groups)
        self.means: list[Float[Tensor, "g _"]] = [empty(groups, width) for width in widths]
        self.matrix: Tensor = empty(widths[0], widths[-1])

    def add(self, rows: tuple[Tensor, ...], weights: Float[Tensor, " N"], groups: Int[Tensor, " N"]) -> None:
        """Add rows (N, T, width) at T positions of N examples; each position has its example's weight and group."""
        present, local = groups.unique(return_inverse=True)
        mass = weights.new_zeros(len(present)).index_add_(0, local, weights * rows[0].shape[1])
        centres, scattered = [], []
        for x in rows:
            sums = x.new_zeros(len(present), x.shape[2]).index_add_(0, local, weights[:, None] * x.sum(1))
            centres.append(ratio(sums, mass[:, None]))
            deviations = x - centres[-1][local][:, None]
            scattered.append(deviations.mul_(weights.sqrt()[:, None, None]).flatten(0, 1))
        self.matrix.addmm_(scattered[0].T, scattered[-1])
        self._join(present, mass, centres)

    def _join(self, present: Int[Tensor, " u"], mass: Float[Tensor, " u"], centres: list[Tensor]) -> None:
        before = self.weights[present]
        total = before + mass
        share = ratio(mass, total)[:, None]
        shifts = [centre - mean[present] for centre, mean in zip(centres, self.means, strict=True)]
        self.matrix.addmm_((before[:, None] * share * shifts[0]).T, shifts[-1])
        for mean, shift in zip(self.means, shifts, strict=True):
            mean[present] += share * shift
        self.weights[present] = total

    def join_ranks(self, risk: Risk) -> Scatter:
        """Join with what the other ranks of the risk's group have added."""
        if risk.group is None:
            return self
        own, weights = self.weights[:, None], risk.sum_over_ranks(self.weights.clone())
        means = [ratio(risk.sum_over_ranks(own * mean), weights[:, None]) for mean in self.means]
        shifts = [mean - joint for mean, joint in zip(self.means, means, strict=True)]
        self.matrix = risk.sum_over_ranks(self.matrix + (own * shifts[0]).T @ shifts[-1])
        self.weights, self.means = weights, means
        return self


def ratio(a: Tensor, b: Tensor) -> Tensor:
    """a / b, and zero where b is zero, so that a mean without weight is zero."""
    return torch.where(b > 0, a / torch.where(b > 0, b, 1.0), 0.0)


def exact_spectrum(A: Operator) -> Spectrum:
    """All eigenvalues: those of the small matrix UᵀU, and zeros, where A = U Uᵀ is known; else those of the matrix."""
    if A.factor is None or A.factor.shape[1] >= A.size:
        return Spectrum.of_matrix(A.dense())
    values = torch.linalg.svdvals(A.factor).square()
    zeros = values.new_zeros(1)
    counts = torch.cat([torch.ones_like(values), zeros + A.size - len(values)])
    return Spectrum.of_eigenvalues(torch.cat([values, zeros]), counts)


def second_moment(rows: Float[Tensor, "r D"], weights: Float[Tensor, " r"]) -> Operator:
    """Σ w x xᵀ over rows x."""
    return low_rank((rows * weights.sqrt()[:, None]).T.contiguous())


def whole(scatter: Float[Tensor, "D D"], *parts: Operator) -> Operator:
    """The sum of a scatter and the low-rank parts of the means."""
    total = scatter.clone()
    for part in parts:
        if part.factor is not None:
            total.addmm_(part.factor, part.factor.T)
    return Operator.from_matrix(total)
