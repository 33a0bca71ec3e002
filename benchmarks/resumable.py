"""Measurements that can be interrupted: rows in a file, and the options of the command that writes them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from .timing import commit


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options of all benchmarks that go on where their file ends."""
    result = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--out", type=Path, help="JSON to write, besides printing; its rows are not measured again")
    result.add_argument("--commit", default=commit(), help="the commit that is measured, where git cannot tell")
    return result


class Results:
    """One row for each model and piece of work, written after each; those that the file has are not run again."""

    def __init__(self, out: Path | None, facts: dict[str, Any]) -> None:
        self.out, self.facts, self.rows = out, facts, []
        if out is not None and out.exists():
            self.rows = json.loads(out.read_text())["rows"]

    def has(self, model: str, work: str) -> bool:
        return any((row["model"], row["work"]) == (model, work) for row in self.rows)

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        print(json.dumps(row), flush=True)
        if self.out is not None:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self.out.write_text(json.dumps({**self.facts, "rows": self.rows}, indent=1) + "\n")
