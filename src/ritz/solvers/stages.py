"""The stages of a long computation, each kept in its own file in a folder, so that none is computed twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..operators import gauss_newton
from ..record import digest, identity_of
from ..record.arrays import under
from ..record.checkpoints import State
from ..record.files import discard, path_of
from ..risk import Risk
from ..risk.fingerprints import fingerprint
from ..spectrum import Eigenpairs, Spectrum
from .resumption import Likeness, Resumption

Result = TypeVar("Result")


@dataclass(frozen=True)
class Stages:
    """A folder with the results of the stages of one computation; without a folder, nothing is kept."""

    folder: Path | None
    identity: Mapping[str, str]
    operator: Likeness

    def file(self, name: str) -> Path | None:
        """The path for a stage that manages its own file."""
        return None if self.folder is None else self.folder / f"{name}.npz"

    def resumption(self, name: str) -> Resumption | None:
        """The file of a stage that can be resumed half-way."""
        if self.folder is None:
            return None
        return Resumption.at(self.folder / f"{name}.npz", {"stage": name, **self.identity}, self.operator)

    def under(self, name: str) -> Stages:
        """The stages of a part of the computation, in a subfolder."""
        return self if self.folder is None else replace(self, folder=self.folder / name)

    def discard(self) -> None:
        """Remove the folder, whose contents are part of a result that is kept elsewhere."""
        if self.folder is not None:
            discard(self.folder)

    def result(
        self,
        name: str,
        compute: Callable[[], Result],
        written: Callable[[Result], State],
        read: Callable[[dict[str, Tensor], Mapping[str, Any]], Result],
        generator: torch.Generator | None = None,
    ) -> Result:
        """The result of a stage, read if it is in the folder; a generator is then set to its state after the stage."""
        if self.folder is None:
            return compute()
        drawn = {} if generator is None else identity_of("generator", generator)
        identity = {"stage": name, **self.identity, **drawn}
        file = Resumption.at(self.folder / f"{name}.npz", identity, self.operator)
        if file.is_over:
            return file.read(partial(_read, read, generator))
        result = compute()
        file.keep(partial(_state, written, result, generator), over=True)
        return result

    def spectrum(
        self, name: str, compute: Callable[[], Spectrum], generator: torch.Generator | None = None
    ) -> Spectrum:
        """A stage that is a spectrum."""
        return self.result(name, compute, Spectrum.state, Spectrum.of_state, generator)

    def pairs(self, name: str, compute: Callable[[], Eigenpairs | None], device: torch.device) -> Eigenpairs | None:
        """A stage that is eigenpairs, or none."""

        def written(pairs: Eigenpairs | None) -> State:
            return ({}, {"none": True}) if pairs is None else pairs.state()

        def read(arrays: dict[str, Tensor], facts: Mapping[str, Any]) -> Eigenpairs | None:
            tensors = {key: array.to(device) for key, array in arrays.items()}
            return None if "none" in facts else Eigenpairs.of_state(tensors, facts)

        return self.result(name, compute, written, read)


def stages_of_risk(folder: str | Path | None, risk: Risk, **settings: Any) -> Stages:
    """The stages of a computation with this risk and these settings; its identity is computed only for a folder."""
    if folder is None:
        return Stages(None, {}, Likeness(""))
    data = torch.cat([fingerprint(batch).cpu() for batch in risk.batches])
    identity = {"parameters": digest(risk.theta), "data": digest(data)}
    for name, value in {"loss": risk.loss, **settings}.items():
        identity |= identity_of(name, value)
    return Stages(path_of(folder), identity, Likeness.of(gauss_newton(risk)))


def _state(written: Callable[[Result], State], result: Result, generator: torch.Generator | None) -> State:
    arrays, facts = written(result)
    places = {f"array/{name}": array for name, array in arrays.items()}
    return places | ({} if generator is None else {"generator": generator.get_state()}), {"facts": facts}


def _read(
    read: Callable[[dict[str, Tensor], Mapping[str, Any]], Result],
    generator: torch.Generator | None,
    arrays: Mapping[str, Tensor],
    header: Mapping[str, Any],
) -> Result:
    result = read(under("array/", arrays), header["facts"])
    if generator is not None:
        generator.set_state(arrays["generator"])
    return result
