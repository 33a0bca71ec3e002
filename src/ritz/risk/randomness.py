"""The random state of the process, which no computation here may change."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Hashable, Iterator

import numpy as np
import torch


@contextlib.contextmanager
def untouched_randomness(device: torch.device, generator: torch.Generator | None = None) -> Iterator[None]:
    """Restore the global random states, of Python and NumPy too, and that of a loader's own generator, afterwards."""
    state = None if generator is None else generator.get_state()
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002
        if generator is not None and state is not None:
            generator.set_state(state)


def random_state(device: torch.device) -> Hashable:
    """What tells whether a network on this device has drawn random numbers: PyTorch's, Python's and NumPy's states."""
    states = [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]
    of_numpy = np.random.get_state(legacy=False)["state"]  # noqa: NPY002
    return *(bytes(state.numpy()) for state in states), random.getstate(), bytes(of_numpy["key"]), of_numpy["pos"]
