"""How many bytes a graph of autograd keeps alive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor

from ..risk.sparse import dense_parts


def graph_bytes(roots: Iterable[Any], present: Iterable[Tensor]) -> int:
    """The bytes of all tensors that the nodes behind `roots` have saved; storages of `present` are there anyway."""
    storages: dict[int, int] = {}
    for node in nodes(roots):
        for tensor in _saved(node):
            storages.update(_storages(tensor))
    for tensor in present:
        for pointer in _storages(tensor):
            storages.pop(pointer, None)
    return sum(storages.values())


def nodes(roots: Iterable[Any]) -> Iterator[Any]:
    """All nodes of the graph behind some of them, each once."""
    waiting, seen = [node for node in roots if node is not None], set()
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += [next_node for next_node, _ in node.next_functions if next_node is not None]
            yield node


def _saved(node: Any) -> Iterator[Tensor]:
    """What a node keeps for its backward pass: PyTorch's own by attributes, a Function's by what it has saved."""
    if hasattr(node, "saved_tensors"):
        values = list(node.saved_tensors)
    else:
        values = [getattr(node, name, None) for name in dir(type(node)) if name.startswith("_saved_")]
    for value in values:
        yield from (v for v in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(v, Tensor))


def _storages(tensor: Tensor) -> dict[int, int]:
    """Address and size of the memory behind a tensor; a sparse one has several such pieces."""
    storages = [part.untyped_storage() for part in dense_parts(tensor)]
    try:
        return {storage.data_ptr(): storage.nbytes() for storage in storages}
    except RuntimeError:  # zeros of forward differentiation, which have no memory
        return {}
