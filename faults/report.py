"""The report of the fault harness: its counts as a JSON file and as the page docs/faults.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PAGE = Path("docs/faults.md")
ROWS = {
    "kills": ("SIGKILL at a random moment", "kills", "every run then ended with the same bits"),
    "deaths": ("deaths of workers", "deaths", "every sweep has all its results"),
    "disks": ("full disks", "disks", "refused clearly, nothing half-written, the same bits once there was room"),
    "hostile": ("hostile files", "files", "refused and left alone, or read to the right bits"),
    "threads": ("rounds of 12 threads", "rounds", "the same bits as one by one, settings as they were"),
    "fuzz": ("fuzzed calls", "calls", "a right result, or a refusal with what, why and a way out"),
}


def write(counts: Mapping[str, Any], out: Path, *, page: bool) -> None:
    """The JSON file, and on request the table between the marks of the page."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(counts, indent=1, ensure_ascii=False) + "\n")
    if page:
        insert("<!-- counts -->", table(counts))


def insert(mark: str, text: str) -> None:
    """Replace what stands between two marks of the page."""
    before, _, rest = PAGE.read_text().partition(mark)
    PAGE.write_text(f"{before}{mark}\n\n{text}\n\n{mark}{rest.partition(mark)[2]}")


def table(counts: Mapping[str, Any]) -> str:
    """A row for each kind of fault, then the kills by computation."""
    lines = ["| fault | tried | what must hold | faults |", "|---|---|---|---|"]
    for name, (title, key, holds) in ROWS.items():
        part = counts["parts"].get(name)
        if part is not None:
            tried = f"{part.get(key, 0):,}{_outcomes(part)}" if "skipped" not in part else f"none: {part['skipped']}"
            lines.append(f"| {title} | {tried} | {holds} | {len(part['faults'])} |")
    lines += ["", _how(counts)]
    kills = counts["parts"].get("kills")
    if kills:
        lines += ["", "| killed | kills | runs to the same bits |", "|---|---|---|"]
        lines += [f"| {name} | {row['kills']} | {row['runs']} |" for name, row in kills["by_name"].items()]
    return "\n".join(lines)


def _outcomes(part: Mapping[str, Any]) -> str:
    """How fuzzed calls and hostile files ended, by count."""
    if "right" not in part:
        return ""
    if "functions" not in part:
        return f": {part['refused']:,} refused, {part['right']:,} right"
    return (
        f" of {part['functions']} functions: {part['right']:,} right, {part['refused']:,} refused (seed {part['seed']})"
    )


def _how(counts: Mapping[str, Any]) -> str:
    command = f"python -m faults --share {counts['share']:g} --seed {counts['seed']}"
    return (
        f"`{command}`, {counts['minutes']:.0f} minutes, commit {counts['commit']}, torch {counts['torch']}, "
        f"Python {counts['python']}, {counts['date']}."
    )
