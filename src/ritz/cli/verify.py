"""`ritz verify`: every closed form of the papers against the dense Hessian, in one table."""

from __future__ import annotations

from typing import Annotated

import typer

from ..verify import DRAWS, Row, rows

HEADINGS = ("result", "paper", "equation", "draws", "error of λ", "error of z", "")


def verify(
    draws: Annotated[int, typer.Option(min=1, help="Fresh random inputs per result.")] = DRAWS,
    seed: Annotated[int | None, typer.Option(help="Seed of the inputs.", show_default="a new one each time")] = None,
) -> None:
    """Check every closed form of the papers against the dense Hessian by automatic differentiation, in float64.

    On fresh random inputs and on the degenerate cases. Errors are relative to the largest eigenvalue; exit code 1 if
    any is above 1e-10 (eigenvalues) or 1e-9 (eigenvectors). It takes less than a minute.

    \b
    Examples:
      ritz verify
      ritz verify --draws 200 --seed 7
    """
    import torch

    generator = torch.Generator()
    used = generator.manual_seed(seed).initial_seed() if seed is not None else generator.seed() % 2**32
    generator.manual_seed(used)
    found = list(rows(draws=draws, generator=generator))
    typer.echo(table(found))
    wrong = [row for row in found if not row.passed]
    for row in wrong:
        typer.echo(f"{row.result}: worst at {row.worst}; repeat with --draws {draws} --seed {used}", err=True)
    if wrong:
        raise typer.Exit(1)
    typer.echo(f"All {len(found)} results hold (seed {used}).")


def table(found: list[Row]) -> str:
    """One line per result, in columns."""
    cells = [HEADINGS, *map(_cells, found)]
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
