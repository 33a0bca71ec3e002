"""The file from which a killed solver resumes, and how it recognises that the operator is the same."""

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
from .vectors import dots, norms

PIECES = 8  # of vᵀAv, each of which must be what it was
Result = TypeVar("Result")


@dataclass(frozen=True)
class Likeness:
    """The fingerprint of an operator: its product with one random vector v.

    On a CPU the product is the same to the bit each time. Elsewhere sums may differ: there the norm of A v and partial
    sums of vᵀAv must agree to half of the digits. The latter have signs, which tell A from -A.
    """

    text: str
    numbers: tuple[float, ...] = ()
    tolerance: float = 0.0  # relative to the largest of them

    @classmethod
    def of(cls, A: Operator) -> Likeness:
        """The fingerprint of this operator, which costs one product."""
        v = torch.randn(A.size, generator=torch.Generator().manual_seed(17), dtype=A.dtype).to(A.device)
        Av, kind = A @ v, f"{A.size} {A.dtype} {A.device.type}"
        if _repeats(A):
            return cls(f"{kind} {digest(Av)}")
        pieces = zip(v.tensor_split(min(PIECES, A.size)), Av.tensor_split(min(PIECES, A.size)), strict=True)
        numbers = [norms(Av[None]), *(dots(x[None], y[None]) for x, y in pieces)]
        return cls(kind, tuple(float(number) for number in numbers), math.sqrt(torch.finfo(A.dtype).eps))

    def facts(self) -> dict[str, Any]:
        """What a file stores of it besides its identity."""
        return {"operator": [*self.numbers]} if self.numbers else {}

    def fits(self, facts: Mapping[str, Any]) -> bool:
        """Whether a file with this identity belongs to this operator; ValueError if its facts are missing."""
        then = facts["operator"] if self.numbers else []
        if not isinstance(then, list) or len(then) != len(self.numbers) or not all(type(one) is float for one in then):
            raise ValueError(f"its operator is {then!r:.80}")
        scale = max(map(abs, (*self.numbers, *then)), default=0.0)
        return all(abs(a - b) <= self.tolerance * scale for a, b in zip(self.numbers, then, strict=True))


def _repeats(A: Operator) -> bool:
    """Whether its products are the same to the bit each time."""
    return A.device.type == "cpu"


@dataclass(frozen=True)
class Resumption:
    """The file of a solver, and what it contained when the solver started."""

    file: Checkpoint
    operator: Likeness
    arrays: dict[str, Tensor] | None  # of a computation under way
    header: Mapping[str, Any]

    @classmethod
    def of(
        cls, path: str | Path | None, A: Operator, solver: str, generator: torch.Generator, **settings: Any
    ) -> Resumption | None:
        """The file of this solver with this operator, these settings and this source of randomness, if any."""
        if path is None:
            return None
        identity = {"solver": solver} | identity_of("generator", generator)
        for name, value in settings.items():
            identity |= identity_of(name, value)
        return cls.at(path, identity, Likeness.of(A))

    @classmethod
    def at(cls, path: str | Path, identity: Mapping[str, str], operator: Likeness) -> Resumption:
        """The file of the computation with this identity and this operator."""
        file = Checkpoint(path, {**identity, "operator": operator.text})
        state = file.state()
        if state is None:
            return cls(file, operator, None, {})
        arrays, header = state
        with file.reading():
            check_facts(header, over=bool)
            if not operator.fits(header):
                raise file.of_another("operator")
            return cls(file, operator, {name: torch.from_numpy(array) for name, array in arrays.items()}, header)

    @property
    def is_over(self) -> bool:
        """Whether the file contains the final result."""
        return self.arrays is not None and bool(self.header["over"])

    @property
    def under_way(self) -> dict[str, Tensor] | None:
        """The arrays of an unfinished computation."""
        return None if self.is_over else self.arrays

    def beside(self, name: str) -> Path:
        """The path of a second file beside this one, for a part of the computation that is resumed by itself."""
        return self.file.path.with_name(f"{self.file.path.stem}-{name}.npz")

    def keep(self, state: Callable[[], State], *, over: bool = False) -> None:
        """Write the state of a computation if it is time to do so, or its result."""

        def whole() -> State:
            arrays, header = state()
            return arrays, {**header, **self.operator.facts(), "over": over}

        self.file.keep(whole, last=over)

    def read(self, make: Callable[[dict[str, Tensor], Mapping[str, Any]], Result]) -> Result:
        """An object made from the contents of the file; any failure counts as damage to the file."""
        assert self.arrays is not None
        with self.file.reading():
            for name, array in self.arrays.items():
                if array.is_floating_point() and not bool(array.isfinite().all()):
                    raise ValueError(f"{name} holds NaN or infinity")
            return make(self.arrays, self.header)
