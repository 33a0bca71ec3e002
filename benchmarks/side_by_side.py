"""One job in four libraries, as their documentation does it: five eigenvalues and the trace of a Hessian.

    python -m benchmarks.side_by_side           # measures, and writes benchmarks/results/side-by-side.json
    python -m benchmarks.side_by_side --page    # writes code and numbers into the pages docs/coming-from

The network is the one that `ritz new` writes, in float32; the truth is its dense Hessian in float64 by torch.func.
All of these methods are random, so that one run says little: errors are root mean squares over runs.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import json
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ritz.cli.starter import train
from ritz.lab.data import digits
from ritz.record import provenance

RECORD = Path(__file__).parent / "results" / "side-by-side.json"
PAGES = Path(__file__).parents[1] / "docs" / "coming-from"
RUNS = 15
SETTINGS = {
    "unequal batches": "1,438 examples in batches of 200, the last of 38",
    "ignored labels": "the same, with more and more labels -100, which do not count",
}
ERRORS = {"eigenvalue_error": "worst of five eigenvalues", "trace_error": "trace"}
SOURCE = ", **source"  # where a library takes its random numbers from; left out on the pages


def with_ritz(model, loss, loader, **source):
    import ritz

    H = ritz.hessian(ritz.Risk(model, loss, loader))
    pairs = ritz.eigenpairs(H, 5, **source)
    mean = ritz.trace(H, num_products=99, **source)
    return pairs.values, mean.value


def with_pyhessian(model, loss, loader, **_):
    from pyhessian import hessian

    H = hessian(model, loss, dataloader=loader, cuda=False)
    values, _ = H.eigenvalues(top_n=5)
    samples = H.trace()
    mean = sum(samples) / len(samples)
    return values, mean


def with_curvlinops(model, loss, loader, **_):
    from curvlinops import HessianLinearOperator, hutchpp_trace
    from scipy.sparse.linalg import eigsh

    H = HessianLinearOperator(model, loss, list(model.parameters()), loader)
    values, _ = eigsh(H.to_scipy(), k=5, which="LA")
    mean = hutchpp_trace(H, 99)
    return values[::-1].copy(), mean


def with_hessian_eigenthings(model, loss, loader, **source):
    from hessian_eigenthings import HessianOperator, lanczos, supervised_loss, trace

    H = HessianOperator(model, loader, supervised_loss(loss))
    pairs = lanczos(H, k=5, which="LA", **source)
    mean = trace(H, num_matvecs=99, **source)
    return pairs.eigenvalues, mean.estimate


JOBS = {
    "ritz": with_ritz,
    "PyHessian": with_pyhessian,
    "curvlinops": with_curvlinops,
    "hessian-eigenthings": with_hessian_eigenthings,
}


def problem(setting: str) -> tuple[nn.Module, nn.Module, list[tuple[torch.Tensor, torch.Tensor]]]:
    """The model, the loss, the batches."""
    x, y = digits(generator=torch.Generator().manual_seed(0)).train
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    train(model, x, y)
    model.zero_grad()
    if setting == "ignored labels":
        rows = torch.arange(len(y))
        y = torch.where(rows % 10 < rows // 200, -100, y)  # none of ten in the first batch, seven in the last
    return model.eval(), nn.CrossEntropyLoss(), list(zip(x.split(200), y.split(200), strict=True))


def truth(model: nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """All eigenvalues, of the dense Hessian in float64 by torch.func alone, largest first."""
    x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    sizes = [p.shape for p in model.parameters()]
    names = [name for name, _ in model.named_parameters()]
    theta = torch.cat([p.detach().double().reshape(-1) for p in model.parameters()])

    def risk(vector: torch.Tensor) -> torch.Tensor:
        parts = vector.split([size.numel() for size in sizes])
        values = {name: part.reshape(size) for name, part, size in zip(names, parts, sizes, strict=True)}
        return nn.functional.cross_entropy(torch.func.functional_call(model, values, x.double()), y)

    dense = torch.func.jacrev(torch.func.grad(risk), chunk_size=64)(theta)
    return torch.linalg.eigvalsh(dense).flip(0)


def measured(setting: str, library: str, exact: torch.Tensor) -> dict[str, Any]:
    """Root mean squares over runs: worst relative error of five eigenvalues, relative error of the trace."""
    try:
        runs = torch.tensor([errors(setting, library, exact, seed) for seed in range(RUNS)], dtype=torch.float64)
    except Exception as error:
        return {"failure": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
    return dict(zip(ERRORS, runs.square().mean(0).sqrt().tolist(), strict=True))


def errors(setting: str, library: str, exact: torch.Tensor, seed: int) -> tuple[float, float]:
    """The errors of one run: of the worst of five eigenvalues, and of the trace."""
    job = problem(setting)  # which has a seed of its own
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        values, trace = JOBS[library](*job, **source(library, seed))
    values = torch.as_tensor(values, dtype=torch.float64)
    worst = ((values - exact[:5]).abs() / exact[:5]).max()
    return float(worst), abs(float(trace) - float(exact.sum())) / float(exact.sum())


def source(library: str, seed: int) -> dict[str, Any]:
    """Random numbers of a library's own; the others draw from those of PyTorch and NumPy."""
    own = {"ritz": {"generator": torch.Generator().manual_seed(seed)}, "hessian-eigenthings": {"seed": seed}}
    return own.get(library, {})


def write_record() -> None:
    """Measure everything, and write it."""
    rows = []
    for setting in SETTINGS:
        model, _, batches = problem(setting)
        exact = truth(model, batches)
        for library in JOBS:
            rows.append({"setting": setting, "library": library, **measured(setting, library, exact)})
            print(rows[-1], flush=True)
    origin = provenance(torch.device("cpu"))
    threads = torch.get_num_threads()
    machine = f"{threads} CPU thread{'s' * (threads != 1)}"
    facts = {"date": datetime.now(UTC).date().isoformat(), "machine": machine, "runs": RUNS}
    facts |= {key: origin.get(key) for key in ("commit", "torch", "python") if origin.get(key)}
    RECORD.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")


def code(library: str) -> str:
    """What one types: the body of the job, without what only this file needs."""
    lines = inspect.getsource(JOBS[library]).splitlines()[1:]
    shown = [line.replace(SOURCE, "") for line in lines if not line.strip().startswith("return")]
    return inspect.cleandoc("\n".join(shown)).strip()


def table(record: dict[str, Any], library: str) -> str:
    """The measured rows of ritz and one other library, as Markdown."""
    lines = [f"| error of | data | ritz | {library} |", "|---|---|---|---|"]
    for setting, words in SETTINGS.items():
        rows = {row["library"]: row for row in record["rows"] if row["setting"] == setting}
        pair = [rows["ritz"], rows[library]]
        for key, what in ERRORS.items():
            lines.append(f"| {what} | {words} | " + " | ".join(_percent(row, key) for row in pair) + " |")
    return "\n".join(lines)


def _percent(row: dict[str, Any], key: str) -> str:
    if key not in row:
        return f"fails: {row['failure'].replace('|', '')[:80]}"
    error = 100 * row[key]
    return f"{error:.2g}\u00a0%" if error >= 0.01 else "below 0.01\u00a0%"


def write_pages() -> None:
    """Put the code that ran, and what it gave, into the pages."""
    record = json.loads(RECORD.read_text())
    for library in JOBS:
        path = PAGES / f"{library.lower()}.md"
        if path.exists():
            path.write_text(page(path.read_text(), library, record))


def page(text: str, library: str, record: dict[str, Any]) -> str:
    """The text with code and numbers between its marks."""
    programs = "\n\n".join(f"```python\n# {name}\n{code(name)}\n```" for name in (library, "ritz"))
    origin = f"{record['date']}, {record['machine']}, torch {record['torch']}, ritz at {record['commit'][:12]}"
    numbers = f"""{table(record, library)}

A trained classifier with 2,410 parameters. Errors are relative to the dense Hessian in float64: root mean squares over
{record["runs"]} runs, each with other random numbers. Measured by `python -m benchmarks.side_by_side` on {origin}."""
    return between("measured", numbers, between("code", programs, text))


def between(mark: str, content: str, text: str) -> str:
    """The text with other content between two marks."""
    before, _, after = text.split(f"<!-- {mark} -->")
    return f"{before}<!-- {mark} -->\n\n{content}\n\n<!-- {mark} -->{after}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", action="store_true", help="write the pages from the record, measure nothing")
    write_pages() if parser.parse_args().page else write_record()
