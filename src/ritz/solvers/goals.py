"""The goal of a search for eigenpairs, and the states that it can be in on its way there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..operators import Operator
from ..record.layouts import check_arrays, check_facts, like
from .vectors import check_orthonormal

ATTEMPTS = 3  # certificates attempted before the remaining residual is taken for rounding
NUMBERS = "block_size", "tridiagonal", "locked", "suspect", "scale", "num_products", "certificates"  # beside arrays


@dataclass(frozen=True)
class Goal:
    """Which pairs are requested, to which accuracy and with which resources."""

    k: int
    which: str
    tolerance: float
    block_size: int
    capacity: int
    max_products: int
    fresh_products: int
    columns: int  # multiplied at a time for the certificate
    room: float  # vectors that may be kept beside those of a product
    copies: bool  # whether to look for eigenvalues that were missed

    def out_of_products(self, spent: int) -> bool:
        """Whether another step would leave too few products for the certificate."""
        return spent + self.block_size + self.fresh_products > self.max_products


def check_state(
    A: Operator, goal: Goal, generator: torch.Generator, arrays: Mapping[str, Tensor], header: Mapping[str, Any]
) -> None:
    """Refuse a state that no search with this goal can have left in its file, before anything is used from it.

    Wrong numbers in a possible state are not noticed here. They lead to other bits, but never to a wrong pair, because
    fresh products certify every pair at the end.
    """
    rows, explored, width = len(arrays["basis"]), len(arrays["H"]), arrays["B"].shape[-1]
    pending = rows - explored
    if not (rows <= goal.capacity and 0 <= pending <= goal.block_size and width <= goal.block_size):
        raise ValueError(f"it has {rows} vectors, of which {explored} are explored, {width} in the last step")
    check_facts(header, tridiagonal=bool, suspect=bool, has_seen=bool, scale=float, certificates=range(ATTEMPTS))
    check_facts(header, block_size=range(1, goal.block_size + 1), locked=range(explored + 1))
    least = explored + goal.fresh_products * header["certificates"]
    check_facts(header, num_products=range(least, goal.max_products + 1))
    layout = {"basis": like(A.dtype, rows, A.size), "H": like(torch.float64, explored, explored)}
    layout |= {"B": like(torch.float64, pending, width), "generator": generator.get_state()}
    check_arrays(arrays, layout | ({"seen": like(torch.float64, goal.k)} if header["has_seen"] else {}))
    check_orthonormal(arrays["basis"])
    if not torch.equal(arrays["H"], arrays["H"].T):
        raise ValueError("its matrix is not symmetric")
