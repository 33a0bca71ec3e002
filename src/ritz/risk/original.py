"""The user's own module: called as it is, and restored to what it was."""

from __future__ import annotations

import contextlib
import copy
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .model import named_buffers, named_modules, named_parameters, unwrapped, without_backward_hooks
from .sparse import equal
from .undo import LOCK, surely

TENSORS = ("_buffers", "_parameters")
CONTAINERS = frozenset((list, dict, set, OrderedDict, defaultdict, deque))


class Original:
    """A snapshot of the user's module: attributes, train and eval flags, and the tensors themselves."""

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
        """Run with the modules' attributes as in the snapshot; what a forward pass writes into them is undone.

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

    def attributes(self) -> list[dict[str, Any]]:
        """The attributes of each module in the snapshot."""
        return [attributes for _, attributes in self._attributes]

    def live(self, number: int) -> dict[str, Any]:
        """The current attributes of one of its modules."""
        return vars(self._attributes[number][0])

    def emptied(self, places: Iterable[tuple[int, str]]) -> Original:
        """The snapshot with some attributes emptied: containers without entries, others None."""
        result = copy.copy(self)
        result._attributes = [(module, dict(attributes)) for module, attributes in self._attributes]
        for number, name in places:
            value = result._attributes[number][1][name]
            result._attributes[number][1][name] = _without_entries(value) if type(value) in CONTAINERS else None
        return result

    def empty(self, places: Iterable[tuple[int, str]]) -> None:
        """Empty some attributes of the snapshot."""
        self._attributes = self.emptied(places)._attributes

    def differs(self) -> bool:
        """Whether an attribute of a module, or the content of a container among them, differs from the snapshot."""
        return not all(_are_same(vars(module), attributes) for module, attributes in self._attributes)

    def restore(self) -> None:
        """Give the modules the attributes of the snapshot again."""
        for module, attributes in self._attributes:
            tensors = {name: getattr(module, name) for name in TENSORS}  # which are swapped elsewhere, and stay
            object.__setattr__(module, "__dict__", _copied(attributes) | tensors)

    @contextlib.contextmanager
    def untouched(self) -> Iterator[None]:
        """Run the module with its own parameters and on copies of its buffers, which a forward pass may write to."""
        values = {name: own.detach().clone() for name, own in self.buffers.items()}
        hooks = [(parameter, parameter._backward_hooks) for parameter in self.parameters.values()]

        def restore() -> None:
            for parameter, own_hooks in hooks:
                if own_hooks is not None:
                    parameter._backward_hooks = own_hooks
            for name, own in self.buffers.items():  # one that the forward pass reached directly, not through its module
                if not equal(own, values[name]):
                    write(own, values[name])

        with self.as_it_was({id(own): own.detach().clone() for own in self.buffers.values()}):
            try:
                for parameter, own_hooks in hooks:
                    if own_hooks is not None:  # hooks that change a gradient are not part of the function
                        parameter._backward_hooks = None
                yield
            finally:
                surely(restore)

    @contextlib.contextmanager
    def moved(self, theta: Mapping[str, Tensor], distance: float) -> Iterator[dict[str, Tensor]]:
        """Move some of its parameters at random in their own memory, each by about `distance` of its size.

        Yields their values there; afterwards they are back at `theta`, to the bit.

        Args:
            theta: Where they are.
            distance: Relative to the root mean square of each parameter; what is zero moves as if that were one.
        """
        with LOCK:
            try:
                for number, (name, values) in enumerate(theta.items()):
                    write(self.parameters[name], values + distance * _displacement(values, number))
                yield {name: self.parameters[name].detach().clone() for name in theta}
            finally:
                surely(lambda: self._write(theta))

    def _write(self, theta: Mapping[str, Tensor]) -> None:
        for name, values in theta.items():
            write(self.parameters[name], values)

    def can_move(self, name: str) -> bool:
        """Whether a parameter has memory that it shares neither with itself nor with another process."""
        parameter = self.parameters[name]
        alone = not (parameter.device.type == "cpu" and parameter.is_shared())
        return alone and parameter.requires_grad and not torch._debug_has_internal_overlap(parameter)


def _displacement(values: Tensor, seed: int) -> Tensor:
    """Random numbers between -1 and 1, times the root mean square of the values."""
    generator = torch.Generator(values.device).manual_seed(seed)
    size = float(values.square().mean().sqrt()) or 1.0
    return (
        torch.rand(values.shape, generator=generator, device=values.device, dtype=values.dtype).mul_(2).sub_(1) * size
    )


def write(tensor: Tensor, values: Tensor) -> None:
    """Overwrite a user's tensor without raising its version, by which autograd notices changes."""
    with torch.autograd._unsafe_preserve_version_counter(tensor):
        tensor.data.copy_(values)


def _copied(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a module, with containers copied, since a forward pass may add to them."""
    return {name: value.copy() if type(value) in CONTAINERS else value for name, value in attributes.items()}


def _without_entries(container: Any) -> Any:
    container = container.copy()
    container.clear()
    return container


def _are_same(now: dict[str, Any], then: dict[str, Any]) -> bool:
    """Whether attributes are the same objects, and containers hold the same; swapped buffers are left out."""
    if now.keys() != then.keys():
        return False
    return all(
        value is then[name] or _hold_same(value, then[name]) for name, value in now.items() if name not in TENSORS
    )


def _hold_same(one: Any, other: Any) -> Any:
    if type(one) in CONTAINERS and type(other) in CONTAINERS and not one and not other:
        return True  # nearly always: the containers for hooks
    return _identity(one) == _identity(other)


def _identity(value: Any) -> Any:
    if isinstance(value, dict):
        return [(key, id(entry)) for key, entry in value.items()]
    return [id(entry) for entry in value] if isinstance(value, (list, set, deque)) else id(value)


def _put_back(attributes: list[tuple[nn.Module, dict[str, Any]]]) -> None:
    for module, own in attributes:
        object.__setattr__(module, "__dict__", own)
