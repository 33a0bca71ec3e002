"""The sources of randomness that training and its measurements may use, saved and restored with a run."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

_PYTHON, _NUMPY = "python", "numpy"


def random_states(generator: torch.Generator | None = None) -> dict[str, Any]:
    """The states of all sources that a computation may use; dropout, for example, uses PyTorch's own."""
    states: dict[str, Any] = {"torch": torch.get_rng_state(), **_python_state(), **_numpy_state()}
    if generator is not None:
        states["generator"] = generator.get_state()
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_random_states(states: Mapping[str, np.ndarray], generator: torch.Generator | None = None) -> None:
    """Restore the states of all sources."""
    has_spare, spare = states[f"{_PYTHON} spare"].tolist()
    random.setstate((3, tuple(states[_PYTHON].tolist()), spare if has_spare else None))
    if _NUMPY in states:
        place, has_spare = (int(number) for number in states[f"{_NUMPY} place"])
        np.random.set_state(("MT19937", states[_NUMPY], place, has_spare, float(states[f"{_NUMPY} spare"])))  # noqa: NPY002
    torch.set_rng_state(torch.from_numpy(states["torch"]))
    if generator is not None:
        generator.set_state(torch.from_numpy(states["generator"]))
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(torch.from_numpy(states["cuda"]))


def _python_state() -> dict[str, Any]:
    _, numbers, spare = random.getstate()
    return {
        _PYTHON: np.array(numbers, dtype=np.uint64),
        f"{_PYTHON} spare": np.array([spare is not None, spare or 0.0], dtype=np.float64),
    }


def _numpy_state() -> dict[str, Any]:
    """The state behind numpy's own functions, such as `numpy.random.rand`, unless their generator was replaced."""
    kind, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    if kind != "MT19937":
        return {}
    numbers, place, has_spare, spare = rest
    return {
        _NUMPY: np.array(numbers),
        f"{_NUMPY} place": np.array([place, has_spare]),
        f"{_NUMPY} spare": np.array(spare),
    }
