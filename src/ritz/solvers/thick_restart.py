"""Eigenpairs by block Lanczos with thick restarts: a `search`, which ends with a certificate by fresh products."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from .. import progress
from ..errors import ConvergenceWarning, warn_user
from ..operators import Operator
from ..spectrum import Eigenpairs
from .goals import ATTEMPTS, Goal
from .resumption import Resumption
from .ritz_pairs import as_eigenpairs, selection
from .search import Search
from .vectors import inner, mix, norms, orthonormalize, product, subtract


def restarted_lanczos(
    A: Operator,
    goal: Goal,
    start: Float[Tensor, "s n"] | None,
    generator: torch.Generator,
    file: Resumption | None = None,
) -> Eigenpairs:
    """Step, assess and restart until the requested pairs are certified or the products are spent."""
    search = resumed_or_new(A, goal, start, generator, file)
    with progress.bar("Eigenpairs") as bar:
        while True:
            settled = search.explore(A, goal, bar, file)
            pairs = _certificate(A, search, goal)
            certain = bool(pairs.converged.all())
            missed = False
            if certain:
                missed, pairs = search.look_outside(A, pairs, goal, bar)
            spent = goal.out_of_products(search.num_products)
            if (certain and not missed) or spent or search.certificates == ATTEMPTS:
                if missed or (not settled and (search.locked or search.suspect)):
                    warn_of_missing_copies(pairs)
                return pairs


def resumed_or_new(
    A: Operator, goal: Goal, start: Tensor | None, generator: torch.Generator, file: Resumption | None
) -> Search:
    """The search resumed from its file, or a new one."""
    if file is not None and file.under_way is not None:
        return file.read(lambda arrays, header: Search.of_state(A, goal, generator, arrays, header))
    return Search.from_start(A, goal, start, generator)


def _certificate(A: Operator, search: Search, goal: Goal) -> Eigenpairs:
    """The requested pairs, with residuals that fresh products vouch for; they stand first in the basis from now on."""
    values, coupling = search.condense(goal)
    limit, X = goal.tolerance * search.scale, search.basis.first()
    if goal.fresh_products < goal.k:
        values = values[: goal.k]
        residuals = coupling.norm(dim=0) + _recursion_error(A, search, goal, values, coupling)
    else:
        orthonormalize(X)
        parts = [_residuals(A, columns) for columns in X.split(goal.columns)]
        values, residuals = (torch.cat(numbers) for numbers in zip(*parts, strict=True))
        order = selection(values, goal.which, goal.k)
        if not torch.equal(order, torch.arange(goal.k)):  # fresh products may reorder near ties
            mix(X, torch.eye(goal.k, dtype=torch.float64)[:, order])
            values, residuals = values[order], residuals[order]
            search.H[: goal.k, : goal.k] = search.H[order][:, order]  # if the search goes on, it is with these rows
    search.num_products += goal.fresh_products
    search.certificates += 1
    pairs = values.to(X.device), X, residuals.to(X.device)
    return as_eigenpairs(*pairs, limit, search.num_products, search.basis.allocated)


def _residuals(A: Operator, X: Float[Tensor, "c n"]) -> tuple[Float[Tensor, " c"], Float[Tensor, " c"]]:
    """λ = xᵀAx of each unit row x and ‖A x - λ x‖, from fresh products."""
    R = product(A, X)
    values = inner(X, R).diagonal()
    return values, norms(R.addcmul_(X, values[:, None].to(X), value=-1)).cpu()


def _recursion_error(
    A: Operator, search: Search, goal: Goal, values: Float[Tensor, " k"], coupling: Float[Tensor, "b k"]
) -> float:
    """‖D‖ for D = A X - XΘ - P B, the error of the recursion's residuals, as the root of E‖Dω‖² over normal ω."""
    X, P, generator = search.basis.first(), search.basis.last(len(coupling)), search.generator
    shape, squares = (goal.fresh_products, goal.k), []
    for omega in torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device).cpu():
        combination = torch.zeros_like(X[:1])
        subtract(combination, -omega.to(X)[None], X)
        d = product(A, combination)
        subtract(d, (omega * values).to(X)[None], X)
        subtract(d, (coupling @ omega).to(X)[None], P)
        squares.append(float(norms(d)) ** 2)
    return math.sqrt(sum(squares) / len(squares))


def warn_of_missing_copies(pairs: Eigenpairs) -> None:
    """Say that a search ended before all copies of its eigenvalues were found."""
    message = f"{pairs.num_products} products were too few to rule out more copies of multiple eigenvalues."
    warn_user(f"{message}\n  - Raise max_products.", ConvergenceWarning)
