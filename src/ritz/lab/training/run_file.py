"""The file from which training that was killed goes on."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import record
from ...errors import ArgumentError, FileError

Arrays = dict[str, Any]
SAVE_SECONDS = 30.0  # between two writings of the file: what a kill can cost
SAMPLE = 512  # examples that stand for a data set in its fingerprint


class RunFile:
    """The file of a run: written whole or not at all, at most every so many seconds and at the end."""

    def __init__(self, path: Path, identity: Mapping[str, str], seconds: float) -> None:
        if not (isinstance(seconds, (int, float)) and 0 <= seconds < math.inf):
            raise ArgumentError(
                f"save_seconds={seconds!r} was given.",
                "It is the least time between two writings of the file, and what a kill can cost.",
                "Pass 30, or 0 to write after every epoch.",
            )
        self.path, self.identity, self.seconds = path, dict(identity), seconds
        self.due = monotonic() + seconds
        record.check_writable(path.parent)

    def save(self, state: Callable[[], tuple[Arrays, dict[str, Any]]], *, last: bool) -> None:
        """Write the state, if it is time to."""
        if last or (started := monotonic()) >= self.due:
            arrays, header = state()
            record.write_arrays(self.path, arrays, {**header, "identity": self.identity})
            if not last:  # a large network does not spend more than a tenth of its time on writing
                self.due = monotonic() + max(self.seconds, 10 * (monotonic() - started) * (self.seconds > 0))

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """What was saved last; None where there is no file, and refused where it is of another run."""
        if not self.path.exists():
            return None
        arrays, header = record.read_arrays(self.path)
        identity = header.get("identity")
        identity = identity if isinstance(identity, dict) else {}
        differing = [name for name in self.identity if identity.get(name) != self.identity[name]]
        if differing:
            raise FileError(
                f"{self.path} is not of this run: different {', '.join(differing)}.",
                "Training that went on from it would be neither the old run nor this one.",
                "Name another file, or remove this one to start afresh.",
                "To go on with the old run, give the same settings, data and initial weights as then.",
            )
        return arrays, header


def random_states(generator: torch.Generator | None) -> dict[str, Tensor]:
    """Of all sources that training or a measurement may draw from: dropout, for one, has PyTorch's own."""
    states = {"torch": torch.get_rng_state()}
    if generator is not None:
        states["generator"] = generator.get_state()
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_random_states(states: Mapping[str, np.ndarray], generator: torch.Generator | None) -> None:
    """Let all of them go on where they were."""
    torch.set_rng_state(torch.from_numpy(states["torch"]))
    if generator is not None:
        generator.set_state(torch.from_numpy(states["generator"]))
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(torch.from_numpy(states["cuda"]))


def fingerprint(*tensors: Tensor | None) -> str:
    """A checksum of shapes, types and values."""
    digest = hashlib.sha256()
    for tensor in tensors:
        if tensor is None:
            digest.update(b"none")
            continue
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        flat = tensor.detach().cpu().flatten().clone(memory_format=torch.contiguous_format)  # also where it is expanded
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def generator_fingerprint(generator: torch.Generator | None) -> str:
    """Where a generator stands."""
    return fingerprint(None if generator is None else generator.get_state())


def sample(rows: Tensor, dim: int = 0) -> Tensor:
    """Evenly spread examples, enough to tell one data set from another."""
    count = rows.shape[dim]
    return rows.index_select(dim, torch.arange(0, count, max(count // SAMPLE, 1), device=rows.device))


def description(setting: object) -> str:
    """A setting as a text that is the same in every process: without the addresses of functions."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(setting))
