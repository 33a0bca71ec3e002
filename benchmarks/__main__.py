"""`make bench`: ritz against curvlinops and PyHessian, alternating in one run, as ratios of times.

Absolute times mean little on a shared machine, so every figure is a ratio of times measured one after the other, as
a median with the range over the repetitions. The floor of a Hessian product is 2 gradients, that of a Gauss-Newton
product 4/3 (matrix products counted).
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from scipy.sparse.linalg import eigsh

from . import peers
from .problems import PROBLEMS, Problem

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


@dataclass(frozen=True)
class Row:
    """One piece of work: the ratio to each peer (median, lowest, highest), and what goes with it."""

    problem: str
    work: str
    ratios: dict[str, tuple[float, float, float]]
    target: float | None
    note: str


class Bench:
    """The measurements of one problem."""

    def __init__(self, problem: Problem, device: torch.device, options: argparse.Namespace, full: bool) -> None:
        self.problem, self.device, self.options, self.full = problem, device, options, full
        self.repetitions: int = options.repetitions
        self.rows: list[Row] = []
        self.compiled_is_faster = False  # then curvlinops' densities and eigenpairs run compiled

    def run(self) -> list[Row]:
        with peers.fair(self.device):
            if "products" in self.options.work:
                self.products("H product", "hessian")
                self.products("G product", "gauss_newton")
            if "eigenpairs" in self.options.work:
                self.eigenpairs()
            if "density" in self.options.work:
                self.density()
        return self.rows

    def products(self, work: str, matrix: str) -> None:
        """One product after set-up."""
        rivals = {
            name: peers.product_with(getattr(peer, matrix)(), self.problem)
            for name, peer in self._peers(matrix).items()
        }
        operator = getattr(peers.Ritz(self.problem), matrix)()
        ours = peers.product_with(operator, self.problem)
        gradient = operator.matmat.risk.gradient
        times = self._alternated({"ritz": ours, "gradient": gradient, **rivals}, self.repetitions)
        cost = statistics.median(times["ritz"]) / statistics.median(times["gradient"])
        probe = operator.matmat.probe
        note = f"{cost:.2f} gradients; {probe.path.name}; keeps {probe.example_bytes * self._examples / 1e6:.0f} MB"
        self._report(work, times, note)
        if self.device.type == "cuda":
            self._fast_products(work, matrix, times)
        if matrix == "hessian" and "curvlinops compiled" in times:
            eager, compiled = (statistics.median(times[n]) for n in ("curvlinops", "curvlinops compiled"))
            self.compiled_is_faster = compiled < eager

    def _fast_products(self, work: str, matrix: str, slow: dict[str, list[float]]) -> None:
        operator = getattr(peers.Ritz(self.problem, "high"), matrix)()
        times = self._alternated({"ritz": peers.product_with(operator, self.problem)}, self.repetitions)
        rivals = {name: values for name, values in slow.items() if name not in ("ritz", "gradient")}
        error = operator.matmat.probe.tangent_error
        note = f"against float32 peers; relative error of a product {error:.1e}, measured on the first batch"
        self._report(f"{work}, TF32 tangents", {**times, **rivals}, note)

    def eigenpairs(self) -> None:
        """The ten largest eigenpairs, from construction, all certified by fresh products."""
        found: dict[str, Any] = {}
        contestants = {"ritz": peers.Ritz(self.problem), **self._peers("eigenpairs")}
        work = {name: self._kept(found, name, contestant.eigenpairs) for name, contestant in contestants.items()}
        times = self._alternated(work, self._repetitions_of_runs)
        facts = [f"{name}: residual {r:.1e}, {count} products" for name, (_, r, count) in found.items() if count]
        self._report("eigenpairs", times, "; ".join(facts))

    def density(self) -> None:
        """The density, from construction to the curve."""
        contestants = {"ritz": peers.Ritz(self.problem), **self._peers("density")}
        if self.full:
            peaks: list[str] = []
            work: dict[str, Callable[[], Any]] = {n: c.density for n, c in contestants.items()}
            work["ritz"] = lambda: peaks.append(self._peak_memory(contestants["ritz"].density))
            times = self._alternated(work, self._repetitions_of_runs)
            self._report("density", times, f"peak of ritz {peaks[-1]}")
        else:
            self._short_density(contestants)

    def _short_density(self, contestants: dict[str, Any]) -> None:
        """Construction and 6 of the 64 steps are run; the other steps cost what the last 4 of these did.

        The peers' search for the range is counted, not run: ARPACK's products on the same matrix, at their own cost.
        """
        short = 2
        ours = contestants["ritz"]
        range_products = peers.Counted(ours.hessian().to_scipy())
        eigsh(range_products.operator, k=2, which="BE", tol=1e-2)
        rivals = {n: peers.product_with(c.hessian(), self.problem) for n, c in contestants.items() if n != "ritz"}
        times: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(self._repetitions_of_runs):
            one, many = (self._seconds(lambda steps=steps: ours.density(steps)) for steps in (short, 3 * short))
            times["ritz"].append(many + (peers.NUM_STEPS - 3 * short) * (many - one) / (2 * short))
            for name, product in rivals.items():
                count = peers.NUM_PROBES * peers.NUM_STEPS + (range_products.count if name == "curvlinops" else 0)
                times[name].append(count * statistics.median(self._seconds(product) for _ in range(3)))
        note = f"6 of the 64 steps run, the rest at their cost; curvlinops' range: {range_products.count} products"
        self._report("density", times, note)

    def _peers(self, work: str) -> dict[str, Any]:
        products = work in ("hessian", "gauss_newton")
        eager, compiled = (peers.Curvlinops(self.problem, compiled=choice) for choice in (False, True))
        found: dict[str, Any] = {"curvlinops": compiled if self.compiled_is_faster and not products else eager}
        if self.device.type == "cuda" and products:
            found["curvlinops compiled"] = compiled
        # PyHessian's density calls what torch has removed; its power iteration takes hours on the larger networks.
        if self.device.type == "cpu" and (work == "hessian" or (work == "eigenpairs" and self.full)):
            found["PyHessian"] = peers.PyHessian(self.problem)
        return found

    @property
    def _examples(self) -> int:
        return sum(len(y) for _, y in self.problem.batches)

    @property
    def _repetitions_of_runs(self) -> int:
        return max(1, self.repetitions // 5) if self.full else 1

    def _kept(self, found: dict[str, Any], name: str, work: Callable[[], Any]) -> Callable[[], None]:
        return lambda: found.__setitem__(name, work())

    def _alternated(self, work: dict[str, Callable[[], Any]], repetitions: int) -> dict[str, list[float]]:
        if repetitions > 2:  # single products: a first one sets up
            for run in work.values():
                run()
        times: dict[str, list[float]] = {name: [] for name in work}
        for _ in range(repetitions):
            for name, run in work.items():
                times[name].append(self._seconds(run))
        return times

    def _seconds(self, work: Callable[[], Any]) -> float:
        self._synchronize()
        start = time.perf_counter()
        work()
        self._synchronize()
        return time.perf_counter() - start

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _peak_memory(self, work: Callable[[], Any]) -> str:
        if self.device.type != "cuda":
            work()
            return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB of the process so far"
        torch.cuda.reset_peak_memory_stats()
        work()
        return f"{torch.cuda.max_memory_allocated() / 1e9:.1f} GB"

    def _report(self, work: str, times: dict[str, list[float]], note: str) -> None:
        ours, name = times["ritz"], self.problem.name
        ratios = {rival: _ratio(ours, theirs) for rival, theirs in times.items() if rival not in ("ritz", "gradient")}
        target = TARGETS.get((self.device.type, work, name), TARGETS.get((self.device.type, work)))
        self.rows.append(Row(name, work, ratios, target, note))
        _write(self.options, self.rows)
        print(f"{name}, {work}: {ratios} (ritz {statistics.median(ours):.3g} s; {note})", flush=True)


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
        best = max((row.ratios[r][0] for r in row.ratios if r.startswith("curvlinops")), default=0.0)
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
    options = parser.parse_args()
    device = torch.device("cuda" if options.gpu else "cpu")
    names = options.problems or (["vgg"] if options.gpu else ["mlp", "gpt", "resnet"])
    rows: list[Row] = []
    for name in names:
        torch.manual_seed(0)  # initial weights
        full = options.gpu or options.full or name == "mlp"
        rows += Bench(PROBLEMS[name](device), device, options, full).run()
        _write(options, rows)
    Console(width=160).print(table(rows))


def _write(options: argparse.Namespace, rows: list[Row]) -> None:
    if not options.out:
        return
    machine = torch.cuda.get_device_name() if options.gpu else f"{torch.get_num_threads()} CPU threads"
    facts = {"machine": machine, "torch": torch.__version__, "python": platform.python_version()}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({**facts, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
