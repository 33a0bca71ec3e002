"""Caches of modules: tensors computed from parameters in an earlier forward pass, and looked up ever after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..foreign_errors import is_out_of_memory
from .original import CONTAINERS, Original

INTERNAL = frozenset(vars(nn.Module()))
Place = tuple[int, str]  # a module by its number, and the name of its attribute


def forget_caches(original: Original, forward: Callable[[], Tensor]) -> bool:
    """Empty the caches that a forward pass fills again with the same values; returns whether there were any.

    Such a table depends on earlier values of the parameters, and the gradient lacks their part in it. A tensor that is
    not filled again, or that the model cannot run without, is no cache, and stays.
    """
    places = list(_candidates(original))
    with original.untouched():
        expected = forward().detach()
    caches = _filled_again(original, places, forward, expected)
    if caches is None:
        found = (_filled_again(original, [place], forward, expected) for place in places)
        caches = [place for own in found for place in own or ()]
    original.empty(caches)
    return bool(caches)


def may_have_caches(original: Original) -> bool:
    """Whether a module holds anything that could be a cache."""
    return any(True for _ in _candidates(original))


def _candidates(original: Original) -> Iterator[Place]:
    """Attributes that are tensors, or containers of some, without being parameters or buffers."""
    registered = {id(tensor) for tensor in original.tensors.values()}
    for number, attributes in enumerate(original.attributes()):
        for name, value in attributes.items():
            if name not in INTERNAL and any(id(t) not in registered for t in _tensors(value)):
                yield number, name


def _filled_again(
    original: Original, places: list[Place], forward: Callable[[], Tensor], expected: Tensor
) -> list[Place] | None:
    """The places that a forward pass fills again with the same values; None if it needs one of them as it is."""
    before = original.attributes()
    try:
        with original.emptied(places).untouched():
            z = forward().detach()
            now = [original.live(number)[name] for number, name in places]
    except Exception as error:  # whatever a user's model raises
        if is_out_of_memory(error):
            raise
        return None
    if not _alike(z, expected):
        return None
    pairs = zip(places, now, strict=True)
    return [place for place, value in pairs if _same(_tensors(before[place[0]][place[1]]), _tensors(value))]


def _tensors(value: Any) -> list[Tensor]:
    """The floating-point tensors in a value, including the contents of containers."""
    if type(value) in CONTAINERS:
        entries = list(value.values()) if isinstance(value, dict) else list(value)
    else:
        entries = [value]
    return [entry for entry in entries if isinstance(entry, Tensor) and entry.is_floating_point()]


def _same(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(map(_alike, a, b))


def _alike(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a, b, rtol=1e-4, atol=1e-6)
