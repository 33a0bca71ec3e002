"""The page docs/solvers.md, from the record alone: the pictures, and a table for each kind of work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .pictures import draw
from .verdicts import comparisons, summary
from .work import Row, Work

HEAD = """# Solvers: error against products

`python -m benchmarks.solvers` multiplies with matrices whose spectrum is known exactly, counts every product, and holds
what each library returns against the truth. `python -m benchmarks.solvers --page FILES` draws this page from its
records: {records};
ritz at {commits}.

All libraries multiply with the same float32 matrix: those that take only a model are given ½ θᵀAθ at θ = 0. Curves are
medians over seeds, shades their whole range; `--seeds` asks for more than these:
{seeds}.

- **demo, H**: the dense Hessian of the network that `ritz demo` trains. **VGG11, G**: exact through its Gram matrix,
  which is that of the network in float64; on the GPU the eigenvalues of float32 products differ from those by 2e-4.
  The others have n = 4,000 and random eigenvectors.
- Errors below what float32 products can tell (1e-6 for eigenpairs, 1e-7 elsewhere) count as equal.
- A cell is the error of ritz over theirs at the same products, as a geometric mean over their points from 16 products
  on; below 1, ritz is better. *Worse at* names the products where ritz is above, beyond what chance does (p < 0.01),
  for which four seeds are too few.
"""
NOTES = {
    "eigenpairs": "The five largest. The five products that certify them are counted for everybody: only ritz makes "
    "them by itself. ARPACK is run to tolerances, for without convergence it returns nothing; hessian-eigenthings is "
    "asked to reorthogonalise, which it leaves away beyond 50 steps. curvlinops has no eigensolver of its own and "
    "exports to ARPACK. Where no eigenvalue stands apart (two bulks), the luck of restarts decides between ritz and "
    "ARPACK from 78 products on.",
    "density": "Lanczos quadratures with the same probes and steps: up to 64 steps one probe, then 64 steps each. "
    "curvlinops' search for the range (some 100 products) is not counted, and nobody's smoothing is. PyHessian calls "
    "`torch.eig`, which PyTorch has removed: it is lent a symmetric one.",
    "trace": "Over Σ|λ|, the trace itself where no eigenvalue is negative. PyHessian's own rule, which stops where two "
    "means happen to agree, is switched off. Where the spectrum is flat (two bulks, the bulk under the clusters), half "
    "of XTrace's products go into a subspace that holds little, and plain signs (Hutchinson) have √2 less error in "
    "theory. So the sketch of ritz grows only while that lowers the error, a sixth of the products at least: it is 30 "
    "to 300 times below plain signs where eigenvalues decay, and about a tenth above them where they do not.",
    "log-determinant": "log det(A + μ) with μ a thousandth of the largest eigenvalue, or 1.2 |λ_min| where that is "
    "negative. No peer has a log-determinant: theirs is the integral of the logarithm over their quadrature. With the "
    "same probes and steps it is the same quadrature; what differs is the luck of the probes.",
}

STARTS = Path("benchmarks/results/starts-cpu.json")
OF_STARTS = """## Starts

Products for the largest eigenpairs, residuals of 1e-4, from a random vector → from eigenvectors that are nearly right
(+ what these cost, in products with all data). `python -m benchmarks.starts` measures it ({commits}); {networks}.

{table}

In the mean, with their own cost counted: 0.75 of the products from the last checkpoint where it is one step old, 0.92
where it is ten; 0.93 and 0.92 from an eighth and a 32nd of the data, and 1.2 from a half. So eigenvectors of the last
checkpoint are worth giving wherever they are at hand, as `start=`. Those of a part save less than it takes to set the
part up, some products: ritz takes no such start by itself. The lines of H in `attribution` start from those of G.
"""
OF_TEN_MILLION = """## Ten million parameters

The largest eigenvalue of H to 1e-3, with its certificate, of an MLP with {n:,} parameters on {examples} digits
(`python -m benchmarks.starts large`):

| | products | relative error |
|---|---|---|
{rows}
"""


def write(works: list[Work], rows: list[Row], machines: dict[Path, str], page: Path) -> None:
    """The page and its pictures."""
    commits = ", ".join(dict.fromkeys(row.commit for row in rows if row.contestant == "ritz"))
    records = " and ".join(f"`{file}` ({machine})" for file, machine in machines.items())
    parts = [HEAD.format(records=records, commits=commits, seeds=_seeds(rows))]
    for work in works:
        own = [row for row in rows if row.work == work.name]
        if own:
            picture = page.with_name(f"solvers-{work.name}.png")
            draw(work, own, picture)
            parts += [_section(work, own, picture.name)]
    record = json.loads(STARTS.read_text())["rows"]
    page.write_text("\n".join([*parts, _starts(record), _ten_million(record)]))


def _starts(record: list[dict[str, Any]]) -> str:
    own = [row for row in record if "starts" in row]
    counts = sorted({one["k"] for row in own for one in row["starts"]})
    lines = ["| network | start | " + " | ".join(f"k = {k}" for k in counts) + " |", "|---" * (2 + len(counts)) + "|"]
    for row in own:
        fine = [one for one in row["starts"] if one["tolerance"] == 1e-4]
        for start in dict.fromkeys(one["start"] for one in fine):
            cells = [_cell(one) for one in fine if one["start"] == start]
            words = start.replace("1 steps", "1 step")
            lines.append(f"| {row['model']} | {words} | " + " | ".join(cells) + " |")
    networks = ", ".join(f"{row['model']}: {row['n']:,} parameters, {row['examples']:,} examples" for row in own)
    commits = ", ".join(dict.fromkeys(row["commit"] for row in own))
    return OF_STARTS.format(commits=commits, networks=networks, table="\n".join(lines))


def _cell(one: dict[str, Any]) -> str:
    price = f" + {one['price']:.1f}" if one["price"] else ""
    return f"{one['cold']} → {one['warm']}{price}"


def _ten_million(record: list[dict[str, Any]]) -> str:
    [row] = [row for row in record if row["model"] == "large"]
    lines = [
        f"| after {one['steps']} steps of training | {one['products']} | {one['relative_error']:.0e} |"
        for one in row["rows"]
    ]
    return OF_TEN_MILLION.format(n=row["n"], examples=row["examples"], rows="\n".join(lines))


def _seeds(rows: list[Row]) -> str:
    """How many each matrix has had, in words."""
    counts: dict[str, set[int]] = {}
    for row in rows:
        sizes = [len(errors) for point in row.points for errors in point.errors.values()]
        counts.setdefault(row.problem, set()).update(sizes)
    texts = {name: "-".join(map(str, sorted({min(sizes), max(sizes)}))) for name, sizes in counts.items() if sizes}
    names = {text: ", ".join(name for name in texts if texts[name] == text) for text in texts.values()}
    return "; ".join(f"{text} for {of}" for text, of in names.items())


def _section(work: Work, rows: list[Row], picture: str) -> str:
    lines = [f"## {work.name.capitalize()}", "", NOTES[work.name], "", f"![{work.name}]({picture})", ""]
    for error, floor in work.floors.items():
        lines += [f"Ratio of the {work.labels[error]}:", "", *_table(work, rows, error, floor), ""]
    failures = [f"- {row.contestant}, {row.title}: {row.failure}." for row in rows if row.failure]
    return "\n".join([*lines, *(["What failed:", "", *failures, ""] if failures else [])])


def _table(work: Work, rows: list[Row], error: str, floor: float) -> list[str]:
    by = {(row.title, row.contestant): row for row in rows}
    rivals = [name for name in work.contestants if name != "ritz" and any(key[1] == name for key in by)]
    lines = ["| | " + " | ".join(rivals) + " |", "|---" * (len(rivals) + 1) + "|"]
    for title in dict.fromkeys(row.title for row in rows):
        if (title, "ritz") in by:
            ours, theirs = by[title, "ritz"], [by.get((title, name)) for name in rivals]
            cells = [summary(comparisons(ours, row, error, floor)) if row else "" for row in theirs]
            lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return lines
