"""Eigenpairs of an operator that is known by its products alone, each certified by a fresh product.

A product may cost seconds, so the basis is kept large and orthogonal, and the search stops as soon as the residual
estimates allow.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from .. import progress
from ..errors import ArgumentError, ConvergenceWarning, check_finite, check_tolerance, check_whole
from ..operators import Operator
from ..spectrum import Eigenpairs
from .basis import (
    Basis,
    check_count,
    gaussian,
    matrix,
    norms,
    orthonormal,
    presented,
    product,
    ranking,
    rayleigh_ritz,
    rounding,
    source,
    start_rows,
)

ENDS = ("largest", "smallest", "magnitude", "both")
NOVELTY, BLOCK_NOVELTY = 0.1, 1e-3  # random share of a warm start: without it a new eigenvector could never be seen
SAFETY = 0.9  # of the tolerance, left to the rounding between an estimated residual and the fresh one
SMALL = 500  # sizes solved exactly: five of the least bases, in columns that are multiplied together
ATTEMPTS = 3  # certificates asked for before what remains of a residual is taken for rounding


def eigenpairs(
    A: Operator,
    k: int,
    *,
    which: str = "largest",
    tolerance: float = 1e-4,
    start: Float[Tensor, "n ..."] | Eigenpairs | None = None,
    generator: torch.Generator | None = None,
    block_size: int = 1,
    max_products: int | None = None,
    basis_size: int | None = None,
    fresh_products: int | None = None,
) -> Eigenpairs:
    """The k wanted eigenpairs, ‖A v - λ v‖ ≤ tolerance · max|λ|, by thick-restart block Lanczos.

    "both" gives the ⌈k/2⌉ largest, then the ⌊k/2⌋ smallest, each from its end. Wu and Simon (2000), with full
    reorthogonalisation, so that no eigenvalue appears twice.

    Guaranteed: each pair is one of A, to its residual. That none is missed is certain only where n products solve the
    problem exactly: for n ≤ 500 without a basis_size, or n ≤ basis_size, if max_products allows n. In larger spaces a
    search sees one copy of a multiple eigenvalue for each column of `block_size`, and others by rounding only.
    It looks for more, with random vectors orthogonal to the wanted ones until nothing new enters, where the space
    explored is invariant, where two wanted values agree and one less wanted follows, and where zero is among the wanted
    smallest. A multiple eigenvalue that shows one copy and none of these signs may lack the others, without a warning.

    Args:
        A: Symmetric operator.
        k: How many, at most its size.
        which: The wanted end of the spectrum; it comes first in the result.
        tolerance: Relative to the largest |λ| seen.
        start: A vector, columns, or the Eigenpairs of a similar operator.
        generator: Source of the start vector; without it, a new generator with seed 0.
        block_size: Columns multiplied at a time.
        max_products: When to give up, with a ConvergenceWarning and `converged` False; 10 bases unless given.
        basis_size: Vectors kept, at most; max(4k + 20, 100) unless given, and all n where n ≤ 500.
        fresh_products: What the certificate may cost. With k, the default, each residual is recomputed from its own
            product. With fewer, each is the recursion's, enlarged by the error that random combinations reveal.
    """
    check_whole(block_size=block_size, max_products=max_products, basis_size=basis_size, fresh_products=fresh_products)
    check_count(A, k)
    check_tolerance(tolerance)
    capacity = min(A.size, basis_size or usual_basis(k))
    limit = max_products or 10 * max(capacity, 100)
    fresh = k if fresh_products is None else max(1, min(fresh_products, k))
    _check_search(A, k, which, block_size, capacity, limit)
    rows, random = None if start is None else start_rows(A, start), source(generator)
    if A.size <= min(capacity if basis_size else max(capacity, SMALL), limit):
        return _reported(_exact(A, k, which, tolerance))
    search = _Search.begun(A, rows, random, block_size)
    return _reported(_found(A, search, _Goal(k, which, tolerance, capacity, limit, fresh)))


def usual_basis(k: int) -> int:
    """The vectors that a search for k pairs keeps unless told otherwise: enough to restart seldom."""
    return max(4 * k + 20, 100)


def subspace_iteration(
    A: Operator,
    k: int,
    num_iterations: int,
    *,
    tolerance: float = 1e-4,
    start: Float[Tensor, "n ..."] | Eigenpairs | None = None,
    generator: torch.Generator | None = None,
) -> Eigenpairs:
    """The k eigenpairs of largest |λ| from Q ← qr(A Q), T times, and Rayleigh-Ritz: QᵀAQ = SΛSᵀ, vectors QS.

    Costs kT products; `eigenpairs` needs far fewer. Papyan (2020), Alg. 5, whose λ = ‖v‖ loses the sign and is no
    Ritz value. The residuals come from the last product; a generator with seed 0 is used unless one is given.
    """
    check_whole(num_iterations=num_iterations)
    check_count(A, k)
    check_tolerance(tolerance)
    if num_iterations < 1:
        raise ArgumentError(f"num_iterations={num_iterations} was given.", "It takes a product.", "Ask for 1 or more.")
    V = gaussian(A, k, source(generator))
    if start is not None:
        given = start_rows(A, start)[:k]
        V[: len(given)] = given
    with progress.bar("Subspace iteration", total=num_iterations) as bar:
        for _ in range(num_iterations):
            Q = torch.linalg.qr(V.T).Q.T.contiguous()
            V = product(A, Q)
            bar.advance(products=k)
    values, vectors, residuals = rayleigh_ritz(Q, V, "magnitude")
    return _pairs(values, vectors, residuals, tolerance * float(values.abs().max()), k * num_iterations)


@dataclass(frozen=True)
class _Goal:
    """What is looked for, and with what means."""

    k: int
    which: str
    tolerance: float
    capacity: int
    max_products: int
    fresh_products: int

    def out_of_products(self, spent: int, next_step: int) -> bool:
        """Whether another step would leave too few products for the certificate."""
        return spent + next_step + self.fresh_products > self.max_products


@dataclass
class _Search:
    """The whole state of a search: A Q = Q H + P B for explored rows Q and the pending block P after them."""

    basis: Basis
    generator: torch.Generator
    block_size: int
    H: Float[Tensor, "j j"] = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.float64))
    B: Float[Tensor, "r b"] = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.float64))
    tridiagonal: bool = False  # whether A P meets only the last two blocks: not right after a restart
    locked: int = 0  # leading rows that span an invariant space
    seen: Tensor | None = None  # the wanted values when rows were last locked
    suspect: bool = False  # whether wanted values have shown signs of more copies
    scale: float = 0.0  # largest ‖A q‖
    num_products: int = 0
    certificates: int = 0

    @property
    def explored(self) -> int:
        return len(self.H)

    def closed(self, A: Operator, aim: float) -> bool:
        """Whether A maps the explored space into itself, to rounding, which small earlier β have amplified."""
        return float(self.B.norm()) <= max(1e-3 * aim, min(10 * rounding(A), 0.3 * aim)) * self.scale

    @classmethod
    def begun(cls, A: Operator, start: Tensor | None, generator: torch.Generator, block_size: int) -> _Search:
        """A search whose pending block is random, or the warm start with a share of it random."""
        search = cls(Basis(A), generator, block_size)
        block = gaussian(A, block_size, generator)
        block /= norms(block)[:, None].to(block)
        if start is not None:
            mixed = torch.stack([start[i::block_size].sum(0) for i in range(min(block_size, len(start)))])
            mixed /= norms(mixed).clamp(min=1e-6)[:, None].to(mixed)  # opposite vectors cancel: a cold start then
            block[: len(mixed)] = mixed + (NOVELTY if block_size == 1 else BLOCK_NOVELTY) * block[: len(mixed)]
        search._extend(A, block)
        return search

    def step(self, A: Operator) -> None:
        """Multiply the pending block, extend H by its components, and make the rest the new pending block."""
        width = self.basis.count - self.explored
        W = product(A, self.basis.last(width))
        self.num_products += width
        largest = float(norms(W).max())
        check_finite(largest)
        self.scale = max(self.scale, largest)
        W, C = self.basis.orthogonalised(W, near=2 * self.block_size if self.tridiagonal else None)
        self.tridiagonal = True
        H = torch.zeros(self.basis.count, self.basis.count, dtype=torch.float64)
        H[: self.explored, : self.explored] = self.H
        H[self.explored :, :] = C
        H[:, self.explored :] = C.T
        H[self.explored :, self.explored :] = (C[:, self.explored :] + C[:, self.explored :].T) / 2
        self.H = H
        self._extend(A, W)

    def ritz(self) -> tuple[Tensor, Tensor, Tensor]:
        """Ritz values, vectors in the basis, and residuals ‖B y_last‖; locked ones first, which have none."""
        blocks = [self.H[: self.locked, : self.locked], self.H[self.locked :, self.locked :]]
        (inner_values, S), (values, Y) = (torch.linalg.eigh(block) for block in blocks)
        last = Y[len(Y) - self.B.shape[1] :] if len(Y) else Y.new_zeros(self.B.shape[1], 0)
        residuals = (self.B @ last).norm(dim=0)
        return torch.cat([inner_values, values]), torch.block_diag(S, Y), torch.cat([0 * inner_values, residuals])

    def restart(self, goal: _Goal) -> None:
        """Keep the better half of the Ritz vectors: A Q = Q Θ + P B' still holds, and so does all that follows."""
        values, S, _ = self.ritz()
        num_kept = min(goal.k + (goal.capacity - goal.k) // 2, goal.capacity - 2 * self.block_size)
        kept = ranking(values, goal.which)[:num_kept].sort().values  # locked ones stay in front
        self.basis.rotate(S[:, kept])
        self.H, self.locked = torch.diag(values[kept]), int((kept < self.locked).sum())
        self.tridiagonal = False

    def lock(self, wanted: Tensor | None) -> None:
        """Set the invariant space aside; the pending block, random, starts another one orthogonal to it."""
        self.locked, self.seen = self.explored, wanted

    def set_aside(self, A: Operator, goal: _Goal) -> None:
        """Lock the wanted Ritz vectors, known to the tolerance, and start another space orthogonal to them."""
        values, S, _ = self.ritz()
        wanted = ranking(values, goal.which)[: goal.k]
        self.basis.rotate(S[:, wanted])
        self.basis.cut(goal.k)
        self.H, self.tridiagonal = torch.diag(values[wanted]), False
        self._extend(A, self.basis.last(1)[:0])
        self.B = torch.zeros(len(self.B), len(self.B), dtype=torch.float64)
        self.lock(values[wanted])

    def _extend(self, A: Operator, W: Float[Tensor, "b n"]) -> None:
        """Make rows orthonormal and pending: W = Bᵀ P; a row that is mere rounding gives way to a random one."""
        room = min(self.block_size, A.size - self.basis.count)
        self.B, first = torch.zeros(room, len(W), dtype=torch.float64), self.basis.count
        for i, row in enumerate(W):
            if i:
                row, C = self._against(first, row)
                self.B[: len(C), i] = C
            length = float(norms(row[None]))
            found = length > rounding(A) * self.scale
            if self.basis.count - first == room:
                continue
            if found:
                self.B[self.basis.count - first, i] = length
            self.basis.append(row / length if found else self._fresh(A))
        while self.basis.count - first < room:
            self.basis.append(self._fresh(A))

    def _against(self, first: int, row: Tensor) -> tuple[Tensor, Tensor]:
        new = self.basis.last(self.basis.count - first)
        total = torch.zeros(len(new), dtype=torch.float64, device=row.device)
        for _ in range(2):
            C = new @ row
            row, total = row - C @ new, total + C
        return row, total.cpu()

    def _fresh(self, A: Operator) -> Float[Tensor, " n"]:
        """A random unit vector orthogonal to the basis."""
        row = gaussian(A, 1, self.generator)
        for _ in range(2 if self.basis.count else 0):
            row, _ = self.basis.orthogonalised(row / norms(row)[:, None].to(row))
        return (row / norms(row)[:, None].to(row))[0]


def _found(A: Operator, search: _Search, goal: _Goal) -> Eigenpairs:
    """Step, test and restart until the wanted pairs are certified or the products are spent."""
    with progress.bar("Eigenpairs") as bar:
        while True:
            if search.basis.count + search.block_size > goal.capacity and search.explored:
                search.restart(goal)
            search.step(A)
            residual, settled = _verdict(A, search, goal)
            bar.advance(search.block_size, products=search.num_products, residual=residual)
            if settled or goal.out_of_products(search.num_products, search.block_size):
                pairs = _certificate(A, search, goal)
                spent = goal.out_of_products(search.num_products, search.block_size)
                if bool(pairs.converged.all()) or spent or search.certificates == ATTEMPTS:
                    return pairs if settled or not (search.locked or search.suspect) else _incomplete(pairs)


def _verdict(A: Operator, search: _Search, goal: _Goal) -> tuple[float, bool]:
    """The largest wanted residual, relative, and whether it is worth a certificate."""
    j, aim = search.explored, SAFETY * max(goal.tolerance, 4 * torch.finfo(A.dtype).eps) * 0.1**search.certificates
    closed = search.closed(A, aim)
    if closed and j < goal.k:
        search.lock(None)
    if j < goal.k or (not closed and j > 200 and j % (j // 100) and j + search.block_size <= goal.capacity):
        return math.nan, False  # a test costs j³, and late ones rarely bring news
    values, _, residuals = search.ritz()
    order, scale = ranking(values, goal.which), float(values.abs().max())
    wanted, limit = order[: goal.k], aim * scale
    worst = float(residuals[wanted].max())
    settled = worst <= limit
    if closed and j < A.size:  # copies of multiple eigenvalues may be left outside: look until none appears
        settled = search.seen is not None and torch.allclose(values[wanted], search.seen, rtol=0.0, atol=limit)
        if not settled:
            search.lock(values[wanted])
        return worst / (scale or 1.0), settled
    if search.locked:  # what leads the new space must be known well: a start may contain little of a copy
        leaders = order[order >= search.locked][: 2 if goal.which == "both" else 1]
        settled &= bool((residuals[leaders] <= max(1e-3 * limit, 10 * rounding(A) * scale)).all())
    news = search.seen is None or not torch.allclose(values[wanted], search.seen, rtol=0.0, atol=limit)
    if settled and news and _may_hide_copies(values[wanted], goal.which, max(1e-3 * limit, rounding(A) * scale)):
        settled, search.suspect = False, True
        if worst <= max(0.3 * limit, 10 * rounding(A) * scale):  # copies mix, and so do their residuals
            search.set_aside(A, goal)
    return worst / (scale or 1.0), settled


def _may_hide_copies(values: Tensor, which: str, equal: float) -> bool:
    """Whether, from either end, two wanted values agree, or one of the smallest is zero, and another value follows."""
    for end in (values[0::2], values[1::2]) if which == "both" else (values,):
        apart = (end - end[-1:]).abs() > equal  # a copy of the last one would change nothing
        signs = end.abs() <= equal if which in ("smallest", "both") else torch.zeros_like(apart)
        signs[1:] |= end.diff().abs() <= equal
        if bool((signs & apart).any()):
            return True
    return False


def _certificate(A: Operator, search: _Search, goal: _Goal) -> Eigenpairs:
    """The wanted pairs, with residuals that fresh products vouch for."""
    values, S, _ = search.ritz()
    scale = float(values.abs().max())
    wanted = presented(values, goal.which, goal.k)
    X = orthonormal(search.basis.combined(S[:, wanted]))
    if goal.fresh_products < goal.k:
        found, vectors, residuals = values[wanted].to(X.device), X, _checked_residuals(A, search, goal, X)
    else:
        found, vectors, residuals = rayleigh_ritz(X, product(A, X), goal.which)
    search.num_products += goal.fresh_products
    search.certificates += 1
    return _pairs(found, vectors, residuals, goal.tolerance * scale, search.num_products)


def _checked_residuals(A: Operator, search: _Search, goal: _Goal, X: Float[Tensor, "k n"]) -> Float[Tensor, " k"]:
    """‖rᵢ‖ + ‖D‖ for the recursion's residuals R = PB and D = A X - XΘ - R, whose norm is E‖Dω‖² over normal ω."""
    values, S, residuals = search.ritz()
    wanted = presented(values, goal.which, goal.k)
    shape, source = (goal.fresh_products, goal.k), search.generator
    omega = torch.randn(shape, generator=source, dtype=torch.float64, device=source.device).cpu()
    rest = omega @ (search.B @ S[len(S) - search.B.shape[1] :, wanted]).T
    D = product(A, omega.to(X) @ X) - (omega * values[wanted]).to(X) @ X
    D -= rest.to(X) @ search.basis.last(search.B.shape[0])
    return residuals[wanted].to(X.device) + norms(D).square().mean().sqrt()


def _exact(A: Operator, k: int, which: str, tolerance: float) -> Eigenpairs:
    """All eigenpairs of a small operator from its n columns, cut to the wanted ones."""
    D = matrix(A)
    values, vectors = torch.linalg.eigh((D + D.T).double() / 2)
    wanted = presented(values, which, k)
    X = vectors[:, wanted].T.to(D)
    found, vectors, residuals = rayleigh_ritz(X, (D.double() @ X.T.double()).T, which)
    return _pairs(found, vectors, residuals, tolerance * float(values.abs().max()), A.size)


def _pairs(values: Tensor, vectors: Tensor, residuals: Tensor, limit: float, num_products: int) -> Eigenpairs:
    return Eigenpairs(values.to(vectors), vectors.T, residuals.to(vectors), residuals <= limit, num_products)


def _incomplete(pairs: Eigenpairs) -> Eigenpairs:
    message = f"{pairs.num_products} products were too few to rule out more copies of multiple eigenvalues."
    warnings.warn(f"{message}\n  - Raise max_products.", ConvergenceWarning, stacklevel=4)
    return pairs


def _reported(pairs: Eigenpairs) -> Eigenpairs:
    if not bool(pairs.converged.all()):
        warnings.warn(
            f"{int((~pairs.converged).sum())} of {len(pairs)} eigenpairs did not reach the tolerance after "
            f"{pairs.num_products} products; the largest residual is {float(pairs.residuals.max()):.2g}.\n"
            f"  - Raise max_products, basis_size or the tolerance; {pairs.vectors.dtype} limits what can be reached.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return pairs


def _check_search(A: Operator, k: int, which: str, block_size: int, capacity: int, max_products: int) -> None:
    if which not in ENDS:
        raise ArgumentError(
            f"which={which!r} was given.",
            "It names an end of the spectrum.",
            "Choose 'largest', 'smallest', 'magnitude' or 'both'.",
        )
    if (
        block_size < 1
        or capacity < min(A.size, k + 2 * block_size + 1)
        or max_products < min(A.size, 2 * k + block_size)
    ):
        raise ArgumentError(
            f"block_size={block_size}, basis_size={capacity} and max_products={max_products} were given for k={k}.",
            "The basis holds k vectors, two blocks and one more; k pairs take k products, their certificate k more.",
            f"Allow basis_size={k + 2 * block_size + 1} and max_products={2 * k + block_size}, or leave them out.",
        )
