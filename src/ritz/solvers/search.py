"""A search for eigenpairs under way: it steps, restarts, sets known pairs aside, and looks for those it missed.

A product may cost seconds, so the basis is kept large and orthogonal, and the search stops as soon as the residual
estimates allow. Wu and Simon (2000), with full reorthogonalisation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .. import progress
from ..errors import check_finite
from ..operators import Operator
from ..record.checkpoints import State
from ..spectrum import Eigenpairs
from .basis import Basis
from .goals import NUMBERS, Goal, check_state
from .missed_pairs import MOST_STEPS, Overlooked, endangered, is_beyond
from .probes import start_rows
from .requested_pairs import RequestedPairs
from .resumption import Resumption
from .ritz_pairs import ranking, selection
from .vectors import check_range, check_symmetry, norms, product, rounding

NOVELTY, BLOCK_NOVELTY = 0.1, 1e-3  # random share of a warm start, without which a new eigenvector could never be found
SAFETY = 0.9  # of the tolerance: the search stops below it, to leave room for rounding in the fresh residual
LOSS = 1e-3  # of the largest |λ|: components along earlier rows above which every step is orthogonalised fully
CANCELLED = 0.1  # of a row, to which others of its block shrink it: beside that, its rounding along all rows has grown
SPARE = 8  # Ritz vectors kept at a certificate, besides twice the requested ones, in case the search has to go on


@dataclass(frozen=True)
class _Assessment:
    """What the Ritz pairs say about the state of the search."""

    residual: float = math.nan  # the largest of the requested pairs, relative to max|λ|
    values: Float[Tensor, " k"] | None = None  # the requested ones
    settled: bool = False  # worth a certificate
    invariant: bool = False  # the space is invariant, and copies of its eigenvalues may lie outside
    suspect: bool = False  # the values show signs of more copies
    separable: bool = False  # and they are known well enough to look for copies in the space orthogonal to theirs


@dataclass
class Search:
    """The whole state of a search: A Q = Q H + P B for explored rows Q and the pending block P after them."""

    basis: Basis
    generator: torch.Generator
    block_size: int
    H: Float[Tensor, "j j"] = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.float64))
    B: Float[Tensor, "r b"] = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.float64))
    tridiagonal: bool = False  # whether A P meets only the last two blocks: not right after a restart
    locked: int = 0  # leading rows that span an invariant space
    seen: Tensor | None = None  # the requested values when rows were last locked
    suspect: bool = False  # whether requested values have shown signs of more copies
    scale: float = 0.0  # the largest |λ| seen: of a Ritz value, or ‖A q‖, which is no larger
    num_products: int = 0
    certificates: int = 0
    stride: int = 1  # one step in this many is made orthogonal to all rows, while the recursion is local
    rough: bool = False  # whether its products only have to be near to those of a symmetric operator

    def state(self) -> State:
        """The state before a step: the vectors of the basis, and numbers."""
        arrays = {"basis": self.basis.rows(), "H": self.H, "B": self.B, "generator": self.generator.get_state()}
        arrays |= {} if self.seen is None else {"seen": self.seen}
        return arrays, {"has_seen": self.seen is not None, **{name: getattr(self, name) for name in NUMBERS}}

    @classmethod
    def of_state(
        cls,
        A: Operator,
        goal: Goal,
        generator: torch.Generator,
        arrays: Mapping[str, Tensor],
        header: Mapping[str, Any],
    ) -> Search:
        """The search with this state."""
        check_state(A, goal, generator, arrays, header)
        search = cls(Basis(A, goal.k, goal.capacity), generator, header["block_size"], arrays["H"], arrays["B"])
        for row in arrays["basis"].to(A.device, A.dtype):
            search.basis.append(row)
        search.seen = arrays.get("seen")
        for name in NUMBERS:
            setattr(search, name, header[name])
        generator.set_state(arrays["generator"])
        return search

    @property
    def explored(self) -> int:
        return len(self.H)

    def closed(self, A: Operator, aim: float) -> bool:
        """Whether A maps the explored space into itself, up to rounding as amplified by small earlier β."""
        return float(self.B.norm()) <= max(1e-3 * aim, min(10 * rounding(A), 0.3 * aim)) * self.scale

    @classmethod
    def from_start(
        cls,
        A: Operator,
        goal: Goal,
        start: Tensor | None,
        generator: torch.Generator,
        first: Float[Tensor, "1 n"] | None = None,
    ) -> Search:
        """A search whose pending block is random (beginning with `first`, if given), or a start with a random share."""
        b = goal.block_size
        block = first if first is not None and b == 1 else start_rows(A, b, generator)
        search = cls(Basis(A, goal.k, goal.capacity), generator, b)
        block /= norms(block)[:, None].to(block)
        if start is not None:
            for i, row in enumerate(block[: len(start)]):
                row *= NOVELTY if b == 1 else BLOCK_NOVELTY
                row += _mixture(start[i::b], row)
        search._extend(A, block)
        return search

    def explore(self, A: Operator, goal: Goal, bar: progress.Bar, file: Resumption | None = None) -> bool:
        """Step and restart until the pairs are ready for a certificate (True), or the products are spent (False)."""
        while True:
            if file is not None:
                file.keep(self.state)
            if self.basis.count + self.block_size > goal.capacity and self.explored:
                self.restart(goal)
            self.step(A)
            assessment = _assessment(A, self, goal)
            self.follow(assessment, A, goal)
            bar.advance(self.block_size, products=self.num_products, residual=assessment.residual)
            if assessment.settled or goal.out_of_products(self.num_products):
                return assessment.settled

    def step(self, A: Operator) -> None:
        """Multiply the pending block, extend H by its components, and make the rest the new pending block."""
        width = self.basis.count - self.explored
        W = product(A, self.basis.last(width))
        self.num_products += width
        if not self.explored:
            check_range(W)
        largest = float(norms(W).max())
        check_finite(largest)
        self.scale = max(self.scale, largest)
        fully = not self.tridiagonal or self.explored % self.stride == 0
        C = self.basis.orthogonalize(W, near=2 * self.block_size if self.tridiagonal else None, fully=fully)
        if self.tridiagonal and fully:
            self._check_symmetry(A, C[:, : self.explored])
            if float(C[:, : -2 * self.block_size].norm()) > LOSS * self.scale:
                self.stride = 1
        self.tridiagonal = True
        H = torch.zeros(self.basis.count, self.basis.count, dtype=torch.float64)
        H[: self.explored, : self.explored] = self.H
        H[self.explored :, :] = C
        H[:, self.explored :] = C.T
        H[self.explored :, self.explored :] = (C[:, self.explored :] + C[:, self.explored :].T) / 2
        self.H = H
        self._extend(A, W)

    def _check_symmetry(self, A: Operator, C: Float[Tensor, "b j"]) -> None:
        """Refuse an operator whose PᵀAQ is not (QᵀAP)ᵀ, which the step before left: zero, and B in its last columns.

        Beside rows that are locked, or once were, it need not be: these are known to the tolerance alone.
        """
        skew, last = C.clone(), self.basis.last(2)
        skew[:, skew.shape[1] - self.B.shape[1] :] -= self.B
        apart = lambda: product(A, last.sum(0, keepdim=True)) - product(A, last).sum(0, keepdim=True)
        if not (self.locked or self.suspect or self.rough):
            check_symmetry(float(skew.norm()), self.scale, lambda: float(norms(apart())))

    def ritz(self) -> tuple[Tensor, Tensor, Tensor]:
        """Ritz values, vectors in the basis, and residuals ‖B y_last‖; locked ones first, which have none."""
        blocks = [self.H[: self.locked, : self.locked], self.H[self.locked :, self.locked :]]
        (inner_values, S), (values, Y) = (torch.linalg.eigh(block) for block in blocks)
        last = Y[len(Y) - self.B.shape[1] :] if len(Y) else Y.new_zeros(self.B.shape[1], 0)
        residuals = (self.B @ last).norm(dim=0)
        return torch.cat([inner_values, values]), torch.block_diag(S, Y), torch.cat([0 * inner_values, residuals])

    def restart(self, goal: Goal) -> None:
        """Keep the better half of the Ritz vectors: A Q = Q Θ + P B' still holds, and so does all that follows."""
        values, S, _ = self.ritz()
        self._remember(values)
        count = min(goal.k + (goal.capacity - goal.k) // 2, goal.capacity - 2 * self.block_size)
        best = ranking(values, goal.which)[:count].sort().values  # locked ones stay in front
        self.basis.rotate(S[:, best])
        self.H, self.locked = torch.diag(values[best]), int((best < self.locked).sum())
        self.tridiagonal = False

    def condense(self, goal: Goal, keep: int | None = None) -> tuple[Float[Tensor, " j"], Float[Tensor, "b k"]]:
        """Turn the rows into Ritz vectors of the explored space, the requested ones first, and drop the worst.

        Returns the Ritz values kept, and B' of the requested ones: A X = XΘ + P B'.
        """
        values, S = torch.linalg.eigh(self.H)  # including the coupling of locked rows to others, however small
        self._remember(values)
        order = torch.cat([selection(values, goal.which, goal.k), ranking(values, goal.which)[goal.k :]])
        order = order[: keep or 2 * goal.k + SPARE]
        coupling = self.B @ S[len(S) - self.B.shape[1] :, order[: goal.k]]
        self.basis.rotate(S[:, order])
        self.H, self.tridiagonal = torch.diag(values[order]), False
        self.suspect, self.locked = self.suspect or self.locked > 0, 0
        return values[order], coupling

    def follow(self, assessment: _Assessment, A: Operator, goal: Goal) -> None:
        """Go where the assessment points: outside the space where that is exhausted, or away from suspect values."""
        if assessment.invariant:
            self.lock(assessment.values)
        self.suspect |= assessment.suspect
        if assessment.separable:
            self.set_aside(A, goal)

    def lock(self, values: Tensor | None) -> None:
        """Set the invariant space aside; the pending block, which is random, starts another one orthogonal to it."""
        self.locked, self.seen = self.explored, values

    def set_aside(self, A: Operator, goal: Goal) -> None:
        """Lock the requested Ritz vectors, known to the tolerance, and start another space orthogonal to them."""
        values, S, _ = self.ritz()
        self._remember(values)
        order = ranking(values, goal.which)[: goal.k]
        self.basis.rotate(S[:, order])
        self._leave(A, values[order])
        self.lock(values[order])

    def look_outside(self, A: Operator, pairs: Eigenpairs, goal: Goal, bar: progress.Bar) -> tuple[bool, Eigenpairs]:
        """Whether eigenvalues were missed, and the pairs with the chance of it.

        The pairs come first in the basis. What follows them there is replaced by a few steps from a random vector
        orthogonal to them.
        """
        values, limit = pairs.values.double().cpu(), goal.tolerance * self.scale
        doubtful = endangered(values, goal.which, limit)
        overlooked = Overlooked(values, A.size, rounding(A) * self.scale)
        missed, steps = False, self._steps_outside(goal)
        if not goal.copies or not bool(doubtful.any()):
            return missed, pairs
        if not steps:
            return missed, replace(pairs, doubts=overlooked.chances.to(pairs.values))
        self.block_size = 1
        self._leave(A, values)
        ritz_values = values[:0]
        while not missed and steps and overlooked.is_worth_more(doubtful, steps, ritz_values):
            self.step(A)
            overlooked.add(float(self.H[-1, -1]), float(self.B.norm()))
            ritz_values = torch.linalg.eigvalsh(self.H[goal.k :, goal.k :])
            missed = is_beyond(ritz_values, values, goal.which, limit)
            bar.advance(products=self.num_products)
            steps -= 1
        self.suspect, self.certificates, self.seen = missed, 0, values[ranking(values, goal.which)]
        doubts = torch.where(doubtful, 1.0, overlooked.chances) if missed else overlooked.chances
        return missed, replace(pairs, doubts=doubts.to(pairs.values), num_products=self.num_products)

    def _steps_outside(self, goal: Goal) -> int:
        """How many steps may be made to look for missed eigenvalues: few compared with those that found the pairs."""
        few = max(MOST_STEPS, self.num_products // MOST_STEPS)
        return max(0, min(few, goal.capacity - goal.k - 1, goal.max_products - self.num_products))

    def _remember(self, values: Float[Tensor, " j"]) -> None:
        """Note the size of Ritz values before some of them are dropped: the tolerance is relative to the largest."""
        self.scale = max(self.scale, float(values.abs().max()))

    def _leave(self, A: Operator, values: Float[Tensor, " k"]) -> None:
        """Keep the first rows, which are eigenvectors, and begin a random space orthogonal to them."""
        self.basis.cut(len(values))
        self.H, self.tridiagonal = torch.diag(values), False
        self._extend(A, self.basis.last(1)[:0])
        self.B = torch.zeros(len(self.B), len(self.B), dtype=torch.float64)
        self.locked = len(values)

    def _extend(self, A: Operator, W: Float[Tensor, "b n"]) -> None:
        """Make rows orthonormal and pending: W = Bᵀ P; a row that is mere rounding gives way to a random one."""
        room = min(self.block_size, A.size - self.basis.count)
        self.B, first = torch.zeros(room, len(W), dtype=torch.float64), self.basis.count
        for i, row in enumerate(W):
            length = float(norms(row[None]))
            if i:
                C = self.basis.orthogonalize(row[None], since=first)[0]
                self.B[: len(C), i] = C
                before, length = length, float(norms(row[None]))
                if length < CANCELLED * before:
                    self.basis.orthogonalize(row[None])
                    length = float(norms(row[None]))
            independent = length > rounding(A) * self.scale
            if self.basis.count - first == room:
                continue
            if independent:
                self.B[self.basis.count - first, i] = length
            self.basis.append(row.div_(length) if independent else self._fresh(A))
        while self.basis.count - first < room:
            self.basis.append(self._fresh(A))

    def _fresh(self, A: Operator) -> Float[Tensor, " n"]:
        """A random unit vector orthogonal to the basis."""
        row = start_rows(A, 1, self.generator)
        self.basis.orthogonalize(row)
        return row.div_(norms(row)[:, None].to(row))[0]


def _mixture(rows: Float[Tensor, "s n"], like: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """The direction of the sum of the rows, each at length one."""
    total = torch.zeros_like(like)
    for row in rows:
        total.add_(row.to(like), alpha=1 / float(norms(row[None])))
    return total.div_(max(float(norms(total[None])), 1e-6))  # opposite vectors cancel: a cold start then


def _assessment(A: Operator, search: Search, goal: Goal) -> _Assessment:
    """What the Ritz pairs of the explored space say; nothing is changed."""
    aim = SAFETY * max(goal.tolerance, 4 * torch.finfo(A.dtype).eps) * 0.1**search.certificates
    closed = search.closed(A, aim)
    if search.explored < goal.k:
        return _Assessment(invariant=closed)
    if not closed and _can_wait(search, goal):
        return _Assessment()
    values, _, residuals = search.ritz()
    pairs = RequestedPairs.of(
        values,
        residuals,
        goal.which,
        k=goal.k,
        locked=search.locked,
        seen=search.seen,
        scale=search.scale,
        aim=aim,
        rounding=rounding(A),
    )
    found = _Assessment(pairs.relative_residual, pairs.values)
    if closed and search.explored < A.size:  # copies of multiple eigenvalues may lie outside: look until none appears
        return replace(found, settled=pairs.repeated, invariant=not pairs.repeated)
    settled = pairs.are_settled()
    suspect = settled and pairs.may_hide_copies()
    separable = suspect and pairs.are_separable()
    return replace(found, settled=settled and not suspect, suspect=suspect, separable=separable)


def _can_wait(search: Search, goal: Goal) -> bool:
    """Whether Ritz pairs are left out after this step: a test costs j³, and late ones rarely bring news."""
    j = search.explored
    return j > 200 and j % (j // 100) != 0 and j + search.block_size <= goal.capacity
