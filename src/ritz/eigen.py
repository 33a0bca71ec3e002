"""Eigenpairs of an operator that is known by its products alone, each certified by a fresh product.

A product may cost seconds, so the basis is kept large and orthogonal, and the search stops as soon as the residual
estimates allow. Vectors are kept as rows: each is contiguous, and `A @ rows.T` hands the engine its columns.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from . import progress
from .errors import ArgumentError, NumericalError
from .operators import Operator
from .spectrum import ConvergenceWarning, Eigenpairs, Estimate

Which = Literal["largest", "smallest", "magnitude", "both"]

PIECE = 2**20  # coordinates turned to float64 at a time: 8 MB for each vector
ROWS = 16  # basis vectors allocated at a time: a large GPU basis grows as far as it is needed
NOVELTY = 0.1  # share of a random direction in a warm start: without it a new eigenvector could never be seen
SAFETY = 0.9  # of the tolerance, left to the rounding between an estimated residual and the fresh one
ATTEMPTS = 3  # certificates asked for before what remains of a residual is taken for rounding


def eigenpairs(
    A: Operator,
    k: int,
    *,
    which: Which = "largest",
    tolerance: float = 1e-4,
    start: Float[Tensor, "n *s"] | Eigenpairs | None = None,
    generator: torch.Generator | None = None,
    block_size: int = 1,
    max_products: int | None = None,
    basis_size: int | None = None,
) -> Eigenpairs:
    """The k wanted eigenpairs, ‖A v - λ v‖ ≤ tolerance · max|λ|, by thick-restart block Lanczos.

    "both" gives the ⌈k/2⌉ largest, then the ⌊k/2⌋ smallest, each from its end. A space that fits into the basis is
    solved exactly, with n products. In larger ones, copies of a multiple eigenvalue are sure to be seen up to
    `block_size`. The residuals come from k fresh products. Wu and Simon (2000), Alg. 3, with full
    reorthogonalisation, so that no eigenvalue appears twice.

    Args:
        A: Symmetric operator.
        k: How many, at most its size.
        which: The wanted end of the spectrum; it comes first in the result.
        tolerance: Relative to the largest |λ| seen.
        start: A vector, columns, or the Eigenpairs of a similar operator.
        generator: Source of the start vector; without it, a new generator with seed 0.
        block_size: Columns multiplied at a time.
        max_products: When to give up, with a ConvergenceWarning and `converged` False; 10 bases unless given.
        basis_size: Vectors kept, at most; max(4k + 20, 100) unless given.
    """
    capacity = min(A.size, basis_size or max(4 * k + 20, 100))
    limit = max_products or 10 * max(capacity, 100)
    _check_search(A, k, which, block_size, capacity, limit)
    rows = None if start is None else _start_rows(A, start)
    if A.size <= min(capacity, limit):
        return _reported(_exact(A, k, which, tolerance))
    search = _Search.begun(A, rows, generator or torch.Generator().manual_seed(0), block_size)
    return _reported(_found(A, search, _Goal(k, which, tolerance, capacity, limit)))


def subspace_iteration(
    A: Operator,
    k: int,
    num_iterations: int,
    *,
    tolerance: float = 1e-4,
    start: Float[Tensor, "n *s"] | Eigenpairs | None = None,
    generator: torch.Generator | None = None,
) -> Eigenpairs:
    """The k eigenpairs of largest |λ| from Q ← qr(A Q), T times, and Rayleigh-Ritz: QᵀAQ = SΛSᵀ, vectors QS.

    Costs kT products; `eigenpairs` needs far fewer. Papyan (2020), Alg. 5, whose λ = ‖v‖ loses the sign and is no
    Ritz value. The residuals come from the last product; a generator with seed 0 is used unless one is given.
    """
    _check_count(A, k)
    if num_iterations < 1:
        raise ArgumentError(
            f"num_iterations={num_iterations} was given.", "Ritz values need a product.", "Ask for 1 or more."
        )
    V = gaussian(A, k, generator or torch.Generator().manual_seed(0))
    if start is not None:
        given = _start_rows(A, start)[:k]
        V[: len(given)] = given
    with progress.bar("Subspace iteration", total=num_iterations) as bar:
        for _ in range(num_iterations):
            Q = torch.linalg.qr(V.T).Q.T.contiguous()
            V = product(A, Q)
            bar.advance(products=k)
    values, vectors, residuals = _rayleigh_ritz(Q, V, "magnitude")
    return _pairs(values, vectors, residuals, tolerance * float(values.abs().max()), k * num_iterations)


def condition_number(
    A: Operator,
    *,
    damping: float = 0.0,
    tolerance: float = 1e-2,
    max_products: int | None = None,
    generator: torch.Generator | None = None,
) -> Estimate:
    """κ(A + μ) = (λ_max + μ)/(λ_min + μ) of a positive definite A + μ.

    Its error is no Monte Carlo error: it is the largest that the certified residuals of both ends allow, and at most
    `tolerance` relative unless a ConvergenceWarning says otherwise. An A + μ that is not positive definite, or
    not provably so in this precision, is refused.
    """
    shifted = A + damping if damping else A
    eps, budget = torch.finfo(A.dtype).eps, max_products or 10 * max(100, min(A.size, 1000))
    aim, spent, pairs = 1e-4, 0, None
    while True:  # the smallest eigenvalue is known only when its residual is small against itself
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            pairs = eigenpairs(
                shifted, min(2, A.size), which="both", tolerance=aim, start=pairs, generator=generator,
                max_products=max(8, budget - spent),
            )  # fmt: skip
        spent += pairs.num_products
        (high, low), (above, below) = _ends(pairs.values), _ends(pairs.residuals)
        if below + above <= 0.5 * tolerance * abs(low) or low + below < 0 or aim <= 4 * eps or spent >= budget:
            break
        aim = max(4 * eps, min(0.1 * aim, 0.1 * tolerance * abs(low) / high if high > 0 else eps))
    if low - below <= 4 * eps * abs(high):
        raise _not_positive(low, below, damping)
    error = high / low * (above / high + below / (low - below))
    if error > tolerance * high / low:
        warnings.warn(f"κ = {high / low:.3g} is known to ± {error:.2g} only.", ConvergenceWarning, stacklevel=2)
    return Estimate(high / low, error, spent)


def gaussian(A: Operator, count: int, generator: torch.Generator) -> Float[Tensor, "count n"]:
    """Independent normal rows in the operator's precision and place; a CPU generator serves every device."""
    rows = torch.randn(count, A.size, generator=generator, dtype=A.dtype, device=generator.device)
    return rows.to(A.device)


def product(A: Operator, rows: Float[Tensor, "p n"]) -> Float[Tensor, "p n"]:
    """(A Vᵀ)ᵀ for vectors in rows."""
    return (A @ rows.T).T.contiguous()


def norms(rows: Float[Tensor, "p n"]) -> Float[Tensor, " p"]:
    """The Euclidean norm of each row, in float64: neither 1e-30 nor 1e+30 is lost in float32 squares."""
    return torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64)


def inner(X: Float[Tensor, "a n"], Y: Float[Tensor, "b n"]) -> Float[Tensor, "a b"]:
    """X Yᵀ summed in float64, on the CPU."""
    pieces = zip(X.split(PIECE, dim=1), Y.split(PIECE, dim=1), strict=True)
    return torch.stack([x.double() @ y.double().T for x, y in pieces]).sum(0).cpu()


def rounding(A: Operator) -> float:
    """Relative size of a residual that is nothing but rounding.

    Not n · eps: for a million parameters in float32 that is 0.1, and real residuals of a bulk are smaller.
    """
    return min(max(A.size, 8), 64) * torch.finfo(A.dtype).eps


@dataclass(frozen=True)
class _Goal:
    """What is looked for, and with what means."""

    k: int
    which: Which
    tolerance: float
    capacity: int
    max_products: int


class _Basis:
    """Orthonormal rows, in pieces of memory that are added as they are needed."""

    def __init__(self, A: Operator) -> None:
        self._empty = lambda: torch.empty(ROWS, A.size, dtype=A.dtype, device=A.device)
        self._pieces: list[Tensor] = []
        self.count = 0

    def append(self, row: Float[Tensor, " n"]) -> None:
        if self.count == ROWS * len(self._pieces):
            self._pieces.append(self._empty())
        self._pieces[self.count // ROWS][self.count % ROWS] = row
        self.count += 1

    def filled(self) -> list[Tensor]:
        """The pieces, cut to the rows in use."""
        cut = [piece[: max(0, self.count - ROWS * i)] for i, piece in enumerate(self._pieces)]
        return [piece for piece in cut if len(piece)]

    def last(self, num_rows: int) -> Float[Tensor, "b n"]:
        """The latest rows; one alone is not copied."""
        rows = [self._pieces[i // ROWS][i % ROWS] for i in range(self.count - num_rows, self.count)]
        return rows[0][None] if len(rows) == 1 else torch.stack(rows)

    def orthogonalised(self, W: Float[Tensor, "b n"]) -> tuple[Tensor, Tensor]:
        """W without its components along the basis, and these; twice is enough (Parlett 1998, Sec. 6.9)."""
        total = 0.0
        for _ in range(2):
            components = [W @ piece.T for piece in self.filled()]
            for C, piece in zip(components, self.filled(), strict=True):
                W = torch.addmm(W, C, piece, alpha=-1)
            total = total + torch.cat(components, dim=1).double()
        return W, torch.as_tensor(total).cpu()

    def combined(self, S: Float[Tensor, "j k"]) -> Float[Tensor, "k n"]:
        """Sᵀ Q for the first j rows Q."""
        weights = S.to(self._pieces[0]).split(ROWS)
        pieces = [piece[: len(w)] for piece, w in zip(self.filled(), weights, strict=False)]
        return torch.stack([w.T @ piece for w, piece in zip(weights, pieces, strict=True)]).sum(0)

    def rotate(self, S: Float[Tensor, "j k"]) -> None:
        """Replace the first j rows by Sᵀ Q in place, a piece of coordinates at a time; rows after them follow."""
        pending = [row.clone() for row in self.last(self.count - len(S))]
        full, self.count = self.filled(), len(S)
        S = S.to(full[0])
        for first in range(0, full[0].shape[1], PIECE):
            part = slice(first, first + PIECE)
            mixed = S.T @ torch.cat([piece[:, part] for piece in full])[: len(S)]
            for piece, new in zip(self._pieces, mixed.split(ROWS), strict=False):
                piece[: len(new), part] = new
        self.count = S.shape[1]
        for row in pending:
            self.append(row)


@dataclass
class _Search:
    """The whole state of a search: A Q = Q H + P B for explored rows Q and the pending block P after them."""

    basis: _Basis
    generator: torch.Generator
    block_size: int
    H: Float[Tensor, "j j"] = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.float64))
    B: Float[Tensor, "b b"] = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.float64))
    locked: int = 0  # leading rows that span an invariant space
    seen: Tensor | None = None  # the wanted values when rows were last locked
    scale: float = 0.0  # largest ‖A q‖
    num_products: int = 0
    certificates: int = 0

    @property
    def explored(self) -> int:
        return len(self.H)

    @property
    def invariant(self) -> bool:
        """Whether A maps the explored space into itself."""
        return not bool(self.B.any())

    @classmethod
    def begun(cls, A: Operator, start: Tensor | None, generator: torch.Generator, block_size: int) -> _Search:
        """A search whose pending block is random, or the warm start with a share of it random."""
        search = cls(_Basis(A), generator, block_size)
        block = gaussian(A, block_size, generator)
        block /= norms(block)[:, None].to(block)
        if start is not None:
            mixed = torch.stack([start[i::block_size].sum(0) for i in range(min(block_size, len(start)))])
            mixed /= norms(mixed)[:, None].to(mixed)
            block[: len(mixed)] = mixed + NOVELTY * block[: len(mixed)]
        search._extend(A, block)
        return search

    def step(self, A: Operator) -> None:
        """Multiply the pending block, extend H by its components, and make the rest the new pending block."""
        width = self.basis.count - self.explored
        W = product(A, self.basis.last(width))
        self.num_products += width
        self.scale = max(self.scale, float(norms(W).max()))
        _check_finite(self.scale)
        W, C = self.basis.orthogonalised(W)
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
        last = Y[len(Y) - self.B.shape[1] :] if self.B.numel() else Y[:0]
        residuals = (self.B @ last).norm(dim=0) if self.B.numel() else torch.zeros_like(values)
        return torch.cat([inner_values, values]), torch.block_diag(S, Y), torch.cat([0 * inner_values, residuals])

    def restart(self, goal: _Goal) -> None:
        """Keep the better half of the Ritz vectors: A Q = Q Θ + P B' still holds, and so does all that follows."""
        values, S, _ = self.ritz()
        num_kept = min(goal.k + (goal.capacity - goal.k) // 2, goal.capacity - 2 * self.block_size)
        kept = ranking(values, goal.which)[:num_kept].sort().values  # locked ones stay in front
        self.basis.rotate(S[:, kept])
        self.H, self.locked = torch.diag(values[kept]), int((kept < self.locked).sum())

    def lock(self, wanted: Tensor | None) -> None:
        """Set the invariant space aside; the pending block, random, starts another one orthogonal to it."""
        self.locked, self.seen = self.explored, wanted

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
        new, total = self.basis.last(self.basis.count - first), 0.0
        for _ in range(2):
            C = new @ row
            row, total = row - C @ new, total + C.double()
        return row, torch.as_tensor(total).cpu()

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
            spent = search.num_products + search.block_size + goal.k > goal.max_products
            residual, settled = _progress(A, search, goal)
            bar.advance(search.block_size, products=search.num_products, residual=residual)
            if settled or spent:
                pairs = _certificate(A, search, goal)
                exhausted = search.num_products + search.block_size + goal.k > goal.max_products
                if bool(pairs.converged.all()) or exhausted or search.certificates == ATTEMPTS:
                    return pairs


def _progress(A: Operator, search: _Search, goal: _Goal) -> tuple[float, bool]:
    """The largest wanted residual, relative, and whether it is worth a certificate."""
    j = search.explored
    if search.invariant and j < goal.k:
        search.lock(None)
    if j < goal.k or (not search.invariant and j > 200 and j % (j // 100) and j + search.block_size <= goal.capacity):
        return math.nan, False  # a test costs j³, and late ones rarely bring news
    values, _, residuals = search.ritz()
    order, scale = ranking(values, goal.which), float(values.abs().max())
    wanted = order[: goal.k]
    limit = SAFETY * max(goal.tolerance, 4 * torch.finfo(A.dtype).eps) * 0.1**search.certificates * scale
    worst = float(residuals[wanted].max())
    settled = worst <= limit
    if search.invariant and j < A.size:  # copies of multiple eigenvalues may be left outside: look until none appears
        settled = search.seen is not None and torch.allclose(values[wanted], search.seen, rtol=0.0, atol=limit)
        if not settled:
            search.lock(values[wanted])
    elif search.locked:  # what leads the new space must be known, wanted or not
        leaders = order[order >= search.locked][: 2 if goal.which == "both" else 1]
        settled &= bool((residuals[leaders] <= limit).all())
    return worst / scale if scale else 0.0, settled


def _certificate(A: Operator, search: _Search, goal: _Goal) -> Eigenpairs:
    """Rayleigh-Ritz and residuals from k fresh products."""
    values, S, _ = search.ritz()
    X = _orthonormal(search.basis.combined(S[:, ranking(values, goal.which)[: goal.k]]))
    AX = product(A, X)
    search.num_products += len(X)
    search.certificates += 1
    found, vectors, residuals = _rayleigh_ritz(X, AX, goal.which)
    scale = max(float(values.abs().max()), float(found.abs().max()))
    return _pairs(found, vectors, residuals, goal.tolerance * scale, search.num_products)


def _exact(A: Operator, k: int, which: Which, tolerance: float) -> Eigenpairs:
    """All eigenpairs of a small operator from its n columns, cut to the wanted ones."""
    D = A.dense()
    _check_finite(float(D.abs().max()))
    values, vectors = torch.linalg.eigh((D + D.T).double() / 2)
    wanted = _presented(values, which, k)
    X = vectors[:, wanted].T.to(D)
    found, vectors, residuals = _rayleigh_ritz(X, (D.double() @ X.T.double()).T, which)
    return _pairs(found, vectors, residuals, tolerance * float(values.abs().max()), A.size)


def _rayleigh_ritz(X: Float[Tensor, "k n"], AX: Float[Tensor, "k n"], which: Which) -> tuple[Tensor, Tensor, Tensor]:
    """Ritz values, vectors (in rows) and true residuals of A on the span of orthonormal rows."""
    H = inner(X, AX)
    values, S = torch.linalg.eigh((H + H.T) / 2)
    order = _presented(values, which, len(values))
    values, S = values[order].to(X.device), S[:, order].to(X.device)
    vectors = S.T.to(X) @ X
    return values, vectors, norms(S.T.to(AX) @ AX - values[:, None].to(AX) * vectors.to(AX))


def _pairs(values: Tensor, vectors: Tensor, residuals: Tensor, limit: float, num_products: int) -> Eigenpairs:
    return Eigenpairs(values.to(vectors), vectors.T, residuals.to(vectors), residuals <= limit, num_products)


def _orthonormal(X: Float[Tensor, "k n"]) -> Float[Tensor, "k n"]:
    """Rows that are orthonormal but for rounding, made so to working precision: L⁻¹X with XXᵀ = LLᵀ."""
    L = torch.linalg.cholesky(inner(X, X))
    return torch.linalg.inv(L).to(X) @ X


def ranking(values: Float[Tensor, " j"], which: Which) -> Tensor:
    """Indices from the most to the least wanted; for "both", from either end in turn."""
    if which == "magnitude":
        return values.abs().argsort(descending=True, stable=True)
    order = values.argsort(descending=which != "smallest", stable=True)
    if which != "both":
        return order
    half = (len(order) + 1) // 2
    turns = torch.empty_like(order)
    turns[0::2], turns[1::2] = order[:half], order[half:].flip(0)
    return turns


def _presented(values: Tensor, which: Which, k: int) -> Tensor:
    """Indices of the k wanted values in the order they are returned in."""
    order = ranking(values, which)[:k]
    return torch.cat([order[0::2], order[1::2]]) if which == "both" else order


def _start_rows(A: Operator, start: Tensor | Eigenpairs) -> Float[Tensor, "s n"]:
    given = start.vectors if isinstance(start, Eigenpairs) else start
    rows = (given[:, None] if given.ndim == 1 else given).detach().to(A.device, A.dtype).T
    usable = given.ndim <= 2 and rows.shape[1] == A.size and rows.shape[0] > 0
    if not usable or not bool((rows.isfinite().all(1) & (norms(rows) > 0)).all()):
        raise ArgumentError(
            f"A start of shape {tuple(given.shape)} was given for an operator of size {A.size}.",
            "It must be a vector (n,) or columns (n, s), finite and without a zero column.",
            "Leave it out for a random start.",
        )
    return rows / norms(rows)[:, None].to(rows)


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


def _ends(pair: Tensor) -> tuple[float, float]:
    return float(pair[0]), float(pair[-1])


def _not_positive(low: float, below: float, damping: float) -> NumericalError:
    return NumericalError(
        f"The smallest eigenvalue of A + {damping:g} is {low:.3g} ± {below:.1g}.",
        "A condition number and a log-determinant need a positive definite matrix.",
        f"Add damping: a little more than {max(below - low, 0) + damping:.3g}.",
        "Study gauss_newton(risk), which has no negative eigenvalue, instead of the Hessian.",
    )


def _check_count(A: Operator, k: int) -> None:
    if not 1 <= k <= A.size:
        raise ArgumentError(
            f"k={k} eigenpairs of an operator of size {A.size} were asked for.",
            "An n × n matrix has n of them.",
            f"Ask for 1 to {A.size}.",
        )


def _check_search(A: Operator, k: int, which: str, block_size: int, capacity: int, max_products: int) -> None:
    _check_count(A, k)
    if which not in ("largest", "smallest", "magnitude", "both"):
        raise ArgumentError(
            f"which={which!r} was given.",
            "It names an end of the spectrum.",
            "Choose 'largest', 'smallest', 'magnitude' or 'both'.",
        )
    if block_size < 1 or capacity < min(A.size, k + 2 * block_size + 1) or max_products < min(A.size, 2 * k + block_size):
        raise ArgumentError(
            f"block_size={block_size}, basis_size={capacity} and max_products={max_products} were given for k={k}.",
            "The basis must hold k vectors, two blocks and one more; finding k pairs and certifying them takes 2k products.",
            f"Allow basis_size={k + 2 * block_size + 1} and max_products={2 * k + block_size} at least, or leave them out.",
        )


def _check_finite(number: float) -> None:
    if not math.isfinite(number):
        raise NumericalError(
            "A product with the operator is NaN or infinite.",
            "Every later number would be.",
            "Check the loss and the weights for NaN, or compute in float64.",
        )
