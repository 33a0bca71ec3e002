"""The exact spectrum of G through its Gram matrix, against what Lanczos takes to approximate it.

python -m benchmarks.gram                 MLP 784-512-512-10, 300 examples: at least 5 times faster than 2,048 steps
python -m benchmarks.gram --gpu           VGG11, 28M parameters, 1,360 examples: at most 75 s in float64, 20 s in TF32
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

import ritz
from ritz.factored.gram import Gram
from ritz.lab import models

Result = TypeVar("Result")
STEPS, MEASURED_STEPS = 2048, 256  # the rest is extrapolated: every step costs the same without a basis
AT_LEAST, AT_MOST, AT_MOST_TF32 = 5.0, 75.0, 20.0


def mlp() -> dict[str, Any]:
    """Both ways on two cores; three turns of each."""
    risk = _risk(models.mlp([784, 512, 512, 10], generator=_generator()), 300, (784,))
    G, start = ritz.gauss_newton(risk), torch.randn(risk.size, 1, generator=_generator())
    G @ start
    turns = []
    for _ in range(3):
        exact = _timed(lambda: ritz.gram_spectrum(risk))[1]
        lanczos = _timed(lambda: ritz.lanczos(G, start, MEASURED_STEPS, keep_basis=False))[1] * STEPS / MEASURED_STEPS
        turns.append((lanczos / exact, exact, lanczos))
    ratio, exact, lanczos = sorted(turns)[1]
    return {
        "problem": "MLP 784-512-512-10, 300 examples", "n": risk.size, "exact_seconds": exact,
        "lanczos_seconds": lanczos, "lanczos_steps": STEPS, "lanczos_steps_measured": MEASURED_STEPS,
        "times_faster": ratio, "at_least": AT_LEAST, "met": ratio >= AT_LEAST,
    }  # fmt: skip


def vgg11(num_examples: int = 1360) -> dict[str, Any]:
    """In float64, and in float32 with TF32 products, whose eigenvalues are held against the exact ones."""
    model = models.vgg11(generator=_generator()).eval().cuda()
    found: dict[str, Any] = {"problem": f"VGG11, {num_examples} examples", "device": torch.cuda.get_device_name()}
    values = {}
    for name, dtype, limit in (("tf32", torch.float32, AT_MOST_TF32), ("float64", torch.float64, AT_MOST)):
        risk = _risk(model, num_examples, (3, 32, 32), tangent_precision="high")
        torch.cuda.reset_peak_memory_stats()
        gram, matrix_seconds = _timed(lambda: Gram.of(risk, dtype=dtype))  # noqa: B023
        values[name], eigenvalue_seconds = _timed(gram.eigenvalues)
        total = matrix_seconds + eigenvalue_seconds
        found |= {f"{name}_matrix_seconds": matrix_seconds, f"{name}_eigenvalue_seconds": eigenvalue_seconds}
        found |= {f"{name}_seconds": total, f"{name}_at_most": limit, f"{name}_met": total <= limit}
        found |= {f"{name}_check": gram.error, f"{name}_peak_gb": torch.cuda.max_memory_allocated() / 1e9}
        found |= {"rows": len(gram.matrix), "n": risk.size}
        del gram
    difference = (values["tf32"] - values["float64"]).abs()
    found["tf32_largest_error"] = float(difference.max() / values["float64"][0])
    found["tf32_error_of_top_100"] = float((difference[:100] / values["float64"][:100]).max())
    return found


def _risk(model: nn.Module, count: int, shape: tuple[int, ...], **options: Any) -> ritz.Risk:
    device = next(model.parameters()).device
    x = torch.randn(count, *shape, generator=_generator()).to(device)
    y = (torch.arange(count) % 10).to(device)
    return ritz.Risk(model, nn.CrossEntropyLoss(), (x, y), **options)


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """What the work gives, and the seconds until the device has finished it."""
    synchronize = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    synchronize()
    started = time.perf_counter()
    result = work()
    synchronize()
    return result, time.perf_counter() - started


def main() -> None:
    """Print, and with --out write, what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--examples", type=int, default=1360)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    found = vgg11(arguments.examples) if arguments.gpu else mlp()
    found |= {"torch": torch.__version__, "python": platform.python_version(), "threads": torch.get_num_threads()}
    text = json.dumps(found, indent=2)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
