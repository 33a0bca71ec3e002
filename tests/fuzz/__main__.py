"""Every public function with arguments that fit and that do not: a right result or a refusal, nothing else.

    python -m tests.fuzz --calls 20000 --seed 0 --json counts.json

Arguments are built from a function's own signature, so that a new one is called by itself.
"""

import argparse
import collections
import contextlib
import functools
import inspect
import itertools
import json
import os
import tempfile
import time

import jaxtyping
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from . import samples, values, verdicts
from .surface import surface

REFUSED_AT_MOST = 0.7


def fuzzed(calls, start):
    """Counts over about so many calls, drawn by the seed `start`, and what each fault was."""
    counts, faults, share = collections.Counter(), {}, collections.defaultdict(collections.Counter)
    functions = surface()
    with surroundings():
        for public, kind, words, call in _until(calls, functions, start, counts):
            share[public.name][kind] += 1
            if kind == "fault":
                faults.setdefault(f"{public.name}: {words}", call)
    return {
        "calls": counts.total(),
        "right": counts["result"],
        "refused": counts["refused"],
        "wrong": counts["fault"],
        "functions": len(functions),
        "without a result": [n for n, c in share.items() if not c["result"]],
        "faults": [f"{words}   {call}" for words, call in faults.items()],
    }


def _until(calls, functions, start, counts):
    """A round over all functions, and more until there are as many calls as asked for: not all can be made."""
    for turn in itertools.count():
        each = max(1, -(-(calls - counts.total()) // len(functions)))
        for public in functions:
            if turn and counts.total() >= calls:
                return
            for kind, words, call in outcomes(public, each, start + 2**32 * turn):
                if kind != "unmade":
                    counts[kind] += 1
                    yield public, kind, words, call


@contextlib.contextmanager
def surroundings():
    """As users run it, without annotations that bind, in a folder of its own."""
    import matplotlib.pyplot

    disabled, before, backend = jaxtyping.config.jaxtyping_disable, os.getcwd(), matplotlib.get_backend()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        jaxtyping.config.jaxtyping_disable = True
        matplotlib.use("agg")
        try:
            samples.keep()
            yield
        finally:
            matplotlib.pyplot.close("all")
            matplotlib.use(backend)
            jaxtyping.config.jaxtyping_disable = disabled
            os.chdir(before)


def outcomes(public, number, start):
    """(kind, words, call) of `number` calls of one function."""
    results = []

    @seed(start)
    @settings(max_examples=number, database=None, deadline=None, phases=[Phase.generate], derandomize=False,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.data())
    def one(data):
        arguments = drawn(public, data)
        results.append((*judged(public, arguments), f"{arguments}"))

    one()
    return results


def drawn(public, data):
    """{name: Value}: most fit, a few do not."""
    draw = lambda strategy, label=None: data.draw(strategy)
    sizes, bad = values.Sizes(draw), set()
    names = list(public.hints)
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 1, 2))) if names else 0):
        bad.add(draw(st.sampled_from(names)))
    own = {name: values.sample(draw, name, makers) for name, makers in samples.OF.get(public.name, {}).items()}
    arguments = {} if public.owner is None else {"self": values.fitting(draw, public.owner, "", sizes)}
    arguments |= own
    for name, hint in public.hints.items():
        if name in bad:
            arguments[name] = values.hostile(draw, hint, sizes)
        elif name not in own and (name not in public.defaults or draw(st.booleans())):
            arguments[name] = values.fitting(draw, hint, name, sizes, public.defaults.get(name, values.NOTHING))
    return arguments


def judged(public, arguments):
    """(kind, words): a result is held against the same call in canonical form."""
    try:
        made = {name: value.make() for name, value in arguments.items()}
    except Exception as error:  # of an argument that is a class of its own, which is called by itself
        return "unmade", f"{type(error).__name__}: {error}"
    kind, result = verdicts.outcome(functools.partial(_call, public, made))
    if kind != "result":
        return kind, result
    words = _wrong(public, arguments, made, result)
    return ("fault", words) if words else ("result", "")


def _call(public, made):
    first = [made["self"]] if "self" in made else []
    return public.function(*first, **{name: value for name, value in made.items() if name != "self"})


def _wrong(public, arguments, made, result):
    words = verdicts.wrong_shape(result, public.returns, made, public.hints)
    nan = verdicts.not_a_number(result) if _must_be_numbers(public, made) else None
    if words or nan:
        return words or f"{nan} is NaN"
    if any(value.canonical for value in arguments.values()):
        again = {name: (value.canonical or value.make)() for name, value in arguments.items()}
        again |= {"checkpoint": None} if "checkpoint" in again else {}  # not what the first call left in its file
        kind, canonical = verdicts.outcome(functools.partial(_call, public, again))
        if kind != "result":
            return f"in canonical form: {kind} {canonical}"
        determined = samples.DETERMINED.get(public.name, lambda result: result)
        words = verdicts.differs(determined(result), determined(canonical))
        return words and f"in canonical form: {words}"
    return None


def _must_be_numbers(public, made):
    """A class holds what it was given; networks of a stack that have diverged, and functions at NaN, are NaN."""
    if inspect.isclass(public.function) or public.name.startswith("ritz.lab.ensemble."):
        return False
    axes = {name: getattr(hint, "dim_str", "") for name, hint in public.hints.items()}
    own = [made[name] for name, dims in axes.items() if name in made and ("B" in dims or dims.strip() == "g")]
    return all(bool(x.isfinite().all()) for x in own if isinstance(x, torch.Tensor) and x.is_floating_point())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    began = time.monotonic()
    counts = fuzzed(options.calls, options.seed) | {"seed": options.seed}
    counts["seconds"] = round(time.monotonic() - began)
    text = json.dumps(counts, indent=1, ensure_ascii=False)
    print(text)
    if options.json:
        with open(options.json, "w") as file:
            file.write(text + "\n")
    raise SystemExit(counts["wrong"] > 0 or counts["refused"] > REFUSED_AT_MOST * counts["calls"])


if __name__ == "__main__":
    main()
