"""The peak memory of a piece of work, in bytes of the tensors that it creates."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def peak_bytes(work: Callable[[], object], device: torch.device) -> float:
    """The most bytes that the work held at a time beyond what was there before, including its result.

    On a GPU this comes from the allocator. On a CPU every new tensor is counted from its creation to its end, which
    misses what PyTorch's own functions hold internally.

    >>> peak_bytes(lambda: (torch.ones(10) + 1).sum(), torch.device("cpu"))
    80.0
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return float(torch.cuda.max_memory_allocated(device) - before)
    with _Births() as births:
        work()
    return float(births.most)


class _Births(TorchDispatchMode):
    """Counts the bytes of all storages that operations create, while they live."""

    def __init__(self) -> None:
        super().__init__()
        self.held = self.most = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        present = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if _is_dense(leaf)}
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if _is_dense(leaf):
                self._add(leaf.untyped_storage(), present)
        return result

    def _add(self, storage: torch.UntypedStorage, present: set[int]) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known or key in present:
            return
        self._known.add(key)
        self.held += size
        self.most = max(self.most, self.held)
        weakref.finalize(storage, self._remove, key, size)

    def _remove(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.held -= size


def _is_dense(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided
