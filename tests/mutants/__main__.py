"""Mutants of the core, drawn by a seed, against the tests that run their lines.

    python -m tests.mutants                          # all of it: the map of lines, then every mutant
    python -m tests.mutants --again --page docs/mutants.md   # those alive once more, after a test was written

Results are written after every mutant, and a run that was stopped goes on. The status is 1 where too many live.
"""

import argparse
import json
from pathlib import Path

from . import page
from .cover import ROOT, TESTS, cover, merged
from .pool import draw, every_mutant
from .runs import outcomes


def main():
    options = _options()
    place = Path(options.out)
    results = json.loads(place.read_text()) if place.exists() else {}
    lines = _lines(options.map)
    pool = every_mutant()
    chosen = draw(pool, options.number, options.seed)
    results |= {"seed": options.seed, "drawn": options.number, "made": len(pool), "mutants": results.get("mutants", {})}
    due = [mutant for mutant in chosen if _is_due(mutant, results, options)]
    for mutant, result in outcomes(due, lines, options.jobs, wide=options.again):
        results["mutants"][mutant.name] = _described(mutant) | result
        place.write_text(json.dumps(results, indent=1, ensure_ascii=False))
        print(f"{result['outcome']:10} {result['seconds']:6} s  {mutant.name}  {result['test']}", flush=True)
    if options.page:
        Path(options.page).write_text(page.page(results))
    print(page.summary(results))
    raise SystemExit(not page.enough_killed(results))


def _options():
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--number", type=int, default=125)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", default="out/mutants.json")
    parser.add_argument("--map", nargs="*", default=["out/mutants-map.json"], help="made first where there is none")
    parser.add_argument("--only", default="", help="of one folder: solvers")
    parser.add_argument("--again", action="store_true", help="also those that were alive")
    parser.add_argument("--page", default=None)
    options = parser.parse_args()
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    return options


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


def _described(mutant):
    source = (ROOT / mutant.path).read_text()
    before, after = source.splitlines(), mutant.code(source).splitlines()
    first = next(i for i in range(len(before)) if i >= len(after) or before[i] != after[i])
    return {"before": before[first].strip(), "after": after[first].strip() if first < len(after) else ""}


if __name__ == "__main__":
    main()
