"""The memory that a solver will take, known before it starts: bytes of vectors, including those of a product."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from ..arguments import bare
from ..errors import ArgumentError
from ..operators import Operator
from ..spectrum import Eigenpairs
from . import diagonals, eigen, linear_systems, operator_functions, operator_norms, quadratures, ranks, sketches, traces
from .conditioning import condition_number
from .corrections import near_capacity
from .densities import spectral_density
from .determinants import DENSE, SEARCH, log_determinant
from .lanczos_recursion import VECTORS, lanczos
from .masses import negative_mass
from .probes import BLOCK
from .small_matrices import COPIES as EXACT
from .vectors import room

COPIES = {"probe": 3, "basis": 12, "sketch": 24}  # in float64, of the matrix that each of these has in its own space


def memory_needed(solver: Callable[..., Any], A: Operator, *arguments: Any, **options: Any) -> float:
    """The most bytes that solver(A, ...) will hold, besides what a product with A takes internally.

    Solvers stay within `A.room`, and so does this number; if no room is known, it is what they would take freely.

    >>> A = ritz.Operator(lambda V: V, 10**7, torch.float32, torch.device("cpu"))
    >>> round(ritz.solvers.memory_needed(ritz.eigenpairs, A, 10) / 4e7)  # vectors of ten million numbers
    128
    >>> round(ritz.solvers.memory_needed(ritz.spectral_density, A, num_probes=3) / 4e7)
    12

    Args:
        solver: `eigenpairs`, `spectral_density`, `trace`, `effective_rank`, `log_determinant`, `negative_mass`,
            `hutchinson`, `subspace_iteration`, `lanczos`, `solve`, `diagonal`, `norm`, `function` or
            `condition_number`.
        A: The operator.
        arguments: What the solver takes after it.
        options: What it takes by name.
    """
    solver = bare(solver)
    if solver not in _VECTORS:
        names = ", ".join(sorted(known.__name__ for known in _VECTORS))
        raise ArgumentError(
            f"The memory of {getattr(solver, '__name__', solver)!r} was requested.",
            "Only the memory of a solver can be predicted.",
            f"Pass one of {names}.",
        )
    try:
        inspect.signature(solver).bind(A, *arguments, **options)
    except TypeError as error:
        raise ArgumentError(
            f"{solver.__name__} was given {len(arguments) + 1} arguments and {', '.join(options) or 'none'} by name.",
            f"It cannot be called like this: {error}.",
            "Pass the arguments that the solver itself takes.",
        ) from None
    return _VECTORS[solver](A, *arguments, **options) * A.size * torch.finfo(A.dtype).bits / 8


def _beside(A: Operator, kind: str, rows: float, count: float = 1) -> float:
    """The small matrices with this many rows, in units of vectors of A."""
    return COPIES[kind] * count * min(rows, A.size) ** 2 / A.size * 64 / torch.finfo(A.dtype).bits


def _of_eigenpairs(
    A: Operator, k: int, *, block_size: int = 1, basis_size: int | None = None, precision: str = "own", **_: Any
) -> float:
    if A.size <= (basis_size or eigen.SMALL):
        return EXACT * A.size
    basis = eigen.basis_for(A, k, block_size, basis_size)
    own = 2 * max(block_size, eigen.columns_for(A, k, basis))
    near = 2 * near_capacity(k, basis, room(A)) if precision == "mixed" else 0.0
    search = basis * 17 / 16 + 2 + near  # with the pieces in which vectors are mixed
    return (search if basis_size else max(basis, min(search, max(room(A), near)))) + own + _beside(A, "basis", basis)


def _of_iteration(A: Operator, k: int, num_iterations: int = 1, **_: Any) -> float:
    return 6 * k + _beside(A, "basis", k)


def _of_density(
    A: Operator,
    *,
    num_probes: int | None = None,
    num_steps: int | None = None,
    tolerance: float | None = None,
    max_products: int | None = None,
    outliers: int | Eigenpairs = 0,
    **_: Any,
) -> float:
    """The vectors of a density; with a tolerance, of all probes it may take, or of the matrix if that is cheaper."""
    if tolerance is None:
        return _of_probes(A, num_probes=num_probes or 8, num_steps=num_steps or 128, outliers=outliers)
    limit = max_products or quadratures.MOST
    least = quadratures.FIRST[1]
    dense = quadratures.COPIES * A.size if A.size <= min(limit, quadratures.DENSE) else 0
    most = max(1, limit // least)
    probes = _of_probes(A, num_probes=most, num_steps=least, outliers=outliers)
    probes += _bases(A, most, least, _count(outliers)) / 2  # one is lengthened beside what it was
    return (dense if dense <= room(A) else 0) + probes + _beside(A, "probe", limit / 2, 2)


def _of_probes(
    A: Operator, *, num_probes: int = 8, num_steps: int = 128, outliers: int | Eigenpairs = 0, **_: Any
) -> float:
    """Four vectors for each probe, as many in step as fit, and bases of as many as fit where every step is made."""
    count = _count(outliers)
    most = min(num_probes, max(1, int((room(A) - count) / VECTORS)) if room(A) < float("inf") else num_probes)
    probes = most * VECTORS + _bases(A, num_probes, num_steps, count) + count
    small_matrices = _beside(A, "probe", num_steps, num_probes)
    search = _of_eigenpairs(A, count) if count and not isinstance(outliers, Eigenpairs) else 0.0
    return max(probes + small_matrices, search)


def _count(outliers: int | Eigenpairs) -> int:
    return len(outliers) if isinstance(outliers, Eigenpairs) else outliers


def _bases(A: Operator, num_probes: int, num_steps: int, outliers: int) -> float:
    """The bases of all probes that fit, for a matrix small enough to make all steps; else none are kept."""
    left = A.size - outliers
    return min(num_probes, room(A) // (left + VECTORS)) * left if left <= max(quadratures.SMALL, num_steps) else 0.0


def _of_determinant(A: Operator, *, num_probes: int = 8, num_steps: int = 128, **options: Any) -> float:
    """The matrix itself, where n products are allowed or prove it positive definite; a search for larger ones."""
    probes = _of_probes(A, num_probes=num_probes, num_steps=num_steps)
    if A.size <= max(SEARCH, min(num_probes * num_steps, DENSE)) and 3 * A.size <= room(A):
        return probes + EXACT * A.size
    return max(probes, _of_eigenpairs(A, 1))


def _of_trace(A: Operator, *, num_products: int | None = None, **_: Any) -> float:
    budget = num_products or traces.DEFAULT_PRODUCTS
    has_room = budget >= 2 and traces.KEPT * (budget // 2) <= room(A)
    return _of_sketch(A, traces.KEPT, budget) if has_room else _of_signs(A, num_products=budget)


def _of_rank(A: Operator, *, num_products: int = 100, **_: Any) -> float:
    has_room = sketches.has_room(A, num_products)
    return _of_sketch(A, sketches.KEPT, num_products) if has_room else _of_signs(A, num_products=num_products)


def _of_sketch(A: Operator, vectors: int, num_products: int) -> float:
    """A sketch with this many vectors for each of its probes, of which there are half as many as products."""
    return vectors * (num_products // 2) + _beside(A, "sketch", num_products // 2)


def _of_signs(A: Operator, *, num_products: int = 100, **_: Any) -> float:
    return 4 * min(num_products, BLOCK, max(1, room(A) / 4))


def _of_lanczos(A: Operator, starts: Any, num_steps: int, *, keep_basis: bool = False, **_: Any) -> float:
    probes = 1 if starts.ndim == 1 else starts.shape[1]
    return probes * (VECTORS + (num_steps if keep_basis else 0))


def _of_solve(A: Operator, b: Any, **_: Any) -> float:
    """All x, and what goes in step: by conjugate gradients, or by MINRES after them."""
    sides = 1 if b.ndim == 1 else b.shape[1]
    most = min(sides, max(1, int(min(sides, room(A) / linear_systems.VECTORS))))
    later = min(most, max(1, int(min(sides, room(A) / linear_systems.MINRES_VECTORS))))
    return sides + max(most * linear_systems.VECTORS, later * linear_systems.MINRES_VECTORS + 2 * most)


def _of_diagonal(A: Operator, *, num_products: int = 100, **_: Any) -> float:
    if num_products < A.size and sketches.has_room(A, num_products):
        return _of_sketch(A, sketches.KEPT, num_products)
    return 3 + _of_signs(A, num_products=num_products)


def _of_norm(A: Operator, ord: str | int = "fro", *, num_products: int | None = None, **_: Any) -> float:
    if ord == 2:
        return _of_eigenpairs(A, 1)
    if ord == "nuc":
        budget = num_products or operator_norms.NUCLEAR
        if A.size <= min(max(budget, eigen.SMALL), DENSE) and 3 * A.size <= room(A):
            return EXACT * A.size
        probes, steps = operator_norms.probes_and_steps(A, budget)
        return _of_probes(A, num_probes=probes, num_steps=steps)
    return _of_rank(A, num_products=num_products or 100)


def _of_function(A: Operator, f: Any, v: Any, *, max_steps: int | None = None, **_: Any) -> float:
    sides = 1 if v.ndim == 1 else v.shape[1]
    basis = operator_functions.basis_for(A, sides, max_steps)
    most = sides if basis else operator_functions.most_for(A, sides)
    return sides + most * (basis + operator_functions.VECTORS + 1)


def _of_condition_number(A: Operator, **_: Any) -> float:
    return _of_eigenpairs(A, min(2, A.size))


_VECTORS: dict[Callable[..., Any], Callable[..., float]] = {
    eigen.eigenpairs: _of_eigenpairs,
    eigen.subspace_iteration: _of_iteration,
    spectral_density: _of_density,
    negative_mass: _of_probes,
    log_determinant: _of_determinant,
    traces.trace: _of_trace,
    traces.hutchinson: _of_signs,
    ranks.effective_rank: _of_rank,
    lanczos: _of_lanczos,
    linear_systems.solve: _of_solve,
    diagonals.diagonal: _of_diagonal,
    operator_norms.norm: _of_norm,
    operator_functions.function: _of_function,
    condition_number: _of_condition_number,
}
