"""Products, eigenpairs and densities of ritz against curvlinops and PyHessian, as ratios of times (`make bench`).

Absolute times mean little on a shared machine, so every figure is a ratio of times measured one after the other, as
a median with the range over the repetitions. Each library runs in a process of its own (see `contestants`). The floor
of a Hessian product is 2 gradients, that of a Gauss-Newton product 4/3 (matrix products counted).
"""

from __future__ import annotations

import argparse
import statistics
from importlib.util import find_spec
from typing import Any

import torch
from rich.console import Console

from . import peers, resumable
from .contestants import Contestant, Failure
from .networks import NEEDS, NETWORKS
from .problems import PROBLEMS
from .rows import Row, Rows, ratio, table
from .timing import device_of, machine

WORK = ("products", "eigenpairs", "density")
NAMES = {
    "mlp": "MLP", "gpt": "GPT", "resnet": "ResNet-20", "vgg": "VGG11",
    "resnet18": "ResNet-18, 64 × 64²", "resnet50": "ResNet-50, 64 × 224²", "mobilenet": "MobileNetV3-large, 64 × 224²",
    "vit": "ViT-B/16, 64 × 224²", "gpt2": "GPT-2 124M, 8 × 512 tokens",
}  # fmt: skip
DEFAULTS = {"cpu": ["mlp", "gpt", "resnet", "resnet18"], "cuda": ["vgg", "resnet50", "mobilenet", "vit", "gpt2"]}
FAST = "ritz, TF32 tangents"
MATRICES = {"H product": "hessian", "G product": "gauss_newton"}


class Bench:
    """The measurements of one problem."""

    def __init__(self, problem: str, device: torch.device, options: argparse.Namespace, rows: Rows) -> None:
        self.problem, self.device = problem, device
        self.name = NAMES[problem] + (" (smoke)" if options.smoke else "")
        self.options, self.rows = options, rows
        self.full = options.gpu or options.full or problem == "mlp"
        self.repetitions: int = options.repetitions
        self.contestants: dict[str, Contestant] = {}
        self.fastest = "curvlinops"  # of eager and compiled; it runs the densities and eigenpairs

    def run(self) -> None:
        """Measure everything that was asked for and is not in the record yet."""
        missing = self._missing()
        if not missing:
            return
        smoke = self.options.smoke
        self.contestants = {n: Contestant(n, self.problem, self.device.type, smoke=smoke) for n in self._libraries()}
        try:
            for work in missing:
                self._measure(work)
        finally:
            for contestant in self.contestants.values():
                contestant.leave()

    def _missing(self) -> list[str]:
        """The products with each matrix, then the other kinds of work, without those whose rows are there."""
        kinds = self.options.work or (WORK if self.problem in PROBLEMS else ["products"])
        work = [*(MATRICES if "products" in kinds else ()), *(other for other in WORK[1:] if other in kinds)]
        return [one for one in work if not self.rows.has(self.name, one)]

    def _measure(self, work: str) -> None:
        if work in MATRICES:
            self.products(work, MATRICES[work])
        elif work == "eigenpairs":
            self.eigenpairs()
        elif self.full:
            self.density()
        else:
            self.short_density()

    def _libraries(self) -> list[str]:
        if self.device.type == "cpu":
            peer = ["PyHessian"] if self.problem in PROBLEMS and find_spec("pyhessian") else []
            return ["ritz", "curvlinops", *peer]
        searched = ["curvlinops compiled", "curvlinops, cuDNN search"] if self.problem in PROBLEMS else []
        return ["ritz", FAST, "curvlinops", *searched]

    def products(self, work: str, matrix: str) -> None:
        """One product after set-up. On a CPU the libraries alternate; a GPU's memory belongs to one at a time."""
        names = [n for n in self.contestants if n != "PyHessian" or matrix == "hessian"]
        groups = [names] if self.device.type == "cpu" else [[name] for name in names]
        measured: dict[str, dict[str, Any]] = {}
        for group in groups:
            measured |= self._in_turn(group, matrix)
        good = {name: m for name, m in measured.items() if "failure" not in m}
        self._report_products(work, good, {n: m["failure"] for n, m in measured.items() if "failure" in m})
        if matrix == "hessian" and "curvlinops compiled" in good and "curvlinops" in good:
            eager, compiled = (statistics.median(good[n]["times"]) for n in ("curvlinops", "curvlinops compiled"))
            self.fastest = "curvlinops" if eager <= compiled else "curvlinops compiled"

    def _in_turn(self, names: list[str], matrix: str) -> dict[str, dict[str, Any]]:
        """Set-up, times and peaks of some libraries, one product of each at a time."""
        measured: dict[str, dict[str, Any]] = {name: {"times": [], "gradients": []} for name in names}

        def each(step: Any) -> None:
            for name, results in measured.items():
                if "failure" not in results:
                    try:
                        step(self.contestants[name], name, results)
                    except Failure as failure:
                        results["failure"] = str(failure)

        def repeated(contestant: Contestant, name: str, results: dict[str, Any]) -> None:
            results["times"].append(contestant.ask("product", matrix))
            if name == "ritz":
                results["gradients"].append(contestant.ask("gradient", matrix))

        def last(contestant: Contestant, name: str, results: dict[str, Any]) -> None:
            results["peak"] = contestant.ask("peak", matrix)
            results["facts"] = contestant.ask("facts", matrix) if name.startswith("ritz") else {}
            contestant.ask("forget", matrix)

        each(lambda contestant, name, results: results.update(set_up=contestant.ask("set_up", matrix)))
        for _ in range(self.repetitions):
            each(repeated)
        each(last)
        return measured

    def _report_products(self, work: str, measured: dict[str, dict[str, Any]], failures: dict[str, str]) -> None:
        """A row for ritz as it comes, and one for its fast tangents, each beside the peers."""
        rivals = {name: m for name, m in measured.items() if not name.startswith("ritz")}
        for name, kind in (("ritz", work), (FAST, f"{work}, TF32 tangents")):
            if name in measured:
                gradients = measured[name]["gradients"] or measured.get("ritz", {}).get("gradients", [])
                note = _note_on_products(name, measured[name], gradients)
                self.rows.add(self._row_of_products(kind, measured[name], rivals, gradients, note, failures))
        if failures and "ritz" not in measured:
            print(f"{self.name}, {work}: {failures}", flush=True)

    def _row_of_products(
        self,
        kind: str,
        ours: dict[str, Any],
        rivals: dict[str, dict[str, Any]],
        gradients: list[float],
        note: str,
        failures: dict[str, str],
    ) -> Row:
        everyone = {"ritz": ours, **rivals}
        seconds = {who: statistics.median(m["times"]) for who, m in everyone.items()}
        return Row(
            self.name, kind,
            ratios={who: ratio(ours["times"], m["times"]) for who, m in rivals.items()},
            note=note,
            seconds=seconds | ({"gradient": statistics.median(gradients)} if gradients else {}),
            peak_bytes={who: m["peak"] for who, m in everyone.items()},
            set_up_peak_bytes={who: m["set_up"][1] for who, m in everyone.items()},
            set_up_products={who: m["set_up"][0] / seconds[who] for who, m in everyone.items()},
            failures=failures, facts={"ritz": ours["facts"]}, commit=self.options.commit,
        )  # fmt: skip

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
        self._report("density", times, "", {name: runs[-1][1] for name, runs in results.items()})

    def short_density(self) -> None:
        """Construction and 6 of the 64 steps are run; the other steps cost what the last 4 of these did.

        The peers' search for the range is counted, not run: ARPACK's products on the same matrix, at their own cost.
        """
        short, ours, theirs = 2, self.contestants["ritz"], self.contestants["curvlinops"]
        range_products = ours.ask("range_products")
        count = peers.NUM_PROBES * peers.NUM_STEPS + range_products
        times: dict[str, list[float]] = {"ritz": [], "curvlinops": []}
        theirs.ask("set_up", "hessian")
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

    def _report(
        self, work: str, times: dict[str, list[float]], note: str, peaks: dict[str, float] | None = None
    ) -> None:
        ratios = {rival: ratio(times["ritz"], theirs) for rival, theirs in times.items() if rival != "ritz"}
        seconds = {who: statistics.median(values) for who, values in times.items()}
        self.rows.add(Row(self.name, work, ratios, note, seconds, peaks or {}, commit=self.options.commit))


def _note_on_products(name: str, ours: dict[str, Any], gradients: list[float]) -> str:
    """The path and its memory; for fast tangents their error; and the price of a product in gradients."""
    facts = ours["facts"]
    note = f"{facts.get('path', '')}; keeps {facts.get('kept_bytes', 0) / 1e6:.0f} MB"
    if name == FAST:
        error = facts.get("tangent_error") or 0
        note = f"against float32 peers; relative error of a product {error:.1e} on the first batch; {note}"
    if gradients:
        note = f"{statistics.median(ours['times']) / statistics.median(gradients):.2f} gradients; {note}"
    return note


def main() -> None:
    """Measure, print, and write the JSON that the README quotes."""
    parser = resumable.parser(__doc__)
    parser.add_argument("problems", nargs="*", help=f"any of {', '.join(NAMES)}")
    parser.add_argument("--gpu", action="store_true", help="on a GPU; every density in full")
    parser.add_argument("--full", action="store_true", help="run densities in full on the CPU, too (hours)")
    parser.add_argument("--work", nargs="*", choices=WORK, help="what to measure (by default everything for our own "
                        "networks, products for those of others)")  # fmt: skip
    parser.add_argument("--repetitions", type=int, default=11)
    parser.add_argument("--smoke", action="store_true", help="others' networks at tiny sizes: does it run?")
    options = parser.parse_args()
    device = device_of(gpu=options.gpu)
    rows = Rows(options.out, machine(device))
    for name in options.problems or DEFAULTS[device.type]:
        if name in NETWORKS and find_spec(NEEDS[name]) is None:
            print(f"{NAMES[name]} is left out: it needs {NEEDS[name]} (pip install {NEEDS[name]}).", flush=True)
            continue
        Bench(name, device, options, rows).run()
    Console(width=200).print(table(rows.rows))


if __name__ == "__main__":
    main()
