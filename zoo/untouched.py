"""Checks that a user's model is as it was: tensors bit for bit, attributes, hooks, modes and PyTorch's random state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Snapshot:
    """A model as it is now."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.tensors = _tensors(model)
        self.values = {name: tensor.detach().clone() for name, tensor in self.tensors.items()}
        self.marks = _marks(model)
        self.attributes = _attributes(model)
        self.random_state = torch.get_rng_state()

    def differences(self) -> list[str]:
        """What has changed since."""
        tensors = _tensors(self.model)
        if list(tensors) != list(self.tensors):
            return ["names of parameters or buffers"]
        moved = [name for name, tensor in tensors.items() if not _same_bits(tensor, self.values[name])]
        exchanged = [f"{name} is another tensor" for name in tensors if tensors[name] is not self.tensors[name]]
        marked = [name for name, mark in _marks(self.model).items() if mark != self.marks[name]]
        now = _attributes(self.model)
        other = [name for name in {**now, **self.attributes} if now.get(name) != self.attributes.get(name)]
        random = [] if torch.equal(torch.get_rng_state(), self.random_state) else ["the random state"]
        return moved + exchanged + marked + other + random


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _marks(model: nn.Module) -> dict[str, Any]:
    """What a tensor carries beside its values; its version counts how often it was written to."""
    return {
        f"{name}: version, requires_grad, grad or hooks": (t._version, t.requires_grad, t.grad is None, _hooks(t))
        for name, t in _tensors(model).items()
    }


def _hooks(tensor: Tensor) -> int:
    return len(tensor._backward_hooks or {})


def _attributes(model: nn.Module) -> dict[str, Any]:
    """Every attribute of every module by identity, numbers and strings by value; what dicts hold, by identity, too."""
    return {
        f"attribute {name}.{key}": _identity(value)
        for name, module in model.named_modules()
        for key, value in vars(module).items()
    }


def _identity(value: Any) -> Any:
    if isinstance(value, (int, float, str, bool, type(None))):
        return value
    if isinstance(value, dict):
        return [(key, id(entry)) for key, entry in value.items()]
    return id(value)


def _same_bits(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and bool(((a == b) | (a.isnan() & b.isnan())).all())
