"""Error against products: ritz, ARPACK, LOBPCG, curvlinops, PyHessian and hessian-eigenthings on known spectra.

python -m benchmarks.solvers --out benchmarks/results/solvers-cpu.json            what the file lacks is measured
python -m benchmarks.solvers --jobs 13 --out FILE                                 the same, many curves at once
python -m benchmarks.solvers demo --work trace --again ritz --out FILE            these curves are measured anew
python -m benchmarks.solvers --page benchmarks/results/solvers-*.json             docs/solvers.md, from the files
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ..timing import commit, device_of, machine
from .curves import WORKS, Task, curves
from .matrices import MATRICES
from .work import Point, Row, Work

DEFAULTS = {"cpu": [name for name in MATRICES if name != "vgg"], "cuda": ["vgg"]}
SEEDS = {"demo": 7, "small-vgg": 5, "vgg": 5}
MOST_SEEDS = 15
PAGE = Path("docs/solvers.md")


def rows_in(out: Path | None) -> list[Row]:
    """The curves that a file has."""
    if out is None or not out.exists():
        return []
    known = json.loads(out.read_text())["rows"]
    return [Row(**row | {"points": [Point(**point) for point in row["points"]]}) for row in known]


def in_order(rows: list[Row]) -> list[Row]:
    """Rows sorted by work, matrix and contestant, as they stand in the tables."""
    matrices = list(MATRICES)
    place = lambda row: (list(WORKS).index(row.work), matrices.index(row.problem), _names(row).index(row.contestant))
    return sorted(rows, key=place)


def _names(row: Row) -> list[str]:
    return list(WORKS[row.work].contestants)


def write(out: Path | None, facts: dict[str, Any], rows: list[Row]) -> None:
    """All curves, one in a line."""
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        lines = ",\n  ".join(json.dumps(asdict(row)) for row in in_order(rows))
        out.write_text(json.dumps(facts)[:-1] + f', "rows": [\n  {lines}\n]}}\n')


def measure(options: argparse.Namespace, rows: list[Row], facts: dict[str, Any]) -> None:
    """Every curve that is asked for and not known."""
    device = device_of(gpu=options.gpu)
    problems = options.problems or DEFAULTS[device.type]
    tasks = [task for problem in problems for task in _tasks(problem, device, options, rows)]
    for row, text in curves(tasks, options.jobs):
        print(text, flush=True)
        place = (row.problem, row.work, row.contestant)
        rows[:] = [*(old for old in rows if (old.problem, old.work, old.contestant) != place), row]
        write(options.out, facts, rows)


def _tasks(problem: str, device: torch.device, options: argparse.Namespace, rows: list[Row]) -> list[Task]:
    seeds = options.seeds or SEEDS.get(problem, MOST_SEEDS)
    rest = (seeds, options.most, options.commit, device.type)
    return [
        (problem, work, name, *rest) for work in options.work for name in _missing(WORKS[work], problem, options, rows)
    ]


def _missing(work: Work, problem: str, options: argparse.Namespace, rows: list[Row]) -> list[str]:
    known = {row.contestant for row in rows if (row.problem, row.work) == (problem, work.name)}
    names = [name for name in work.contestants if not options.only or name in options.only]
    return [name for name in names if name not in known or name in options.again]


def main() -> None:
    """Measure what is missing, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", help=f"any of {', '.join(MATRICES)}")
    parser.add_argument("--work", nargs="*", choices=list(WORKS), default=list(WORKS))
    parser.add_argument("--only", nargs="*", default=[], help="contestants; all by default")
    parser.add_argument("--again", nargs="*", default=[], help="contestants whose curves are measured anew")
    parser.add_argument("--seeds", type=int, help="by default 15 for made-up matrices, fewer for networks")
    parser.add_argument("--most", type=int, default=512, help="products beyond which no setting goes")
    parser.add_argument("--jobs", type=int, default=1, help="processes, on a CPU")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--out", type=Path, help="JSON to write; its curves are not measured again")
    parser.add_argument("--commit", default=commit(), help="what is measured, where git cannot tell")
    parser.add_argument("--page", nargs="+", type=Path, help=f"JSON files to draw {PAGE} from; nothing is measured")
    options = parser.parse_args()
    if options.page:
        from . import page  # measuring needs no matplotlib

        machines = [json.loads(file.read_text())["machine"] for file in options.page]
        rows = in_order([row for file in options.page for row in rows_in(file)])
        page.write(list(WORKS.values()), rows, dict(zip(options.page, machines, strict=True)), PAGE)
    else:
        measure(options, rows_in(options.out), machine(device_of(gpu=options.gpu)))


if __name__ == "__main__":
    main()
