"""How many bytes a graph of autograd keeps alive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from torch import Tensor

from ..risk.hidden_derivatives import nodes
from ..risk.sparse import dense_parts


def graph_bytes(roots: Iterable[Any], present: Iterable[Tensor]) -> int:
    """The bytes of all tensors saved by the nodes behind `roots`, not counting the storages of `present`."""
    storages: dict[int, int] = {}
    for node in nodes(roots):
        for tensor in _saved(node):
            storages.update(_storages(tensor))
    for tensor in present:
        for pointer in _storages(tensor):
            storages.pop(pointer, None)
    return sum(storages.values())


def _saved(node: Any) -> Iterator[Tensor]:
    """The tensors kept for a node's backward pass: attributes of PyTorch's own nodes, saved tensors of Functions."""
    if hasattr(node, "saved_tensors"):
        values = list(node.saved_tensors)
    else:
        values = [getattr(node, name, None) for name in _names(node.__class__)]
    for value in values:
        yield from (v for v in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(v, Tensor))


@cache
def _names(kind: type) -> tuple[str, ...]:
    """What nodes of a kind call their tensors: a long sequence has a hundred thousand nodes of a few kinds."""
    return tuple(name for name in dir(kind) if name.startswith("_saved_"))


def _storages(tensor: Tensor) -> dict[int, int]:
    """Address and size of the memory behind a tensor; a sparse one has several such pieces."""
    storages = [part.untyped_storage() for part in dense_parts(tensor)]
    try:
        return {storage.data_ptr(): storage.nbytes() for storage in storages}
    except RuntimeError:  # zeros of forward differentiation, which have no memory
        return {}
