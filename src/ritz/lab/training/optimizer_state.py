"""The state of an optimiser in a file: what it remembers of every parameter, and the settings that training changed."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...record import identity_of
from ...record.checkpoints import Arrays
from ...record.json_values import plain


class OptimizerState:
    """The state of an optimiser, to be written and read back to the same bits."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.first_settings = copy.deepcopy(
            [_settings(group) for group in optimizer.param_groups]
        )  # before the first step

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Its tensors and, as plain facts, all else."""
        arrays, numbers = Arrays(), dict[str, Any]()
        for index, entries in self.optimizer.state_dict()["state"].items():
            for name, value in entries.items():
                (arrays if isinstance(value, Tensor) else numbers)[f"optimizer/{index}/{name}"] = value
        return arrays, {"plain": numbers, "memory": sorted((*arrays, *numbers)), "moved": self._changed_settings()}

    def _changed_settings(self) -> list[dict[str, Any]]:
        """The settings of every group of the optimiser that are not what they were before the first step."""
        now = [_settings(group) for group in self.optimizer.param_groups]
        pairs = zip(now, self.first_settings, strict=True)
        return [{k: v for k, v in own.items() if k not in first or plain(v) != plain(first[k])} for own, first in pairs]

    def check(self, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
        """Refuse a state that this optimiser cannot have left in its file, before anything is used from it."""
        _check_moments(tensors, header, self.optimizer)
        for moved, first in zip(header["moved"], self.first_settings, strict=True):
            _check_moved(moved, first)

    def restore(self, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
        """Give the optimiser this state."""
        groups = self.optimizer.state_dict()["param_groups"]
        for group, moved in zip(groups, header["moved"], strict=True):
            group.update(moved)
        states = dict[int, dict[str, Any]]()
        for name, value in (*tensors.items(), *header["plain"].items()):
            if name.startswith("optimizer/"):
                _, index, entry = name.split("/")
                states.setdefault(int(index), {})[entry] = value
        self.optimizer.load_state_dict({"state": states, "param_groups": groups})
        self._restore_numbers(states)

    def _restore_numbers(self, states: Mapping[int, Mapping[str, Any]]) -> None:
        """Put scalars back in their own precision: PyTorch has loaded them in that of the parameters."""
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        for index, entries in states.items():
            loaded = self.optimizer.state[parameters[index]]
            for name, value in entries.items():
                if isinstance(value, Tensor) and not value.ndim and parameters[index].ndim:
                    loaded[name] = value.to(loaded[name].device)

    def identity(self) -> dict[str, str]:
        """What identifies the optimiser before the first step."""
        groups = enumerate(map(_settings, self.optimizer.param_groups))
        return {
            **identity_of("optimizer", type(self.optimizer)),
            **identity_of("optimizer settings", {f"{i}.{k}": v for i, group in groups for k, v in group.items()}),
            **identity_of("optimizer state", self.optimizer.state_dict()["state"]),
        }


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a group of parameters is trained with."""
    return {name: value for name, value in group.items() if name != "params"}


def _check_moments(tensors: Mapping[str, Tensor], header: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> None:
    """Refuse an optimiser's state that differs from what its file lists, or has tensors of no parameter."""
    memory = {name: tensors[name] for name in tensors if name.startswith("optimizer/")}
    if sorted((*memory, *header["plain"])) != header["memory"]:
        raise ValueError(f"its optimiser remembers other things than {header['memory']!r:.80}")
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for name, value in memory.items():
        owner = parameters[int(name.split("/")[1])]
        if not _is_of(value, owner) or value.is_complex() > owner.is_complex():
            raise ValueError(f"{name} is {value.dtype} {tuple(value.shape)}, its parameter {tuple(owner.shape)}")


def _is_of(moment: Tensor, owner: Tensor) -> bool:
    """Whether a moment has a number for the parameter, for each entry of it, or for each row, column or the like."""
    sizes = zip(moment.shape, owner.shape, strict=False)
    return not moment.ndim or (moment.ndim == owner.ndim and all(size in (1, own) for size, own in sizes))


def _check_moved(moved: Mapping[str, Any], first: Mapping[str, Any]) -> None:
    """Refuse settings of an optimiser that no training gives it: of another type than they were, or not finite.

    Other numbers are taken: a pause may change a momentum, and some optimisers count in their settings.
    """
    for name, value in moved.items():
        was = plain(first.get(name))
        alike = type(value) is type(was) or {type(value), type(was)} <= {int, float} or was is None
        if name == "params" or not alike or (isinstance(value, (int, float)) and not abs(value) < 2.0**63):
            raise ValueError(f"the setting {name} of its optimiser is {value!r:.80}")
