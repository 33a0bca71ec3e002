"""A figure of a paper: how it is computed, drawn and judged.

    @dataclass(frozen=True)
    class Config:  # JSON values alone, each with its source in the paper, or "open"
        draws: int = 1000  # App. D

    def run(config, context):  # computes, never draws; arrays and numbers by name
        records = context.sweep(partial(point, device=context.device), [{"seed": s} for s in range(config.draws)])
        return {"slopes": np.array([record.scalars["slope"] for record in records])}

    def draw(record): ...  # a matplotlib figure; computes nothing

    Figure("author2026.fig5", "What it shows in a line", {"paper": Config(), "smoke": Config(2)}, run, draw, STATEMENTS)

`statements` says what is in STATEMENTS, `registry` where the figure has to stand to be found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ...lab.sweeps import unlocked_sweep
from ...lab.tasks import Task, name_of
from ...lab.workers import InProcess, Workers
from ...record import Claim, Picture, Record, key, plain
from .loans import Filed, Loan
from .readings import Reading, check_readings
from .statements import Statement


@dataclass
class Origins:
    """Where the results of a run's sweeps come from: how many it computed, and the origins of those it found."""

    num_made: int = 0
    earlier: list[Mapping[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Context:
    """Where a figure is computed. None of it changes what is computed, so none of it is in the config."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    data_dir: Path | None = None  # None: where `lab.data` looks by default
    folder: Path | None = None  # for what an interrupted run resumes from, such as checkpoints; None: nothing kept
    shelf: Path | None = None  # for what several computations share, such as trained networks; None: each has its own
    workers: Workers = field(default_factory=InProcess)
    lent: Mapping[Filed, Record] = field(default_factory=dict)  # results of sweeps that are read from other records
    origins: Origins = field(default_factory=Origins)

    def sweep(self, task: Task, configs: Iterable[Any], *, name: str | None = None) -> list[Record]:
        """One record for each config, computed by this run's workers unless it is lent or left by an interrupted run.

        The device and the data folder are bound to the task by the caller: `partial(point, device=context.device)`.
        """
        name, configs = name or name_of(task), list(configs)
        found = [self.lent.get((name, key(plain(config)))) for config in configs]
        missing = [config for config, record in zip(configs, found, strict=True) if record is None]
        with nullcontext(self.folder) if self.folder is not None else TemporaryDirectory() as folder:
            there = [(Path(folder) / name / key(plain(config))).exists() for config in missing]
            swept = unlocked_sweep(task, missing, Path(folder) / name, workers=self.workers, name=name)
        stored = [record for record, was_there in zip(swept, there, strict=True) if was_there]
        self.origins.num_made += len(swept) - len(stored)
        self.origins.earlier += [record.provenance for record in (*filter(None, found), *stored)]
        rest = iter(swept)
        return [next(rest) if record is None else record for record in found]


def _nothing(config: Any) -> Sequence[Loan]:
    """The loans of a figure that lends nothing."""
    return ()


@dataclass(frozen=True)
class Figure:
    """One numbered figure (or panel) of a paper.

    `presets` are frozen dataclasses of JSON values: "paper" (each value with its source), "laptop" (minutes on two
    cores), "smoke" (seconds). `readings` lists the alternatives where the paper leaves a choice open. Figures with the
    same `computation` share `run` and `presets`: one record serves them all, and each draws and judges its own copy.
    """

    id: str
    title: str
    presets: Mapping[str, Any]
    run: Callable[[Any, Context], Record | Mapping[str, Any]]
    draw: Callable[[Record], Picture]
    statements: Sequence[Statement]
    computation: str = ""
    readings: Sequence[Reading] = ()  # of the config's fields that the paper leaves open
    printed: Mapping[str, str] = field(default_factory=dict)  # sources of fields, in place of the Config's comments
    loans: Callable[[Any], Sequence[Loan]] = _nothing  # the results of sweeps that a record of a config holds
    paper_cost: str = ""  # why "paper" is not run as a matter of course, and what it takes; in records of other presets

    def __post_init__(self) -> None:
        check_readings(self.id, self.readings, dict(self.presets))

    def claims(self, record: Record) -> tuple[Claim, ...]:
        """The statements judged on a record, in the order of the table."""
        claims = (statement.claim(record) for statement in self.statements)
        return tuple(claim for claim in claims if claim is not None)

    @property
    def shared(self) -> str:
        """The name of the computation; the figure's own id unless it shares one."""
        return self.computation or self.id
