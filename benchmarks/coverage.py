"""The share of intervals and errors that hold the true value, over kinds of spectra, sizes and seeds.

python -m benchmarks.coverage --out benchmarks/results/coverage.json      what the file lacks is measured
python -m benchmarks.coverage --page benchmarks/results/coverage.json     docs/coverage.md, from the file

Those of densities are measured on diagonal matrices: a random direction does not care for a basis. Those of numbers,
two standard errors on either side, on reflected ones: random signs do care. Every row has seeds of its own, and five
times as many of them where one of its rates seems to be below what is stated.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import ritz
from benchmarks.timing import commit
from ritz import Estimate, Operator, Spectrum, spectral_density

PAGE = Path("docs/coverage.md")
RATE = 0.95
SEEDS = 100
MORE = 5  # times as many, for a row that seems to miss its rate: of 400 rates, ten do so by chance
BLOCK = 20  # seeds that one process takes at a time
DEFAULT = (8, 128)
SIZES = [(100, DEFAULT), (1000, DEFAULT), (5000, DEFAULT), (1000, (8, 32)), (1000, (2, 32)), (1000, (1, 64))]
ESTIMATORS = ("density", "log density", "distribution", "mean", "mean square", "Wasserstein")
MASSES = """
The error of a mass holds what the quadrature leaves open: the mass of the nodes next to an end of the interval may lie
on either side of it, as far as the density differs from one to the next. Where a spectrum is crowded and symmetric
about that end, as two of these nearly are about zero, half of it on each side is right, and the error is stated far too
large. A quadrature cannot know that: away from the middle of the same spectra (the upper quarter) errors are nearly as
large as stated."""
SIZE = 1000  # of the matrices that numbers are estimated of
REFLECTIONS = 3


def _random(count: int, seed: int, draw: Callable = torch.rand) -> Tensor:
    return draw(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _normal(count: int, seed: int) -> Tensor:
    return _random(count, seed, torch.randn)


KINDS: dict[str, Callable[[int], Tensor]] = {
    "uniform": lambda n: torch.linspace(0, 1, n, dtype=torch.float64),
    "normal": lambda n: _normal(n, 1),
    "1/k²": lambda n: torch.arange(1, n + 1, dtype=torch.float64) ** -2,
    "gapped": lambda n: torch.cat([_random(n // 2, 2), 3 + _random(n - n // 2, 3)]),
    "clustered": lambda n: torch.tensor([0.0, 1.0, 1.5, 4.0, 10.0]).double().repeat(n // 5) + 1e-3 * _normal(n, 4),
    "many zeros": lambda n: torch.cat([torch.zeros(n // 2).double(), _normal(n - n // 2, 5) ** 2]),
    "multiple": lambda n: torch.cat([_LINES.repeat(n // 20), 3 + _random(n - 10 * (n // 20), 6)]),
    "indefinite": lambda n: torch.cat([torch.linspace(3, 10, 10).double(), 0.1 * _normal(n - 10, 7) ** 3]),
    "narrow bulk": lambda n: torch.cat([torch.linspace(20, 100, 10).double(), 0.1 * _random(n - 10, 8)]),
}
_LINES = torch.tensor([-3.0, -1.0, 0.0, 0.5, 1.0, 2.0, 4.0, 7.0, 8.0, 10.0]).double()


def operator(values: Tensor, dtype: torch.dtype = torch.float64) -> Operator:
    """The diagonal matrix of these eigenvalues."""
    d = values.to(dtype)[:, None]
    return Operator(lambda V: d * V, len(values), dtype, torch.device("cpu"))


def inside(spectrum: Spectrum, values: Tensor, rate: float = RATE) -> dict[str, float]:
    """The share of points where each interval holds the truth; the bound over the true distance beside."""
    truth = Spectrum.of_eigenvalues(values)
    quantiles = torch.quantile(values, torch.linspace(0.01, 0.99, 33, dtype=torch.float64))
    x = torch.cat([quantiles, torch.linspace(*truth.range, 33, dtype=torch.float64)])
    floor, width = spectrum.floor, spectrum.log_width()
    u = torch.linspace(*((end.abs() + floor).log().item() for end in (values.abs().min(), values.abs().max())), 33)
    u = u.double()
    shares = {
        "density": _share(spectrum.band(x, rate=rate), truth.density(x, spectrum.width)),
        "log density": _share(spectrum.log_band(u, rate=rate), truth.log_density(u, width=width, floor=floor)),
        "distribution": _share(spectrum.cdf_band(x, rate=rate), truth.cdf(x)),
    }
    for name, degree in (("mean", 1), ("mean square", 2)):
        ends, scale = spectrum.interval(degree, rate=rate), truth.moment(2) ** (degree / 2)
        shares[name] = float(ends[0] - 1e-9 * scale <= truth.moment(degree) <= ends[1] + 1e-9 * scale)
    bound, distance = spectrum.wasserstein_bound(rate=rate), spectrum.wasserstein(truth)
    nothing = 1e-12 * max(map(abs, truth.range))  # what rounding makes of the same eigenvalues
    return shares | {
        "Wasserstein": float(distance <= bound + nothing),
        "ratio": (bound + nothing) / (distance + nothing),
    }


def _share(band: tuple[Tensor, Tensor], truth: Tensor) -> float:
    slack = 1e-9 * float(truth.max())
    return float(((band[0] - slack <= truth) & (truth <= band[1] + slack)).double().mean())


def runs(setting: Setting, seeds: Iterable[int]) -> list[dict[str, float]]:
    """What `inside` says of each seed."""
    kind, size, num_probes, num_steps = setting
    values = KINDS[kind](size)
    options = {"num_steps": num_steps, "num_probes": num_probes}
    generators = (torch.Generator().manual_seed(seed) for seed in seeds)
    return [inside(spectral_density(operator(values), **options, generator=g), values) for g in generators]


def row(setting: Setting, results: list[dict[str, float]]) -> dict[str, Any]:
    """The mean over seeds of each share, with its standard error, and the median ratio of the bound."""
    table = {name: torch.tensor([run[name] for run in results], dtype=torch.float64) for name in results[0]}
    ratio = float(table.pop("ratio").median())
    rates = {name: [float(x.mean()), float(x.std()) / math.sqrt(len(x))] for name, x in table.items()}
    facts = dict(zip(("kind", "size", "num_probes", "num_steps"), setting, strict=True))
    return facts | {"seeds": len(results), "rates": rates, "ratio": ratio}


def reflected(values: Tensor) -> Operator:
    """A matrix with these eigenvalues whose eigenvectors have no zeros."""
    mirrors = [_normal(len(values), 20 + index)[:, None] for index in range(REFLECTIONS)]
    mirrors = [v / v.norm() for v in mirrors]

    def matmat(V: Tensor) -> Tensor:
        for v in mirrors:
            V = V - 2 * v @ (v.T @ V)
        V = values[:, None] * V
        for v in reversed(mirrors):
            V = V - 2 * v @ (v.T @ V)
        return V

    return Operator(matmat, len(values), torch.float64, torch.device("cpu"))


def _damping(values: Tensor) -> float:
    """What makes the smallest eigenvalue a tenth of the largest."""
    return float(values.abs().max()) / 10 - float(values.min())


def _mass_above(A: Operator, values: Tensor, generator: torch.Generator) -> Estimate:
    spectrum = spectral_density(A, num_steps=64, generator=generator)
    return spectrum.mass(math.nextafter(_upper_quartile(values), math.inf), math.inf)


def _upper_quartile(values: Tensor) -> float:
    return float(torch.quantile(values, 0.75, interpolation="midpoint"))


Number = Callable[[Operator, Tensor, torch.Generator], Estimate]
NUMBERS: dict[str, tuple[Number, Callable[[Tensor], Tensor]]] = {
    "trace, 40 products": (lambda A, _, g: ritz.trace(A, num_products=40, generator=g), lambda x: x.sum()),
    "trace by signs, 40 products": (
        lambda A, _, g: ritz.solvers.hutchinson(A, num_products=40, generator=g),
        lambda x: x.sum(),
    ),
    "effective rank, 40 products": (
        lambda A, _, g: ritz.effective_rank(A, num_products=40, generator=g),
        lambda x: x.sum() ** 2 / x.square().sum(),
    ),
    "log-determinant, 6 × 16": (
        lambda A, x, g: ritz.log_determinant(A, damping=_damping(x), num_steps=16, num_probes=6, generator=g),
        lambda x: (x + _damping(x)).log().sum(),
    ),
    "negative mass, 8 × 64": (
        lambda A, _, g: ritz.negative_mass(A, num_steps=64, generator=g),
        lambda x: (x < -16 * torch.finfo(torch.float64).eps * x.abs().max()).double().mean(),
    ),
    "mass of the upper quarter, 8 × 64": (_mass_above, lambda x: (x > _upper_quartile(x)).double().mean()),
    "Frobenius norm, 30 products": (
        lambda A, _, g: ritz.solvers.norm(A, num_products=30, generator=g),
        lambda x: x.square().sum().sqrt(),
    ),
    "nuclear norm, 160 products": (
        lambda A, _, g: ritz.solvers.norm(A, "nuc", num_products=160, generator=g),
        lambda x: x.abs().sum(),
    ),
}  # by name: how it is estimated, and what is true


def number_runs(setting: NumberSetting, seeds: Iterable[int]) -> list[dict[str, float]]:
    """The error of each seed, and what it was said to be."""
    (estimate, truth), values = NUMBERS[setting[0]], KINDS[setting[1]](SIZE)
    A, exact = reflected(values), float(truth(values))
    results = [estimate(A, values, torch.Generator().manual_seed(seed)) for seed in seeds]
    nothing = 1e-9 * abs(exact)  # rounding
    return [{"error": abs(x.value - exact) + nothing, "stated": x.standard_error + nothing} for x in results]


def number_row(setting: NumberSetting, results: list[dict[str, float]]) -> dict[str, Any]:
    """How often the truth lies within two standard errors, and the root mean squares of stated and true errors."""
    stated, errors = (torch.tensor([run[name] for run in results], dtype=torch.float64) for name in ("stated", "error"))
    rate = float((errors <= 2 * stated).double().mean())
    ratio = math.sqrt(float(stated.square().mean() / errors.square().mean())) if bool(errors.any()) else None
    return {"number": setting[0], "kind": setting[1], "seeds": len(results), "rate": rate, "ratio": ratio}


Setting = tuple[str, int, int, int]
NumberSetting = tuple[str, str]
SETTINGS: list[Setting] = [(kind, size, *steps) for size, steps in SIZES for kind in KINDS]
NUMBER_SETTINGS: list[NumberSetting] = [(name, kind) for name in NUMBERS for kind in KINDS]
TABLES: dict[str, tuple[list[Any], Callable, Callable]] = {
    "numbers": (NUMBER_SETTINGS, number_runs, number_row),
    "rows": (SETTINGS, runs, row),
}


def main() -> None:
    """Measure or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/coverage.json"))
    parser.add_argument("--page", type=Path)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--commit", default=commit(), help="what is measured, where git cannot tell")
    options = parser.parse_args()
    if options.page is not None:
        PAGE.write_text(page(json.loads(options.page.read_text())))
        return
    facts = {"rate": RATE, "seeds": options.seeds, "rows": [], "numbers": []}
    facts |= (json.loads(options.out.read_text()) if options.out.exists() else {}) | {"commit": options.commit}
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for table, (settings, _, _) in TABLES.items():
            known = {_setting(row) for row in facts[table]}
            _measure(facts, table, [one for one in settings if one not in known], facts["seeds"], pool, options.out)
        for table in TABLES:
            doubtful = [_setting(row) for row in facts[table] if _below(row) and row["seeds"] == facts["seeds"]]
            _measure(facts, table, doubtful, MORE * facts["seeds"], pool, options.out)


def _measure(
    facts: dict[str, Any], table: str, missing: list[Any], seeds: int, pool: ProcessPoolExecutor, path: Path
) -> None:
    """These rows of a table, in blocks of seeds; the file is written after every row."""
    settings, _, summary = TABLES[table]
    first = {one: 10**6 * len(table) + MORE * SEEDS * settings.index(one) for one in missing}
    blocks = {one: [range(s, min(s + BLOCK, first[one] + seeds)) for s in range(first[one], first[one] + seeds, BLOCK)]
              for one in missing}  # fmt: skip
    jobs = {one: [pool.submit(_block, table, one, block) for block in blocks[one]] for one in missing}
    for one in missing:
        result = summary(one, [run for job in jobs[one] for run in job.result()]) | {"commit": facts["commit"]}
        others = [row for row in facts[table] if _setting(row) != one]
        facts[table] = sorted([*others, result], key=lambda row: settings.index(_setting(row)))
        print(result, flush=True)
        entries = (f"{json.dumps(key)}: {_lines(value)}" for key, value in facts.items())
        path.write_text("{" + ",\n".join(entries) + "}\n")


def _block(table: str, setting: Any, seeds: range) -> list[dict[str, float]]:
    torch.set_num_threads(1)
    return TABLES[table][1](setting, seeds)


def _setting(row: dict[str, Any]) -> Setting | NumberSetting:
    return tuple(row[name] for name in ("number", "kind", "size", "num_probes", "num_steps") if name in row)


def _below(row: dict[str, Any]) -> list[str]:
    """The names of those rates that lie below what is stated by more than two of their standard errors."""
    least = math.sqrt(RATE * (1 - RATE) / row["seeds"])  # which a sample without a miss does not show
    rates = row["rates"] if "rates" in row else {row["number"]: [row["rate"], least]}
    return [name for name, (mean, error) in rates.items() if mean + 2 * max(error, least) < RATE]


def _lines(value: Any) -> str:
    """As JSON, a row a line."""
    if not isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    return "[\n  " + ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in value) + "\n]"


def _line(row: dict[str, Any]) -> str:
    rates = " | ".join(f"{mean:.3f} ± {error:.3f}" for mean, error in (row["rates"][name] for name in ESTIMATORS))
    return (
        f"| {row['kind']} | {row['size']:,} | {row['num_probes']} × {row['num_steps']} | {rates} | {row['ratio']:.1f} |"
    )


def page(facts: dict[str, Any]) -> str:
    """The table, with what it means."""
    rows = facts["rows"]
    count = len(rows) * len(ESTIMATORS)
    below = [(row, name) for row in rows for name in _below(row)]
    ratios = sorted(row["ratio"] for row in rows if row["size"] > row["num_steps"])
    head = f"| spectrum | n | probes × steps | {' | '.join(ESTIMATORS)} | bound/distance |"
    return f"""# How often intervals hold what is true

`python -m benchmarks.coverage` draws {facts["seeds"]} sets of probes for each row and counts how often the intervals of
a `Spectrum`, with a stated rate of {facts["rate"]}, hold the truth: `band` of a density and `log_band` of a log density
smoothed by the default width, and `cdf_band`, at points across the spectrum; `interval(1)` and `interval(2)`; and
`wasserstein_bound`. Beside each rate stands its standard error over the seeds. The last column is the median of the
bound over the true distance. `python -m benchmarks.coverage --page benchmarks/results/coverage.json` writes this page.
Measured at {_commits(facts)}.
A row with a rate that seemed to be below was given {MORE * facts["seeds"]} seeds.

Where n is below the number of steps, all is exact but the masses of multiple eigenvalues.
{count - len(below)} of {count} rates are not below the stated one by more than two of their standard
errors{_exceptions(below)}
The median of bound/distance over all rows with more eigenvalues than steps is {ratios[len(ratios) // 2]:.1f}.

{head}
|{"---|" * (len(ESTIMATORS) + 4)}
{chr(10).join(map(_line, rows))}

## Numbers

How often the truth lies within two standard errors of an `Estimate`, and in brackets the stated error over the true
one (root mean squares over the seeds), for matrices with n = {SIZE:,}. {_numbers_below(facts)}
{MASSES}

| number | {" | ".join(KINDS)} |
|{"---|" * (len(KINDS) + 1)}
{chr(10).join(_number_line(name, facts["numbers"]) for name in NUMBERS)}
"""


def _commits(facts: dict[str, Any]) -> str:
    """What the rows were measured at, where it differs with their number."""
    of = [row.get("commit", facts["commit"]) for table in TABLES for row in facts[table]]
    counts = {commit: of.count(commit) for commit in dict.fromkeys(of)}
    return ", ".join(commit if len(counts) == 1 else f"{commit} ({count} rows)" for commit, count in counts.items())


def _number_line(name: str, numbers: list[dict[str, Any]]) -> str:
    of = {row["kind"]: row for row in numbers if row["number"] == name}
    ratios = {kind: "exact" if row["ratio"] is None else f"{row['ratio']:.2f}" for kind, row in of.items()}
    return f"| {name} | " + " | ".join(f"{of[kind]['rate']:.2f} ({ratios[kind]})" for kind in KINDS) + " |"


def _numbers_below(facts: dict[str, Any]) -> str:
    numbers = facts["numbers"]
    below = [f"{row['number']} of {row['kind']} ({row['rate']:.2f})" for row in numbers if _below(row)]
    count = f"{len(numbers) - len(below)} of {len(numbers)} rates are not below 0.95 by more than two of their errors"
    return f"{count}{'; below are: ' + ', '.join(below) if below else ''}."


def _exceptions(below: list[tuple[dict[str, Any], str]]) -> str:
    if not below:
        return "."
    place = lambda row: f"{row['kind']} at n = {row['size']:,}, {row['num_probes']} × {row['num_steps']}"
    rate = lambda row, name: "{:.3f} ± {:.3f}".format(*row["rates"][name])
    return "; below are: " + ", ".join(f"{name} of {place(row)} ({rate(row, name)})" for row, name in below) + "."


if __name__ == "__main__":
    main()
