"""Products, eigenpairs and densities of ritz against curvlinops and PyHessian, as ratios of times (`make bench`).

Absolute times mean little on a shared machine, so every figure is a ratio of times measured one after the other, as
a median with the range over the repetitions. Each library runs in a process of its own (see `contestants`). The floor
of a Hessian product is 2 gradients, that of a Gauss-Newton product 4/3 (matrix products counted).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from . import peers
from .contestants import Contestant
from .problems import PROBLEMS
from .timing import device_of, machine

TARGETS = {  # time of ritz / time of curvlinops, at most
    ("cpu", "H product"): 0.65,
    ("cpu", "G product"): 0.55,
    ("cpu", "density"): 0.60,
    ("cpu", "eigenpairs"): 0.62,
    ("cpu", "density", "MLP"): 0.40,
    ("cpu", "eigenpairs", "MLP"): 0.50,
    ("cuda", "H product"): 0.65,
    ("cuda", "G product"): 0.70,
    ("cuda", "density"): 0.60,
    ("cuda", "eigenpairs"): 0.50,
    ("cuda", "H product, TF32 tangents"): 0.15,
    ("cuda", "G product, TF32 tangents"): 0.15,
}
WORK = ("products", "eigenpairs", "density")
NAMES = {"mlp": "MLP", "gpt": "GPT", "resnet": "ResNet-20", "vgg": "VGG11"}
FAST = "ritz, TF32 tangents"


@dataclass(frozen=True)
class Row:
    """One piece of work: the ratio to each peer (median, lowest, highest), and what goes with it."""

    problem: str
    work: str
    ratios: dict[str, tuple[float, float, float]]
    target: float | None
    note: str
    seconds: dict[str, float]  # medians; for the record, they mean little elsewhere


class Bench:
    """The measurements of one problem."""

    def __init__(self, problem: str, device: torch.device, options: argparse.Namespace, full: bool) -> None:
        self.name, self.device, self.options, self.full = NAMES[problem], device, options, full
        others = ["PyHessian"] if device.type == "cpu" else [FAST, "curvlinops compiled", "curvlinops, cuDNN search"]
        names = ["ritz", "curvlinops", *others]
        self.contestants = {name: Contestant(name, problem, device.type) for name in names}
        self.repetitions: int = options.repetitions
        self.rows: list[Row] = []
        self.fastest = "curvlinops"  # of eager and compiled; it runs the densities and eigenpairs

    def run(self) -> list[Row]:
        try:
            if "products" in self.options.work:
                self.products("H product", "hessian")
                self.products("G product", "gauss_newton")
            if "eigenpairs" in self.options.work:
                self.eigenpairs()
            if "density" in self.options.work:
                self.density() if self.full else self.short_density()
        finally:
            for contestant in self.contestants.values():
                contestant.leave()
        return self.rows

    def products(self, work: str, matrix: str) -> None:
        """One product after set-up."""
        names = [n for n in self.contestants if n != "PyHessian" or matrix == "hessian"]
        times: dict[str, list[float]] = {name: [] for name in [*names, "gradient"]}
        for _ in range(self.repetitions):
            for name in names:
                times[name].append(self.contestants[name].ask("product", matrix))
            times["gradient"].append(self.contestants["ritz"].ask("gradient", matrix))
        path, kept, _ = self.contestants["ritz"].ask("trial", matrix)
        cost = statistics.median(times["ritz"]) / statistics.median(times["gradient"])
        self._report(work, times, f"{cost:.2f} gradients; {path}; keeps {kept / 1e6:.0f} MB")
        if FAST in times:
            path, _, error = self.contestants[FAST].ask("trial", matrix)
            note = f"against float32 peers; relative error of a product {error:.1e} on the first batch; {path}"
            self._report(f"{work}, TF32 tangents", {**times, "ritz": times[FAST]}, note)
        if matrix == "hessian" and "curvlinops compiled" in times:
            self.fastest = min("curvlinops", "curvlinops compiled", key=lambda name: statistics.median(times[name]))

    def eigenpairs(self) -> None:
        """The ten largest eigenpairs, from construction, all certified by fresh products."""
        # PyHessian's power iteration takes hours on the larger networks.
        names = ["ritz", self.fastest, *(["PyHessian"] if "PyHessian" in self.contestants and self.full else [])]
        results = self._alternated(names, "eigenpairs")
        facts = [f"{name}: residual {r[-1][1]:.1e}, {r[-1][2]} products" for name, r in results.items() if r[-1][2]]
        self._report("eigenpairs", {name: [r[0] for r in runs] for name, runs in results.items()}, "; ".join(facts))

    def density(self) -> None:
        """The density, from construction to the curve. PyHessian's calls what torch has removed."""
        results = self._alternated(["ritz", self.fastest], "density")
        times = {name: [r[0] for r in runs] for name, runs in results.items()}
        self._report("density", times, f"peak of ritz {results['ritz'][-1][1]}")

    def short_density(self) -> None:
        """Construction and 6 of the 64 steps are run; the other steps cost what the last 4 of these did.

        The peers' search for the range is counted, not run: ARPACK's products on the same matrix, at their own cost.
        """
        short, ours, theirs = 2, self.contestants["ritz"], self.contestants["curvlinops"]
        range_products = ours.ask("range_products")
        count = peers.NUM_PROBES * peers.NUM_STEPS + range_products
        times: dict[str, list[float]] = {"ritz": [], "curvlinops": []}
        for _ in range(self._repetitions_of_runs):
            one, many = (ours.ask("density", steps)[0] for steps in (short, 3 * short))
            if many <= one:
                raise RuntimeError(f"{3 * short} steps took {many:.0f} s, {short} took {one:.0f} s: too busy a machine")
            times["ritz"].append(many + (peers.NUM_STEPS - 3 * short) * (many - one) / (2 * short))
            times["curvlinops"].append(count * statistics.median(theirs.ask("product", "hessian") for _ in range(3)))
        note = f"6 of the 64 steps run, the rest at their cost; curvlinops' range: {range_products} products"
        self._report("density", times, note)

    @property
    def _repetitions_of_runs(self) -> int:
        return max(1, self.repetitions // 5) if self.full else 1

    def _alternated(self, names: list[str], measurement: str) -> dict[str, list[Any]]:
        results: dict[str, list[Any]] = {name: [] for name in names}
        for _ in range(self._repetitions_of_runs):
            for name in names:
                results[name].append(self.contestants[name].ask(measurement))
        return results

    def _report(self, work: str, times: dict[str, list[float]], note: str) -> None:
        ours, name = times["ritz"], self.name
        ratios = {
            rival: _ratio(ours, theirs) for rival, theirs in times.items() if rival not in ("ritz", FAST, "gradient")
        }
        target = TARGETS.get((self.device.type, work, name), TARGETS.get((self.device.type, work)))
        seconds = {who: statistics.median(values) for who, values in times.items() if who != FAST}
        self.rows.append(Row(name, work, ratios, target, note, seconds))
        _write(self.options, self.rows)
        print(f"{name}, {work}: {ratios} ({seconds}; {note})", flush=True)


def _ratio(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    pairs = [a / b for a, b in zip(ours, theirs, strict=False)]
    return statistics.median(ours) / statistics.median(theirs), min(pairs), max(pairs)


def table(rows: list[Row]) -> Table:
    """Ratios of times, the median first, then the range."""
    shown = Table(title="time of ritz / time of peer: median (lowest to highest)")
    rivals = list(dict.fromkeys(rival for row in rows for rival in row.ratios))
    for heading in ("problem", "work", *rivals, "at most", "note"):
        shown.add_column(heading, overflow="fold")
    for row in rows:
        cells = ["" if r not in row.ratios else "{:.2f} ({:.2f} to {:.2f})".format(*row.ratios[r]) for r in rivals]
        best = max((row.ratios[r][0] for r in ("curvlinops", "curvlinops compiled") if r in row.ratios), default=0.0)
        met = row.target is None or best <= row.target
        shown.add_row(row.problem, row.work, *cells, f"{row.target} {'✓' if met else '✗'}", row.note)
    return shown


def main() -> None:
    """Measure, print, and write the JSON that the README quotes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", help=f"any of {', '.join(PROBLEMS)}")
    parser.add_argument("--gpu", action="store_true", help="VGG11 on a GPU; every density in full")
    parser.add_argument("--full", action="store_true", help="run densities in full on the CPU, too (hours)")
    parser.add_argument("--work", nargs="*", default=WORK, choices=WORK, help="what to measure (default: everything)")
    parser.add_argument("--repetitions", type=int, default=11)
    parser.add_argument("--out", type=Path, help="JSON to write, besides printing")
    parser.add_argument("--commit", default=_commit(), help="what is measured, where git cannot tell")
    options = parser.parse_args()
    device = device_of(gpu=options.gpu)
    names = options.problems or (["vgg"] if options.gpu else ["mlp", "gpt", "resnet"])
    rows: list[Row] = []
    for name in names:
        full = options.gpu or options.full or name == "mlp"
        rows += Bench(name, device, options, full).run()
        _write(options, rows)
    Console(width=160).print(table(rows))


def _commit() -> str:
    """The commit, marked where the working tree differs from it."""
    command = ["git", "describe", "--always", "--abbrev=12", "--dirty= with uncommitted changes"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _write(options: argparse.Namespace, rows: list[Row]) -> None:
    if not options.out:
        return
    facts = machine(device_of(gpu=options.gpu)) | {"commit": options.commit}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({**facts, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
