"""Eigenpairs from a nearby subspace: Rayleigh-Ritz with an operator's own products, and Davidson's corrections.

A residual r of a pair (θ, x) that is nearly right is the error of the products that led to it. Rayleigh-Ritz on the
space enlarged by M r takes that error away, where M ≈ (A - θ)⁻¹ knows the eigenvalues around θ; Davidson (1975).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from ..operators import Operator
from ..spectrum import Eigenpairs
from .basis import Basis
from .goals import Goal
from .ritz_pairs import as_eigenpairs, ranking, selection
from .search import SPARE
from .vectors import components, norms, orthonormalize, product, rounding, subtract

CLOSE = 1e-2  # of the largest |λ|: an eigenvalue nearer to θ is treated as if it were this far away
FAR, LEFT = 2.0, 0.9  # times the limit: residuals that one step may not suffice for, and what it may leave of them
PATIENCE = 5  # corrections in which residuals as small as rounding may fail to halve


@dataclass(frozen=True)
class Surroundings:
    """What is roughly known of A besides the requested pairs: further eigenvectors, and where the others lie."""

    values: Float[Tensor, " s"]
    rows: Sequence[Float[Tensor, "_ n"]]
    centre: float = 0.0
    scale: float = 0.0  # the largest |λ| seen
    rough: Operator | None = None  # nearly A, with cheaper products

    def solve_twice(self, r: Float[Tensor, "1 n"], theta: float, scale: float) -> float:
        """`solve`, then again for the residual that a rough product shows; returns the norm of that residual."""
        assert self.rough is not None  # checked by the caller
        first, distance = r.clone(), theta - self.centre
        self.solve(first, theta, scale)
        r.sub_(first, alpha=theta / distance).add_(product(self.rough, first), alpha=1 / distance)
        remainder = float(norms(r))
        self.solve(r, theta, scale)
        r += first
        return remainder

    def solve(self, r: Float[Tensor, "1 n"], theta: float, scale: float) -> None:
        """r ← (θ - c)(θ - A)⁻¹ r in place, for A with these eigenpairs, and the eigenvalue c on all that is left."""
        distances = theta - self.values[: sum(map(len, self.rows))]
        least = torch.full_like(distances, CLOSE * scale or 1.0)
        distances = torch.where(distances.abs() < least, torch.copysign(least, distances), distances)
        gains = ((theta - self.centre) / distances - 1).to(r).split([len(piece) for piece in self.rows])
        along = [components(r, piece) for piece in self.rows]
        for C, gain, piece in zip(along, gains, self.rows, strict=True):
            subtract(r, -C * gain, piece)


def near_capacity(k: int, basis_size: int, room: float) -> int:
    """The number of vectors kept near k pairs, each with its product: for two corrections of all, if there is room."""
    return int(max(k + 1, min(basis_size, 3 * k + SPARE, (room - 3) / 2)))


class NearSpace:
    """Orthonormal rows Q with their products, of which the first k are nearly the requested eigenvectors."""

    def __init__(self, A: Operator, X: Float[Tensor, "k n"], goal: Goal, around: Surroundings) -> None:
        orthonormalize(X)
        self.goal, self.around = goal, around
        self.capacity = near_capacity(len(X), goal.capacity, goal.room)
        self.Q, self.AQ = Basis.holding(A, X, self.capacity), Basis.holding(A, torch.empty_like(X), self.capacity)
        for rows, into in zip(X.split(goal.columns), self.AQ.first().split(goal.columns), strict=True):
            into.copy_(product(A, rows))
        self.H = self.Q.inner(self.AQ.first())
        self.num_products, self.num_rough = len(X), 0  # all of them, and those that are not A's own

    def pairs(self, A: Operator, spent: int) -> Eigenpairs:
        """Correct until the residuals are small enough or the products are spent; the pairs lie in the first rows."""
        history: list[float] = []
        while True:
            values, S = torch.linalg.eigh((self.H + self.H.T) / 2)
            scale = max(self.around.scale, float(values.abs().max()))
            limit = self.goal.tolerance * scale
            order = selection(values, self.goal.which, self.goal.k)
            residuals = torch.cat([norms(self._residual(values[i], S[:, i])) for i in order]).cpu()
            history.append(float(residuals.max()))
            left = self.goal.max_products - spent - self.num_products
            worst = residuals.argsort(descending=True, stable=True)
            unconverged = order[worst][: min(int((residuals > limit).sum()), max(0, left))]
            if not len(unconverged) or self._is_rounding(A, history, scale):
                self.Q.rotate(S[:, order])
                X = self.Q.first()
                found = values[order].to(X.device), X, residuals.to(X.device)
                pairs = as_eigenpairs(*found, limit, self.num_products, self.Q.allocated + self.AQ.allocated)
                return replace(pairs, num_rough_products=self.num_rough)
            self._enlarge(A, values, S, unconverged, left, scale)

    def _is_rounding(self, A: Operator, history: list[float], scale: float) -> bool:
        """Whether residuals no longer fall because they are mere rounding."""
        late = len(history) > PATIENCE and history[-1] > 0.5 * history[-1 - PATIENCE]
        return late and history[-1] <= 10 * rounding(A) * scale

    def _residual(self, theta: Tensor, s: Float[Tensor, " j"]) -> Float[Tensor, "1 n"]:
        r = self.AQ.combination(s)
        return r.sub_(self.Q.combination(s), alpha=float(theta))

    def _enlarge(self, A: Operator, values: Tensor, S: Tensor, indices: Tensor, left: int, scale: float) -> None:
        """Add rows for the residuals of these pairs, as many as there is room for, with at most this many products.

        Where the first, which is the worst, tells that one step leaves too much, each has a rough product to make two.
        """
        if self.Q.count == self.capacity:
            values, S, indices = self._restart(values, S, indices)
        before, limit, twice = self.Q.count, self.goal.tolerance * scale, left >= 2 * len(indices)
        for i in indices[: self.capacity - before].tolist():
            r, theta = self._residual(values[i], S[:, i]), float(values[i])
            if twice and self._is_far(r, theta, scale):
                twice = self.around.solve_twice(r, theta, scale) > LEFT * limit
                self.num_products, self.num_rough = self.num_products + 1, self.num_rough + 1
            else:
                self.around.solve(r, theta, scale)
            self.Q.orthogonalize(r)
            self.Q.append(r.div_(float(norms(r)) or 1.0)[0])
        self._multiply(A, before)

    def _is_far(self, r: Float[Tensor, "1 n"], theta: float, scale: float) -> bool:
        """Whether a second step, which costs a rough product, may pay."""
        known = self.around.rough is not None and abs(theta - self.around.centre) > CLOSE * scale
        return known and float(norms(r)) > FAR * self.goal.tolerance * scale

    def _multiply(self, A: Operator, before: int) -> None:
        """Compute the products of the rows that lack them."""
        rows = self.Q.last(self.Q.count - before)
        for part in rows.split(self.goal.columns):
            for row in product(A, part):
                self.AQ.append(row)
        C = self.Q.inner(self.AQ.last(len(rows)))
        H = torch.zeros(self.Q.count, self.Q.count, dtype=torch.float64)
        H[:before, :before] = self.H
        H[:, before:], H[before:, :before] = C, C[:before].T
        self.H = H
        self.num_products += len(rows)

    def _restart(self, values: Tensor, S: Tensor, indices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keep the better half of the Ritz vectors, and their products."""
        k = self.goal.k
        best = ranking(values, self.goal.which)[: k + (self.capacity - k) // 2]
        self.Q.rotate(S[:, best])
        self.AQ.rotate(S[:, best])
        self.H = torch.diag(values[best])
        return values[best], torch.eye(len(best), dtype=torch.float64), (best == indices[:, None]).nonzero()[:, 1]
