"""Mutants of the core, drawn by a seed, against the tests that run their lines.

    python -m tests.mutants           # all of it: by the test that killed each before, else by those of its lines
    python -m tests.mutants --again   # those alive once more, after a test was written, by all tests of their files
    python -m tests.mutants --seed 1 --number 30 --record out/one.json --out out/one-results.json   # another draw

A draw is kept: where the source has changed, mutants that are gone are drawn anew. Results are written after every
mutant, and a run that was stopped goes on. The status is 1 where too many live.
"""

import argparse
import json
import subprocess
from pathlib import Path

from . import page
from .cover import ROOT, TESTS, cover, merged
from .pool import draw, every_mutant, kept
from .runs import outcomes, passing, tests_of


def main():
    options = _options()
    before = _stored(options.record).get("mutants", {})
    pool = every_mutant()
    known = kept(pool, before)
    mutants = draw(pool, options.number, options.seed, known)
    results = _stored(options.out) | {"seed": options.seed, "made": len(pool), "source": _source()}
    old = results.get("mutants", {})
    results["mutants"] = {m.name: old[m.name] for m in mutants if old.get(m.name, {}).items() >= m.change().items()}
    _run(mutants, known, results, options)
    if options.page:
        Path(options.page).write_text(page.page(results))
        Path(options.record).write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    print(page.summary(results))
    raise SystemExit(not page.enough_killed(results))


def _options():
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--number", type=int, default=125)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", default="out/mutants.json", help="the results of this run, so far")
    parser.add_argument("--record", default="benchmarks/results/mutants.json", help="the draw, and who killed whom")
    parser.add_argument("--map", nargs="*", default=["out/mutants-map.json"], help="made first where there is none")
    parser.add_argument("--only", default="", help="of one folder: solvers")
    parser.add_argument("--again", action="store_true", help="also those that were alive")
    parser.add_argument("--page", default=None, help="written at the end, and the record")
    options = parser.parse_args()
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    return options


def _run(mutants, known, results, options):
    """First by the test that is known to kill, then, where there is none or it no longer does, by all of the line.

    Those that change nothing are not run: they would take all tests.
    """
    due = {mutant for mutant in mutants if _is_due(mutant, results, options)}
    for mutant in sorted(mutant for mutant in due if page.reason(mutant.name, mutant.change())):
        _keep(mutant, {"outcome": "alive", "test": "", "tests": 0, "seconds": 0.0}, results, options.out)
        due.remove(mutant)
    killers = {m: known[m]["test"] for m in sorted(due) if known.get(m, {}).get("outcome") == "killed"}
    good = passing(set(killers.values())) if killers else set()
    quick = {mutant: [test] for mutant, test in killers.items() if test in good}
    for mutant, result in outcomes(quick, {}, options.jobs):
        if result["outcome"] == "killed":
            _keep(mutant, result, results, options.out)
            due.remove(mutant)
    lines = _lines(options.map) if due else {}
    tests = {mutant: tests_of(mutant, lines, wide=options.again) for mutant in sorted(due)}
    for mutant, result in outcomes(tests, lines.get("seconds", {}), options.jobs):
        _keep(mutant, result, results, options.out)


def _keep(mutant, result, results, place):
    results["mutants"][mutant.name] = {"function": mutant.function()} | mutant.change() | result
    Path(place).write_text(json.dumps(results, indent=1, ensure_ascii=False))
    print(f"{result['outcome']:10} {result['seconds']:6} s  {mutant.name}  {result['test']}", flush=True)


def _stored(place):
    return json.loads(Path(place).read_text()) if Path(place).exists() else {}


def _lines(places):
    for place in places:
        if not Path(place).exists():
            Path(place).write_text(json.dumps(cover(TESTS)))
    return merged(json.loads(Path(place).read_text()) for place in places)


def _is_due(mutant, results, options):
    before = results["mutants"].get(mutant.name, {}).get("outcome")
    if options.only not in mutant.path:
        return False
    return before is None or (options.again and before == "alive")


def _source():
    """The last commit that has changed what is mutated."""
    command = ["git", "log", "-1", "--format=%h", "--", "src"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
