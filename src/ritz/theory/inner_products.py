"""Losses of inner products: H of F(⟨w₁,v₁⟩, …, ⟨w_S,v_S⟩), the form that all scalar two-layer networks share.

With cₛ = ⟨wₛ,vₛ⟩, d = ∇F and C = ∇²F, the Hessian is blockdiag(dₛ (0 I; I 0)) + Σₛₜ Cₛₜ gₛ gₜᵀ, gₛ = (wₛ; vₛ). In the
coordinates (a ± b)/√2 the first term is diagonal, ±dₛ, and the second has rank S: all but 2S eigenvalues are ±dₛ.
Singh et al. (2026), Thm 3.1-3.4 and Cor B.1-B.3 are special cases, computed here through that small matrix rather than
by radicals, so that w = ±v, zero residuals and single units need no care.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .bases import complement, unit
from .closed_form import Group, eigenlines

ROOT = 0.5**0.5
DECOUPLED = 1e-13  # |Cₛₜ|/√(Cₛₛ Cₜₜ) below which two pairs cannot move each other's lines by more than rounding


@dataclass(frozen=True, eq=False)
class Pair:
    """The weights of one inner product ⟨w, v⟩ and where they stand among all n coordinates."""

    name: str  # prefix of its lines: "", "cell +, ", "input 3, "
    w: Float[Tensor, " m"]
    v: Float[Tensor, " m"]
    rows: Int[Tensor, " n"]  # of the m entries of v, then of w

    @property
    def norms(self) -> tuple[float, float]:
        """p = ‖w + v‖/√2 and q = ‖w - v‖/√2."""
        return ROOT * float((self.w + self.v).norm()), ROOT * float((self.w - self.v).norm())

    def bulk(self, sign: int, count: int) -> Float[Tensor, "n k"]:
        """(u; ±u)/√2 with u ⟂ w ± v."""
        U = complement(unit(self.w + sign * self.v)[:, None], count)
        return ROOT * torch.cat([U, sign * U])

    def frame(self) -> Float[Tensor, "n 2"]:
        """(ĝ₊; ĝ₊)/√2 and (ĝ₋; -ĝ₋)/√2, ĝ± = (w ± v)/‖w ± v‖: what the outliers' eigenvectors are made of."""
        plus, minus = unit(self.w + self.v), unit(self.w - self.v)
        return ROOT * torch.stack([torch.cat([plus, plus]), torch.cat([minus, -minus])], 1)


def pair_lines(
    pairs: Sequence[Pair], slopes: Float[Tensor, " s"], curvature: Float[Tensor, "s s"], size: int
) -> list[Group]:
    """Bulk ±dₛ (mₛ - 1 each) and the eigenvalues of diag(d₁, -d₁, …) + P C Pᵀ, P = columns (‖wₛ ± vₛ‖/√2).

    Pairs that C does not couple give lines of their own, named after them.
    """
    lines = [line for pair, d in zip(pairs, slopes.tolist(), strict=True) for line in _bulk(pair, d, size)]
    sizes, across = curvature.diag().abs().sqrt(), curvature - curvature.diag().diag()
    if bool((across.abs() <= DECOUPLED * torch.outer(sizes, sizes)).all()):
        for pair, d, c in zip(pairs, slopes.tolist(), curvature.diag().tolist(), strict=True):
            lines += [embedded(line, pair.rows, size) for line in _two_outliers(pair, d, c)]
        return lines
    return lines + _joint_outliers(pairs, slopes, curvature, size)


def embedded(line: Group, rows: Int[Tensor, " r"], size: int) -> Group:
    """The line in a larger space, its coordinates at `rows` of `size`."""
    basis = line.basis
    return line if basis is None else replace(line, basis=lambda count: _spread(basis(count), rows, size))


def coordinates(name: str, rows: Int[Tensor, " r"], size: int) -> Group:
    """A zero line whose eigenvectors are coordinate vectors."""
    return Group(
        name, 0.0, len(rows), lambda count: _spread(torch.eye(len(rows), count, dtype=torch.float64), rows, size)
    )


def _bulk(pair: Pair, d: float, size: int) -> list[Group]:
    m = len(pair.w)
    plus = Group(f"{pair.name}bulk +", d, m - 1, lambda count: pair.bulk(1, count))
    minus = Group(f"{pair.name}bulk -", -d, m - 1, lambda count: pair.bulk(-1, count))
    return [embedded(line, pair.rows, size) for line in (plus, minus)]


def _two_outliers(pair: Pair, d: float, c: float) -> list[Group]:
    p, q = pair.norms
    M = torch.tensor([[d + c * p * p, c * p * q], [c * p * q, c * q * q - d]], dtype=torch.float64)
    lines = eigenlines(M, f"{pair.name}outlier", lambda Z: pair.frame() @ Z)
    large = max((line.value for line in lines), key=abs)
    if large:  # Vieta: the small one loses no digits to the large one; a ratio first, for squares leave the range
        small = -d * ((d + 2 * c * float(pair.w @ pair.v)) / large)
        values = sorted((large, small), reverse=True)
        return [replace(line, value=value) for line, value in zip(lines, values, strict=True)]
    return lines


def _joint_outliers(pairs: Sequence[Pair], slopes: Tensor, curvature: Tensor, size: int) -> list[Group]:
    P = torch.block_diag(*[torch.tensor([[p], [q]], dtype=torch.float64) for p, q in (pair.norms for pair in pairs)])
    M = torch.stack([slopes, -slopes], 1).flatten().diag().to(P) + P @ curvature.to(P) @ P.T
    rows = torch.cat([pair.rows for pair in pairs])

    @cache
    def frames() -> list[Tensor]:
        return [pair.frame() for pair in pairs]

    def lift(Z: Tensor) -> Tensor:
        parts = [frame @ piece for frame, piece in zip(frames(), Z.split(2), strict=True)]
        return _spread(torch.cat(parts), rows, size)

    return eigenlines(M, "outlier", lift)


def _spread(Z: Float[Tensor, "r k"], rows: Tensor, size: int) -> Float[Tensor, "n k"]:
    return Z.new_zeros(size, Z.shape[1]).index_copy(0, rows.to(Z.device), Z)
