"""Eigenpairs in mixed precision against float32 alone, on a GPU: times, products of either kind, and residuals.

    python -m benchmarks.mixed [vgg11] [vit] [gpt2] [--out FILE]

Both begin with an operator that has made its first products of both kinds, and take turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

import ritz

from . import resumable
from .networks import gpt2_problem, vit_problem
from .problems import Problem, mlp_problem, vgg_problem
from .timing import clear_memory, machine, seconds, timed

NUM_PAIRS, TOLERANCE, REPETITIONS = 10, 1e-4, 5  # of single products
PROBLEMS: dict[str, Callable[..., Problem]] = {"vgg11": vgg_problem, "vit": vit_problem, "gpt2": gpt2_problem}
SMOKE: dict[str, Callable[..., Problem]] = {
    "vgg11": mlp_problem,
    "vit": partial(vit_problem, smoke=True),
    "gpt2": partial(gpt2_problem, smoke=True),
}


def measure(problem: Problem, device: torch.device, repetitions: int) -> dict[str, Any]:
    """One network: its two kinds of products, then eigenpairs by turns."""
    H = _hessian(problem, device)
    v = torch.randn(H.size, device=device, generator=torch.Generator(device).manual_seed(2))
    rough = H.rough
    assert rough is not None, "this device has no TF32"
    error = float((rough @ v - H @ v).norm() / (H @ v).norm())
    facts = {
        "n": H.size,
        "rough_error": error,
        "product_seconds": _product_seconds(H, v, device),
        "rough_product_seconds": _product_seconds(rough, v, device),
    }
    runs: dict[str, list[dict[str, Any]]] = {"own": [], "mixed": []}
    for _ in range(repetitions):
        for precision in runs:
            runs[precision].append(_run(H, precision, device))
            print(problem.name, precision, runs[precision][-1], flush=True)
    medians = {name: statistics.median(run["seconds"] for run in each) for name, each in runs.items()}
    return {**facts, "runs": runs, "ratio": medians["mixed"] / medians["own"]}


def _hessian(problem: Problem, device: torch.device) -> ritz.Operator:
    H = ritz.hessian(ritz.Risk(problem.model, ritz.CrossEntropy(), problem.batches))
    if device.type == "cuda":
        return H
    return replace(H, rough=replace(H, matmat=lambda V: H.matmat(V + 1e-3 * V.roll(1, 0))))


def _product_seconds(A: ritz.Operator, v: torch.Tensor, device: torch.device) -> float:
    return statistics.median(seconds(lambda: A @ v, device) for _ in range(REPETITIONS))


def _run(H: ritz.Operator, precision: str, device: torch.device) -> dict[str, Any]:
    pairs, taken = timed(lambda: ritz.eigenpairs(H, NUM_PAIRS, tolerance=TOLERANCE, precision=precision), device)
    return {
        "seconds": taken, "products": pairs.num_products, "rough": pairs.num_rough_products,
        "converged": bool(pairs.converged.all()),
        "values": pairs.values.tolist(), "residuals": pairs.residuals.tolist(),
        "true_residuals": [
            float((H @ x - value * x).norm()) for x, value in zip(pairs.vectors.T.clone(), pairs.values, strict=True)
        ],
    }  # fmt: skip


def main() -> None:
    """Measure, print and write."""
    parser = resumable.parser(__doc__)
    parser.add_argument("problems", nargs="*", help=f"any of {', '.join(PROBLEMS)}")
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--smoke", action="store_true", help="tiny networks on the CPU: does it run?")
    options = parser.parse_args()
    device = torch.device("cpu" if options.smoke else "cuda")
    torch.set_float32_matmul_precision("highest")
    results = resumable.Results(options.out, machine(device))
    for name in options.problems or PROBLEMS:
        if not results.has(name, "eigenpairs"):
            clear_memory(device)
            torch.manual_seed(0)
            problem = (SMOKE if options.smoke else PROBLEMS)[name](device)
            facts = measure(problem, device, options.repetitions)
            results.add({"model": name, "work": "eigenpairs", "data": problem.name, "commit": options.commit, **facts})


if __name__ == "__main__":
    main()
