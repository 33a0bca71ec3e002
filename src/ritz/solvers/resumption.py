"""The file from which a solver that was killed goes on, and how it knows that the operator is the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..operators import Operator
from ..record import Checkpoint, digest, identity_of
from ..record.checkpoints import State
from ..record.layouts import check_facts

DIGITS = 4  # of a product on a device whose sums are not the same from run to run
Result = TypeVar("Result")


@dataclass(frozen=True)
class Resumption:
    """The file of a solver, and what was in it when it started."""

    file: Checkpoint
    arrays: dict[str, Tensor] | None  # of a computation under way
    header: Mapping[str, Any]

    @classmethod
    def of(
        cls, path: str | Path | None, A: Operator, solver: str, generator: torch.Generator, **settings: Any
    ) -> Resumption | None:
        """The file of this solver with this operator, these settings and this source of randomness; None for none."""
        if path is None:
            return None
        identity = {"solver": solver, "operator": operator_digest(A)} | identity_of("generator", generator)
        for name, value in settings.items():
            identity |= identity_of(name, value)
        return cls.at(path, identity)

    @classmethod
    def at(cls, path: str | Path, identity: Mapping[str, str]) -> Resumption:
        """The file of the computation with this identity."""
        file = Checkpoint(path, identity)
        state = file.state()
        if state is None:
            return cls(file, None, {})
        arrays, header = state
        with file.reading():
            check_facts(header, over=bool)
            return cls(file, {name: torch.from_numpy(array) for name, array in arrays.items()}, header)

    @property
    def is_over(self) -> bool:
        """Whether what is in the file is the result."""
        return self.arrays is not None and bool(self.header["over"])

    @property
    def under_way(self) -> dict[str, Tensor] | None:
        """The arrays of a computation that was not over."""
        return None if self.is_over else self.arrays

    def beside(self, name: str) -> Path:
        """The file of a part of the computation that is one of its own."""
        return self.file.path.with_name(f"{self.file.path.stem}-{name}.npz")

    def keep(self, state: Callable[[], State], *, over: bool = False) -> None:
        """Write the state of a computation, if it is time to, or its result."""

        def whole() -> State:
            arrays, header = state()
            return arrays, {**header, "over": over}

        self.file.keep(whole, last=over)

    def read(self, make: Callable[[dict[str, Tensor], Mapping[str, Any]], Result]) -> Result:
        """What the contents of the file stand for; whatever cannot be made of them is damage."""
        assert self.arrays is not None
        with self.file.reading():
            for name, array in self.arrays.items():
                if array.is_floating_point() and not bool(array.isfinite().all()):
                    raise ValueError(f"{name} holds NaN or infinity")
            return make(self.arrays, self.header)


def operator_digest(A: Operator) -> str:
    """An operator by its product with one random vector: to the bit on the CPU, to a few digits elsewhere."""
    v = torch.randn(A.size, generator=torch.Generator().manual_seed(17), dtype=A.dtype).to(A.device)
    Av = A @ v
    kind = f"{A.size} {A.dtype} {A.device.type}"
    if A.device.type == "cpu":
        return f"{kind} {digest(Av)}"
    length = float(torch.linalg.vector_norm(Av.double()))
    return f"{kind} {length:.{DIGITS}g}" if math.isfinite(length) else f"{kind} {length}"
