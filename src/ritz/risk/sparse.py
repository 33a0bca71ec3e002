"""Sparse and jagged tensors, as the dense tensors they consist of."""

from __future__ import annotations

import torch
from torch import Tensor

INDICES = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
    torch.jagged: ("offsets",),
}


def dense_parts(tensor: Tensor) -> list[Tensor]:
    """The tensor itself; of one that is sparse or jagged, its indices and values."""
    if tensor.layout in INDICES:
        return [*(getattr(tensor, name)() for name in INDICES[tensor.layout]), tensor.values()]
    return [tensor._indices(), tensor._values()] if tensor.layout == torch.sparse_coo else [tensor]


def equal(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one layout are equal, entry by entry; `torch.equal` does not accept sparse ones.

    On the meta device, where an unused buffer may lie, there is nothing to compare.
    """
    return a.is_meta or all(map(torch.equal, dense_parts(a), dense_parts(b)))
