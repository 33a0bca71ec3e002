"""The page docs/benchmarks.md from the records: `python -m benchmarks.page`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
FIRST = """# Benchmarks

Made from the records in `benchmarks/results` by `python -m benchmarks.page`. Every table says when, where and at which
commit of ritz it was measured. `make bench` measures again on two CPU cores, `make bench-gpu` on a GPU.
"""
RATIOS = """## Against other libraries

Time of ritz over time of the other: below 1, ritz is faster. The median, and the range where the work was repeated.
Each library runs in a process of its own, in turn, in float32; eigenpairs and densities are timed from construction to
result.
"""
NAMES = {"cpu-2-cores": "two CPU cores", "products-h200": "H200", "vgg11-h200": "H200", "vgg11-h200-density": "H200"}


def page() -> str:
    """The whole page."""
    parts = [
        FIRST,
        RATIOS,
        *map(_ratios, NAMES),
        _large(),
        _mixed(),
        _exact(),
        _deepnets(),
        _classes(),
        _lab(),
        _own_data(),
        _imports(),
    ]
    return "\n".join(part.strip() + "\n" for part in parts)


def _ratios(name: str) -> str:
    """One row for each problem and work, one column for each rival."""
    record = _record(name)
    rivals = sorted({rival for row in record["rows"] for rival in row["ratios"]})
    rows = [
        [row["problem"], row["work"], *(_ratio(row["ratios"].get(rival)) for rival in rivals), _millis(row)]
        for row in record["rows"]
    ]
    return _section(f"### {NAMES[name]}: `{name}.json`", "", [name], ["problem", "work", *rivals, "ritz"], rows)


def _large() -> str:
    rows = []
    for row in _record("memory-h200")["rows"]:
        seconds = row.get("seconds") or row["later_product"]["seconds"]
        peak = row.get("peak_vectors") or row["later_product"]["peak_vectors"]
        rows.append([f"GPT-2 {row['model']}, {row['tokens']} tokens", row["work"], f"{seconds:.2f} s", f"{peak:.1f}"])
    words = "The peak of memory in vectors of n float32 numbers; a gradient needs four."
    return _section("## Large networks on one GPU", words, ["memory-h200"], ["network", "work", "time", "peak"], rows)


def _mixed() -> str:
    rows = []
    for row in _record("mixed-h200")["rows"]:
        own, mixed = (min(run["seconds"] for run in row["runs"][kind]) for kind in ("own", "mixed"))
        rows.append([row["data"], f"{row['n']:,}", f"{own:.1f} s", f"{mixed:.1f} s"])
    title, words = (
        '## Eigenpairs with cheaper products: `precision="mixed"`',
        "The same residuals, certified in float32.",
    )
    return _section(title, words, ["mixed-h200"], ["network", "n", "float32", "mixed"], rows)


def _exact() -> str:
    cpu, gpu = _record("gram-cpu"), _record("gram-h200")
    rows = [
        [cpu["problem"], "two CPU cores", f"{cpu['exact_seconds']:.1f} s", f"{cpu['times_faster']:.1f} times faster"],
        [gpu["problem"], "H200, float64", f"{gpu['float64_seconds']:.1f} s", ""],
        [
            gpu["problem"],
            "H200, TF32 products",
            f"{gpu['tf32_seconds']:.1f} s",
            f"error {gpu['tf32_largest_error']:.0e}",
        ],
    ]
    title, words = (
        "## The exact spectrum of G, through its Gram matrix",
        "Beside 2,048 Lanczos steps, extrapolated from 256.",
    )
    return _section(title, words, ["gram-cpu", "gram-h200"], ["problem", "where", "time", "against Lanczos"], rows)


def _deepnets() -> str:
    rows = [
        [row["work"], f"{row['seconds']:.1f} s", f"{row['peak_gb']:.1f} GB" if "peak_gb" in row else ""]
        if "seconds" in row
        else [row["work"], f"{row['relative']:.1g} of the range", ""]
        for row in _record("deepnets-h200")["rows"]
    ]
    words = (
        "VGG11 with 28 million parameters and an eight-layer MLP of width 2048 on CIFAR-10. Trainings include reading "
        "the data; a density has 128 Lanczos steps over 5,000 images."
    )
    title = "## Figures of trained networks, piece by piece"
    return _section(title, words, ["deepnets-h200"], ["work", "time", "peak"], rows)


def _classes() -> str:
    records = {"classes-cpu": "two CPU cores", "classes-h200": "H200"}
    rows = [
        [row["problem"], where, f"{row['N']:,}", f"{row['gradients']:.1f} ({row['lowest']:.1f}-{row['highest']:.1f})"]
        for name, where in records.items()
        for row in _record(name)["rows"]
    ]
    title, words = "## All class and cross-class means", "In gradients over the same data."
    return _section(title, words, records, ["network", "where", "examples", "gradients"], rows)


def _lab() -> str:
    records = {"lab-cpu": "two CPU cores", "lab-h200": "H200"}
    rows = [
        [row["work"], where, f"{row['times faster']:.3g} ({row['range'][0]:.3g}-{row['range'][1]:.3g})", row["note"]]
        for name, where in records.items()
        for row in _record(name)["results"].values()
    ]
    title, words = "## Training many small networks", "Times faster than plain PyTorch, one by one."
    return _section(title, words, records, ["work", "where", "faster", "note"], rows)


def _own_data() -> str:
    rows = [
        [row["work"], f"{row['times']:.2f} ({row['range'][0]:.2f}-{row['range'][1]:.2f})"]
        for row in _record("own-data-cpu")["results"]
    ]
    words = "Time with data of its own for each network, over that with one set for all."
    return _section("### Data of their own", words, ["own-data-cpu"], ["work", "times as long"], rows)


def _imports() -> str:
    rows = [
        [f"`{row['start']}`", f"{row['ratio']:.2f}", f"{row['seconds']:.2f} s"]
        for row in _record("imports-cpu")["rows"]
    ]
    words = "In units of `import torch`."
    return _section("## Starting", words, ["imports-cpu"], ["start", "ratio", "time"], rows)


def _section(title: str, words: str, records: Iterable[str], headings: list[str], rows: list[list[str]]) -> str:
    """A table with where its numbers come from."""
    return "\n\n".join(filter(None, [title, words, " ".join(map(_origin, records)), _table(headings, rows)]))


def _record(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())


def _origin(name: str) -> str:
    """When, where, with what: as the record says, or git where it does not."""
    record = _record(name)
    machine = record.get("machine") or record.get("device") or f"{record.get('threads')} CPU threads"
    rows = record["rows"] if isinstance(record.get("rows"), list) else []  # of a Gram matrix, how many it has
    commits = sorted({row["commit"][:12] for row in rows if isinstance(row, dict) and "commit" in row})
    commits = commits or ([record["commit"]] if "commit" in record else [])
    date, commit = _git(name)
    return f"*{date}, {machine}, torch {record['torch']}, ritz at {', '.join(commits) or commit} (`{name}.json`).*"


def _git(name: str) -> list[str]:
    """The date and the commit at which the record was filed."""
    command = ["git", "log", "-1", "--format=%cs %h", "--", str(RESULTS / f"{name}.json")]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=RESULTS, check=False).stdout.split()
    return answer or ["not filed yet", "an unknown commit"]


def _ratio(values: list[float] | None) -> str:
    if values is None:
        return ""
    middle, low, high = values
    return f"{middle:.2f}" if low == high else f"{middle:.2f} ({low:.2f}-{high:.2f})"


def _millis(row: dict[str, Any]) -> str:
    seconds = next((value for name, value in row["seconds"].items() if name.startswith("ritz")), None)
    return "" if seconds is None else f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page())
