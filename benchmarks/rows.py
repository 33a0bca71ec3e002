"""The results of the comparison with other libraries: rows of ratios, times and peaks, as a table and in a file."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One piece of work: the ratio to each peer (median, lowest, highest), and what goes with it."""

    problem: str
    work: str
    ratios: dict[str, tuple[float, float, float]]
    note: str
    seconds: dict[str, float]  # medians; for the record, they mean little elsewhere
    peak_bytes: dict[str, float] = field(default_factory=dict)  # on a GPU all that is allocated; on a CPU the increase
    set_up_peak_bytes: dict[str, float] = field(default_factory=dict)  # until the first product has been made
    set_up_products: dict[str, float] = field(default_factory=dict)  # time until then, in products
    failures: dict[str, str] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)  # what operators of ritz say of themselves
    commit: str = "unknown"


class Rows:
    """The rows of a run, written after each; those that the file has already are not measured again."""

    def __init__(self, out: Path | None, machine: dict[str, Any]) -> None:
        self._out, self._machine = out, machine
        known = json.loads(out.read_text())["rows"] if out is not None and out.exists() else []
        self.rows = [Row(**row) for row in known]

    def has(self, problem: str, work: str) -> bool:
        """Whether this was measured."""
        return any((row.problem, row.work) == (problem, work) for row in self.rows)

    def add(self, row: Row) -> None:
        """Print a row, and write all."""
        self.rows.append(row)
        print(f"{row.problem}, {row.work}: {row.ratios} ({row.seconds}; {row.note}) {row.failures}", flush=True)
        if self._out is not None:
            self._out.parent.mkdir(parents=True, exist_ok=True)
            facts = {**self._machine, "rows": [asdict(each) for each in self.rows]}
            self._out.write_text(json.dumps(facts, indent=1) + "\n")


def ratio(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    """The ratio of the medians, with the lowest and the highest of the pairs."""
    pairs = [a / b for a, b in zip(ours, theirs, strict=False)]
    return statistics.median(ours) / statistics.median(theirs), min(pairs), max(pairs)


def table(rows: list[Row]) -> Table:
    """Ratios of times, the median first, then the range; the peaks of memory; the set-up."""
    shown = Table(title="time of ritz / time of peer: median (lowest to highest)")
    rivals = list(dict.fromkeys(rival for row in rows for rival in row.ratios))
    for heading in ("problem", "work", *rivals, "peak, GB", "set-up, products", "note"):
        shown.add_column(heading, overflow="fold")
    for row in rows:
        cells = [_range(row.ratios[r]) if r in row.ratios else row.failures.get(r, "") for r in rivals]
        peaks = "; ".join(f"{name} {peak / 1e9:.2f}" for name, peak in row.peak_bytes.items())
        set_ups = "; ".join(f"{name} {products:.1f}" for name, products in row.set_up_products.items())
        shown.add_row(row.problem, row.work, *cells, peaks, set_ups, row.note)
    return shown


def _range(values: tuple[float, float, float]) -> str:
    return "{:.2f} ({:.2f} to {:.2f})".format(*values)
