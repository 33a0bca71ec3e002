"""Eigenpairs from two nearly equal operators: found by cheap products, certified by exact ones."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from .. import progress
from ..errors import check_finite
from ..operators import Operator
from ..spectrum import Eigenpairs
from .corrections import NearSpace, Surroundings
from .goals import Goal
from .probes import start_rows
from .search import Search
from .thick_restart import restarted_lanczos, warn_of_missing_copies
from .vectors import inner, norms, product

NEAR = 0.1  # relative error of a rough product with a random vector, above which the rough operator is not used
FINER = 0.1  # of that error: the tolerance of the search, at which the errors of rough products dominate
STRIDE = 2  # one step in this many is made orthogonal to all rows: what others leave is below the products' error


def mixed_lanczos(
    A: Operator, rough: Operator, goal: Goal, start: Float[Tensor, "s n"] | None, generator: torch.Generator
) -> Eigenpairs:
    """Search with the rough operator as far as it helps, then correct the pairs by products with A alone."""
    v = start_rows(A, 1, generator)
    error, centre = _trial(A, rough, v)
    if not error <= NEAR:
        pairs = restarted_lanczos(A, replace(goal, max_products=goal.max_products - 2), start, generator)
        return replace(pairs, num_products=pairs.num_products + 2, num_rough_products=1)
    coarse = _coarse(goal, error)
    search, num_own = Search.from_start(rough, coarse, start, generator, v), 1
    search.stride, search.rough = STRIDE, True
    del v
    with progress.bar("Eigenpairs") as bar:
        while True:
            search.explore(rough, coarse, bar)
            pairs = _corrected_pairs(A, rough, search, coarse, goal, centre, num_own)
            num_own += pairs.num_products - pairs.num_rough_products
            search.num_products += pairs.num_rough_products
            missed = False
            if bool(pairs.converged.all()):
                missed, pairs = search.look_outside(rough, pairs, coarse, bar)
            spent = num_own + search.num_products + 1
            pairs = replace(pairs, num_products=spent, num_rough_products=search.num_products + 1)
            if not missed or goal.out_of_products(spent):
                break
    if missed:
        warn_of_missing_copies(pairs)
    return pairs


def _coarse(goal: Goal, error: float) -> Goal:
    """The goal of a search by rough products with this error: no finer than they are, and with products left for A."""
    certificate = 2 * goal.k  # a product for each pair, and one for its correction
    left = max(goal.block_size, goal.max_products - certificate - 2)
    return replace(goal, tolerance=max(goal.tolerance, FINER * error), max_products=left, fresh_products=0)


def _corrected_pairs(
    A: Operator, rough: Operator, search: Search, coarse: Goal, goal: Goal, centre: float, num_own: int
) -> Eigenpairs:
    """The pairs that a rough search found, corrected by products with A; its basis is used up."""
    values, _ = search.condense(coarse, keep=search.explored)
    search.basis.cut(len(values))
    X, rest = search.basis.first(), search.basis.release(goal.room - 4 * goal.k - 4)
    around = Surroundings(values[goal.k :], rest, centre, search.scale, rough)
    return NearSpace(A, X, goal, around).pairs(A, num_own + 1 + search.num_products)


def _trial(A: Operator, rough: Operator, v: Float[Tensor, "1 n"]) -> tuple[float, float]:
    """‖(A - rough) v‖ / ‖A v‖ and vᵀAv / vᵀv for a random v: how near the two are, and the mean eigenvalue, roughly."""
    Av = product(A, v)
    length = float(norms(Av))
    check_finite(length)
    centre = float(inner(v, Av)) / float(norms(v)) ** 2
    difference = float(norms(Av.sub_(product(rough, v))))
    return (difference / length if length else difference), centre
