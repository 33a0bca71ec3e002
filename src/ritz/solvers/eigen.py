"""Eigenpairs of an operator that is known by its products alone, each with the residual that certifies it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .. import progress
from ..errors import (
    ArgumentError,
    ConvergenceWarning,
    check_instance,
    check_positive,
    check_tolerance,
    check_whole,
    warn_user,
)
from ..operators import Operator
from ..record.checkpoints import State
from ..record.layouts import check_arrays, check_facts, like
from ..spectrum import Eigenpairs
from .goals import Goal
from .mixed_precision import mixed_lanczos
from .probes import gaussian, source
from .resumption import Resumption
from .ritz_pairs import ENDS, as_eigenpairs, rayleigh_ritz
from .small_matrices import columns, decomposition, pairs_of
from .thick_restart import restarted_lanczos
from .vectors import as_rows, check_range, check_starts, norms, product, room

PRECISIONS = ("own", "mixed")
SMALL = 500  # sizes solved exactly: five of the least bases, in columns that are multiplied together


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
    precision: str = "own",
    copies: bool = True,
    checkpoint: str | Path | None = None,
) -> Eigenpairs:
    """The k requested eigenpairs, ‖A v - λ v‖ ≤ tolerance · max|λ|, by thick-restart block Lanczos.

    "both" gives the ⌈k/2⌉ largest, then the ⌊k/2⌋ smallest, each from its end. Wu and Simon (2000), with full
    reorthogonalisation, so that no eigenvalue appears twice.

    Guaranteed: each pair is one of A, to its residual. That none is missed is certain only where n products solve the
    problem exactly: for n ≤ 500 without a basis_size, or n ≤ basis_size, if max_products allows n. In larger spaces a
    search sees one copy of a multiple eigenvalue for each column of `block_size`, and further copies only through
    rounding. It therefore looks for more copies, with random vectors orthogonal to the pairs found until nothing new
    appears, in three cases: if the explored space is invariant, if two requested values agree and another one follows
    further inside, and if zero is among the smallest requested. At the end, at most ten products more (or a tenth of
    those so far) with a random vector orthogonal to all pairs either show that a pair was missed, and the search goes
    on, or bound the chance of that: `doubts` holds it for each value. It is small for values that stand apart from the
    rest, and near one for those of a bulk.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.tensor([1.0, 2.0, 3.0, 9.0])))
    >>> ritz.eigenpairs(A, 2).values.round(decimals=3)
    tensor([9., 3.])
    >>> ritz.eigenpairs(A, 2, which="both").values.round(decimals=3)
    tensor([9., 1.])

    Args:
        A: Symmetric operator.
        k: How many, at most its size.
        which: The requested end of the spectrum, which comes first in the result: "largest", "smallest", "both", or
            "magnitude" for the largest |λ|.
        tolerance: Relative to the largest |λ| seen.
        start: A vector, columns, or the Eigenpairs of a similar operator, in the precision and place of A.
        generator: Source of the start vector; without it, a new generator with seed 0.
        block_size: Columns multiplied at a time.
        max_products: When to give up, with a ConvergenceWarning and `converged` False; 10 bases unless given.
        basis_size: Vectors kept, at most. Unless given: max(4k + 20, 100), or what the operator's `room` allows;
            2k + 5 where it allows too little; and all n where n ≤ 500. A smaller basis finds the same pairs, with more
            products.
        fresh_products: What the certificate may cost. With k, the default, each residual is recomputed from its own
            product. With fewer, each is the recursion's, enlarged by the error that random combinations reveal.
        precision: With "mixed", the search multiplies with the operator's cheaper `rough` one (curvature of a float32
            risk on a GPU has one: TF32 in the linear maps), and products with A itself correct what it leads to and
            certify it: the residuals are those of A, to the same tolerance. It pays down to tolerances of about a tenth
            of the rough operator's relative error. One that is not near A, on a random vector, is not used.
        checkpoint: A file from which a search that was killed goes on to the same bits; started again when it is over,
            it reads its result there. Unless a basis_size is given, 2k + 12 vectors are kept at most, which are written
            every half minute, or less often where that would take a twentieth of the time. It belongs to this operator
            and these arguments: any other is refused. Where n products solve the problem exactly, or in mixed
            precision, only the result is written.
        copies: Whether the last products look for eigenvalues that were missed; without them, `doubts` is None.
    """
    counts = {"max_products": max_products, "basis_size": basis_size, "fresh_products": fresh_products}
    check_whole(block_size=block_size, **counts)
    check_positive("Where it is given, it must be a positive number.", **counts)
    _check_count(A, k)
    check_tolerance(tolerance)
    capacity = basis_for(
        A, k, block_size, basis_size if checkpoint is None else basis_size or kept_basis(k, block_size)
    )
    limit = max_products or 10 * max(capacity, usual_basis(k))
    fresh = k if fresh_products is None else min(fresh_products, k)
    _check_search(A, k, which, block_size, capacity, limit)
    rough = _rough_operator(A, precision)
    rows, random = None if start is None else _start_rows(A, start), source(generator)
    settings = (k, which, tolerance, block_size, capacity, limit, fresh, precision, copies, rows)
    file = Resumption.of(checkpoint, A, "eigenpairs", random, settings=settings)
    if file is not None and file.is_over:
        return file.read(partial(_read_pairs, A, k, random))
    if A.size <= min(capacity if basis_size else max(capacity, SMALL), limit):
        pairs = _exact(A, k, which, tolerance)
    else:
        columns = columns_for(A, k, capacity)
        goal = Goal(k, which, tolerance, block_size, capacity, limit, fresh, columns, room(A), copies)
        if rough is None:
            pairs = restarted_lanczos(A, goal, rows, random, file)
        else:
            pairs = mixed_lanczos(A, rough, goal, rows, random)
    if file is not None:
        file.keep(partial(_written_pairs, pairs, random), over=True)
    _warn_of_residuals(pairs)
    return pairs


def _written_pairs(pairs: Eigenpairs, generator: torch.Generator) -> State:
    """The result for a file, with the final state of the generator."""
    arrays, header = pairs.state()
    return {**arrays, "generator": generator.get_state()}, header


def _read_pairs(
    A: Operator, k: int, generator: torch.Generator, arrays: Mapping[str, Tensor], header: Mapping[str, Any]
) -> Eigenpairs:
    """A result from its file, on the operator's device; the generator resumes from its state at that time."""
    check_facts(header, size=range(A.size, A.size + 1), has_doubts=bool)
    check_facts(header, num_products=range(k, 2**63), basis_size=range(k, 2**63), num_rough_products=range(2**63))
    numbers = ("values", "residuals", *(("doubts",) if header["has_doubts"] else ()))
    layout = {name: like(A.dtype, k) for name in numbers} | {"vectors": like(A.dtype, A.size, k)}
    check_arrays(arrays, layout | {"converged": like(torch.bool, k), "generator": generator.get_state()})
    tensors = {name: array.to(A.device) for name, array in arrays.items() if name != "generator"}
    tensors["vectors"] = tensors["vectors"].T.contiguous().T  # contiguous rows, as a search leaves them
    pairs = Eigenpairs.of_state(tensors, header)
    generator.set_state(arrays["generator"])
    return pairs


def kept_basis(k: int, block_size: int = 1) -> int:
    """The size of the basis in a search that writes it to a file from time to time."""
    return max(2 * k + 12, least_basis(k, block_size))


def least_basis(k: int, block_size: int = 1) -> int:
    """The least size of a basis for k pairs: with a smaller one, a search would restart without progress."""
    return k + 2 * block_size + 1


def basis_for(A: Operator, k: int, block_size: int, basis_size: int | None) -> int:
    """The size of the basis: as given, else the usual size or what there is room for."""
    return min(A.size, basis_size or min(usual_basis(k), _largest_basis(A, k, block_size, room(A))))


def columns_for(A: Operator, k: int, basis_size: int) -> int:
    """How many pairs are certified at a time, each of which takes a product and a copy besides the basis."""
    return int(min(k, max(1, (room(A) - basis_size) / 2)))


def _largest_basis(A: Operator, k: int, block_size: int, vectors: float) -> int:
    """The basis that fits into this many vectors, beside those of a step and a restart; 2k + 5 if they are too few."""
    if vectors == math.inf:
        return A.size
    if vectors < least_basis(k, block_size) + block_size:  # no search fits: the smallest basis that converges
        return 2 * k + 3 + 2 * block_size
    return int(vectors - max(block_size, vectors / 16))


def usual_basis(k: int) -> int:
    """The usual size of the basis for k pairs: large enough to restart seldom."""
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

    Costs kT products; `eigenpairs` needs far fewer. Papyan (2020), Alg. 5, whose λ = ‖v‖ loses the sign and is no Ritz
    value; Papyan (2019), Alg. 5. The residuals come from the last product; a generator with seed 0 is used unless one
    is given.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.tensor([1.0, 2.0, 3.0, 9.0])))
    >>> ritz.solvers.subspace_iteration(A, 1, 20).values.round(decimals=3)
    tensor([9.])
    """
    check_whole(num_iterations=num_iterations)
    _check_count(A, k)
    check_tolerance(tolerance)
    if num_iterations < 1:
        raise ArgumentError(
            f"num_iterations={num_iterations} was given.", "The search needs at least one.", "Ask for 1 or more."
        )
    V = gaussian(A, k, source(generator))
    if start is not None:
        rows = _start_rows(A, start)[:k]
        V[: len(rows)] = rows / norms(rows)[:, None].to(rows)
    with progress.bar("Subspace iteration", total=num_iterations) as bar:
        for _ in range(num_iterations):
            Q = torch.linalg.qr(V.T).Q.T.contiguous()
            V = product(A, Q)
            check_range(V)
            bar.advance(products=k)
    values, vectors, residuals = rayleigh_ritz(Q, V, "magnitude")
    limit = tolerance * float(values.abs().max())
    return as_eigenpairs(values, vectors, residuals, limit, k * num_iterations, k)


def _exact(A: Operator, k: int, which: str, tolerance: float) -> Eigenpairs:
    """The requested eigenpairs of a small operator, from its n columns."""
    D = columns(A)
    return pairs_of(D, decomposition(D), k, which, tolerance)


def _start_rows(A: Operator, start: Float[Tensor, "n ..."] | Eigenpairs) -> Float[Tensor, "s n"]:
    """A vector, columns or the vectors of Eigenpairs as rows."""
    name, V = ("start.vectors", start.vectors) if isinstance(start, Eigenpairs) else ("start", start)
    check_instance(Tensor, "Pass a vector (n,), columns (n, s) or Eigenpairs, or leave it out.", start=V)
    check_starts(A, **{name: V})
    return as_rows(V)


def _rough_operator(A: Operator, precision: str) -> Operator | None:
    """The operator that a search in mixed precision multiplies with; None for a search in A's own."""
    if precision not in PRECISIONS:
        raise ArgumentError(
            f"precision={precision!r} was given.",
            "It says which products the search uses.",
            "Choose 'own' for those of A alone, or 'mixed' for cheaper ones first.",
        )
    if precision == "mixed" and A.rough is None:
        raise ArgumentError(
            "precision='mixed' was requested, but the operator has no cheaper products than its own.",
            "Curvature has cheaper ones on a GPU with TF32, for a risk in float32 with tangent_precision='highest'.",
            "Leave precision out: the residuals are the same.",
            "Supply them: dataclasses.replace(A, rough=Operator(...)), for a matrix that is nearly A.",
        )
    return A.rough if precision == "mixed" else None


def _check_count(A: Operator, k: int) -> None:
    """Refuse more eigenpairs than there are, and none."""
    check_whole(k=k)
    if k is None or not 1 <= k <= A.size:
        raise ArgumentError(
            f"k={k} eigenpairs of an operator of size {A.size} were requested.",
            "An n × n matrix has n of them.",
            f"Ask for 1 to {A.size}.",
        )


def _check_search(A: Operator, k: int, which: str, block_size: int, capacity: int, max_products: int) -> None:
    if which not in ENDS:
        raise ArgumentError(
            f"which={which!r} was given.",
            "It says which end of the spectrum is sought.",
            "Choose 'largest', 'smallest', 'magnitude' or 'both'.",
        )
    if (
        block_size < 1
        or capacity < min(A.size, least_basis(k, block_size))
        or max_products < min(A.size, 2 * k + block_size)
    ):
        raise ArgumentError(
            f"block_size={block_size}, basis_size={capacity} and max_products={max_products} were given for k={k}.",
            "The basis holds k vectors, two blocks and one more; k pairs take k products, and checking them k more.",
            f"Allow basis_size={least_basis(k, block_size)} and max_products={2 * k + block_size}, or leave them out.",
        )


def _warn_of_residuals(pairs: Eigenpairs) -> None:
    if not bool(pairs.converged.all()):
        warn_user(
            f"{int((~pairs.converged).sum())} of {len(pairs)} eigenpairs did not reach the tolerance after "
            f"{pairs.num_products} products; the largest residual is {float(pairs.residuals.max()):.2g}.\n"
            f"  - Raise max_products, basis_size or the tolerance; {pairs.vectors.dtype} limits what can be reached.",
            ConvergenceWarning,
        )
