"""A figure of a paper: how it is computed, drawn and judged.

Figure(
    "author2026.fig1",
    "What it shows, in a line",
    presets={"paper": Config(), "laptop": Config(draws=20), "smoke": Config(draws=2, depth=2)},
    run=run,        # (config, context) -> Record or mapping: computes, never draws
    draw=draw,      # record -> matplotlib figure: draws, never computes
    claims=CLAIMS,  # a table of statements, each with a rule that can say no
)
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
from ...lab.workers import InProcess, Task, Workers, name_of
from ...record import Claim, Picture, Record
from .claims import Statement, judged


@dataclass(frozen=True)
class Context:
    """Where a figure is computed. None of it changes what is computed, so none of it is in the config."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    data_dir: Path | None = None  # None: where `lab.data` looks by itself
    folder: Path | None = None  # what an interrupted run needs to go on, such as checkpoints; None: it keeps nothing
    workers: Workers = field(default_factory=InProcess)

    def sweep(self, task: Task, configs: Iterable[Any], *, name: str | None = None) -> list[Record]:
        """One record for each config, by the workers of this run; what an interrupted run has computed is kept.

        The device and the data folder are bound to the task by the caller: `partial(point, device=context.device)`.
        """
        name = name or name_of(task)
        with nullcontext(self.folder) if self.folder is not None else TemporaryDirectory() as folder:
            return unlocked_sweep(task, configs, Path(folder) / name, workers=self.workers, name=name)


@dataclass(frozen=True)
class Figure:
    """One numbered figure (or panel) of a paper.

    `presets` are frozen dataclasses of JSON values: "paper" (each value with its source), "laptop" (minutes on two
    cores), "smoke" (seconds). Figures with the same `computation` share `run` and `presets`: the record of one serves
    all, and each draws and judges its own.
    """

    id: str
    title: str
    presets: Mapping[str, Any]
    run: Callable[[Any, Context], Record | Mapping[str, Any]]
    draw: Callable[[Record], Picture]
    claims: Sequence[Statement] | Callable[[Record], Sequence[Claim]]
    computation: str = ""
    paper_cost: str = (
        ""  # why "paper" is not run as a matter of course, and what it takes; kept in other presets' records
    )

    @property
    def statements(self) -> tuple[Statement, ...]:
        """What is said about the figure, which can be read without a record."""
        return () if callable(self.claims) else tuple(self.claims)

    def judged(self, record: Record) -> tuple[Claim, ...]:
        """What the record says about each statement."""
        return tuple(self.claims(record)) if callable(self.claims) else judged(self.claims, record)

    @property
    def shared(self) -> str:
        """The name of the computation: its own id, unless it is shared."""
        return self.computation or self.id
