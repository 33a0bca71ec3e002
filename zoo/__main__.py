"""`python -m zoo`: every network, or those whose names are given; `--write` redraws docs/zoo.md."""

from __future__ import annotations

import argparse
import sys

import torch
from rich.console import Console

from .comparison import compare
from .libraries import LIBRARIES
from .report import row, table, write


def main() -> int:
    """Look at the networks one after the other; 1 if one does not pass."""
    parser = argparse.ArgumentParser(prog="python -m zoo", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of the names of libraries or networks; all by default")
    parser.add_argument("--write", action="store_true", help="write the table into docs/zoo.md")
    parser.add_argument("--trace", action="store_true", help="print where a failure came from")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=200)
    results = []
    for library, networks in LIBRARIES.items():
        for network in networks():
            if options.names and not any(part in f"{library}/{network.name}" for part in options.names):
                continue
            results.append(result := compare(library, network))
            console.print(*row(result))
            if options.trace and result.trace:
                console.print(result.trace, markup=False)
    console.print(table(results))
    if options.write:
        write(results)
    failures = [result for result in results if result.complaints]
    for result in failures:
        console.print(f"[red]{result.library}/{result.network.name}[/]: {'; '.join(result.complaints)}")
    console.print(f"{len(results) - len(failures)} of {len(results)} networks pass.")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
