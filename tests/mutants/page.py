"""The page docs/mutants.md: the results of a run of mutants."""

from collections import Counter

from .equivalent import EQUIVALENT

ALIVE_AT_MOST, EQUIVALENT_AT_MOST = 0.05, 12


def living(results):
    """Alive, and not because nothing has changed."""
    return {name: m for name, m in results["mutants"].items() if m["outcome"] == "alive" and not reason(name, m)}


def equivalent(results):
    return {name: m for name, m in results["mutants"].items() if m["outcome"] == "alive" and reason(name, m)}


def reason(name, mutant):
    """Why this one changes nothing; None of all others."""
    return EQUIVALENT.get((name.split(":")[0], mutant["after"]))


def enough_killed(results):
    different = len(results["mutants"]) - len(equivalent(results))
    return len(living(results)) <= ALIVE_AT_MOST * different and len(equivalent(results)) <= EQUIVALENT_AT_MOST


def summary(results):
    counts = Counter(m["outcome"] for m in results["mutants"].values())
    return (
        f"{len(results['mutants'])} mutants, drawn by seed {results['seed']} from {results['made']:,}: "
        + ", ".join(f"{number} {outcome}" for outcome, number in counts.most_common())
        + f"; {len(equivalent(results))} of those alive change nothing, {len(living(results))} do. "
        f"Of the source at {results['source']}."
    )


def page(results):
    """The whole table, folder by folder."""
    rows = sorted(results["mutants"].items())
    return "\n".join(
        [
            "# Mutants",
            "",
            "One change at one place of the engine, the solvers, the losses, the classes or the theory: do the tests "
            "notice? `make mutants` draws changes by a seed from all that cosmic-ray makes, without those in "
            "annotations, and runs each against the tests that run its line, in a copy of the tree. *killed*: a test "
            "fails; *no import*: the package cannot be imported; *endless*: a test ran more than ten times as long; "
            "*crash*: the process died. A draw is kept as the source changes, and what is gone is drawn anew. Tests "
            "were written for those of this draw that lived: another seed says more of tests that nobody fitted to it.",
            "",
            summary(results),
            "",
            *_equivalent(results),
            "## All of them",
            "",
            "| place | before | after | outcome |",
            "|---|---|---|---|",
            *(
                f"| {_place(name, m)} | {_code(m['before'])} | {_code(m['after'])} | {_outcome(name, m)} |"
                for name, m in rows
            ),
            "",
        ]
    )


def _equivalent(results):
    if not equivalent(results):
        return []
    rows = [f"- `{_place(name, m)}`: {_code(m['after'])}: {reason(name, m)}" for name, m in equivalent(results).items()]
    return ["## Those that change nothing, and are not run", "", *rows, ""]


def _place(name, mutant):
    """The file, and the function in it: lines move with every change of the file, functions seldom."""
    return ", ".join(filter(None, [name.split(":")[0], mutant["function"]]))


def _code(text):
    return f"`{text.replace('|', chr(92) + '|')}`" if text else "(gone)"


def _outcome(name, mutant):
    return "changes nothing" if mutant["outcome"] == "alive" and reason(name, mutant) else mutant["outcome"]
