"""`ritz verify`: every closed form of the papers against the dense Hessian, in one table."""

from __future__ import annotations

from ..checks import DRAWS, Row, rows
from .messages import note, say

HEADINGS = ("result", "paper", "equation", "draws", "error of λ", "error of z", "")


def run(draws: int | None, seed: int | None) -> bool:
    """Verify everything, print the table, and say whether all results hold."""
    import torch

    generator = torch.Generator()
    used = seed if seed is not None else generator.seed() % 2**32
    draws = DRAWS if draws is None else draws
    results = list(rows(draws=draws, generator=generator.manual_seed(used)))
    say(table(results))
    wrong = [row for row in results if not row.passed]
    for row in wrong:
        note(f"{row.result}: worst at {row.worst}; repeat with --draws {draws} --seed {used}")
    if not wrong:
        say(f"All {len(results)} results hold (seed {used}).")
    return not wrong


def table(results: list[Row]) -> str:
    """One line per result, in columns."""
    cells = [HEADINGS, *map(_cells, results)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(HEADINGS))]
    left = (0, 1, 2, 6)
    lines = (
        "  ".join(
            cell.ljust(w) if i in left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    vectors = "-" if row.vectors is None else f"{row.vectors:.0e}"
    verdict = "" if row.passed else "FAILS"
    return row.result, row.paper, row.equation, str(row.draws), f"{row.values:.0e}", vectors, verdict
