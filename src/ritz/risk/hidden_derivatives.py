"""Custom autograd Functions, whose backward pass may hide part of its own derivative from autograd.

A backward that reads numbers without their history is a constant to autograd: the first derivative is right, and the
second lacks terms, without an error. Only finite differences of the first derivative show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

TIMES = 30  # times the disagreement of two step sizes, plus rounding: how far a difference may be from a derivative


def nodes(roots: Iterable[Any]) -> Iterator[Any]:
    """All nodes of the graph behind these roots, each once."""
    waiting, seen = [node for node in roots if node is not None], set()
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += [next_node for next_node, _ in node.next_functions if next_node is not None]
            yield node


def has_custom_function(value: Tensor) -> bool:
    """Whether the graph behind a value has a node of a Function defined neither by PyTorch nor by ritz."""
    return any(map(_is_custom, nodes([value.grad_fn])))


def _is_custom(node: object) -> bool:
    if not isinstance(node, BackwardCFunction):
        return False
    return getattr(node, "_forward_cls", type(node)).__module__.partition(".")[0] not in ("torch", "ritz")


def is_derivative(
    candidate: Tensor, function: Callable[[float], Tensor], step: float, length: Callable[[Tensor], float]
) -> bool:
    """Whether finite differences of a function of t at zero agree with a candidate for its derivative.

    Undecided near a kink, where two step sizes disagree with each other, means yes. `length` is the norm to use.
    """
    near, far = ((function(h) - function(-h)) / (2 * h) for h in (step, 2 * step))
    noise = length(near - far) + torch.finfo(candidate.dtype).eps ** 0.5 * length(near)
    return not length(candidate - near) > TIMES * noise
