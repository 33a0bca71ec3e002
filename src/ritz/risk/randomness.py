"""The random state of the process, which no computation here may change."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor


@contextlib.contextmanager
def untouched_randomness(device: torch.device, generator: torch.Generator | None = None) -> Iterator[None]:
    """Restore the global random state, and that of a loader's own generator, afterwards."""
    state = None if generator is None else generator.get_state()
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        if generator is not None and state is not None:
            generator.set_state(state)


def random_state(device: torch.device) -> Tensor:
    """The global random state that a network on this device draws from."""
    own = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return torch.cat([torch.get_rng_state(), *own])
