"""The table of the zoo, in the terminal and in docs/zoo.md."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from rich.table import Table

from .comparison import Result

PAGE = Path(__file__).parents[1] / "docs" / "zoo.md"
COLUMNS = ("library", "network", "n", "oracle", "path", "gradient", "H", "G", "E", "float32", "model", "seconds")
PACKAGES = ("torch", "torchvision", "timm", "transformers", "peft")

HEAD = """# The zoo: networks that others wrote

`make zoo` builds every network below as its library does, at a reduced size and with random weights, none of them zero,
in evaluation mode and in float64, and hands it to ritz with two batches. The gradient and products with H, G and E are
compared with an oracle that uses PyTorch alone (`zoo/oracle.py`): a double backward, to 1e-10, or, where PyTorch has no
second derivative or a wrong one, central differences, to 1e-6. The oracle is checked, too: H = G + E, and the gradient
is the slope of the risk (but for DoRA, which takes a norm for a constant on purpose). `python -m zoo --write` writes
this page.

- **path**: *rules* where all three operators took ritz's efficient rules; *plain*, by PyTorch's own derivatives, with
  activation checkpointing: what is computed anew in a backward pass does not see the rules.
- **gradient, H, G, E**: relative errors; for matrices, of two products made one by one and together, the larger.
- **float32**: some models compute norms or attention in float32 whatever their parameters are in. How much of the
  curvature that blurs, as the oracle measures it with and without; errors may be ten times that, and ritz must warn.
- **model**: whether the user's model is as it was: tensors bit for bit and never written to, attributes, hooks, modes.
- **seconds**: of ritz, for the risk, the gradient and twelve products.
"""


def row(result: Result) -> list[str]:
    """One network as cells of text."""
    errors = [f"{result.errors[name]:.0e}" if name in result.errors else "-" for name in ("gradient", "H", "G", "E")]
    path = _paths(result)
    float32 = "none, but said" if result.said else ""
    if result.float32 is not None:
        float32 = f"{result.float32:.0e}" + ("" if result.said else ", not said")
    model = "changed" if result.changes else "untouched"
    return [
        *(result.library, result.network.name, f"{result.size:,}", result.network.oracle, path),
        *errors,
        *(float32, model, f"{result.seconds:.1f}"),
    ]


def _paths(result: Result) -> str:
    plain = [name for name in result.paths if not result.by_rules(name)]
    if len(plain) == len(result.paths):
        return "plain" if plain else ""
    return f"rules, but for {', '.join(plain)}" if plain else "rules"


def table(results: list[Result]) -> Table:
    """All networks for a terminal; what does not pass in red."""
    grid = Table(title="Errors are relative, against an oracle in float64")
    for name in COLUMNS:
        grid.add_column(name, justify="left" if name in ("library", "network", "oracle", "path", "model") else "right")
    for result in results:
        grid.add_row(*row(result), style="red" if result.complaints else "")
    return grid


def write(results: list[Result]) -> None:
    """docs/zoo.md, anew."""
    lines = [_line(COLUMNS), _line(["---"] * len(COLUMNS)), *(_line(row(result)) for result in results)]
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    passed = sum(not result.complaints for result in results)
    lines += ["", *(f"- {r.network.name}: {'; '.join(r.complaints)}." for r in results if r.complaints)]
    PAGE.write_text(f"{HEAD}\n{passed} of {len(results)} networks pass, with {packages}.\n\n" + "\n".join(lines) + "\n")


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"
