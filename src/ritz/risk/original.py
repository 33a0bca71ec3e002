"""The user's own module: called as it is, and left as it was."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .model import named_buffers, named_modules, named_parameters, unwrapped, without_backward_hooks
from .undo import surely

LOCK = threading.RLock()  # held while modules of a user are not as they were, and while tensors are swapped in a copy


class Original:
    """The user's module as it is now, whatever becomes of it: attributes, train and eval flags, tensors."""

    def __init__(self, model: nn.Module) -> None:
        self.model = unwrapped(model)
        self.parameters, self.buffers = named_parameters(model), named_buffers(model)
        self._attributes = [(module, _copied(vars(module))) for _, module in named_modules(model)]

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Parameters and buffers by name, the objects themselves."""
        return {**self.parameters, **self.buffers}

    @contextlib.contextmanager
    def as_it_was(self, buffers: Mapping[int, Tensor] | None = None) -> Iterator[None]:
        """Its modules with the attributes of then; what a forward pass writes into them is forgotten afterwards.

        Args:
            buffers: What takes the place of buffers, by their identity.
        """
        with LOCK:
            now = [(module, vars(module)) for module, _ in self._attributes]
            try:
                for module, attributes in self._attributes:
                    then = _copied(attributes)
                    then.update(without_backward_hooks())
                    then["_buffers"] = {n: (buffers or {}).get(id(b), b) for n, b in then["_buffers"].items()}
                    object.__setattr__(module, "__dict__", then)
                yield
            finally:
                surely(lambda: _put_back(now))

    @contextlib.contextmanager
    def untouched(self, buffers: Mapping[str, Tensor]) -> Iterator[None]:
        """Run it plainly: with its own parameters, on buffers that may be written to.

        Args:
            buffers: The values of its buffers, by name.
        """
        spare = {id(own): buffers[name].clone() for name, own in self.buffers.items()}
        hooks = [(parameter, parameter._backward_hooks) for parameter in self.parameters.values()]

        def restore() -> None:
            for parameter, own_hooks in hooks:
                if own_hooks is not None:
                    parameter._backward_hooks = own_hooks
            for name, own in self.buffers.items():  # one that is reached on another way than through its module
                if not torch.equal(own, buffers[name]):
                    write(own, buffers[name])

        with self.as_it_was(spare):
            try:
                for parameter, own_hooks in hooks:
                    if own_hooks is not None:  # hooks that change a gradient are not part of the function
                        parameter._backward_hooks = None
                yield
            finally:
                surely(restore)


def write(tensor: Tensor, values: Tensor) -> None:
    """Overwrite a tensor of the user's; its version, by which autograd notices changes, stays."""
    with torch.autograd._unsafe_preserve_version_counter(tensor):
        tensor.data.copy_(values)


def _copied(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a module; containers are copied, for a forward pass may add to them."""
    kinds = (list, dict, set)
    return {name: value.copy() if isinstance(value, kinds) else value for name, value in attributes.items()}


def _put_back(attributes: list[tuple[nn.Module, dict[str, Any]]]) -> None:
    for module, own in attributes:
        object.__setattr__(module, "__dict__", own)
